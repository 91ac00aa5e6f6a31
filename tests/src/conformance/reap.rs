//! Leases that ran out: what is taken back, what is not, page by page, and by which clock.

use windlass_core::StaleReason::Expired;
use windlass_core::limits::{CLOCK_STEP, PAGE_ROWS};
use windlass_core::store::{Admin, Cursor, Heartbeat, JobRefused, Next, Reap, Reaped, Settle};
use windlass_core::{
    AttemptOutcome, Epoch, JobId, LeaseLength, Millis, NewJob, Rejected, State, StateName, Verdict,
};
use windlass_core::{ErrorGroup, ErrorText};

use crate::fixture::{
    Subject, TICK, World, announced, claim_for, complete, demand_for, fail, lease, main_work,
    reap_up_to, retries, snooze, work,
};

/// How long the leases of these cases last.
const LEASE: Millis = LeaseLength::DEFAULT.millis();
const NOTHING: Reaped = Reaped::Page { requeued: 0, failed: 0, next: None };

fn requeued(count: usize) -> Reaped {
    Reaped::Page { requeued: count, failed: 0, next: None }
}

fn failed(count: usize) -> Reaped {
    Reaped::Page { requeued: 0, failed: count, next: None }
}

/// Lets time pass until a moment before a lease given now runs out.
fn almost_expire<S: Subject>(world: &mut World<S>) {
    world.advance(Millis::new(LEASE.get() - TICK.get()));
}

/// Reaps until a page says that it was the last, and returns how many each page took back.
#[track_caller]
fn reap_all<S: Subject>(world: &mut World<S>, first: Reap) -> Vec<usize> {
    let mut reap = first;
    let mut counts = Vec::new();
    for _ in 0..100 {
        let Reaped::Page { requeued, failed, next } = world.reap(reap) else {
            panic!("the clock was not stepped")
        };
        counts.push(requeued + failed);
        assert!(requeued + failed <= reap.limit, "a page is no larger than it may be");
        if next.is_none() {
            return counts;
        }
        assert!(reap.after < next, "the cursor moves on");
        reap.after = next;
    }
    panic!("the pages do not end: {counts:?}")
}

/// Each of these was taken back once, and waits.
#[track_caller]
fn assert_reaped_once<S: Subject>(world: &mut World<S>, ids: &[JobId]) {
    for id in ids {
        let job = world.job(*id);
        assert_eq!(job.state, State::Queued { ready: true, last_verdict: None }, "job {id} waits");
        assert_eq!(world.attempts(*id).len(), 1, "job {id} was taken back once");
    }
}

// When.

pub fn a_lease_that_runs_is_not_reaped<S: Subject>() {
    let mut world = World::<S>::new();
    let running = world.running(work()).job;
    almost_expire(&mut world);
    assert_eq!(world.reap(reap_up_to(10)), NOTHING);
    assert_eq!(world.job(running.id), running);
    assert_eq!(world.attempts(running.id), []);
}

pub fn a_lease_is_reaped_at_the_very_instant_it_runs_out<S: Subject>() {
    let mut world = World::<S>::new();
    let id = world.running(work()).job.id;
    world.advance(LEASE);
    assert_eq!(world.reap(reap_up_to(10)), requeued(1));
    assert_eq!(world.job(id).state.name(), StateName::Queued);
}

pub fn a_lease_runs_from_its_latest_heartbeat<S: Subject>() {
    let mut world = World::<S>::new();
    let token = world.running(work()).job.token();
    almost_expire(&mut world);
    world.heartbeat(token, None).expect("the heartbeat of the holder counts");
    almost_expire(&mut world);
    assert_eq!(world.reap(reap_up_to(10)), NOTHING);
    world.advance(TICK);
    assert_eq!(world.reap(reap_up_to(10)), requeued(1));
}

pub fn a_lease_of_another_length_is_reaped_at_its_own_end<S: Subject>() {
    let mut world = World::<S>::new();
    let long = world.running(work()).job.token();
    let brief = NewJob { visibility_timeout: Some(lease(Millis::seconds(1))), ..work() };
    let short = world.running(brief).job.token();
    world
        .heartbeat(long, Some(lease(Millis::hours(1))))
        .expect("the heartbeat of the holder counts");
    world.advance(Millis::seconds(1));
    assert_eq!(world.reap(reap_up_to(10)), requeued(1));
    assert_eq!(world.job(short.job).state.name(), StateName::Queued);
    world.advance(LEASE);
    assert_eq!(world.reap(reap_up_to(10)), NOTHING, "the longer lease runs for an hour");
    world.advance(Millis::hours(1));
    assert_eq!(world.reap(reap_up_to(10)), requeued(1));
    assert_eq!(world.job(long.job).state.name(), StateName::Queued);
}

pub fn a_reap_tells_when_the_earliest_lease_ends<S: Subject>() {
    let mut world = World::<S>::alone();
    let empty_page = reap_up_to(0);
    let next =
        |world: &mut World<S>| world.commit(|batch| batch.reap = Some(empty_page)).next_expiry.at();
    assert_eq!(next(&mut world), None);
    let first = world.running(work()).job;
    let ends = world.now().plus(LEASE);
    assert_eq!(next(&mut world), Some(ends));
    world.advance(Millis::seconds(5));
    let second = world.running(work()).job;
    assert_eq!(next(&mut world), Some(ends), "the earlier lease ends first");
    world.advance(Millis::seconds(5));
    world.heartbeat(first.token(), None).expect("the heartbeat of the holder counts");
    let ends = second.lease().expect("it was claimed").until;
    assert_eq!(next(&mut world), Some(ends), "the heartbeat put the first behind the second");
    world.settle(second.token(), complete()).expect("the holder reports");
    assert_eq!(next(&mut world), Some(world.now().plus(LEASE)));
    world.advance(LEASE);
    let out = world.commit(|batch| batch.reap = Some(reap_up_to(10)));
    assert_eq!((out.reaped, out.next_expiry), (Some(requeued(1)), Next::Known(None)));
}

// The state of the job.

pub fn an_expired_lease_is_requeued_at_once_with_its_attempt_and_its_error<S: Subject>() {
    let mut world = World::<S>::new();
    let held = world.running(work()).job;
    world.advance(LEASE.plus(Millis::seconds(3)));
    let now = world.now();
    assert_eq!(world.reap(reap_up_to(10)), requeued(1));
    let detail = world.detail(held.id);
    let job = &detail.job;
    assert_eq!(job.state, State::Queued { ready: true, last_verdict: None });
    assert_eq!((job.run_at, job.updated_at), (now, now), "it waits for nothing");
    assert_eq!((job.attempts, job.epoch, job.generation), (1, held.epoch, 0));
    let [attempt] = &world.attempts(held.id)[..] else { panic!("one attempt is remembered") };
    assert_eq!((attempt.epoch, attempt.outcome), (held.epoch, AttemptOutcome::Expired));
    assert_eq!(attempt.worker.as_str(), "w1");
    assert_eq!((Some(attempt.started_at), attempt.ended_at), (held.started_at, now));
    assert_eq!(attempt.error, detail.last_error, "the job keeps the error of its attempt");
    let error = detail.last_error.expect("there is a reason");
    assert!(error.as_str().contains("w1"), "the reason names the worker: {}", error.as_str());
    let again = world.claim_one("w2").job;
    assert_eq!((again.id, again.attempts), (held.id, 2));
    assert_eq!(again.epoch, held.epoch.next(), "the next claim is the next epoch");
}

pub fn the_last_attempt_expired_goes_to_the_dead_letters_with_a_reason<S: Subject>() {
    let mut world = World::<S>::new();
    let held = world.running(NewJob { max_retries: Some(retries(0)), ..work() }).job;
    world.advance(LEASE);
    let now = world.now();
    assert_eq!(world.reap(reap_up_to(10)), failed(1));
    let detail = world.detail(held.id);
    let error = detail.last_error.expect("a dead letter has a reason");
    let group = ErrorGroup::of(&held.kind, &ErrorText::of_message(error.as_str()));
    let dead = State::Failed { finished_at: now, last_verdict: None, group: group.id };
    assert_eq!(detail.job.state, dead);
    assert!(error.as_str().contains("lease ran out"), "not a reason: {}", error.as_str());
    assert_eq!(world.attempts(held.id).len(), 1);
    world.assert_nothing_to_claim();
}

pub fn a_job_that_expires_every_time_is_run_as_often_as_it_may_be<S: Subject>() {
    let mut world = World::<S>::new();
    let id = world.enqueue(NewJob { max_retries: Some(retries(2)), ..work() });
    for attempt in 1..=3 {
        assert_eq!(world.claim_one("w1").job.attempts, attempt);
        world.advance(LEASE);
        let expected = if attempt < 3 { requeued(1) } else { failed(1) };
        assert_eq!(world.reap(reap_up_to(10)), expected, "attempt {attempt}");
    }
    let epochs: Vec<Epoch> = world.attempts(id).iter().map(|attempt| attempt.epoch).collect();
    assert_eq!(epochs, [1, 2, 3].map(Epoch::new));
}

pub fn a_reaped_job_is_claimed_again_in_the_same_batch<S: Subject>() {
    let mut world = World::<S>::new();
    let held = world.running(work()).job;
    world.advance(LEASE);
    let out = world.commit(|batch| {
        batch.reap = Some(reap_up_to(10));
        batch.claims.push(claim_for(main_work(), "w2", 1));
    });
    let again = &out.claims[0].jobs[0].job;
    assert_eq!((again.id, again.epoch), (held.id, held.epoch.next()));
    assert_eq!(world.attempts(held.id).len(), 1);
}

pub fn a_report_that_comes_after_the_reaping_is_refused<S: Subject>() {
    let mut world = World::<S>::new();
    let token = world.running(work()).job.token();
    let last = world.running(NewJob { max_retries: Some(retries(0)), ..work() }).job.token();
    world.advance(LEASE);
    assert_eq!(world.reap(reap_up_to(10)), Reaped::Page { requeued: 1, failed: 1, next: None });
    for (token, state) in [(token, StateName::Queued), (last, StateName::Failed)] {
        let stale =
            JobRefused::from(Rejected::Stale { reason: Expired, state, epoch: token.epoch });
        let verdicts = [complete(), fail("late"), snooze(TICK), Verdict::Release];
        for verdict in verdicts {
            assert_eq!(world.settle(token, verdict), Err(stale));
        }
        assert_eq!(world.heartbeat(token, None), Err(stale));
        assert_eq!(world.attempts(token.job).len(), 1, "a late report leaves no attempt");
    }
    let again = world.claim_one("w2").job;
    let stale =
        Rejected::Stale { reason: Expired, state: StateName::Processing, epoch: again.epoch };
    assert_eq!(world.settle(token, complete()), Err(stale.into()));
    assert_eq!(world.job(again.id), again, "the new holder is not disturbed");
}

// In the same batch.

pub fn a_job_settled_in_the_same_batch_is_not_reaped<S: Subject>() {
    let mut world = World::<S>::new();
    let done = world.running(work()).job.token();
    let retried = world.running(work()).job.token();
    world.advance(LEASE);
    let out = world.commit(|batch| {
        batch.settles.push(Settle { token: done, verdict: complete() });
        batch.settles.push(Settle { token: retried, verdict: fail("its own error") });
        batch.reap = Some(reap_up_to(10));
    });
    assert_eq!(out.reaped, Some(NOTHING));
    assert_eq!(out.settles, [Ok(StateName::Done), Ok(StateName::Queued)]);
    assert_eq!(world.attempts(done.job), []);
    let [attempt] = &world.attempts(retried.job)[..] else { panic!("one attempt is remembered") };
    assert_eq!(attempt.outcome, AttemptOutcome::Failed);
}

pub fn a_heartbeat_in_the_same_batch_saves_the_lease<S: Subject>() {
    let mut world = World::<S>::new();
    let token = world.running(work()).job.token();
    world.advance(LEASE);
    let out = world.commit(|batch| {
        batch.heartbeats.push(Heartbeat { token, extend: None, progress: None });
        batch.reap = Some(reap_up_to(10));
    });
    assert_eq!(out.reaped, Some(NOTHING));
    assert_eq!(world.job(token.job).token(), token);
    assert_eq!(world.settle(token, complete()), Ok(StateName::Done));
}

pub fn a_job_cancelled_in_the_same_batch_is_not_reaped<S: Subject>() {
    let mut world = World::<S>::new();
    let id = world.running(work()).job.id;
    world.advance(LEASE);
    let out = world.commit(|batch| {
        batch.admin.push(Admin::Cancel(id));
        batch.reap = Some(reap_up_to(10));
    });
    assert_eq!(out.reaped, Some(NOTHING));
    assert_eq!(world.job(id).state.name(), StateName::Cancelled);
}

// Pages.

pub fn leases_are_reaped_page_by_page_none_skipped_and_none_twice<S: Subject>() {
    let mut world = World::<S>::new();
    let mut ids = Vec::new();
    for _ in 0..3 {
        // Several run out at the same instant, so that a page ends between two of them.
        let out = world.commit(|batch| {
            batch.enqueues.extend([work(), work(), work()]);
            batch.claims.push(claim_for(main_work(), "w1", 3));
        });
        ids.extend(out.claims[0].jobs.iter().map(|leased| leased.job.id));
        world.advance(Millis::seconds(1));
    }
    world.advance(LEASE);
    assert_eq!(reap_all(&mut world, reap_up_to(4)), [4, 4, 1]);
    assert_reaped_once(&mut world, &ids);
}

pub fn the_earliest_end_is_reaped_first<S: Subject>() {
    let mut world = World::<S>::new();
    let late = world.running(work()).job;
    let early = world.running(work()).job;
    world
        .heartbeat(late.token(), Some(lease(Millis::minutes(2))))
        .expect("the heartbeat of the holder counts");
    world
        .heartbeat(early.token(), Some(lease(Millis::minutes(1))))
        .expect("the heartbeat of the holder counts");
    let until = world.now().plus(Millis::minutes(1));
    world.advance(Millis::hours(1));
    let next = Some(Cursor { at: until, id: early.id });
    assert_eq!(world.reap(reap_up_to(1)), Reaped::Page { requeued: 1, failed: 0, next });
    assert_eq!(world.job(early.id).state.name(), StateName::Queued);
    assert_eq!(world.job(late.id).state.name(), StateName::Processing);
}

pub fn more_than_a_page_of_expired_leases_is_reaped_with_the_cursor<S: Subject>() {
    let mut world = World::<S>::alone();
    let count = PAGE_ROWS + PAGE_ROWS / 2;
    let out = world.load(|batch| {
        batch.enqueues.extend(std::iter::repeat_n(work(), count));
        batch.claims.push(claim_for(main_work(), "w1", count));
    });
    assert_eq!(out.claims[0].jobs.len(), count);
    world.advance(LEASE);
    let reap = reap_up_to(PAGE_ROWS);
    let out = world.load(|batch| batch.reap = Some(reap));
    let Some(Reaped::Page { requeued: PAGE_ROWS, failed: 0, next: Some(next) }) = out.reaped else {
        panic!("the first page is full: {:?}", out.reaped)
    };
    let rest = world.load(|batch| batch.reap = Some(Reap { after: Some(next), ..reap }));
    assert_eq!(rest.reaped, Some(requeued(count - PAGE_ROWS)));
    assert_eq!(rest.next_expiry, Next::Known(None), "no lease is left");
    assert_eq!(world.dump().attempts.len(), count, "each was taken back once");
    world.check();
}

// By which clock.

pub fn a_lease_given_before_the_clock_was_stepped_counts_its_full_length_again<S: Subject>() {
    let mut world = World::<S>::new();
    let running = world.running(work()).job;
    world.advance(Millis::hours(1));
    let since = world.now();
    world.clock.trusted_since = Some(since);
    let reap = reap_up_to(10);
    assert_eq!(world.reap(reap), NOTHING, "an hour in no time is a step, not a silence");
    almost_expire(&mut world);
    assert_eq!(world.reap(reap), NOTHING);
    assert_eq!(world.job(running.id), running);
    world.advance(TICK);
    assert_eq!(world.reap(reap), requeued(1));
}

pub fn a_lease_given_after_the_clock_was_stepped_runs_out_at_its_own_end<S: Subject>() {
    let mut world = World::<S>::new();
    world.clock.trusted_since = Some(world.now());
    let reap = reap_up_to(10);
    world.advance(Millis::seconds(10));
    world.running(work());
    almost_expire(&mut world);
    assert_eq!(world.reap(reap), NOTHING);
    world.advance(TICK);
    assert_eq!(world.reap(reap), requeued(1));
}

pub fn leases_held_at_the_head_do_not_stop_later_ones_from_being_reaped<S: Subject>() {
    let mut world = World::<S>::new();
    let long = NewJob { visibility_timeout: Some(lease(Millis::minutes(10))), ..work() };
    let held: Vec<_> = (0..3).map(|_| world.running(long.clone()).job).collect();
    world.advance(Millis::hours(1));
    let since = world.now();
    let short = NewJob { visibility_timeout: Some(lease(Millis::seconds(1))), ..work() };
    let gone: Vec<JobId> = (0..2).map(|_| world.running(short.clone()).job.id).collect();
    world.advance(Millis::seconds(1));
    world.clock.trusted_since = Some(since);
    assert_eq!(reap_all(&mut world, reap_up_to(2)), [0, 1, 1]);
    assert_reaped_once(&mut world, &gone);
    for job in held {
        assert_eq!(world.job(job.id), job, "a held lease is left as it was");
    }
}

pub fn a_clock_that_disagrees_by_more_than_a_second_reaps_nothing<S: Subject>() {
    let mut world = World::<S>::new();
    let running = world.running(work()).job;
    world.advance(LEASE);
    let far = CLOCK_STEP.plus(TICK);
    for expected in [world.now().plus(far), world.now().minus(far)] {
        world.clock.expected = Some(expected);
        let out = world.commit(|batch| batch.reap = Some(reap_up_to(10)));
        assert_eq!((out.reaped, out.wrote), (Some(Reaped::ClockStepped), false));
    }
    assert_eq!(world.job(running.id), running);
}

pub fn a_clock_that_disagrees_by_a_second_and_no_more_is_accepted<S: Subject>() {
    let mut world = World::<S>::new();
    for ahead in [true, false] {
        world.running(work());
        world.advance(LEASE);
        let now = world.now();
        let expected = if ahead { now.plus(CLOCK_STEP) } else { now.minus(CLOCK_STEP) };
        world.clock.expected = Some(expected);
        assert_eq!(world.reap(reap_up_to(10)), requeued(1));
        world.clock.expected = None;
        let token = world.claim_one("w1").job.token();
        world.settle(token, complete()).expect("the holder reports");
    }
}

pub fn a_stepped_clock_stops_the_reaping_and_nothing_else_of_the_batch<S: Subject>() {
    let mut world = World::<S>::new();
    world.clock.expected = Some(world.now().plus(Millis::hours(1)));
    let reap = reap_up_to(10);
    let out = world.commit(|batch| {
        batch.enqueues.push(work());
        batch.admin.push(Admin::SeeWorker(announced("w1")));
        batch.reap = Some(reap);
        batch.claims.push(claim_for(demand_for(&work()), "w1", 1));
    });
    assert_eq!(out.reaped, Some(Reaped::ClockStepped));
    assert_eq!(out.claims[0].jobs.len(), 1);
}
