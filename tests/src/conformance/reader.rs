//! Reads beside the writer: order, pages, filters, counters, and what a batch says it changed.

use windlass_core::store::{Admin, Cursor, Filter, Heartbeat, Page, Purge, Reader, Settle};
use windlass_core::{
    Counts, Excerpt, Job, JobId, Kind, LeaseLength, Millis, NewJob, QueueRow, StateName, View,
    Wall, When,
};

use crate::fixture::{
    Subject, World, announced, claim_for, complete, delay, demand_for, fail, fail_for_good,
    keep_all_for, key, keyed, kind, main_work, priority, queue, reap_up_to, retries, work, work_at,
    work_in, work_of,
};

fn ids(jobs: &[Job]) -> Vec<JobId> {
    jobs.iter().map(|job| job.id).collect()
}

fn page<S: Subject>(
    world: &mut World<S>,
    filter: &Filter,
    after: Option<Cursor>,
    limit: usize,
) -> Page {
    world.reader().list(filter, after, limit).expect("a healthy store can be read")
}

/// All pages of a list, one behind the other.
#[track_caller]
fn all<S: Subject>(world: &mut World<S>, filter: &Filter, limit: usize) -> Vec<JobId> {
    let (mut found, mut after) = (Vec::new(), None);
    for _ in 0..100 {
        let page = page(world, filter, after, limit);
        assert!(page.jobs.len() <= limit, "a page is no larger than it may be");
        found.extend(ids(&page.jobs));
        if page.next.is_none() {
            return found;
        }
        after = page.next;
    }
    panic!("the pages of {filter:?} do not end")
}

fn in_view(view: View) -> Filter {
    Filter { view: Some(view), ..Filter::default() }
}

fn scheduled(wait: Millis) -> NewJob {
    NewJob { when: When::After(delay(wait)), ..work() }
}

/// Lists a view in pages of every size; the newest must come first.
#[track_caller]
fn assert_listed<S: Subject>(world: &mut World<S>, filter: &Filter, newest_first: &[JobId]) {
    for limit in 1..=newest_first.len() + 1 {
        assert_eq!(all(world, filter, limit), newest_first, "pages of {limit}");
    }
}

// Jobs.

pub fn jobs_come_in_the_order_they_were_asked_for_with_gaps<S: Subject>() {
    let mut world = World::<S>::new();
    let first = world.enqueue(work());
    let second = world.done(work_of("other"));
    let unknown = second.plus(1_000);
    let asked = [second, unknown, first, second];
    let found = world.reader().jobs(&asked).expect("a healthy store can be read");
    let found: Vec<Option<JobId>> =
        found.into_iter().map(|row| row.map(|row| row.job.id)).collect();
    assert_eq!(found, [Some(second), None, Some(first), Some(second)]);
    assert_eq!(world.reader().jobs(&[]), Ok(vec![]));
}

pub fn a_reader_made_earlier_sees_what_was_committed_since<S: Subject>() {
    let mut world = World::<S>::new();
    let mut reader = world.reader();
    let id = world.enqueue(work());
    let found = reader.jobs(&[id]).expect("a healthy store can be read");
    assert!(found[0].is_some());
    world.admin(Admin::Cancel(id)).expect("a waiting job can be cancelled");
    let found = reader.jobs(&[id]).expect("a healthy store can be read").remove(0);
    assert_eq!(found.map(|row| row.job.state.name()), Some(StateName::Cancelled));
}

// Lists.

pub fn all_jobs_are_listed_by_id_the_newest_first<S: Subject>() {
    let mut world = World::<S>::alone();
    let first = world.enqueue(work());
    let second = world.cancelled(work());
    let third = world.done(work_of("other"));
    let fourth = world.enqueue(scheduled(Millis::hours(1)));
    assert_listed(&mut world, &Filter::default(), &[fourth, third, second, first]);
}

pub fn waiting_jobs_are_listed_by_when_they_are_due_the_latest_first<S: Subject>() {
    let mut world = World::<S>::alone();
    let far = world.enqueue(scheduled(Millis::seconds(30)));
    let near = world.enqueue(scheduled(Millis::seconds(10)));
    let same = world.enqueue(scheduled(Millis::seconds(10)));
    let urgent = world.enqueue(work_at(1));
    world.advance(Millis::seconds(1));
    let elsewhere = world.enqueue(work_in("other"));
    assert_listed(&mut world, &in_view(View::Scheduled), &[far, same, near]);
    assert_listed(&mut world, &in_view(View::Queued), &[elsewhere, urgent]);
    world.advance(Millis::seconds(29));
    assert_eq!(world.promote(2).count, 2);
    assert_listed(&mut world, &in_view(View::Queued), &[same, near, elsewhere, urgent]);
    assert_listed(&mut world, &in_view(View::Scheduled), &[far]);
}

pub fn running_jobs_are_listed_by_the_end_of_their_lease_the_latest_first<S: Subject>() {
    let mut world = World::<S>::alone();
    let tokens = ["w2", "w1", "w3"].map(|name| world.running_by(name, work()).job.token());
    let [first, second, third] = tokens.map(|token| token.job);
    world.advance(Millis::seconds(1));
    world.heartbeat(tokens[0], None).expect("the heartbeat of the holder counts");
    assert_listed(&mut world, &in_view(View::Processing), &[first, third, second]);
}

pub fn finished_jobs_are_listed_by_when_they_finished_the_latest_first<S: Subject>() {
    let mut world = World::<S>::alone();
    let views = [View::Done, View::Failed, View::Cancelled];
    for view in views {
        let tokens = [(); 4].map(|()| world.running(work()).job.token());
        // The third ends first, the first and the second at one instant, the fourth last.
        for round in [&[2][..], &[0, 1], &[3]] {
            for at in round {
                let token = tokens[*at];
                match view {
                    View::Done => world.settle(token, complete()).is_ok(),
                    View::Failed => world.settle(token, fail_for_good("x")).is_ok(),
                    _ => world.admin(Admin::Cancel(token.job)).is_ok(),
                };
            }
            world.advance(Millis::seconds(1));
        }
        let [a, b, c, d] = tokens.map(|token| token.job);
        assert_listed(&mut world, &in_view(view), &[d, b, a, c]);
    }
}

pub fn a_list_holds_the_jobs_of_its_queue_and_kind_only<S: Subject>() {
    let mut world = World::<S>::alone();
    let both = |name: &str, of: &str| NewJob { kind: kind(of), ..work_in(name) };
    let make = |world: &mut World<S>, view: View, new: NewJob| match view {
        View::Queued => world.enqueue(new),
        View::Scheduled => world.enqueue(NewJob { when: scheduled(Millis::days(1)).when, ..new }),
        View::Processing => world.running(new).job.id,
        View::Done => world.done(new),
        View::Failed => world.dead(new, "broken"),
        View::Cancelled => world.cancelled(new),
    };
    // Ready ones come last, so that none of them is claimed in place of another.
    for view in View::ALL.into_iter().rev() {
        let here = make(&mut world, view, both("one", "a"));
        let kin = make(&mut world, view, both("two", "a"));
        let near = make(&mut world, view, both("one", "b"));
        let of = |name: Option<&str>, of: Option<&str>| Filter {
            view: Some(view),
            queue: name.map(queue),
            kind: of.map(kind),
            ..Filter::default()
        };
        assert_listed(&mut world, &of(None, None), &[near, kin, here]);
        assert_listed(&mut world, &of(Some("one"), None), &[near, here]);
        assert_listed(&mut world, &of(None, Some("a")), &[kin, here]);
        assert_listed(&mut world, &of(Some("one"), Some("a")), &[here]);
        assert_listed(&mut world, &of(Some("two"), Some("b")), &[]);
        assert_listed(&mut world, &of(Some("unknown"), None), &[]);
        assert_listed(&mut world, &of(None, Some("unknown")), &[]);
    }
}

pub fn jobs_that_come_between_two_pages_move_nothing<S: Subject>() {
    let mut world = World::<S>::alone();
    let old = [(); 4].map(|()| world.enqueue(work()));
    for filter in [Filter::default(), in_view(View::Queued)] {
        let first = page(&mut world, &filter, None, 2);
        world.advance(Millis::seconds(1));
        world.enqueue(work());
        let mut found = ids(&first.jobs);
        let mut after = first.next;
        while after.is_some() {
            let next = page(&mut world, &filter, after, 2);
            found.extend(ids(&next.jobs));
            after = next.next;
        }
        let seen = old.iter().rev().filter(|id| found.contains(id)).count();
        let mut each = found.clone();
        each.dedup();
        assert_eq!((seen, &each), (4, &found), "none is skipped and none comes twice");
        assert!(found.is_sorted_by(|a, b| a > b), "newest first: {found:?}");
    }
}

pub fn a_page_behind_a_job_that_has_left_the_list_goes_on_there<S: Subject>() {
    let mut world = World::<S>::alone();
    let [a, b, c] = [(); 3].map(|()| {
        world.advance(Millis::seconds(1));
        world.enqueue(work())
    });
    let filter = in_view(View::Queued);
    let first = page(&mut world, &filter, None, 1);
    assert_eq!(ids(&first.jobs), [c]);
    world.admin(Admin::Cancel(c)).expect("a waiting job can be cancelled");
    let rest = page(&mut world, &filter, first.next, 10);
    assert_eq!(ids(&rest.jobs), [b, a]);
}

/// Number of jobs that a filter has to leave out; no page may walk over them.
const OTHERS: usize = 10_010;

pub fn what_a_filter_includes_is_on_the_first_page_whatever_else_is_stored<S: Subject>() {
    let mut world = World::<S>::alone();
    let rare = NewJob { kind: kind("rare"), ..work_in("rare") };
    let waiting = NewJob { when: scheduled(Millis::days(1)).when, ..rare.clone() };
    let done = world.done(keyed("k", rare.clone()));
    let dead = world.dead(rare.clone(), "broken");
    let cancelled = world.cancelled(rare.clone());
    let later = world.enqueue(waiting);
    let running = world.running(rare.clone()).job.id;
    let ready = world.enqueue(rare);
    let of = |view| Filter { view, ..Filter::default() };
    world.load(|batch| batch.enqueues.extend(std::iter::repeat_n(work(), OTHERS)));
    let all = [ready, running, later, cancelled, dead, done];
    let cases: [(Option<View>, &[JobId]); 7] = [
        (None, &all),
        (Some(View::Queued), &[ready]),
        (Some(View::Scheduled), &[later]),
        (Some(View::Processing), &[running]),
        (Some(View::Done), &[done]),
        (Some(View::Failed), &[dead]),
        (Some(View::Cancelled), &[cancelled]),
    ];
    for (view, expected) in cases {
        let (queue, kind) = (Some(queue("rare")), Some(kind("rare")));
        for filter in [
            Filter { queue: queue.clone(), ..of(view) },
            Filter { kind: kind.clone(), ..of(view) },
            Filter { queue, kind, ..of(view) },
        ] {
            let first = page(&mut world, &filter, None, 10);
            assert_eq!((ids(&first.jobs).as_slice(), first.next), (expected, None), "{filter:?}");
        }
    }
    let named = [
        Filter { key: Some(key("k")), ..Filter::default() },
        Filter { key: Some(key("k")), ..of(Some(View::Done)) },
        Filter { id: Some(done), queue: Some(queue("rare")), ..Filter::default() },
        Filter { id: Some(done), ..of(Some(View::Done)) },
    ];
    for filter in named {
        let first = page(&mut world, &filter, None, 10);
        assert_eq!((ids(&first.jobs), first.next), (vec![done], None), "{filter:?}");
        let elsewhere = Filter { queue: Some(queue("main")), ..filter };
        assert_eq!(page(&mut world, &elsewhere, None, 10), Page::default(), "{elsewhere:?}");
    }
}

pub fn a_page_of_a_list_without_filter_is_as_long_as_asked_for<S: Subject>() {
    let mut world = World::<S>::alone();
    let made = [(); 3].map(|()| world.enqueue(work()));
    let whole = page(&mut world, &Filter::default(), None, 3);
    assert_eq!(ids(&whole.jobs), [made[2], made[1], made[0]]);
    let first = page(&mut world, &Filter::default(), None, 2);
    assert_eq!(first.jobs.len(), 2);
    assert_eq!(first.next.map(|next| next.id), Some(made[1]), "the next starts behind the last");
    let empty = page(&mut world, &in_view(View::Done), None, 2);
    assert_eq!(empty, Page::default());
}

// Queues.

pub fn the_oldest_ready_job_of_a_queue_is_the_one_due_the_longest<S: Subject>() {
    let mut world = World::<S>::new();
    let oldest = |world: &mut World<S>| -> Option<Wall> {
        world.reader().oldest_ready(&queue("q")).expect("a healthy store can be read")
    };
    assert_eq!(oldest(&mut world), None, "the queue does not exist");
    let start = world.now();
    let wait = When::After(delay(Millis::seconds(10)));
    world.enqueue(NewJob { when: wait, ..work_in("q") });
    assert_eq!(oldest(&mut world), None, "a scheduled job is not ready");
    world.advance(Millis::seconds(20));
    let now = world.now();
    world.enqueue(NewJob { priority: priority(9), ..work_in("q") });
    world.enqueue(work_in("other"));
    assert_eq!(oldest(&mut world), Some(now));
    world.promote(10);
    let due = start.plus(Millis::seconds(10));
    assert_eq!(oldest(&mut world), Some(due), "neither priority nor age of the row counts");
    world.admin(Admin::pause(queue("q"))).expect("a queue can be paused");
    assert_eq!(oldest(&mut world), Some(due), "a paused queue keeps its jobs waiting");
    world.admin(Admin::Resume(queue("q"))).expect("a queue can be resumed");
    let demand = demand_for(&work_in("q"));
    assert_eq!(world.claim(demand.clone(), "w1", 1)[0].job.run_at, now, "by priority");
    assert_eq!(oldest(&mut world), Some(due));
    assert_eq!(world.claim(demand, "w1", 1).len(), 1);
    assert_eq!(oldest(&mut world), None);
}

pub fn the_counters_of_a_queue_tell_where_its_jobs_are<S: Subject>() {
    let mut world = World::<S>::new();
    let row = |world: &mut World<S>| -> Option<QueueRow> {
        world.reader().queue(&queue("q")).expect("a healthy store can be read")
    };
    let of = |name: &str| NewJob { kind: kind(name), ..work_in("q") };
    assert_eq!(row(&mut world), None);
    let done = world.done(of("a"));
    world.running(of("a"));
    world.dead(of("b"), "broken");
    world.cancelled(of("b"));
    world.enqueue(of("a"));
    world.enqueue(of("a"));
    world.enqueue(NewJob { when: scheduled(Millis::days(1)).when, ..of("b") });
    let found = row(&mut world).expect("the queue exists");
    let (a, b) = (Counts::new([2, 0, 1, 1, 0, 0]), Counts::new([0, 1, 0, 0, 1, 1]));
    let expected: Vec<(Kind, Counts)> = vec![(kind("a"), a), (kind("b"), b)];
    assert_eq!(found.kinds, expected, "by kind, in the order of the views");
    assert_eq!(found.total(), Counts::new([2, 1, 1, 1, 1, 1]));
    world.reopen();
    assert_eq!(row(&mut world), Some(found), "counters survive a crash");
    world.admin(Admin::Delete(done)).expect("a finished job can be deleted");
    let found = row(&mut world).expect("the queue exists");
    assert_eq!(found.kinds[0].1, Counts::new([2, 0, 1, 0, 0, 0]));
}

pub fn jobs_that_wait_for_another_attempt_are_counted_until_they_start<S: Subject>() {
    let mut world = World::<S>::new();
    let retrying = |world: &mut World<S>| {
        let row = world.reader().queue(&queue("main")).expect("a healthy store can be read");
        row.expect("the queue exists").total().retrying()
    };
    let job = world.running(work()).job;
    assert_eq!(retrying(&mut world), 0, "a first attempt is none");
    world.settle(job.token(), fail("x")).expect("it is held");
    let waiting = world.job(job.id).run_at;
    assert_eq!(retrying(&mut world), 1, "scheduled");
    world.reopen();
    assert_eq!(retrying(&mut world), 1, "counters survive a crash");
    world.advance(waiting.since(world.now()));
    world.commit(|batch| batch.promote = Some(10));
    assert_eq!(retrying(&mut world), 1, "queued");
    let again = world.claim(main_work(), "w1", 1).remove(0).job;
    assert_eq!(retrying(&mut world), 0, "it runs");
    world.settle(again.token(), fail("x")).expect("it is held");
    world.admin(Admin::Cancel(job.id)).expect("a waiting job can be cancelled");
    assert_eq!(retrying(&mut world), 0, "it is cancelled");
    world.admin(Admin::Replay(job.id)).expect("a cancelled job can be replayed");
    assert_eq!(retrying(&mut world), 0, "its attempts begin again");
}

pub fn a_queue_whose_last_job_is_gone_stays_without_kinds<S: Subject>() {
    let mut world = World::<S>::new();
    let id = world.done(work_in("q"));
    world.admin(Admin::Delete(id)).expect("a finished job can be deleted");
    let row = world.reader().queue(&queue("q")).expect("a healthy store can be read");
    assert_eq!(row.map(|row| row.kinds), Some(vec![]));
}

// Attempts, and changes.

pub fn attempts_are_listed_oldest_first_and_of_one_job_only<S: Subject>() {
    let mut world = World::<S>::new();
    let id = world.enqueue(work());
    world.dead(work_in("other"), "another job's trouble");
    for error in ["first", "second", "third"] {
        let token = world.claim_one("w1").job.token();
        world.settle(token, fail(error)).expect("the holder reports");
        world.advance(Millis::hours(1));
        world.promote(10);
    }
    let attempts = world.attempts(id);
    let errors = attempts.iter().filter_map(|attempt| attempt.error.as_ref());
    let errors: Vec<&str> = errors.map(Excerpt::as_str).collect();
    assert_eq!(errors, ["first", "second", "third"]);
}

pub fn every_change_of_state_is_reported_exactly_once<S: Subject>() {
    let mut world = World::<S>::alone();
    let purged = world.done(work_of("purged"));
    world.advance(Millis::hours(1));
    let reaped = world.running(work_of("reaped")).job.id;
    let last = NewJob { max_retries: Some(retries(0)), ..work_of("given-up") };
    let given_up = world.running(last).job.id;
    world.advance(LeaseLength::DEFAULT.millis());
    let settled = world.running(work_of("settled")).job.token();
    let extended = world.running(work_of("extended")).job.token();
    let retried = world.running(work_of("retried")).job.token();
    let replayed = world.dead(work_of("replayed"), "broken");
    let deleted = world.cancelled(work_of("deleted"));
    let cancelled = world.enqueue(work_of("cancelled"));
    let refused = world.done(work_of("refused"));
    let claimed = work_of("claimed");
    let out = world.commit(|batch| {
        batch.settles.push(Settle { token: settled, verdict: complete() });
        batch.settles.push(Settle { token: retried, verdict: fail("once") });
        batch.heartbeats.push(Heartbeat { token: extended, extend: None, progress: None });
        batch.admin.extend([Admin::Replay(replayed), Admin::Delete(deleted)]);
        batch.admin.extend([Admin::Cancel(cancelled), Admin::Cancel(refused)]);
        batch.admin.push(Admin::SeeWorker(announced("w1")));
        batch.enqueues.extend([work_of("new"), claimed.clone()]);
        batch.reap = Some(reap_up_to(10));
        batch.promote = Some(10);
        let retention = keep_all_for(Millis::hours(1));
        batch.purge = Some(Purge { retention, limit: 10 });
        batch.claims.push(claim_for(demand_for(&claimed), "w1", 1));
    });
    let new = refused.plus(1);
    let expected = [
        (purged, "purged", Some(StateName::Done), None),
        (reaped, "reaped", Some(StateName::Processing), Some(StateName::Queued)),
        (given_up, "given-up", Some(StateName::Processing), Some(StateName::Failed)),
        (settled.job, "settled", Some(StateName::Processing), Some(StateName::Done)),
        (retried.job, "retried", Some(StateName::Processing), Some(StateName::Queued)),
        (replayed, "replayed", Some(StateName::Failed), Some(StateName::Queued)),
        (deleted, "deleted", Some(StateName::Cancelled), None),
        (cancelled, "cancelled", Some(StateName::Queued), Some(StateName::Cancelled)),
        (new, "new", None, Some(StateName::Queued)),
        (new.plus(1), "claimed", None, Some(StateName::Processing)),
    ];
    let expected = expected.map(|(id, name, from, to)| (id, queue("main"), kind(name), from, to));
    let changes = out.changes.into_iter();
    let changes =
        changes.map(|change| (change.id, change.queue, change.kind, change.from, change.to));
    assert_eq!(changes.collect::<Vec<_>>(), expected);
}
