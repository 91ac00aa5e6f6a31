//! Bulk actions: which jobs, how many at once, when they hold and when they are over.

use windlass_core::bulk::{
    Action, Bulk, BulkRefused, BulkState, Canary, Pace, Step, Target, Terms, plan,
};
use windlass_core::limits::{BULK_BYTES, BULK_KEPT, BULK_LIVE};
use windlass_core::search::{Conditions, Pointer, Search};
use windlass_core::store::{Admin, AdminDone, AdminRefused, Filter, Next, Outcomes, Reader};
use windlass_core::{
    BulkId, Delay, JobId, JobsPerSecond, LeaseToken, Millis, NewJob, StateName, View, When,
};

use super::commit_idle;
use crate::fixture::*;

/// The case's jobs in this view, not those of the bystanders.
fn own(view: View) -> Target {
    let (queue, kind) = (Some(queue("main")), Some(kind("work")));
    Target::Filter(Filter { view: Some(view), queue, kind, ..Filter::default() })
}

/// An order without a pace and without a canary.
pub(super) fn terms(action: Action, target: Target) -> Terms {
    let (by, of) = ("ops".into(), 0);
    Terms { action, target, by, of, most: None, pace: None, canary: None }
}

pub(super) fn retry_dead() -> Terms {
    terms(Action::Retry, own(View::Failed))
}

fn paced(per_s: u32) -> Terms {
    let per_s = JobsPerSecond::new(per_s).expect("within bounds");
    Terms { pace: Some(Pace::new(per_s, START)), ..retry_dead() }
}

fn with_canary(count: u32, max_failed: u32) -> Terms {
    Terms { canary: Some(Canary { count, max_failed }), ..retry_dead() }
}

/// Makes this number of dead letters, a tick apart.
pub(super) fn dead_letters<S: Subject>(world: &mut World<S>, count: usize) -> Vec<JobId> {
    let one = |_| {
        world.advance(TICK);
        world.dead(work(), "boom")
    };
    (0..count).map(one).collect()
}

#[track_caller]
pub(super) fn start<S: Subject>(world: &mut World<S>, terms: Terms) -> BulkId {
    match world.admin(Admin::StartBulk(Box::new(terms))) {
        Ok(AdminDone::Bulk(bulk)) => bulk.id,
        other => panic!("the answer is the bulk action, not {other:?}"),
    }
}

/// Plans the next steps.
pub(super) fn planned<S: Subject>(world: &mut World<S>) -> Vec<Step> {
    plan(&mut world.reader()).expect("a healthy store can be read")
}

/// Plans the next steps and takes them.
fn step<S: Subject>(world: &mut World<S>) -> Outcomes {
    let steps = planned(world);
    world.commit(|batch| batch.bulk = steps)
}

#[track_caller]
pub(super) fn bulk<S: Subject>(world: &mut World<S>, id: BulkId) -> Bulk {
    let rows = world.reader().bulk().expect("a healthy store can be read");
    let row = rows.into_iter().find(|row| row.id == id).expect("it is kept");
    row.decode().expect("it can be read")
}

/// The jobs that a batch has released, by id.
fn released(out: &Outcomes) -> Vec<JobId> {
    let released = out.changes.iter().filter(|change| change.to == Some(StateName::Queued));
    released.map(|change| change.id).collect()
}

fn waiting<S: Subject>(world: &mut World<S>, ids: &[JobId]) -> usize {
    ids.iter().filter(|id| world.job(**id).state.name() == StateName::Queued).count()
}

pub fn dead_letters_of_a_filter_are_released_page_by_page_each_once<S: Subject>() {
    let mut world = World::<S>::new();
    let dead = dead_letters(&mut world, 7);
    let other = world.dead(work_of("other"), "boom");
    let id = start(&mut world, paced(3));
    let mut pages = Vec::new();
    for _ in 0..20 {
        world.advance(Millis::seconds(1));
        let page = released(&step(&mut world));
        pages.push(page);
        if bulk(&mut world, id).state == BulkState::Done {
            break;
        }
    }
    let mut all = pages.concat();
    all.sort();
    assert_eq!(all, dead, "each was released once, in {pages:?}");
    assert!(pages.iter().all(|page| page.len() <= 3), "{pages:?}");
    assert_eq!(world.job(other).state.name(), StateName::Failed);
    assert!(dead.iter().all(|id| world.job(*id).generation == 1));
    let over = bulk(&mut world, id);
    assert_eq!((over.done, over.refused, over.ended_at), (7, 0, Some(world.now())));
    commit_idle(&mut world, |batch| batch.bulk.clear());
    assert_eq!(planned(&mut world), []);
}

pub fn jobs_that_fail_after_the_start_are_not_part_of_it<S: Subject>() {
    let mut world = World::<S>::new();
    let dead = dead_letters(&mut world, 2);
    let id = start(&mut world, retry_dead());
    world.advance(TICK);
    let later = world.dead(work(), "boom");
    assert_eq!(released(&step(&mut world)), dead);
    // It fails again, and is listed before the cursor.
    world.advance(TICK);
    let token = world.claim_one("w1").job.token();
    world.settle(token, fail_for_good("again")).expect("the holder's verdict counts");
    let (out, dead) = (step(&mut world), token.job);
    assert_eq!(released(&out), []);
    for job in [later, dead] {
        assert_eq!(world.job(job).state.name(), StateName::Failed);
    }
    assert_eq!(bulk(&mut world, id).state, BulkState::Done);
}

pub fn a_page_is_taken_once_however_often_it_is_planned<S: Subject>() {
    let mut world = World::<S>::new();
    let dead = dead_letters(&mut world, 3);
    start(&mut world, retry_dead());
    let steps = planned(&mut world);
    let first = world.commit(|batch| batch.bulk.clone_from(&steps));
    assert_eq!(released(&first), dead);
    for id in &dead {
        world.admin(Admin::Cancel(*id)).expect("it waits");
    }
    commit_idle(&mut world, |batch| batch.bulk = steps);
}

pub fn no_more_are_taken_than_the_pace_allows<S: Subject>() {
    let mut world = World::<S>::new();
    let dead = dead_letters(&mut world, 8);
    start(&mut world, paced(2));
    let out = step(&mut world);
    assert_eq!(released(&out).len(), 1, "one is taken at once");
    assert_eq!(out.next_bulk, Next::Known(Some(world.now().plus(Millis::new(500)))));
    let steps = planned(&mut world);
    let idle = commit_idle(&mut world, |batch| batch.bulk.clone_from(&steps));
    assert_eq!(idle.next_bulk, out.next_bulk, "it is not put off by those who look");
    world.advance(Millis::new(499));
    commit_idle(&mut world, |batch| batch.bulk = steps);
    for more in 2..=5 {
        world.advance(if more == 2 { TICK } else { Millis::new(500) });
        assert_eq!(released(&step(&mut world)).len(), 1);
        assert_eq!(waiting(&mut world, &dead), more);
    }
}

pub fn after_a_pause_no_more_than_a_second_is_made_up_for<S: Subject>() {
    let mut world = World::<S>::new();
    dead_letters(&mut world, 8);
    start(&mut world, paced(2));
    world.advance(Millis::hours(1));
    assert_eq!(released(&step(&mut world)).len(), 2);
    assert_eq!(released(&step(&mut world)).len(), 0);
    // The clock is set back: the pace counts from there.
    world.set_back(Millis::hours(2));
    assert_eq!(released(&step(&mut world)).len(), 0);
    world.advance(Millis::new(500));
    assert_eq!(released(&step(&mut world)).len(), 1);
}

pub fn a_canary_goes_first_and_the_rest_follows_its_verdicts<S: Subject>() {
    let mut world = World::<S>::new();
    let dead = dead_letters(&mut world, 6);
    let id = start(&mut world, with_canary(2, 1));
    let mut canary = released(&step(&mut world));
    canary.sort();
    assert_eq!(canary, dead[4..], "the newest go first");
    assert_eq!(bulk(&mut world, id).verdicts.waiting, canary);
    let steps = planned(&mut world);
    let out = commit_idle(&mut world, |batch| batch.bulk = steps);
    let Next::Known(Some(at)) = out.next_bulk else { panic!("{:?}", out.next_bulk) };
    assert!(at > world.now() && at <= world.now().plus(Millis::seconds(1)));
    let verdicts = [fail_for_good("again"), complete()];
    for verdict in verdicts {
        let token = world.claim_one("w1").job.token();
        world.settle(token, verdict).expect("the holder's verdict counts");
        step(&mut world);
    }
    let now = bulk(&mut world, id);
    assert_eq!((now.state, now.verdicts.passed, now.verdicts.failed), (BulkState::Running, 1, 1));
    assert_eq!(released(&step(&mut world)), dead[..4]);
    assert_eq!(bulk(&mut world, id).state, BulkState::Done);
}

pub fn a_canary_that_fails_holds_until_it_is_continued<S: Subject>() {
    let mut world = World::<S>::new();
    let dead = dead_letters(&mut world, 6);
    let id = start(&mut world, with_canary(2, 0));
    let early = world.admin(Admin::ContinueBulk(id));
    assert_eq!(early, Err(BulkRefused::NotHeld(BulkState::Canary).into()));
    step(&mut world);
    let token = world.claim_one("w1").job.token();
    world.settle(token, fail_for_good("again")).expect("the holder's verdict counts");
    let out = step(&mut world);
    assert_eq!(out.next_bulk, Next::Known(None));
    assert_eq!(bulk(&mut world, id).state, BulkState::Held);
    world.advance(Millis::hours(1));
    assert_eq!(planned(&mut world), []);
    world.reopen();
    let Ok(AdminDone::Bulk(on)) = world.admin(Admin::ContinueBulk(id)) else { panic!("{id}") };
    assert_eq!(on.state, BulkState::Running);
    assert_eq!(released(&step(&mut world)), dead[..4]);
    let over = bulk(&mut world, id);
    assert_eq!((over.state, over.done), (BulkState::Done, 6));
}

pub fn after_a_stop_nothing_more_is_taken<S: Subject>() {
    let mut world = World::<S>::new();
    let dead = dead_letters(&mut world, 6);
    let id = start(&mut world, paced(2));
    step(&mut world);
    world.advance(Millis::seconds(9));
    let steps = planned(&mut world);
    // In one batch, the order is first.
    let out = world.commit(|batch| {
        batch.admin.push(Admin::StopBulk(id));
        batch.bulk.clone_from(&steps);
    });
    assert_eq!(released(&out), []);
    commit_idle(&mut world, |batch| batch.bulk = steps);
    assert_eq!(waiting(&mut world, &dead), 1);
    let over = bulk(&mut world, id);
    assert_eq!((over.state, over.done), (BulkState::Stopped, 1));
    let again: AdminRefused = BulkRefused::Ended(BulkState::Stopped).into();
    assert_eq!(world.admin(Admin::StopBulk(id)), Err(again));
    let unknown = Err(BulkRefused::NotFound(BulkId(99)).into());
    assert_eq!(world.admin(Admin::StopBulk(BulkId(99))), unknown);
    assert_eq!(world.admin(Admin::ContinueBulk(BulkId(99))), unknown);
}

pub fn it_ends_at_the_number_it_was_given<S: Subject>() {
    let mut world = World::<S>::new();
    let dead = dead_letters(&mut world, 5);
    let id = start(&mut world, Terms { most: Some(3), ..retry_dead() });
    assert_eq!(released(&step(&mut world)), dead[2..]);
    assert_eq!(bulk(&mut world, id).state, BulkState::Done);
    assert_eq!(waiting(&mut world, &dead), 3);
}

pub fn jobs_named_one_by_one_are_taken_and_those_that_cannot_are_counted<S: Subject>() {
    let mut world = World::<S>::new();
    let dead = dead_letters(&mut world, 3);
    let done = world.done(work());
    let next = world.dump().next_id;
    let named = Target::Jobs(vec![dead[0], dead[2], done, next]);
    let id = start(&mut world, terms(Action::Retry, named));
    assert_eq!(released(&step(&mut world)), [dead[0], dead[2]]);
    let over = bulk(&mut world, id);
    assert_eq!((over.state, over.done, over.refused), (BulkState::Done, 2, 2));
    assert_eq!(world.job(dead[1]).state.name(), StateName::Failed);
}

pub fn waiting_and_running_jobs_are_cancelled_wherever_their_list_puts_them<S: Subject>() {
    for view in [View::Queued, View::Scheduled, View::Processing] {
        let mut world = World::<S>::new();
        let new = match view {
            View::Scheduled => NewJob { when: later(), ..work() },
            _ => work(),
        };
        let mut ids: Vec<JobId> = (0..5).map(|_| world.enqueue(new.clone())).collect();
        if view == View::Processing {
            world.claim(main_work(), "w1", 5);
        }
        ids.sort();
        let per_s = JobsPerSecond::new(2).expect("within bounds");
        let pace = Some(Pace::new(per_s, START));
        let id = start(&mut world, Terms { pace, ..terms(Action::Cancel, own(view)) });
        world.advance(TICK);
        let later = world.enqueue(new.clone());
        for _ in 0..20 {
            step(&mut world);
            if bulk(&mut world, id).state == BulkState::Done {
                break;
            }
            // Those that run move up in their list.
            if let Some(held) = ids.iter().find_map(|id| running(&mut world, *id)) {
                world.heartbeat(held, None).expect("it is held");
            }
            world.advance(Millis::seconds(1));
        }
        let over = bulk(&mut world, id);
        assert_eq!((over.state, over.done), (BulkState::Done, 5), "{view}");
        for id in ids {
            assert_eq!(world.job(id).state.name(), StateName::Cancelled);
        }
        assert_ne!(world.job(later).state.name(), StateName::Cancelled);
    }
}

fn later() -> When {
    When::After(Delay::new(3_600_000).expect("an hour is not far"))
}

fn running<S: Subject>(world: &mut World<S>, id: JobId) -> Option<LeaseToken> {
    let job = world.job(id);
    job.lease().map(|_| job.token())
}

pub fn finished_jobs_are_deleted_with_their_keys<S: Subject>() {
    let mut world = World::<S>::new();
    let (plain, keyed) = (world.done(work()), world.done(work_keyed("k")));
    let dead = world.dead(work(), "boom");
    let id = start(&mut world, terms(Action::Delete, own(View::Done)));
    step(&mut world);
    assert_eq!(bulk(&mut world, id).done, 2);
    for id in [plain, keyed] {
        assert!(world.find(id).is_none());
    }
    assert!(world.find(dead).is_some());
    let keys = world.dump().keys;
    let orphan = keys.iter().find(|record| record.job == keyed).expect("its window runs");
    assert!(orphan.orphan_until.is_some());
}

/// A search, with `from` and `to` as numbers of jobs, and which of three jobs match.
type Searched = (&'static [&'static str], Conditions, [Option<usize>; 2], [bool; 3]);

fn searches() -> Vec<Searched> {
    let none = Conditions::default;
    let some = |text: &str| Some(String::from(text));
    let at = |wanted: &str| {
        let pointer = Pointer::new("/id").expect("it is a pointer");
        Conditions { payload: Some((pointer, wanted.into())), ..none() }
    };
    let always = [None, None];
    let (timeout, second) = (some("time"), some("\"id\":2"));
    vec![
        (&["main", "side"], none(), always, [true; 3]),
        (&["main"], none(), always, [true, false, true]),
        (&["none"], none(), always, [false; 3]),
        (&[], Conditions { error_contains: timeout, ..none() }, always, [true, false, false]),
        (&[], Conditions { payload_contains: second, ..none() }, always, [false, true, false]),
        (&[], at("3"), always, [false, false, true]),
        (&["side"], at("3"), always, [false; 3]),
        (&[], none(), [Some(1), None], [false, true, true]),
        (&[], none(), [None, Some(1)], [true, false, false]),
        (&[], none(), [Some(1), Some(2)], [false, true, false]),
        (&[], Conditions { attempts_min: Some(1), ..none() }, always, [true; 3]),
        (&[], Conditions { attempts_min: Some(2), ..none() }, always, [false; 3]),
        (&[], Conditions { priority_min: Some(5), ..none() }, always, [false, false, true]),
        (&[], Conditions { worker: Some(worker("w1")), ..none() }, always, [false; 3]),
    ]
}

pub fn a_search_takes_the_jobs_that_match_and_no_other<S: Subject>() {
    for (queues, conditions, times, matching) in searches() {
        let mut world = World::<S>::new();
        let mut dead = |name: &str, number: i16, error: &str| {
            world.advance(TICK);
            let payload = text(&format!(r#"{{"id":{number}}}"#));
            let priority = priority(number * 2);
            world.dead(NewJob { queue: queue(name), payload, priority, ..work() }, error)
        };
        let ids = [dead("main", 1, "a timeout"), dead("side", 2, "refused"), dead("main", 3, "-")];
        let failed_at = ids.map(|id| world.job(id).finished_at());
        let [from, to] = times.map(|time| time.and_then(|job| failed_at[job]));
        let conditions = Conditions { from, to, ..conditions };
        let name = format!("{queues:?} {conditions:?}");
        let (view, kind) = (Some(View::Failed), Some(kind("work")));
        let filter = Filter { view, kind, ..Filter::default() };
        let queues = queues.iter().map(|name| queue(name)).collect();
        let target = Target::Search(Box::new(Search { filter, queues, conditions }));
        let id = start(&mut world, terms(Action::Retry, target));
        for _ in 0..5 {
            step(&mut world);
        }
        assert_eq!(bulk(&mut world, id).state, BulkState::Done, "{name}");
        let found = ids.map(|id| world.job(id).state.name() == StateName::Queued);
        assert_eq!(found, matching, "{name}");
    }
}

pub fn a_search_that_has_found_nothing_goes_on_where_it_stopped<S: Subject>() {
    let mut world = World::<S>::new();
    let mut of = |word: &str| {
        world.advance(TICK);
        let payload = text(&format!("\"{word}{}\"", " ".repeat(BULK_BYTES / 12)));
        world.dead(NewJob { payload, ..work() }, "boom")
    };
    let wanted = of("needle");
    let others: Vec<JobId> = (0..17).map(|_| of("hay")).collect();
    let Target::Filter(filter) = own(View::Failed) else { unreachable!("it is a filter") };
    let payload_contains = Some("needle".into());
    let conditions = Conditions { payload_contains, ..Conditions::default() };
    let target = Target::Search(Box::new(Search { filter, queues: Vec::new(), conditions }));
    let id = start(&mut world, terms(Action::Retry, target));
    assert_eq!(released(&step(&mut world)), [], "as many bytes were read as one step may read");
    assert!(bulk(&mut world, id).cursor.is_some(), "the place is kept");
    world.reopen();
    assert_eq!(released(&step(&mut world)), [wanted]);
    assert_eq!(bulk(&mut world, id).state, BulkState::Done);
    assert_eq!(waiting(&mut world, &others), 0);
}

pub fn released_jobs_are_claimed_in_the_same_batch<S: Subject>() {
    let mut world = World::<S>::new();
    let dead = dead_letters(&mut world, 2);
    start(&mut world, retry_dead());
    let steps = planned(&mut world);
    let out = world.commit(|batch| {
        batch.bulk = steps;
        batch.claims.push(claim_for(main_work(), "w1", 5));
    });
    let mut claimed = super::ids(&out.claims[0].jobs);
    claimed.sort();
    assert_eq!(claimed, dead);
}

pub fn a_batch_that_reaps_learns_of_it_and_others_read_nothing<S: Subject>() {
    let mut world = World::<S>::new();
    dead_letters(&mut world, 1);
    let out = commit_idle(&mut world, |batch| batch.reap = Some(reap_up_to(5)));
    assert_eq!(out.next_bulk, Next::Known(None));
    start(&mut world, retry_dead());
    let out = commit_idle(&mut world, |batch| batch.reap = Some(reap_up_to(5)));
    assert_eq!(out.next_bulk, Next::Known(Some(world.now())));
    let out = world.commit(|batch| batch.enqueues.push(work()));
    assert_eq!(out.next_bulk, Next::Written(None));
}

pub fn it_survives_a_crash_and_goes_on_where_it_was<S: Subject>() {
    let mut world = World::<S>::new();
    let dead = dead_letters(&mut world, 4);
    let id = start(&mut world, paced(2));
    world.advance(Millis::seconds(1));
    assert_eq!(released(&step(&mut world)), dead[2..]);
    let before = bulk(&mut world, id);
    world.reopen();
    assert_eq!(bulk(&mut world, id), before);
    world.advance(Millis::seconds(1));
    assert_eq!(released(&step(&mut world)), dead[..2]);
    assert_eq!(waiting(&mut world, &dead), 4);
}

pub fn only_a_limited_number_is_kept_when_they_have_ended<S: Subject>() {
    let mut world = World::<S>::new();
    let first = start(&mut world, retry_dead());
    for _ in 0..BULK_KEPT + 3 {
        let id = start(&mut world, retry_dead());
        world.load(|batch| batch.admin.push(Admin::StopBulk(id)));
    }
    let last = start(&mut world, retry_dead());
    let rows = world.reader().bulk().expect("a healthy store can be read");
    assert_eq!(rows.len(), BULK_KEPT + 2, "those that have not ended are kept beside them");
    let ids: Vec<BulkId> = rows.iter().map(|row| row.id).collect();
    assert_eq!((ids.first(), ids.last()), (Some(&first), Some(&last)));
    assert_eq!(usize::try_from(last.0).ok(), Some(BULK_KEPT + 5), "no id is given twice");
}

pub fn too_many_at_once_are_refused<S: Subject>() {
    let mut world = World::<S>::new();
    let start = || Admin::StartBulk(Box::new(retry_dead()));
    let mut out = world.commit(|batch| batch.admin.extend((0..=BULK_LIVE).map(|_| start())));
    assert_eq!(out.admin.pop(), Some(Err(BulkRefused::TooMany.into())));
    assert!(out.admin.iter().all(Result::is_ok));
    world.commit(|batch| batch.admin.push(Admin::StopBulk(BulkId(3))));
    world.admin(start()).expect("there is room again");
}
