//! Cancel and replay of single jobs: where each is allowed, and what it does to the holder's token.

use windlass_core::StaleReason::{Cancelled, Expired, Settled};
use windlass_core::store::{Admin, AdminDone, AdminRefused, JobRefused, Settle};
use windlass_core::{
    Epoch, EventName, Job, JobId, LastVerdict, Millis, NewJob, Rejected, State, StateName, Verdict,
    When,
};

use crate::fixture::{
    RETRY_WAIT, Subject, TICK, World, claim_for, complete, complete_with, delay, fail,
    fail_for_good, main_work, queue, retries, snooze, work,
};

fn refused(event: EventName, state: StateName) -> AdminRefused {
    JobRefused::from(Rejected::Illegal { event, state }).into()
}

#[track_caller]
fn cancel<S: Subject>(world: &mut World<S>, id: JobId) -> Job {
    done_to(world, Admin::Cancel(id))
}

#[track_caller]
fn replay<S: Subject>(world: &mut World<S>, id: JobId) -> Job {
    done_to(world, Admin::Replay(id))
}

/// Runs a command on a job; the answer must show the job as it is stored.
#[track_caller]
fn done_to<S: Subject>(world: &mut World<S>, command: Admin) -> Job {
    let done = world.admin(command).expect("the job allows it");
    let AdminDone::Job(job) = done else { panic!("the answer is the job, not {done:?}") };
    assert_eq!(*job, world.job(job.id), "the answer shows the job as it is stored");
    *job
}

fn scheduled() -> NewJob {
    NewJob { when: When::After(delay(Millis::hours(1))), ..work() }
}

// Cancel.

pub fn a_waiting_job_is_cancelled_and_not_run<S: Subject>() {
    let mut world = World::<S>::new();
    for new in [work(), scheduled()] {
        let id = world.enqueue(new);
        let job = cancel(&mut world, id);
        let finished_at = world.now();
        assert_eq!(job.state, State::Cancelled { finished_at, last_verdict: None });
        assert_eq!((job.attempts, job.epoch), (0, Epoch::NEVER));
    }
    world.advance(Millis::hours(2));
    assert_eq!(world.promote(10).count, 0);
    world.assert_nothing_to_claim();
}

pub fn a_running_job_is_cancelled_and_its_token_is_stale<S: Subject>() {
    let mut world = World::<S>::new();
    let token = world.running(work()).job.token();
    let job = cancel(&mut world, token.job);
    let finished_at = world.now();
    assert_eq!(job.state, State::Cancelled { finished_at, last_verdict: None });
    assert_eq!((job.attempts, job.epoch), (1, token.epoch));
    let stale = JobRefused::from(Rejected::Stale {
        reason: Cancelled,
        state: StateName::Cancelled,
        epoch: job.epoch,
    });
    let verdicts = [complete_with("1"), fail("late"), snooze(TICK), Verdict::Release];
    for verdict in verdicts {
        assert_eq!(world.settle(token, verdict), Err(stale));
    }
    assert_eq!(world.heartbeat(token, None), Err(stale));
    let after = world.detail(token.job);
    assert_eq!((after.job, after.result), (job, None), "a refused report leaves nothing");
}

pub fn cancelling_twice_is_cancelling_once<S: Subject>() {
    let mut world = World::<S>::new();
    let id = world.cancelled(work());
    let first = world.job(id);
    world.advance(Millis::seconds(1));
    let out = world.commit(|batch| batch.admin.push(Admin::Cancel(id)));
    assert_eq!(out.admin, [Ok(AdminDone::Job(Box::new(first.clone())))]);
    assert!(!out.wrote, "the second time there is nothing to write");
    assert_eq!(world.job(id), first);
}

pub fn a_job_that_is_done_or_failed_cannot_be_cancelled<S: Subject>() {
    let mut world = World::<S>::new();
    let done = world.done(work());
    let dead = world.dead(work(), "broken");
    for (id, state) in [(done, StateName::Done), (dead, StateName::Failed)] {
        let before = world.detail(id);
        world.advance(Millis::seconds(1));
        assert_eq!(world.admin(Admin::Cancel(id)), Err(refused(EventName::Cancel, state)));
        assert_eq!(world.detail(id), before);
    }
}

pub fn a_verdict_repeated_after_the_cancel_is_answered_as_it_was_then<S: Subject>() {
    let mut world = World::<S>::new();
    let token = world.running(work()).job.token();
    assert_eq!(world.settle(token, fail("once")), Ok(StateName::Queued));
    let job = cancel(&mut world, token.job);
    assert_eq!(world.settle(token, fail("once")), Ok(StateName::Queued));
    let stale =
        Rejected::Stale { reason: Settled, state: StateName::Cancelled, epoch: token.epoch };
    assert_eq!(world.settle(token, complete()), Err(stale.into()), "another verdict is too late");
    assert_eq!(world.job(token.job), job);
}

pub fn a_job_cancelled_in_the_same_batch_is_not_claimed<S: Subject>() {
    let mut world = World::<S>::new();
    let id = world.enqueue(work());
    let out = world.commit(|batch| {
        batch.admin.push(Admin::Cancel(id));
        batch.claims.push(claim_for(main_work(), "w1", 1));
    });
    assert_eq!(out.claims[0].jobs, []);
    assert_eq!(world.job(id).epoch, Epoch::NEVER);
}

pub fn a_report_in_the_same_batch_comes_before_the_cancel<S: Subject>() {
    let mut world = World::<S>::new();
    let token = world.running(work()).job.token();
    let out = world.commit(|batch| {
        batch.settles.push(Settle { token, verdict: complete() });
        batch.admin.push(Admin::Cancel(token.job));
    });
    assert_eq!(out.settles, [Ok(StateName::Done)]);
    assert_eq!(out.admin, [Err(refused(EventName::Cancel, StateName::Done))]);
}

// Replay.

pub fn a_failed_job_is_replayed_with_its_attempts_back_and_its_epoch_kept<S: Subject>() {
    let mut world = World::<S>::new();
    let id = world.dead(work(), "broken");
    let before = world.detail(id);
    world.advance(Millis::minutes(1));
    let now = world.now();
    let job = replay(&mut world, id);
    assert_eq!(
        job.state,
        State::Queued { ready: true, last_verdict: Some(LastVerdict::Permanent) }
    );
    assert_eq!((job.attempts, job.generation, job.run_at), (0, 1, now));
    assert_eq!(job.epoch, before.job.epoch);
    let detail = world.detail(id);
    assert_eq!(detail.last_error, before.last_error, "what went wrong is still stored");
    assert_eq!(world.attempts(id).len(), 1);
    let claimed = world.claim_one("w1").job;
    assert_eq!((claimed.id, claimed.attempts, claimed.generation), (id, 1, 1));
    assert_eq!(claimed.epoch, before.job.epoch.next());
}

pub fn a_cancelled_job_is_replayed_the_same_way<S: Subject>() {
    let mut world = World::<S>::new();
    let ran = world.running(work()).job;
    cancel(&mut world, ran.id);
    let never_ran = world.cancelled(scheduled());
    world.advance(Millis::minutes(1));
    let now = world.now();
    for (id, epoch) in [(ran.id, ran.epoch), (never_ran, Epoch::NEVER)] {
        let job = replay(&mut world, id);
        assert_eq!(job.state, State::Queued { ready: true, last_verdict: None });
        assert_eq!((job.attempts, job.generation, job.run_at), (0, 1, now));
        assert_eq!(job.epoch, epoch);
        let claimed = world.claim_one("w1").job;
        assert_eq!((claimed.id, claimed.epoch), (id, epoch.next()));
    }
}

pub fn a_replayed_job_has_all_its_attempts_again<S: Subject>() {
    let mut world = World::<S>::new();
    let id = world.enqueue(NewJob { max_retries: Some(retries(1)), ..work() });
    for generation in 0..3 {
        for state in [StateName::Queued, StateName::Failed] {
            let job = world.claim_one("w1").job;
            assert_eq!(job.generation, generation);
            assert_eq!(world.settle(job.token(), fail("again")), Ok(state));
            world.advance(RETRY_WAIT);
            world.promote(10);
        }
        replay(&mut world, id);
    }
    assert_eq!(world.job(id).epoch, Epoch::new(6), "an epoch per claim, over all generations");
}

pub fn replay_is_refused_for_a_job_that_waits_runs_or_is_done<S: Subject>() {
    let mut world = World::<S>::new();
    let running = world.running(work()).job.id;
    let done = world.done(work());
    let waiting = world.enqueue(work());
    let later = world.enqueue(scheduled());
    let cases = [
        (running, StateName::Processing),
        (done, StateName::Done),
        (waiting, StateName::Queued),
        (later, StateName::Queued),
    ];
    for (id, state) in cases {
        let before = world.detail(id);
        assert_eq!(world.admin(Admin::Replay(id)), Err(refused(EventName::Replay, state)));
        assert_eq!(world.detail(id), before);
    }
}

pub fn a_token_from_before_the_replay_does_not_settle_the_new_run<S: Subject>() {
    let mut world = World::<S>::new();
    let old = world.running(work()).job.token();
    cancel(&mut world, old.job);
    replay(&mut world, old.job);
    let waits = Rejected::Stale { reason: Expired, state: StateName::Queued, epoch: old.epoch };
    assert_eq!(world.settle(old, complete()), Err(waits.into()));
    assert_eq!(world.heartbeat(old, None), Err(waits.into()));
    let new = world.claim_one("w2").job;
    let runs = Rejected::Stale { reason: Expired, state: StateName::Processing, epoch: new.epoch };
    assert_eq!(world.settle(old, complete()), Err(runs.into()));
    assert_eq!(world.heartbeat(old, None), Err(runs.into()));
    assert_eq!(world.job(new.id), new);
    assert_eq!(world.settle(new.token(), complete()), Ok(StateName::Done));
}

pub fn a_verdict_repeated_after_the_replay_is_answered_as_it_was_then<S: Subject>() {
    let mut world = World::<S>::new();
    let token = world.running(work()).job.token();
    assert_eq!(world.settle(token, fail_for_good("broken")), Ok(StateName::Failed));
    let replayed = replay(&mut world, token.job);
    assert_eq!(world.settle(token, fail_for_good("broken")), Ok(StateName::Failed));
    let stale = Rejected::Stale { reason: Settled, state: StateName::Queued, epoch: token.epoch };
    assert_eq!(world.settle(token, complete()), Err(stale.into()), "another verdict is too late");
    assert_eq!(world.job(token.job), replayed);
}

pub fn a_job_is_replayed_and_claimed_in_one_batch<S: Subject>() {
    let mut world = World::<S>::new();
    let id = world.dead(work(), "broken");
    let out = world.commit(|batch| {
        batch.admin.push(Admin::Replay(id));
        batch.claims.push(claim_for(main_work(), "w2", 1));
    });
    let [leased] = &out.claims[0].jobs[..] else { panic!("one job is claimed") };
    assert_eq!((leased.job.id, leased.job.generation), (id, 1));
    assert_eq!(leased.job.epoch, Epoch::new(2));
}

pub fn a_replayed_job_stands_behind_those_that_wait_already<S: Subject>() {
    let mut world = World::<S>::new();
    let replayed = world.dead(work(), "broken");
    let waiting = world.enqueue(work());
    world.advance(TICK);
    replay(&mut world, replayed);
    assert_eq!(world.claim_one("w1").job.id, waiting);
    assert_eq!(world.claim_one("w1").job.id, replayed);
}

pub fn a_replayed_job_of_a_paused_queue_waits<S: Subject>() {
    let mut world = World::<S>::new();
    let id = world.dead(work(), "broken");
    world.admin(Admin::pause(queue("main"))).expect("a queue can be paused");
    replay(&mut world, id);
    world.assert_nothing_to_claim();
    world.admin(Admin::Resume(queue("main"))).expect("a queue can be resumed");
    assert_eq!(world.claim_one("w1").job.id, id);
}

pub fn commands_on_the_same_job_take_effect_in_their_order<S: Subject>() {
    let mut world = World::<S>::new();
    let id = world.enqueue(work());
    let out = world.commit(|batch| {
        batch.admin.extend([Admin::Cancel(id), Admin::Replay(id), Admin::Replay(id)]);
    });
    assert!(out.admin[0].is_ok() && out.admin[1].is_ok());
    assert_eq!(out.admin[2], Err(refused(EventName::Replay, StateName::Queued)));
    assert_eq!(out.changes, [], "it was queued and is queued");
    assert_eq!(world.job(id).generation, 1);
}

pub fn an_unknown_job_is_not_found<S: Subject>() {
    let mut world = World::<S>::new();
    let id = world.dump().next_id;
    let not_found: AdminRefused = JobRefused::NotFound(id).into();
    for command in [Admin::Cancel(id), Admin::Replay(id), Admin::Delete(id)] {
        let out = world.commit(|batch| batch.admin.push(command));
        assert_eq!(out.admin, [Err(not_found.clone())]);
        assert!(!out.wrote);
    }
}

pub fn a_refused_command_does_not_spoil_the_others_of_its_batch<S: Subject>() {
    let mut world = World::<S>::new();
    let unknown = world.dump().next_id.plus(100);
    let done = world.done(work());
    let waiting = world.enqueue(work());
    let out = world.commit(|batch| {
        batch.admin.extend([Admin::Cancel(unknown), Admin::Replay(done), Admin::Cancel(waiting)]);
    });
    assert_eq!(out.admin[0], Err(JobRefused::NotFound(unknown).into()));
    assert_eq!(out.admin[1], Err(refused(EventName::Replay, StateName::Done)));
    assert!(out.admin[2].is_ok());
    assert_eq!(world.job(waiting).state.name(), StateName::Cancelled);
}
