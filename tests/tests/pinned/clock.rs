//! The wall clock is set while leases run.

use windlass_core::machine::{Config, Input, Limits, StoreCall};
use windlass_core::store::{Admin, Batch, ClockView, Reader, Reap, Reaped, Store};
use windlass_core::{
    Apply, ApplyStep, BatchId, Fingerprint, Idempotency, IdempotencyKey, Job, JobId, LeaseLength,
    LeaseToken, Millis, Mono, NewJob, Now, Policy, ProcessId, StateName,
};
use windlass_store_memory::{Asked, MemoryStore};
use windlass_tests::stage::{Stage, job, token};

use crate::{second, stage, state};

const HOUR_MS: i64 = 3_600_000;

/// A stage on which a remote worker holds the first job and sends nothing more.
fn stage_with_a_silent_worker() -> Stage<MemoryStore> {
    let mut stage = stage(0);
    stage.enqueue(job());
    stage.poll("remote", Millis::ZERO);
    stage.settle();
    assert_eq!(state(&stage.store), StateName::Processing);
    stage
}

/// The leases of all running jobs.
fn held<S: Store>(store: &S) -> Vec<LeaseToken> {
    let dump = store.reader().expect("a reader").dump().expect("it dumps");
    let jobs = dump.jobs.iter().map(|detail| &detail.job);
    jobs.filter(|job| job.lease().is_some()).map(Job::token).collect()
}

/// Makes every call there is; returns how many of them reap.
fn settle_and_count_reaps<S: Store>(stage: &mut Stage<S>) -> usize {
    let mut reaps = 0;
    while let Some(call) = stage.take_call() {
        reaps += usize::from(matches!(&call, StoreCall::Commit(batch) if batch.reap.is_some()));
        stage.make_call(call);
    }
    reaps
}

/// After a step forward, leases that are held though they look expired stand at the head of the
/// reaper's page. Only a pass of the reaper itself made it pause: every other batch planned the
/// next pass for at once, so that each was followed by one that found nothing to take. Found by a
/// review.
#[test]
fn leases_held_after_a_step_forward_do_not_make_every_batch_reap() {
    let mut stage = stage_with_a_silent_worker();
    stage.step_wall(HOUR_MS);
    stage.settle();
    let mut reaps = 0;
    for _ in 0..100 {
        stage.enqueue(job());
        reaps += settle_and_count_reaps(&mut stage);
        stage.pass(Millis::new(1));
    }
    assert!(reaps < 5, "{reaps} reaps in 100 ms");
    assert_eq!(state(&stage.store), StateName::Processing);
}

/// A clock was set back by an hour: a lease given before ran an hour longer, for its end was an
/// instant of the old clock. Found by a review.
#[test]
fn a_clock_set_back_does_not_make_a_lease_longer_by_the_step() {
    let mut stage = stage_with_a_silent_worker();
    stage.step_wall(-HOUR_MS);
    stage.settle();
    assert_eq!(state(&stage.store), StateName::Processing, "it has its length from the step on");
    stage.pass(Millis::minutes(1));
    assert_eq!(state(&stage.store), StateName::Queued, "a minute after the step, a lease of 30 s");
}

/// The clock was set forward, and a process that started just then knew nothing of it: it reaped
/// the healthy leases of the other one, whose heartbeats were not due for a while. Found by a
/// review.
#[test]
fn a_process_that_starts_after_a_step_forward_does_not_reap_the_healthy_leases_of_another() {
    let mut first = stage(1);
    first.enqueue(job());
    first.settle();
    first.pass(Millis::seconds(1));
    first.step_wall(HOUR_MS);
    first.settle();
    let mut late = Stage::with(first.store.another(), second(1));
    late.now = Now::new(first.now.wall, Mono::new(5));
    late.settle();
    assert_eq!((first.started().len(), late.started()), (1, Vec::new()), "{}", late.log());
}

/// A commit that took seconds was taken as if the store's clock had been read when it began. From
/// then on the clock was expected to be ahead by those seconds, so that a step forward of the same
/// length went unnoticed, and a healthy lease was reaped. Found by the simulation, seed 3541.
#[test]
fn a_slow_commit_does_not_hide_a_step_forward_of_its_own_length() {
    let mut stage = stage(0);
    stage.enqueue(NewJob { visibility_timeout: LeaseLength::new(10_000).ok(), ..job() });
    stage.poll("remote", Millis::ZERO);
    stage.settle();
    stage.enqueue(job());
    let call = stage.take_call().expect("a commit");
    stage.idle(Millis::new(3_900));
    stage.make_call(call);
    stage.settle();
    stage.step_wall(3_900);
    stage.pass(Millis::seconds(4));
    assert_eq!(state(&stage.store), StateName::Processing, "{}", stage.log());
    stage.pass(Millis::seconds(14));
    assert_eq!(state(&stage.store), StateName::Queued, "a length after the step was noticed");
}

/// The same anchor made every slow commit look like a step back: leases that had run out were held
/// for their length once more, though the clock had not been changed.
#[test]
fn a_slow_commit_is_not_taken_for_a_clock_that_was_set() {
    let mut stage = stage(0);
    stage.enqueue(job());
    let call = stage.take_call().expect("a commit");
    stage.idle(Millis::seconds(5));
    stage.make_call(call);
    stage.settle();
    stage.enqueue(job());
    stage.settle();
    assert_eq!(stage.machine.stats().clock_steps, 0, "{}", stage.log());
}

/// Sets the wall clock of a process by so much, and back again. In between the process takes an
/// input but commits nothing, and another process claims a job.
fn claim_while_the_clock_is_off_by(by: i64, stage: &mut Stage<MemoryStore>) {
    stage.step_wall(by);
    stage.input(Input::Changed);
    let mut other = Stage::with(stage.store.another(), second(1));
    other.now = stage.now;
    other.enqueue(job());
    other.settle();
    assert_eq!(other.started().len(), 1, "{}", other.log());
    stage.step_wall(-by);
}

/// A process waited for its store while the wall clock was set back and forward again. Its own
/// clock showed both steps, but only the clock that commits read counted, and the next commit found
/// that in place. So it reaped a lease that another process had written in between, and one of its
/// own that the other had renewed. Found by the simulation, seed 560693.
#[test]
fn a_clock_set_back_and_forward_between_two_commits_reaps_no_healthy_lease() {
    let mut stage = stage(0);
    claim_while_the_clock_is_off_by(-HOUR_MS, &mut stage);
    stage.settle();
    stage.pass(Millis::seconds(29));
    assert_eq!(state(&stage.store), StateName::Processing, "{}", stage.log());
    stage.pass(Millis::seconds(2));
    assert_eq!(state(&stage.store), StateName::Queued, "a length after the steps were noticed");
}

/// The same, where the reaper is due with the first commit after the steps.
#[test]
fn the_first_commit_after_a_clock_was_set_back_and_forward_does_not_reap() {
    let mut stage = stage_with_a_silent_worker();
    stage.pass(Millis::seconds(29));
    claim_while_the_clock_is_off_by(-HOUR_MS, &mut stage);
    let both = [token("1.1"), token("2.1")];
    let call = stage.idle(Millis::seconds(1)).expect("the end of the first lease is due");
    stage.make_call(call);
    stage.settle();
    assert_eq!(held(&stage.store), both, "{}", stage.log());
    stage.pass(Millis::seconds(31));
    assert_eq!(held(&stage.store), [], "a length after the steps were noticed");
}

/// A clock that was set forward and back again: a lease written in between ended an hour too late.
#[test]
fn a_lease_written_while_the_clock_was_ahead_for_a_moment_does_not_last_longer() {
    let mut stage = stage(0);
    claim_while_the_clock_is_off_by(HOUR_MS, &mut stage);
    stage.settle();
    stage.pass(Millis::seconds(31));
    assert_eq!(state(&stage.store), StateName::Queued, "{}", stage.log());
}

/// The same for a slow commit whose answer comes after the steps: it read the clock before them, so
/// leases count from the commit after it.
#[test]
fn a_commit_begun_before_a_clock_was_set_does_not_say_from_when_it_is_trusted() {
    let mut stage = stage(0);
    stage.enqueue(job());
    let Some(StoreCall::Commit(batch)) = stage.take_call() else { panic!("a commit") };
    let result = stage.store.commit(stage.now.wall, &batch);
    assert!(stage.idle(Millis::seconds(10)).is_none(), "the commit is not answered yet");
    claim_while_the_clock_is_off_by(-HOUR_MS, &mut stage);
    stage.machine.handle_committed(stage.now, batch, result);
    stage.settle();
    stage.pass(Millis::seconds(29));
    assert_eq!(held(&stage.store), [token("2.1")], "{}", stage.log());
}

/// The clock was set back while the reaper was between two pages. The pass went on with the next
/// page, so the leases of the first lasted longer by the step. Found by the simulation, seed
/// 3046084, in a first version of the fix above.
#[test]
fn a_pass_of_the_reaper_starts_again_after_a_clock_step() {
    let mut first = stage(2);
    first.enqueue(job());
    first.enqueue(job());
    first.settle();
    let limits = Limits { page: 1, ..Limits::default() };
    let mut stage = Stage::with(first.store.another(), Config { limits, ..second(0) });
    stage.now = first.now;
    let call = stage.take_call().expect("the first page of a pass");
    stage.make_call(call);
    stage.step_wall(-HOUR_MS);
    stage.settle();
    assert_eq!(held(&stage.store).len(), 2, "{}", stage.log());
    stage.pass(Millis::minutes(1));
    assert_eq!(held(&stage.store), [], "{}", stage.log());
}

/// A batch was answered in two rounds with a wait for a lock between them, and the clock was set
/// back during the wait. Only the later of the two instants was compared with what the clock should
/// read, so a lease that looked expired by the clock before was reaped. Found by the simulation,
/// seed 8100003165.
#[test]
fn a_clock_set_back_between_two_answers_of_a_batch_reaps_nothing() {
    let mut stage = stage_with_a_silent_worker();
    let key = IdempotencyKey::new("key").expect("a key");
    let idempotency = Some(Idempotency { key, payload: Fingerprint(0) });
    stage.enqueue(NewJob { idempotency, ..job() });
    let removable = JobId::FIRST.plus(1);
    stage.admin(Admin::Cancel(removable));
    stage.settle();

    let (before, ahead) = (stage.now.wall, stage.now.wall.plus(Millis::minutes(1)));
    let id = BatchId { process: ProcessId(2), seq: 1 };
    let mut batch = Batch::new(id, Policy::default());
    batch.clock = ClockView { expected: Some(ahead), trusted_since: None };
    batch.reap = Some(Reap { limit: 10, after: None, all: false });
    batch.admin.push(Admin::Delete(removable));
    for (second, reaps) in [(ahead, true), (before, false)] {
        let mut transaction = stage.store.begin(id.process);
        let (mut apply, asked) = Apply::new(&batch);
        let Asked::Answers(answers) = transaction.ask(&asked, ahead) else { panic!("no answer") };
        let Ok(ApplyStep::Ask(keys)) = apply.answer(answers) else {
            panic!("the key is asked for")
        };
        let Asked::Answers(answers) = transaction.ask(&keys, second) else { panic!("no answer") };
        assert!(matches!(apply.answer(answers), Ok(ApplyStep::Write(_))));
        let reaped = apply.finish().reaped;
        let page = Reaped::Page { requeued: 1, failed: 0, next: None };
        assert_eq!(reaped, Some(if reaps { page } else { Reaped::ClockStepped }));
    }
}
