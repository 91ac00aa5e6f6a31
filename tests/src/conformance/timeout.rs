//! Timeouts and dead workers: an attempt that has had its time has failed, whichever worker runs
//! it.

use windlass_core::StaleReason::TimedOut;
use windlass_core::limits::{CLOCK_STEP, STOP_GRACE};
use windlass_core::store::{Admin, LeaseExtended, Leased, Reap, Reaped};
use windlass_core::{
    AttemptOutcome, Excerpt, JobTimeout, LeaseToken, Millis, NewJob, StateName, Verdict,
};

use super::stale;
use crate::fixture::*;

const TIMEOUT: Millis = Millis::seconds(10);
const MINUTE: Millis = Millis::minutes(1);

/// A job whose attempts may run for ten seconds, leased for a minute.
fn limited() -> NewJob {
    let timeout = JobTimeout::new(TIMEOUT.get()).ok();
    NewJob { timeout, visibility_timeout: Some(lease(MINUTE)), ..work() }
}

fn until(leased: &Leased) -> Option<windlass_core::Wall> {
    leased.job.lease().map(|lease| lease.until)
}

fn requeued(requeued: usize) -> Reaped {
    Reaped::Page { requeued, failed: 0, next: None }
}

pub fn a_lease_ends_with_the_timeout_of_its_attempt<S: Subject>() {
    let mut world = World::<S>::new();
    let leased = world.running(limited());
    let end = world.now().plus(TIMEOUT);
    assert_eq!(until(&leased), Some(end));
    world.advance(Millis::seconds(6));
    assert_eq!(world.heartbeat(leased.job.token(), None), Ok(LeaseExtended { until: end }));
}

pub fn an_attempt_past_its_timeout_has_failed_and_waits_like_any_that_fails<S: Subject>() {
    let mut world = World::<S>::new();
    let token = world.running(limited()).job.token();
    world.advance(TIMEOUT);
    assert_eq!(world.reap(reap_up_to(9)), requeued(1));
    let job = world.job(token.job);
    assert_eq!((job.state.name(), job.attempts), (StateName::Queued, 1));
    assert!(job.run_at > world.now(), "it waits for its backoff");
    let attempts = world.attempts(token.job);
    let [attempt] = attempts.as_slice() else { panic!("one attempt, not {attempts:?}") };
    assert_eq!(attempt.outcome, AttemptOutcome::TimedOut);
    let error = attempt.error.as_ref().map(Excerpt::as_str);
    assert!(error.is_some_and(|error| error.contains("timeout of 10000 ms")), "{error:?}");
    for verdict in [complete(), fail("late"), Verdict::Release] {
        assert_eq!(world.settle(token, verdict), stale(TimedOut, StateName::Queued, 1));
    }
    assert_eq!(world.heartbeat(token, None), stale(TimedOut, StateName::Queued, 1));
}

pub fn the_last_attempt_past_its_timeout_is_dead<S: Subject>() {
    let mut world = World::<S>::new();
    let new = NewJob { max_retries: Some(retries(0)), ..limited() };
    let token = world.running(new).job.token();
    world.advance(TIMEOUT);
    let failed = Reaped::Page { requeued: 0, failed: 1, next: None };
    assert_eq!(world.reap(reap_up_to(9)), failed);
    assert_eq!(world.heartbeat(token, None), stale(TimedOut, StateName::Failed, 1));
}

pub fn a_heartbeat_past_the_timeout_is_refused_before_anything_is_reaped<S: Subject>() {
    let mut world = World::<S>::new();
    let token = world.running(limited()).job.token();
    world.advance(TIMEOUT);
    assert_eq!(world.heartbeat(token, None), stale(TimedOut, StateName::Processing, 1));
    // A verdict still counts: nothing says that the attempt has not ended in time.
    assert_eq!(world.settle(token, complete()), Ok(StateName::Done));
}

pub fn a_process_keeps_the_lease_of_its_own_attempt_while_it_stops_it<S: Subject>() {
    let mut world = World::<S>::new();
    world.own = Some(worker("w1"));
    let leased = world.running(limited());
    let (token, end) = (leased.job.token(), world.now().plus(TIMEOUT).plus(STOP_GRACE));
    assert_eq!(until(&leased), Some(end));
    world.advance(TIMEOUT.plus(Millis::seconds(5)));
    assert_eq!(world.heartbeat(token, None), Ok(LeaseExtended { until: end }));
    world.advance(STOP_GRACE);
    assert_eq!(world.heartbeat(token, None), stale(TimedOut, StateName::Processing, 1));
    assert_eq!(world.reap(reap_up_to(9)), requeued(1));
    assert_eq!(world.attempts(token.job)[0].outcome, AttemptOutcome::TimedOut);
}

pub fn a_step_of_the_clock_times_nothing_out<S: Subject>() {
    let mut world = World::<S>::new();
    let token = world.running(limited()).job.token();
    world.clock.expected = Some(world.now());
    world.advance(Millis::hours(1).plus(CLOCK_STEP));
    let until = world.now().plus(TIMEOUT);
    assert_eq!(world.heartbeat(token, None), Ok(LeaseExtended { until }), "in no time, an hour");
    world.clock.expected = None;
    world.clock.trusted_since = Some(world.now());
    world.advance(Millis::seconds(9));
    assert_eq!(world.heartbeat(token, None), Ok(LeaseExtended { until }));
    world.advance(Millis::seconds(1));
    assert_eq!(world.heartbeat(token, None), stale(TimedOut, StateName::Processing, 1));
}

pub fn the_leases_of_a_dead_worker_are_taken_back_at_once_and_charged<S: Subject>() {
    let mut world = World::<S>::alone();
    let gone: LeaseToken = world.running_by("w1", work()).job.token();
    let alive = world.running_by("w2", work()).job;
    world.admin(Admin::EndWorker(worker("w1"))).expect("it is known to be dead");
    let reap = Reap { all: true, ..reap_up_to(99) };
    let out = world.commit(|batch| {
        batch.dead.push(worker("w1"));
        batch.reap = Some(reap);
    });
    assert_eq!(out.reaped, Some(requeued(1)));
    let job = world.job(gone.job);
    assert_eq!((job.state.name(), job.attempts, job.run_at), (StateName::Queued, 1, world.now()));
    let attempts = world.attempts(gone.job);
    let error = attempts[0].error.as_ref().map(Excerpt::as_str);
    assert_eq!(error, Some("worker w1 died"));
    assert_eq!(world.job(alive.id), alive);
}
