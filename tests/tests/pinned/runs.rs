//! Local runs and their leases.

use windlass_core::machine::{Answer, Effect, StopReason, StoreCall};
use windlass_core::store::Store;
use windlass_core::{JobTimeout, LeaseToken, Millis, StateName};
use windlass_tests::stage::token;

use crate::{brief, stage, state};

/// The commit that claimed a job took longer than its lease: the run was started when somebody else
/// could hold the job already. Found by a review.
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
/// next reaping gave the job to somebody else. Found while pinning the one above.
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

/// A run that was told to stop for its timeout got no heartbeats any more: its lease ran out while
/// its handler was still ending, and the job ran a second time beside it. Found by a review.
#[test]
fn a_run_that_was_told_to_stop_keeps_its_lease_while_it_ends() {
    let mut stage = stage(2);
    let mut new = brief();
    new.timeout = Some(JobTimeout::new(3_000).expect("a timeout"));
    stage.enqueue(new);
    stage.settle();
    stage.pass(Millis::seconds(6));
    let told = Effect::Stop { token: token("1.1"), reason: StopReason::TimedOut };
    assert!(stage.effects.contains(&told), "{}", stage.log());
    assert_eq!(stage.started(), [token("1.1")]);
}
