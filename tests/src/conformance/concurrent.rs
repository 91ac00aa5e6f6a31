//! Two commits at the same time on the same jobs and keys: the outcome is that of one after the
//! other, and both handles get the true result.

use windlass_core::StaleReason::{Cancelled, Expired, Settled};
use windlass_core::store::{Admin, AdminDone, Batch, Heartbeat, Purge, Reaped, Settle};
use windlass_core::{EnqueueRefused, JobId, LeaseToken, Millis, NewJob, StateName, Verdict, When};

use super::stale;
use crate::concurrent::{ConcurrentSubject, Order, commit_both, in_both_orders};
use crate::fixture::*;

const HOUR: Millis = Millis::hours(1);

pub fn one_key_enqueued_through_two_handles_makes_one_job<S: ConcurrentSubject>() {
    in_both_orders(|order| {
        let mut world = World::<S>::new();
        let jobs = world.dump().jobs.len();
        let new = |batch: &mut Batch| batch.enqueues.push(work_keyed("k"));
        let (a, b) = commit_both(&mut world, order, new, new);
        let receipts = [a, b].map(|mut out| out.enqueues.remove(0).expect("both are accepted"));
        assert_eq!(receipts[0].id, receipts[1].id, "both name the same job");
        let duplicates = receipts.iter().filter(|receipt| receipt.duplicate).count();
        assert_eq!(duplicates, 1, "one of them made it");
        assert_eq!(world.dump().jobs.len(), jobs + 1);
    });
}

pub fn another_request_with_the_same_key_through_a_second_handle_is_a_conflict<
    S: ConcurrentSubject,
>() {
    in_both_orders(|order| {
        let mut world = World::<S>::new();
        let jobs = world.dump().jobs.len();
        let other = keyed("k", NewJob { payload: text("2"), ..work() });
        let (a, b) = commit_both(
            &mut world,
            order,
            |batch| batch.enqueues.push(work_keyed("k")),
            |batch| batch.enqueues.push(other),
        );
        let mut results = [a, b].map(|mut out| out.enqueues.remove(0));
        results.sort_by_key(Result::is_err);
        let [Ok(receipt), Err(EnqueueRefused::IdempotencyConflict { existing })] = &results else {
            panic!("one is accepted, the other conflicts: {results:?}")
        };
        assert_eq!(receipt.id, *existing, "the conflict names the job that was made");
        assert_eq!(world.dump().jobs.len(), jobs + 1);
    });
}

pub fn new_jobs_through_two_handles_have_different_ids<S: ConcurrentSubject>() {
    in_both_orders(|order| {
        let mut world = World::<S>::new();
        let before = world.dump();
        let new = |batch: &mut Batch| batch.enqueues.extend([work(), work(), work()]);
        let (a, b) = commit_both(&mut world, order, new, new);
        let given = a.enqueues.iter().chain(&b.enqueues);
        let mut given: Vec<JobId> =
            given.map(|result| result.as_ref().expect("they are accepted").id).collect();
        assert!(given[..3].is_sorted() && given[3..].is_sorted(), "ids grow within a batch");
        given.sort();
        let jobs = world.dump().jobs;
        let made: Vec<JobId> = jobs[before.jobs.len()..].iter().map(|row| row.job.id).collect();
        assert_eq!(made, given, "each receipt names a job of its own");
    });
}

fn settle(token: LeaseToken, verdict: Verdict) -> impl FnOnce(&mut Batch) {
    move |batch| batch.settles.push(Settle { token, verdict })
}

fn heartbeat(token: LeaseToken) -> impl FnOnce(&mut Batch) {
    move |batch| batch.heartbeats.push(Heartbeat { token, extend: None, progress: None })
}

fn admin(command: Admin) -> impl FnOnce(&mut Batch) {
    move |batch| batch.admin.push(command)
}

pub fn one_token_settled_through_two_handles_records_one_attempt<S: ConcurrentSubject>() {
    in_both_orders(|order| {
        let mut world = World::<S>::new();
        let token = world.running(work()).job.token();
        let (a, b) =
            commit_both(&mut world, order, settle(token, fail("x")), settle(token, fail("x")));
        assert_eq!([a.settles, b.settles], [[Ok(StateName::Queued)], [Ok(StateName::Queued)]]);
        assert!(a.wrote != b.wrote, "the repetition writes nothing");
        assert_eq!(world.attempts(token.job).len(), 1);
    });
}

pub fn of_two_verdicts_through_two_handles_the_first_counts<S: ConcurrentSubject>() {
    in_both_orders(|order| {
        let mut world = World::<S>::new();
        let token = world.running(work()).job.token();
        let (a, b) =
            commit_both(&mut world, order, settle(token, complete()), settle(token, fail("x")));
        let expected = match order {
            Order::FirstLeads => ([Ok(StateName::Done)], [stale(Settled, StateName::Done, 1)]),
            Order::SecondLeads => ([stale(Settled, StateName::Queued, 1)], [Ok(StateName::Queued)]),
        };
        assert_eq!((&a.settles[..], &b.settles[..]), (&expected.0[..], &expected.1[..]));
        let state = world.job(token.job).state.name();
        assert!([&a, &b].iter().any(|out| out.settles[0] == Ok(state)));
        let failed = usize::from(order == Order::SecondLeads);
        assert_eq!(world.attempts(token.job).len(), failed, "of a failure a record is kept");
    });
}

pub fn of_a_cancel_and_a_completion_the_first_counts<S: ConcurrentSubject>() {
    in_both_orders(|order| {
        let mut world = World::<S>::new();
        let token = world.running(work()).job.token();
        let cancel = admin(Admin::Cancel(token.job));
        let (a, b) = commit_both(&mut world, order, cancel, settle(token, complete()));
        let state = world.job(token.job).state.name();
        match order {
            Order::FirstLeads => {
                assert!(matches!(a.admin[0], Ok(AdminDone::Job(_))), "{:?}", a.admin);
                assert_eq!(b.settles, [stale(Cancelled, StateName::Cancelled, 1)]);
                assert_eq!(state, StateName::Cancelled);
            }
            Order::SecondLeads => {
                assert!(a.admin[0].is_err(), "a job that is done is not cancelled: {:?}", a.admin);
                assert_eq!(b.settles, [Ok(StateName::Done)]);
                assert_eq!(state, StateName::Done);
            }
        }
    });
}

pub fn of_a_cancel_and_a_heartbeat_the_cancel_is_never_undone<S: ConcurrentSubject>() {
    in_both_orders(|order| {
        let mut world = World::<S>::new();
        let token = world.running(work()).job.token();
        let (a, b) =
            commit_both(&mut world, order, admin(Admin::Cancel(token.job)), heartbeat(token));
        assert!(matches!(a.admin[0], Ok(AdminDone::Job(_))), "{:?}", a.admin);
        assert_eq!(b.heartbeats[0].is_ok(), order == Order::SecondLeads, "{:?}", b.heartbeats);
        assert_eq!(world.job(token.job).state.name(), StateName::Cancelled);
    });
}

/// A running job whose lease has ended.
fn expired<S: ConcurrentSubject>(world: &mut World<S>) -> LeaseToken {
    let new = NewJob { visibility_timeout: Some(lease(Millis::seconds(30))), ..work() };
    let token = world.running(new).job.token();
    world.advance(Millis::seconds(31));
    token
}

fn reap(batch: &mut Batch) {
    batch.reap = Some(reap_up_to(10));
}

const ONE_REQUEUED: Option<Reaped> = Some(Reaped::Page { requeued: 1, failed: 0, next: None });
const NONE_REAPED: Option<Reaped> = Some(Reaped::Page { requeued: 0, failed: 0, next: None });

pub fn of_a_reap_and_a_heartbeat_the_first_counts<S: ConcurrentSubject>() {
    in_both_orders(|order| {
        let mut world = World::<S>::new();
        let token = expired(&mut world);
        let (a, b) = commit_both(&mut world, order, reap, heartbeat(token));
        let job = world.job(token.job);
        match order {
            Order::FirstLeads => {
                assert_eq!(a.reaped, ONE_REQUEUED);
                assert_eq!(b.heartbeats, [stale(Expired, StateName::Queued, 1)]);
                assert_eq!(job.lease(), None);
            }
            Order::SecondLeads => {
                assert_eq!(a.reaped, NONE_REAPED);
                assert!(
                    b.heartbeats[0].is_ok(),
                    "the lease was not taken back: {:?}",
                    b.heartbeats
                );
                assert_eq!(job.lease().map(|lease| lease.until > world.now()), Some(true));
            }
        }
    });
}

pub fn of_a_reap_and_a_completion_the_first_counts<S: ConcurrentSubject>() {
    in_both_orders(|order| {
        let mut world = World::<S>::new();
        let token = expired(&mut world);
        let (a, b) = commit_both(&mut world, order, reap, settle(token, complete()));
        match order {
            Order::FirstLeads => {
                assert_eq!(a.reaped, ONE_REQUEUED);
                assert_eq!(b.settles, [stale(Expired, StateName::Queued, 1)]);
            }
            Order::SecondLeads => {
                assert_eq!(a.reaped, NONE_REAPED);
                assert_eq!(b.settles, [Ok(StateName::Done)]);
            }
        }
        let reaped = usize::from(order == Order::FirstLeads);
        assert_eq!(world.attempts(token.job).len(), reaped, "of a reap a record is kept");
    });
}

fn purge(batch: &mut Batch) {
    batch.purge = Some(Purge { retention: keep_all_for(HOUR), limit: 10 });
}

pub fn of_a_purge_and_a_replay_the_first_counts<S: ConcurrentSubject>() {
    in_both_orders(|order| {
        let mut world = World::<S>::new();
        let id = world.dead(work(), "x");
        world.advance(Millis::hours(2));
        let (a, b) = commit_both(&mut world, order, purge, admin(Admin::Replay(id)));
        let purged = a.purged.map(|purged| purged.count);
        let replayed = matches!(&b.admin[0], Ok(AdminDone::Job(_)));
        assert_eq!(world.find(id).is_some(), replayed, "a replayed job is there");
        assert_eq!(
            (purged, replayed),
            match order {
                Order::FirstLeads => (Some(1), false),
                Order::SecondLeads => (Some(0), true),
            }
        );
    });
}

pub fn of_a_delete_and_a_replay_the_first_counts<S: ConcurrentSubject>() {
    in_both_orders(|order| {
        let mut world = World::<S>::new();
        let id = world.dead(work(), "x");
        let (delete, replay) = (admin(Admin::Delete(id)), admin(Admin::Replay(id)));
        let (a, b) = commit_both(&mut world, order, delete, replay);
        assert_eq!(
            (a.admin[0].is_ok(), b.admin[0].is_ok()),
            match order {
                Order::FirstLeads => (true, false),
                Order::SecondLeads => (false, true),
            }
        );
        assert_eq!(world.find(id).is_some(), order == Order::SecondLeads);
    });
}

/// Jobs that were enqueued for later and are due now.
fn due<S: ConcurrentSubject>(world: &mut World<S>, count: usize) -> Vec<JobId> {
    let later = NewJob { when: When::After(delay(HOUR)), ..work() };
    let ids = (0..count).map(|_| world.enqueue(later.clone())).collect();
    world.advance(HOUR);
    ids
}

fn promote(batch: &mut Batch) {
    batch.promote = Some(10);
}

pub fn a_due_job_is_promoted_once<S: ConcurrentSubject>() {
    in_both_orders(|order| {
        let mut world = World::<S>::new();
        due(&mut world, 3);
        let (a, b) = commit_both(&mut world, order, promote, promote);
        let promoted = [&a, &b].map(|out| out.promoted.map_or(0, |promoted| promoted.count));
        assert_eq!(promoted.iter().sum::<usize>(), 3, "{promoted:?}");
        assert_eq!(world.claim(main_work(), "w1", 10).len(), 3);
    });
}

pub fn of_a_promotion_and_a_cancel_the_cancel_is_never_undone<S: ConcurrentSubject>() {
    in_both_orders(|order| {
        let mut world = World::<S>::new();
        let id = due(&mut world, 1)[0];
        let (_, b) = commit_both(&mut world, order, promote, admin(Admin::Cancel(id)));
        assert!(b.admin[0].is_ok(), "a waiting job can be cancelled: {:?}", b.admin);
        assert_eq!(world.job(id).state.name(), StateName::Cancelled);
        world.assert_nothing_to_claim();
    });
}

pub fn a_key_taken_over_during_a_purge_names_the_new_job<S: ConcurrentSubject>() {
    in_both_orders(|order| {
        let mut world = World::<S>::new();
        world.policy.idempotency_window = HOUR;
        let old = world.done(work_keyed("k"));
        world.advance(Millis::hours(2));
        let new = |batch: &mut Batch| batch.enqueues.push(work_keyed("k"));
        let (a, mut b) = commit_both(&mut world, order, purge, new);
        assert_eq!(a.purged.map(|purged| purged.count), Some(1));
        let receipt = b.enqueues.remove(0).expect("the key is free");
        assert!(!receipt.duplicate && receipt.id != old);
        let key = world.dump().keys.into_iter().find(|record| record.key == key("k"));
        assert_eq!(key.map(|record| record.job), Some(receipt.id));
    });
}
