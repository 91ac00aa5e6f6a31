//! Commits at the same time that meet in a queue: claims, limits, settings; and what one handle
//! learns of the commits of another.

use std::collections::BTreeSet;

use windlass_core::StaleReason::Cancelled;
use windlass_core::store::{
    Admin, AdminDone, AdminRefused, Batch, LostLease, News, Outcomes, QueueSweep, Reader, Store,
    StoreError,
};
use windlass_core::{
    EnqueueRefused, Flow, JobId, LeaseToken, Millis, NewJob, QueueSettings, RetryPolicy, StateName,
    Strategy, View,
};

use super::flow::{limited, rate, running_of_kind};
use super::{ids, stale};
use crate::concurrent::{
    Act, ConcurrentSubject, Order, commit_all, commit_both, in_both_orders, race,
};
use crate::fixture::*;

const QUEUE: &str = "shared";
/// Number of handles that commit at once where a limit is tried.
const HANDLES: u64 = 4;

fn claim(max: usize) -> impl Fn(&mut Batch) {
    move |batch| batch.claims.push(claim_for(work_of_queues(&[QUEUE]), "w1", max))
}

fn enqueue(count: usize) -> impl Fn(&mut Batch) {
    move |batch| batch.enqueues.extend(std::iter::repeat_n(work_in(QUEUE), count))
}

fn set(settings: QueueSettings) -> impl Fn(&mut Batch) {
    move |batch| batch.admin.push(Admin::set_queue(queue(QUEUE), settings.clone()))
}

fn pause(batch: &mut Batch) {
    batch.admin.push(Admin::pause(queue(QUEUE)));
}

fn at_most_running(most: u32) -> QueueSettings {
    QueueSettings { concurrency: Some(max_running(most)), ..QueueSettings::default() }
}

fn at_most_queued(most: u64) -> QueueSettings {
    QueueSettings { max_queued: Some(max_queued(most)), ..QueueSettings::default() }
}

/// The same batch for each of several processes.
fn for_each_handle<S: ConcurrentSubject>(
    world: &mut World<S>,
    fill: impl Fn(&mut Batch),
) -> Vec<Batch> {
    let batch = |process| {
        world.act_as(process);
        world.batch(&fill)
    };
    (2..2 + HANDLES).map(batch).collect()
}

/// The tokens that were given out, each once.
#[track_caller]
fn tokens<'o>(outcomes: impl IntoIterator<Item = &'o Outcomes>) -> BTreeSet<LeaseToken> {
    let mut tokens = BTreeSet::new();
    let claims = outcomes.into_iter().flat_map(|out| &out.claims);
    for leased in claims.flat_map(|claimed| &claimed.jobs) {
        let token = leased.job.token();
        assert!(tokens.insert(token), "token {token:?} was given out twice");
    }
    tokens
}

/// How many jobs of the queue are there in these views.
fn count<S: ConcurrentSubject>(world: &mut World<S>, views: &[View]) -> usize {
    let rows = world.dump().jobs.into_iter().map(|row| row.job);
    rows.filter(|job| job.queue == queue(QUEUE) && views.contains(&job.state.view())).count()
}

pub fn claims_through_two_handles_share_no_job_and_no_token<S: ConcurrentSubject>() {
    for (jobs, max) in [(2, 1), (3, 5), (8, 4)] {
        in_both_orders(|order| {
            let mut world = World::<S>::new();
            world.commit(enqueue(jobs));
            let (a, b) = commit_both(&mut world, order, claim(max), claim(max));
            let tokens = tokens([&a, &b]);
            let claimed: BTreeSet<JobId> = tokens.iter().map(|token| token.job).collect();
            assert_eq!(claimed.len(), jobs, "each job is claimed, and by one of them: {tokens:?}");
        });
    }
}

pub fn the_last_job_is_claimed_through_one_of_two_handles<S: ConcurrentSubject>() {
    in_both_orders(|order| {
        let mut world = World::<S>::new();
        let id = world.enqueue(work_in(QUEUE));
        let (a, b) = commit_both(&mut world, order, claim(1), claim(1));
        let claimed: Vec<JobId> =
            [&a, &b].iter().flat_map(|out| ids(&out.claims[0].jobs)).collect();
        assert_eq!(claimed, [id]);
        assert_eq!(world.job(id).epoch.get(), 1);
    });
}

pub fn a_claim_and_a_cancel_of_the_same_job_agree<S: ConcurrentSubject>() {
    in_both_orders(|order| {
        let mut world = World::<S>::new();
        let id = world.enqueue(work_in(QUEUE));
        let cancel = |batch: &mut Batch| batch.admin.push(Admin::Cancel(id));
        let (a, b) = commit_both(&mut world, order, claim(1), cancel);
        assert!(b.admin[0].is_ok(), "a waiting or running job can be cancelled: {:?}", b.admin);
        let expected = if order == Order::FirstLeads { vec![id] } else { vec![] };
        assert_eq!(ids(&a.claims[0].jobs), expected);
        assert_eq!(world.job(id).state.name(), StateName::Cancelled);
        if let Some(leased) = a.claims[0].jobs.first() {
            let late = world.settle(leased.job.token(), complete());
            assert_eq!(late, stale(Cancelled, StateName::Cancelled, 1));
        }
    });
}

pub fn a_concurrency_limit_holds_over_all_handles<S: ConcurrentSubject>() {
    let mut world = World::<S>::new();
    world.commit(set(at_most_running(3)));
    world.commit(enqueue(10));
    let batches = for_each_handle(&mut world, claim(2));
    let outcomes = commit_all(&mut world, batches);
    assert_eq!(tokens(&outcomes).len(), 3, "as many as may run, and no more");
    assert_eq!(count(&mut world, &[View::Processing]), 3);
}

pub fn max_queued_holds_over_all_handles<S: ConcurrentSubject>() {
    let mut world = World::<S>::new();
    world.commit(set(at_most_queued(5)));
    let batches = for_each_handle(&mut world, enqueue(2));
    let outcomes = commit_all(&mut world, batches);
    let refused =
        outcomes.iter().flat_map(|out| &out.enqueues).filter_map(|new| new.as_ref().err());
    let refused: Vec<&EnqueueRefused> = refused.collect();
    assert_eq!(refused.len(), 3, "{refused:?}");
    assert!(refused.iter().all(|why| matches!(why, EnqueueRefused::QueueFull { .. })));
    assert_eq!(count(&mut world, &[View::Queued, View::Scheduled]), 5);
}

pub fn a_concurrency_limit_that_is_being_set_holds_for_later_claims<S: ConcurrentSubject>() {
    in_both_orders(|order| {
        let mut world = World::<S>::new();
        world.commit(enqueue(3));
        let (a, b) = commit_both(&mut world, order, set(at_most_running(1)), claim(3));
        assert!(a.admin[0].is_ok());
        let expected = if order == Order::FirstLeads { 1 } else { 3 };
        assert_eq!(b.claims[0].jobs.len(), expected);
    });
}

pub fn max_queued_that_is_being_set_holds_for_later_jobs<S: ConcurrentSubject>() {
    in_both_orders(|order| {
        let mut world = World::<S>::new();
        world.commit(enqueue(1));
        let (a, b) = commit_both(&mut world, order, set(at_most_queued(2)), enqueue(3));
        assert!(a.admin[0].is_ok());
        let accepted = b.enqueues.iter().filter(|result| result.is_ok()).count();
        assert_eq!(accepted, if order == Order::FirstLeads { 1 } else { 3 });
    });
}

pub fn no_claim_commits_after_a_pause<S: ConcurrentSubject>() {
    in_both_orders(|order| {
        let mut world = World::<S>::new();
        world.commit(enqueue(2));
        let (a, b) = commit_both(&mut world, order, pause, claim(1));
        assert!(a.admin[0].is_ok());
        let expected = usize::from(order == Order::SecondLeads);
        assert_eq!(b.claims[0].jobs.len(), expected);
        assert_eq!(world.claim(work_of_queues(&[QUEUE]), "w2", 1), []);
    });
}

#[track_caller]
fn assert_both_kept<S: ConcurrentSubject>(world: &mut World<S>, settings: QueueSettings) {
    let row = world.reader().queue(&queue(QUEUE)).expect("it can be read");
    let row = row.expect("the queue exists").queue;
    assert_eq!((row.is_paused(), row.settings), (true, settings));
}

pub fn of_two_changes_of_the_same_settings_one_is_refused<S: ConcurrentSubject>() {
    let replace = |settings: QueueSettings| {
        let (name, expected) = (queue(QUEUE), Some(Box::new(at_most_running(9))));
        move |batch: &mut Batch| {
            let (name, expected) = (name.clone(), expected.clone());
            let settings = settings.clone();
            batch.admin.push(Admin::SetQueue { name, settings, expected });
        }
    };
    let (one, two) = (at_most_running(1), at_most_running(2));
    in_both_orders(|order| {
        let mut world = World::<S>::new();
        world.commit(set(at_most_running(9)));
        let (a, b) = commit_both(&mut world, order, replace(one.clone()), replace(two.clone()));
        let (kept, won, lost) = match order {
            Order::FirstLeads => (one.clone(), a, b),
            Order::SecondLeads => (two.clone(), b, a),
        };
        assert!(won.admin[0].is_ok(), "{:?}", won.admin);
        assert_eq!(lost.admin[0], Err(AdminRefused::SettingsChanged(Box::new(kept.clone()))));
        let rows = world.dump().queues;
        let stored = rows.iter().find(|row| row.queue.name == queue(QUEUE));
        assert_eq!(stored.map(|row| row.queue.settings.clone()), Some(kept));
    });
}

pub fn a_pause_and_new_settings_are_both_kept<S: ConcurrentSubject>() {
    in_both_orders(|order| {
        let mut world = World::<S>::new();
        world.commit(enqueue(1));
        let settings = at_most_running(7);
        commit_both(&mut world, order, pause, set(settings.clone()));
        assert_both_kept(&mut world, settings);
    });
}

pub fn a_pause_and_settings_that_make_the_same_queue_are_both_kept<S: ConcurrentSubject>() {
    in_both_orders(|order| {
        let mut world = World::<S>::new();
        let settings = at_most_queued(7);
        commit_both(&mut world, order, pause, set(settings.clone()));
        assert_both_kept(&mut world, settings);
    });
}

pub fn a_new_queue_kind_and_retry_policy_are_made_once<S: ConcurrentSubject>() {
    in_both_orders(|order| {
        let mut world = World::<S>::new();
        let wait = Millis::seconds(77);
        let retry = RetryPolicy::new(Strategy::Linear, wait, wait, 7).expect("a fine policy");
        let new = NewJob { kind: kind("new-kind"), retry: Some(retry), ..work_in(QUEUE) };
        let fill = |batch: &mut Batch| batch.enqueues.push(new.clone());
        let (a, b) = commit_both(&mut world, order, fill, fill);
        let made = [a, b].map(|mut out| out.enqueues.remove(0).expect("both are accepted").id);
        assert_ne!(made[0], made[1]);
        let dump = world.dump();
        let rows: Vec<_> = dump.queues.iter().filter(|row| row.queue.name == new.queue).collect();
        let [row] = rows[..] else { panic!("the queue is there once: {rows:?}") };
        let kinds: Vec<_> = row.kinds.iter().map(|(kind, n)| (kind, n.get(View::Queued))).collect();
        assert_eq!(kinds, [(&new.kind, 2)]);
        let claimed = world.claim(demand_for(&new), "w1", 5);
        assert!(claimed.iter().all(|leased| leased.job.retry == retry), "{claimed:?}");
    });
}

/// The queue exists, without jobs.
fn with_empty_queue<S: ConcurrentSubject>() -> World<S> {
    let mut world = World::<S>::new();
    world.admin(Admin::Resume(queue(QUEUE))).expect("the queue is made");
    world
}

#[track_caller]
fn assert_one_job_in_its_queue<S: ConcurrentSubject>(world: &mut World<S>) {
    assert_eq!(count(world, &[View::Queued]), 1);
    let dump = world.dump();
    let row = dump.queues.iter().find(|row| row.queue.name == queue(QUEUE));
    assert_eq!(row.map(|row| row.total().all()), Some(1), "the queue counts its job");
    assert_eq!(world.claim(work_of_queues(&[QUEUE]), "w1", 5).len(), 1);
}

pub fn a_queue_that_is_deleted_while_it_gets_a_job_keeps_the_job<S: ConcurrentSubject>() {
    in_both_orders(|order| {
        let mut world = with_empty_queue::<S>();
        let delete = |batch: &mut Batch| batch.admin.push(Admin::DeleteQueue(queue(QUEUE)));
        let (added, deleted) = commit_both(&mut world, order, enqueue(1), delete);
        assert!(added.enqueues[0].is_ok());
        let refused = Err(AdminRefused::QueueHasJobs { jobs: 1 });
        let first = order == Order::FirstLeads;
        let expected = if first { refused } else { Ok(AdminDone::QueueDeleted) };
        assert_eq!(deleted.admin[0], expected);
        assert_one_job_in_its_queue(&mut world);
    });
}

pub fn a_queue_that_vanishes_while_it_gets_a_job_keeps_the_job<S: ConcurrentSubject>() {
    in_both_orders(|order| {
        let mut world = with_empty_queue::<S>();
        let sweep = |batch: &mut Batch| {
            batch.queue_sweep = Some(QueueSweep { after: None, limit: 100 });
        };
        let (added, swept) = commit_both(&mut world, order, enqueue(1), sweep);
        assert!(added.enqueues[0].is_ok());
        let deleted = swept.queues_swept.map(|swept| swept.deleted.contains(&queue(QUEUE)));
        assert_eq!(deleted, Some(order == Order::SecondLeads));
        assert_one_job_in_its_queue(&mut world);
    });
}

/// A handle must not trust what it knows of a queue that another handle has deleted.
pub fn a_queue_deleted_through_one_handle_is_made_again_through_another<S: ConcurrentSubject>() {
    let mut world = with_empty_queue::<S>();
    let mut other = world.handle();
    let now = world.now();
    world.act_as(2);
    let add = world.batch(enqueue(1));
    let cancelled = other.commit(now, &add).expect("it commits").enqueues.remove(0);
    let id = cancelled.expect("the job is accepted").id;
    world.act_as(1);
    let deletes = [Admin::Cancel(id), Admin::Delete(id), Admin::DeleteQueue(queue(QUEUE))];
    let out = world.commit(|batch| batch.admin.extend(deletes));
    assert_eq!(out.admin[2], Ok(AdminDone::QueueDeleted));
    world.admin(Admin::Resume(queue("another"))).expect("the queue is made");
    world.act_as(2);
    let add = world.batch(enqueue(1));
    assert!(other.commit(now, &add).expect("it commits").enqueues[0].is_ok());
    world.act_as(1);
    world.check();
    assert_one_job_in_its_queue(&mut world);
}

pub fn a_worker_that_is_seen_while_it_is_stopped_keeps_the_stop_mark<S: ConcurrentSubject>() {
    in_both_orders(|order| {
        let mut world = World::<S>::new();
        world.admin(Admin::SeeWorker(announced("w1"))).expect("a worker may announce itself");
        let stop = |batch: &mut Batch| batch.admin.push(Admin::StopWorker(worker("w1")));
        let seen = |batch: &mut Batch| batch.admin.push(Admin::SeeWorker(announced("w1")));
        commit_both(&mut world, order, stop, seen);
        let workers = world.dump().workers;
        let row = workers.iter().find(|row| row.worker.id == worker("w1"));
        assert_eq!(row.map(|row| row.stopping), Some(true));
    });
}

/// What was done through a handle.
enum Done {
    Committed(bool),
    WasCommitted(Result<bool, StoreError>),
}

pub fn a_batch_that_is_not_over_is_never_reported_as_not_committed<S: ConcurrentSubject>() {
    let mut world = World::<S>::new();
    let batch = world.batch(enqueue(1));
    let (now, id) = (world.now(), batch.id);
    let commit: Act<S::Store, Done> =
        Box::new(move |store| Done::Committed(store.commit(now, &batch).is_ok()));
    let ask: Act<S::Store, Done> =
        Box::new(move |store| Done::WasCommitted(store.was_committed(id)));
    let done = race(&mut world, vec![commit, ask]);
    let [Done::Committed(true), Done::WasCommitted(answer)] = &done[..] else {
        panic!("the batch is committed")
    };
    assert!(
        matches!(answer, Ok(true) | Err(StoreError::Busy(_))),
        "the batch was committed after this answer: {answer:?}",
    );
    assert_eq!(world.store().was_committed(id), Ok(true));
    world.check();
}

/// A running job, claimed through this handle.
fn claim_through<S: ConcurrentSubject>(world: &mut World<S>, store: &mut S::Store) -> LeaseToken {
    world.enqueue(work_in(QUEUE));
    world.act_as(2);
    let batch = world.batch(claim(1));
    world.act_as(1);
    let out = store.commit(world.now(), &batch).expect("a healthy store commits");
    out.claims[0].jobs[0].job.token()
}

fn lost(token: LeaseToken) -> News {
    let state = Some(StateName::Cancelled);
    News { wrote: true, lost: vec![LostLease { token, state }] }
}

pub fn a_cancel_through_one_handle_is_news_of_a_lost_lease_to_the_other<S: ConcurrentSubject>() {
    let mut world = World::<S>::new();
    let mut other = world.handle();
    let kept = claim_through(&mut world, &mut other);
    let token = claim_through(&mut world, &mut other);
    let held = [kept, token];
    assert_eq!(other.news(&held).map(|news| news.lost), Ok(vec![]));
    assert_eq!(other.news(&held), Ok(News::default()), "nothing has happened since");
    world.admin(Admin::Cancel(token.job)).expect("a running job can be cancelled");
    assert_eq!(other.news(&held), Ok(lost(token)));
    assert_eq!(other.news(&[kept]), Ok(News::default()), "it is reported once");
}

pub fn a_cancel_before_the_first_check_for_news_is_reported_by_it<S: ConcurrentSubject>() {
    let mut world = World::<S>::new();
    let mut other = world.handle();
    let token = claim_through(&mut world, &mut other);
    world.admin(Admin::Cancel(token.job)).expect("a running job can be cancelled");
    assert_eq!(other.news(&[token]), Ok(lost(token)));
}

pub fn a_new_job_through_one_handle_is_news_to_the_other<S: ConcurrentSubject>() {
    let mut world = World::<S>::new();
    let mut other = world.handle();
    let _ = other.news(&[]).expect("a healthy store has news");
    assert_eq!(other.news(&[]), Ok(News::default()));
    world.enqueue(work_in(QUEUE));
    assert_eq!(other.news(&[]), Ok(News { wrote: true, lost: vec![] }));
    world.act_as(2);
    let batch = world.batch(enqueue(1));
    other.commit(world.now(), &batch).expect("a healthy store commits");
    assert_eq!(other.news(&[]), Ok(News::default()), "one's own commit is no news");
    assert_eq!(world.store().news(&[]).map(|news| news.wrote), Ok(true));
}

pub fn a_concurrency_limit_of_a_kind_holds_over_all_handles<S: ConcurrentSubject>() {
    let mut world = World::<S>::new();
    let of = |name: &str| NewJob { kind: kind(name), ..work_in(QUEUE) };
    let flow = Flow { kinds: vec![running_of_kind("slow", 3)], ..Flow::NONE };
    world.commit(set(limited(flow)));
    world.commit(|batch| {
        batch.enqueues.extend(std::iter::repeat_n(of("slow"), 10));
        batch.enqueues.extend(std::iter::repeat_n(of("quick"), 2));
    });
    let batches = for_each_handle(&mut world, claim(3));
    let outcomes = commit_all(&mut world, batches);
    assert_eq!(tokens(&outcomes).len(), 5, "three slow ones and both quick ones");
    assert_eq!(count(&mut world, &[View::Processing]), 5);
}

pub fn a_rate_holds_over_all_handles<S: ConcurrentSubject>() {
    let mut world = World::<S>::new();
    let flow = Flow { rate: Some(rate(4, Millis::minutes(1), Some(5))), ..Flow::NONE };
    world.commit(set(limited(flow)));
    world.commit(enqueue(20));
    let batches = for_each_handle(&mut world, claim(2));
    let outcomes = commit_all(&mut world, batches);
    assert_eq!(tokens(&outcomes).len(), 5, "the burst, and no more");
    world.advance(Millis::minutes(1));
    let batches = for_each_handle(&mut world, claim(2));
    let outcomes = commit_all(&mut world, batches);
    assert_eq!(tokens(&outcomes).len(), 4, "what a minute earns, and no more");
}

pub fn a_rate_that_is_being_set_holds_for_later_claims<S: ConcurrentSubject>() {
    in_both_orders(|order| {
        let mut world = World::<S>::new();
        world.commit(enqueue(3));
        let flow = Flow { rate: Some(rate(1, Millis::minutes(1), None)), ..Flow::NONE };
        let (a, b) = commit_both(&mut world, order, set(limited(flow)), claim(3));
        assert!(a.admin[0].is_ok());
        let expected = if order == Order::FirstLeads { 1 } else { 3 };
        assert_eq!(b.claims[0].jobs.len(), expected);
    });
}
