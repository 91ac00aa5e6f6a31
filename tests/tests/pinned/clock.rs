//! The wall clock is set while leases run.

use windlass_core::machine::StoreCall;
use windlass_core::store::Store;
use windlass_core::{LeaseLength, Millis, Mono, NewJob, Now, StateName};
use windlass_store_memory::MemoryStore;
use windlass_tests::stage::{Stage, job};

use crate::{second, stage, state};

const HOUR_MS: i64 = 3_600_000;

/// A stage on which a remote worker holds the first job and is not heard from again.
fn stage_with_a_silent_worker() -> Stage<MemoryStore> {
    let mut stage = stage(0);
    stage.enqueue(job());
    stage.poll("remote", Millis::ZERO);
    stage.settle();
    assert_eq!(state(&stage.store), StateName::Processing);
    stage
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
/// for their length once more, though nobody had touched the clock.
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
