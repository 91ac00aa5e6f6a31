//! Local runs and their leases.

use windlass_core::machine::{Answer, Config, Effect, Input, Phase, StopReason, StoreCall};
use windlass_core::store::{Admin, Store};
use windlass_core::{JobId, JobTimeout, LeaseToken, Millis, StateName};
use windlass_tests::stage::{Stage, config, job, token};

use crate::{brief, second, stage, stage_with, state};

/// The commit that claimed a job took longer than its lease: the run was started when another
/// worker could hold the job already. Found by a review.
#[test]
fn a_claim_that_outlasted_its_lease_does_not_start_a_run() {
    let mut stage = stage(1);
    stage.enqueue(brief());
    let Some(StoreCall::Commit(batch)) = stage.take_call() else { panic!("a commit") };
    let result = stage.store.commit(stage.now.wall, &batch);
    assert_eq!(state(&stage.store), StateName::Processing);
    stage.idle(Millis::seconds(5));
    stage.machine.handle_committed(stage.now, batch, result);
    stage.settle();
    assert_eq!(stage.started(), [token("1.2")], "the first claim is given back, for another");
}

/// The same, for a remote worker: its poll was answered with a job whose lease was over, and the
/// next reaping gave the job to another worker. Found while pinning the one above.
#[test]
fn a_claim_that_outlasted_its_lease_is_not_handed_to_a_remote_worker() {
    let mut stage = stage(0);
    stage.enqueue(brief());
    let poll = stage.poll("remote", Millis::seconds(30));
    let Some(StoreCall::Commit(batch)) = stage.take_call() else { panic!("a commit") };
    let result = stage.store.commit(stage.now.wall, &batch);
    stage.idle(Millis::seconds(5));
    stage.machine.handle_committed(stage.now, batch, result);
    stage.settle();
    let Some(Answer::Jobs(jobs)) = stage.answer(poll) else { panic!("the poll is answered") };
    let tokens: Vec<LeaseToken> = jobs.iter().map(|run| run.job.token()).collect();
    assert_eq!(tokens, [token("1.2")], "the first claim is given back, for another");
}

/// A run that was asked to stop for its timeout got no heartbeats any more: its lease ran out while
/// its handler was still ending, and the job ran a second time beside it. Found by a review.
#[test]
fn a_run_that_was_asked_to_stop_keeps_its_lease_while_it_ends() {
    let mut stage = stage(2);
    let mut new = brief();
    new.timeout = Some(JobTimeout::new(3_000).expect("a timeout"));
    stage.enqueue(new);
    stage.settle();
    stage.pass(Millis::seconds(6));
    let stop = Effect::Stop { token: token("1.1"), reason: StopReason::TimedOut };
    assert!(stage.effects.contains(&stop), "{}", stage.log());
    assert_eq!(stage.started(), [token("1.1")]);
}

/// A process that drained asked for no news: a handler whose job another process had cancelled ran
/// on until the next heartbeat, a third of its lease later. Found by an audit.
#[test]
fn a_job_that_another_process_cancels_is_stopped_while_its_process_drains() {
    let change_check = Some(Millis::new(100));
    let mut stage = stage_with(Config { change_check, ..config(1) });
    stage.enqueue(job());
    stage.settle();
    let mut other = Stage::with(stage.store.another(), second(0));
    other.now = stage.now;
    other.settle();
    stage.input(Input::Drain { deadline: Millis::seconds(60) });
    stage.settle();
    other.admin(Admin::Cancel(JobId::FIRST));
    other.settle();
    stage.pass(Millis::new(250));
    let stop = Effect::Stop { token: token("1.1"), reason: StopReason::Cancelled };
    assert!(stage.effects.contains(&stop), "{}", stage.log());
    stage.complete("1.1");
    stage.settle();
    assert_eq!(stage.machine.phase(), Phase::Stopped);
}
