//! The rules of bulk actions: pace, canary, end; and their bytes.

use alloc::boxed::Box;
use alloc::vec;

use super::*;
use crate::search::{Conditions, Pointer};
use crate::{GroupId, IdempotencyKey, JobsPerSecond, Kind, QueueName, View, WorkerId};

fn at(millis: i64) -> Wall {
    Wall::new(millis)
}

fn id(number: u64) -> JobId {
    JobId::new(number).expect("an id")
}

fn per_s(number: u32) -> JobsPerSecond {
    JobsPerSecond::new(number).expect("within bounds")
}

fn terms() -> Terms {
    let view = Some(View::Failed);
    Terms {
        action: Action::Retry,
        target: Target::Filter(Filter { view, ..Filter::default() }),
        by: "ops".into(),
        of: 10,
        most: None,
        pace: None,
        canary: None,
    }
}

fn with_canary(count: u32, max_failed: u32) -> Bulk {
    let canary = Some(Canary { count, max_failed });
    Bulk::begin(BulkId(1), Terms { canary, ..terms() }, at(1_000))
}

#[test]
fn in_any_window_no_more_are_taken_than_a_second_and_the_window_allow() {
    for rate in [1, 3, 7, 50, 333, 5_000] {
        // Looked at often, seldom, and after a long pause.
        for every in [1, 7, 100, 999, 30_000] {
            let mut pace = Pace::new(per_s(rate), at(0));
            let mut taken: Vec<(i64, u64)> = Vec::new();
            for now in (0..100_000).step_by(every).map(at) {
                let room = pace.room(now);
                pace.take(room, now);
                taken.push((now.get(), room));
            }
            for (first, (from, _)) in taken.iter().enumerate() {
                let mut sum = 0;
                for (to, jobs) in taken[first..].iter().take(200) {
                    sum += jobs;
                    let window = u64::try_from(to - from).expect("it grows");
                    let most = u64::from(rate) + (u64::from(rate) * window).div_ceil(1_000);
                    assert!(sum <= most, "{sum} of at most {most} within {window} ms at {rate}/s");
                }
            }
        }
    }
}

#[test]
fn a_pace_that_is_looked_at_in_time_is_kept_to_the_job() {
    let mut pace = Pace::new(per_s(30), at(0));
    let (mut now, mut taken) = (at(0), 0);
    while now < at(60_000) {
        now = pace.next(now);
        let room = pace.room(now);
        assert!(room > 0, "at the time it names, there is room");
        pace.take(room, now);
        taken += room;
    }
    assert!((1_798..=1_806).contains(&taken), "{taken} in a minute at 30/s");
}

#[test]
fn a_clock_that_is_set_back_stops_no_bulk_action() {
    let pace = Some(Pace::new(per_s(1), at(0)));
    let mut bulk = Bulk::begin(BulkId(1), Terms { pace, ..terms() }, at(10_000_000));
    bulk.take(&[id(1)], 0, None, at(10_000_000));
    assert!(bulk.note_clock(at(0)), "it notices");
    assert_eq!(bulk.next_step(at(0)), Some(at(1_000)));
    assert_eq!(bulk.room(at(1_000)), 1);
}

#[test]
fn a_canary_releases_no_more_than_its_count_and_goes_on_when_enough_have_passed() {
    let mut bulk = with_canary(2, 1);
    assert_eq!((bulk.state, bulk.room(at(1_000))), (BulkState::Canary, 2));
    bulk.take(&[id(7), id(5)], 0, None, at(1_000));
    assert!(bulk.awaits_verdicts() && bulk.room(at(1_000)) == 0);
    assert_eq!(bulk.next_step(at(1_001)), Some(at(1_500)));
    assert!(!bulk.judge(|_| Some(StateName::Processing)), "nothing has changed");
    let one = |job| Some(if job == id(5) { StateName::Failed } else { StateName::Queued });
    assert!(bulk.judge(one));
    assert_eq!((bulk.verdicts.failed, bulk.state), (1, BulkState::Canary));
    assert!(bulk.judge(|_| Some(StateName::Done)));
    assert_eq!((bulk.verdicts.passed, bulk.state), (1, BulkState::Running));
    assert_eq!(bulk.room(at(1_500)), PAGE_ROWS);
}

#[test]
fn a_canary_holds_as_soon_as_too_many_failed_and_goes_on_when_continued() {
    let mut bulk = with_canary(3, 0);
    bulk.take(&[id(1), id(2), id(3)], 0, None, at(1_000));
    let gone = |job| (job != id(2)).then_some(StateName::Queued);
    assert!(bulk.judge(gone), "one that is gone has not passed");
    assert_eq!((bulk.state, bulk.next_step(at(2_000))), (BulkState::Held, None));
    assert_eq!(bulk.room(at(2_000)), 0);
    assert_eq!(bulk.resume(at(2_000)), Ok(()));
    assert_eq!((bulk.state, bulk.next_step(at(2_000))), (BulkState::Running, Some(at(2_000))));
    assert_eq!(bulk.resume(at(2_000)), Err(BulkRefused::NotHeld(BulkState::Running)));
    assert_eq!(bulk.stop(at(3_000)), Ok(()));
    assert_eq!((bulk.room(at(3_000)), bulk.next_step(at(3_000))), (0, None));
    assert_eq!(bulk.stop(at(3_000)), Err(BulkRefused::Ended(BulkState::Stopped)));
}

#[test]
fn a_canary_of_more_jobs_than_there_are_is_judged_by_those_there_are() {
    let mut bulk = with_canary(5, 0);
    bulk.take(&[id(1)], 0, None, at(1_000));
    bulk.end_of_list(at(1_000));
    assert!(bulk.awaits_verdicts());
    assert!(bulk.judge(|_| Some(StateName::Failed)));
    assert_eq!(bulk.state, BulkState::Held);
    let mut empty = with_canary(5, 0);
    empty.end_of_list(at(1_000));
    assert_eq!(empty.state, BulkState::Done);
}

#[test]
fn what_was_written_is_read_again_and_nothing_else_is_read() {
    let filter = Filter {
        view: Some(View::Scheduled),
        queue: QueueName::new("mail").ok(),
        kind: Kind::new("send").ok(),
        key: IdempotencyKey::new("k").ok(),
        id: Some(id(9)),
        group: Some(GroupId([3; 16])),
    };
    let pace = Some(Pace::new(per_s(7), at(3)));
    let (most, target) = (Some(3), Target::Filter(filter));
    let mut bulk = with_canary(300, 2);
    bulk.terms = Terms { target, most, pace, ..bulk.terms };
    bulk.take(&[id(300), id(4)], 1, Some(Cursor { at: at(-5), id: id(8) }), at(7));
    let mut named = with_canary(1, 1);
    named.terms.target = Target::Jobs(vec![id(1), id(1_000_000)]);
    named.stop(at(9)).expect("it has not ended");
    let mut searching = bulk.clone();
    searching.terms.target = Target::Search(Box::new(search()));
    for bulk in [bulk, named, searching] {
        let bytes = bulk.to_bytes();
        assert_eq!(Bulk::from_bytes(bulk.id, &bytes), Ok(bulk.clone()));
        for cut in 0..bytes.len() {
            assert!(Bulk::from_bytes(bulk.id, &bytes[..cut]).is_err(), "cut to {cut}");
        }
        let longer = [bytes.as_slice(), &[0]].concat();
        assert_eq!(Bulk::from_bytes(bulk.id, &longer), Err(BadBulk::Broken));
        let newer = [&[9], &bytes[1..]].concat();
        assert_eq!(Bulk::from_bytes(bulk.id, &newer), Err(BadBulk::Version(9)));
    }
}

/// A search with every condition.
fn search() -> Search {
    let worker = WorkerId::new("w").ok();
    Search {
        filter: Filter { view: Some(View::Failed), ..Filter::default() },
        queues: ["a", "b"].iter().filter_map(|name| QueueName::new(name).ok()).collect(),
        conditions: Conditions {
            from: Some(at(-1)),
            to: Some(at(5_000)),
            worker,
            attempts_min: Some(300),
            priority_min: Some(-7),
            error_contains: Some("timeout".into()),
            payload_contains: Some("é".into()),
            payload: Pointer::new("/user/id").ok().map(|at| (at, "9007199254740993001".into())),
        },
    }
}

#[test]
fn a_row_of_an_earlier_version_is_read_and_written_as_it_was() {
    let row = b"\x01\x05\x00\x01\x01\x04\x01\x04mail\x00\x00\x00\x00\x03ops\x0a\x00\x00\x00\
        \xe8\x03\x00\x00\x00\x00\x00\x00\x02\x04\x01\x01\x84\x03\x00\x00\x00\x00\x00\x00\x08\
        \x01\x00\x00\x00\x00";
    let bulk = Bulk::from_bytes(BulkId(3), row).expect("it was written by version 1");
    let filter = Filter {
        view: Some(View::Failed),
        queue: QueueName::new("mail").ok(),
        ..Filter::default()
    };
    let wanted = Bulk {
        id: BulkId(3),
        revision: 5,
        terms: Terms { target: Target::Filter(filter), ..terms() },
        as_of: at(1_000),
        state: BulkState::Running,
        done: 4,
        refused: 1,
        cursor: Some(Cursor { at: at(900), id: id(8) }),
        took: true,
        verdicts: Verdicts::default(),
        ended_at: None,
    };
    assert_eq!(bulk, wanted);
    assert_eq!(bulk.to_bytes(), row);
}

#[test]
fn a_search_is_of_the_second_version_only() {
    let target = Target::Search(Box::new(search()));
    let bulk = Bulk::begin(BulkId(1), Terms { target, ..terms() }, at(1_000));
    let mut bytes = bulk.to_bytes();
    assert_eq!(bytes[0], 2);
    bytes[0] = 1;
    assert_eq!(Bulk::from_bytes(BulkId(1), &bytes), Err(BadBulk::Broken));
}
