//! Bugs that were found, each as the smallest scenario that shows it, with its story on top.

use windlass_core::machine::{Answer, Input, Phase, Refused, Request};
use windlass_core::store::{Admin, Reader, Settle, Store, audit};
use windlass_core::{Failure, JobId, Millis, Verdict};
use windlass_store_memory::{Fault, MemoryStore};
use windlass_tests::stage::{Stage, job, token};

fn stage(slots: usize) -> Stage<MemoryStore> {
    let mut stage = Stage::new(MemoryStore::new(), slots);
    stage.settle();
    stage
}

/// A bulk request without jobs made an empty batch; an empty batch is not committed, so its caller
/// waited for ever. Found by `chaos`.
#[test]
fn a_bulk_request_for_nothing_is_answered() {
    let mut stage = stage(1);
    let enqueue = stage.request(Request::EnqueueMany(Vec::new()));
    let settle = stage.request(Request::SettleMany(Vec::new()));
    stage.settle();
    assert_eq!(stage.answer(enqueue), Some(&Answer::EnqueuedMany(Vec::new())));
    assert_eq!(stage.answer(settle), Some(&Answer::SettledMany(Vec::new())));
}

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

/// A failure and the deletion of its job shared a batch: the attempt and the error were written
/// for a job that was gone, and stayed for ever. Found by `chaos`.
#[test]
fn a_report_and_a_deletion_in_one_batch_leave_nothing_behind() {
    let mut stage = stage(1);
    stage.enqueue(job());
    stage.settle();
    let verdict = Verdict::Fail(Failure::new("no").permanent().into());
    stage.request(Request::Settle(Settle { token: token("1.1"), verdict }));
    let deleted = stage.admin(Admin::Delete(JobId::FIRST));
    stage.settle();
    assert!(matches!(stage.answer(deleted), Some(Answer::Admin(Ok(_)))));
    let dump = stage.store.reader().expect("a reader").dump().expect("it dumps");
    assert_eq!((audit(&dump), dump.attempts), (Vec::new(), Vec::new()));
}

/// The machine was forced to stop while a batch was in doubt: those who waited for it were never
/// told anything. Found by `chaos`.
#[test]
fn a_forced_stop_tells_those_whose_batch_is_in_doubt_that_it_is_not_known() {
    let mut stage = stage(0);
    let request = stage.enqueue(job());
    stage.store.fail_next(Fault::UnknownCommitted);
    let commit = stage.take_call().expect("a commit");
    stage.make_call(commit);
    let _stuck = stage.take_call().expect("a look");
    stage.input(Input::Force);
    stage.idle(Millis::seconds(1));
    assert_eq!(stage.machine.phase(), Phase::Stopped);
    assert!(matches!(stage.answer(request), Some(Answer::Refused(Refused::Unknown(_)))));
}
