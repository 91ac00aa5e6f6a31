//! The store fails: what waits for it, and what ends all the same.

use windlass_core::machine::{Answer, Effect, Health, Input, Phase, Refused, StoreCall};
use windlass_core::store::{Admin, Batch, Cause, CommitError, Outcomes, Store, StoreError};
use windlass_core::{BatchId, JobId, Millis, Policy, ProcessId, StateName, Wall};
use windlass_store_memory::{Fault, MemoryStore};
use windlass_tests::stage::{Stage, job, token};

use crate::{Odd, brief, stage, state, stored};

/// A commit failed, its only request was refused, and the machine was draining: there was nothing
/// left to try, but the timer for the next try stayed in the past, and the driver spun. Found by
/// `chaos`.
#[test]
fn a_retry_with_nothing_left_to_try_does_not_spin_and_lets_the_shutdown_end() {
    let mut stage = stage(0);
    let request = stage.enqueue(job());
    stage.store.fail_next(Fault::Full);
    stage.input(Input::Drain { deadline: Millis::seconds(30) });
    stage.settle();
    assert!(matches!(stage.answer(request), Some(Answer::Refused(Refused::StoreFull(_)))));
    stage.pass(Millis::seconds(1));
    assert_eq!(stage.machine.phase(), Phase::Stopped);
}

/// The machine was forced to stop while the outcome of a commit was unknown: those who waited for
/// it never got an answer. Found by `chaos`.
#[test]
fn a_forced_stop_tells_those_whose_batch_is_in_doubt_that_it_is_not_known() {
    let mut stage = stage(0);
    let request = stage.enqueue(job());
    stage.store.fail_next(Fault::UnknownCommitted);
    let commit = stage.take_call().expect("a commit");
    stage.make_call(commit);
    let _stuck = stage.take_call().expect("a question");
    stage.input(Input::Force);
    stage.idle(Millis::seconds(1));
    assert_eq!(stage.machine.phase(), Phase::Stopped);
    assert!(matches!(stage.answer(request), Some(Answer::Refused(Refused::Unknown(_)))));
}

/// A disk was full, and new jobs kept coming: every batch held one of them, so every batch failed,
/// and the verdicts and heartbeats that shared it were never written, though there was room for
/// them. Healthy runs were stopped for it. Found by a review.
#[test]
fn reports_do_not_wait_for_new_jobs_that_find_no_space() {
    let mut stage = Stage::new(Odd { memory: MemoryStore::new(), commit: no_space }, 2);
    let id = BatchId { process: ProcessId(9), seq: 1 };
    let mut before = Batch::new(id, Policy::default());
    before.enqueues.extend([brief(), brief()]);
    stage.store.memory.commit(stage.now.wall, &before).expect("it commits");
    stage.settle();
    assert_eq!(stage.started().len(), 2);
    stage.complete("1.1");
    for _ in 0..600 {
        stage.enqueue(job());
        stage.settle();
        stage.pass(Millis::new(5));
    }
    assert_eq!(state(&stage.store), StateName::Done);
    let stop = stage.effects.iter().find(|effect| matches!(effect, Effect::Stop { .. }));
    assert_eq!(stop, None, "3 s, with leases of 1 s");
}

/// The same with nothing running: claims and operators' commands shared the batch of new jobs, so
/// nothing stored was ever started, and a job could not be cancelled to make room. Found by a test
/// of the server on a small disk.
#[test]
fn claims_and_orders_do_not_wait_for_new_jobs_that_find_no_space() {
    let mut stage = Stage::new(Odd { memory: MemoryStore::new(), commit: no_space }, 1);
    let first = stage.enqueue(job());
    stage.settle();
    assert!(matches!(stage.answer(first), Some(Answer::Refused(Refused::StoreFull(_)))));
    let id = BatchId { process: ProcessId(9), seq: 1 };
    let mut before = Batch::new(id, Policy::default());
    before.enqueues.extend([brief(), brief()]);
    stage.store.memory.commit(stage.now.wall, &before).expect("it commits");
    stage.input(Input::Changed);
    let cancel = stage.admin(Admin::Cancel(JobId::new(2).expect("not zero")));
    for _ in 0..600 {
        let refused = stage.enqueue(job());
        stage.settle();
        stage.pass(Millis::new(5));
        assert!(matches!(stage.answer(refused), None | Some(Answer::Refused(_))));
    }
    assert_eq!(stage.started(), [token("1.1")]);
    assert!(matches!(stage.answer(cancel), Some(Answer::Admin(Ok(_)))));
}

/// A store without space for anything kept new jobs waiting behind reports that could not be
/// written either, for as long as their runs lasted.
#[test]
fn new_jobs_are_refused_while_not_even_a_report_finds_space() {
    let mut stage = Stage::new(Odd { memory: MemoryStore::new(), commit: MemoryStore::commit }, 1);
    stage.enqueue(job());
    stage.settle();
    stage.store.commit = |_, _, _| Err(CommitError::Full(Cause::new("no space")));
    stage.complete("1.1");
    stage.settle();
    let request = stage.enqueue(job());
    stage.pass(Millis::seconds(5));
    assert!(matches!(stage.answer(request), Some(Answer::Refused(Refused::StoreFull(_)))));
}

/// A store without space for new jobs.
fn no_space(memory: &mut MemoryStore, now: Wall, batch: &Batch) -> Result<Outcomes, CommitError> {
    if batch.enqueues.is_empty() {
        memory.commit(now, batch)
    } else {
        Err(CommitError::Full(Cause::new("no space")))
    }
}

/// The store was lost, and then a reply could not be delivered: its jobs were to be given back by a
/// commit that would never come, and the shutdown waited for it until its deadline. Found by a
/// review.
#[test]
fn a_reply_that_cannot_be_delivered_after_the_store_is_lost_does_not_hold_up_the_shutdown() {
    let mut stage = stage(0);
    stage.enqueue(job());
    stage.poll("remote", Millis::ZERO);
    stage.settle();
    stage.enqueue(job());
    stage.store.fail_next(Fault::Corrupt);
    stage.settle();
    assert!(matches!(stage.machine.health(), Health::Lost(_)));
    stage.input(Input::Undelivered(vec![token("1.1")]));
    stage.input(Input::Drain { deadline: Millis::minutes(10) });
    stage.settle();
    assert_eq!(stage.machine.phase(), Phase::Stopped);
}

/// A database went away just when a COMMIT was under way, and could not say whether it was
/// committed: the clients of that batch, and all behind it, waited for as long as it was away
/// instead of being refused. Found by `outage` of the server's node tests.
#[test]
fn requests_do_not_wait_for_a_store_that_cannot_say_whether_it_has_committed() {
    for fault in [Fault::UnknownCommitted, Fault::UnknownNotCommitted] {
        let mut stage = stage(0);
        stage.store.fail_next(fault);
        let in_doubt = stage.enqueue(job());
        let commit = stage.take_call().expect("a commit");
        stage.make_call(commit);
        let behind = stage.enqueue(job());
        for _ in 0..20 {
            let Some(StoreCall::WasCommitted(batch)) = stage.idle(Millis::seconds(1)) else {
                panic!("the store is not asked:\n{}", stage.log());
            };
            let away = Err(StoreError::Busy(Cause::new("it is away")));
            stage.machine.handle_was_committed(stage.now, batch, away);
        }
        assert!(matches!(stage.machine.health(), Health::Retrying(_)));
        stage.pass(Millis::seconds(2));
        assert!(matches!(stage.answer(in_doubt), Some(Answer::Refused(Refused::Unknown(_)))));
        assert!(matches!(stage.answer(behind), Some(Answer::Refused(Refused::Unavailable(_)))));
        assert_eq!(stage.machine.health(), Health::Good);
        assert_eq!(stored(&stage.store), usize::from(fault == Fault::UnknownCommitted));
        let after = stage.enqueue(job());
        stage.settle();
        assert!(matches!(stage.answer(after), Some(Answer::Enqueued(Ok(_)))));
    }
}

/// The same with a local run: its verdict is kept until it can be written, and a job that the batch
/// claimed but never started is given back.
#[test]
fn verdicts_and_claims_survive_a_store_that_cannot_say_whether_it_has_committed() {
    let mut stage = stage(1);
    stage.enqueue(job());
    stage.settle();
    stage.enqueue(job());
    stage.settle();
    stage.store.fail_next(Fault::UnknownCommitted);
    stage.complete("1.1");
    let commit = stage.take_call().expect("a commit that settles and claims");
    stage.make_call(commit);
    for _ in 0..6 {
        let Some(StoreCall::WasCommitted(batch)) = stage.idle(Millis::seconds(1)) else {
            panic!("the store is not asked:\n{}", stage.log());
        };
        let away = Err(StoreError::Busy(Cause::new("it is away")));
        stage.machine.handle_was_committed(stage.now, batch, away);
    }
    stage.pass(Millis::seconds(2));
    assert_eq!(state(&stage.store), StateName::Done);
    assert_eq!(
        stage.started(),
        [token("1.1"), token("2.2")],
        "the claim of the unknown commit was given back"
    );
}
