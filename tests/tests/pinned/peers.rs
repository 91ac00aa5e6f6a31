//! What happened to other queues, as scenarios that must not happen here.

use windlass_core::machine::{Config, Input, Limits, Request, StoreCall};
use windlass_core::store::{Reader, Settle, Store};
use windlass_core::{MaxRetries, Millis, NewJob, ProcessId, StateName, Verdict};
use windlass_store_memory::{Fault, MemoryStore};
use windlass_tests::stage::{Stage, config, job, token};

use crate::{brief, row, second, stage, state, stored};

/// A job that may be tried once, with a lease of a second.
fn last_chance() -> NewJob {
    NewJob { max_retries: Some(MaxRetries::MIN), ..brief() }
}

/// A second process over the store of the first, at the same time of day.
fn beside(first: &Stage<MemoryStore>, config: Config) -> Stage<MemoryStore> {
    let mut other = Stage::with(first.store.another(), config);
    other.now = first.now;
    other.settle();
    other
}

/// A job was both finished and failed: its report and the reaper came at the same moment, and each
/// wrote what it had read. Here one of them wins, in either order, and the other is refused.
#[test]
fn a_report_and_the_reaper_at_one_moment_give_one_verdict() {
    for report_first in [true, false] {
        let mut stage = stage(0);
        stage.enqueue(last_chance());
        stage.poll("remote", Millis::ZERO);
        stage.settle();
        let mut reaper = beside(&stage, second(0));
        let verdict = Verdict::Complete { result: None };
        let report = Request::Settle(Settle { token: token("1.1"), verdict });
        if report_first {
            stage.request(report);
            stage.settle();
            reaper.pass(Millis::seconds(3));
            assert_eq!(state(&stage.store), StateName::Done);
        } else {
            reaper.pass(Millis::seconds(3));
            stage.request(report);
            stage.settle();
            assert_eq!(state(&stage.store), StateName::Failed);
            assert_eq!(stage.machine.stats().stale_reports, 1);
        }
    }
}

/// The write of a verdict failed while its worker was healthy. The worker went on with heartbeats
/// for a job that was long done, so that it was leased for ever. Here the verdict is tried again
/// until the store has answered it, and heartbeats stop when the handler returns.
#[test]
fn a_verdict_that_could_not_be_written_is_written_later_and_its_lease_is_not_extended() {
    let mut stage = stage(1);
    stage.enqueue(brief());
    stage.settle();
    for _ in 0..20 {
        stage.store.fail_next(Fault::NotCommitted);
    }
    let before = row(&stage.store).lease().cloned();
    stage.complete("1.1");
    stage.pass(Millis::new(500));
    assert_eq!(row(&stage.store).lease().cloned(), before, "no heartbeat");
    stage.store.clear_faults();
    stage.pass(Millis::seconds(5));
    assert_eq!(state(&stage.store), StateName::Done);
}

/// A nightly job that took longer than its lease ran two or three times, because no process
/// extended the lease while it ran. Here the machine does, in the same batches as everything else.
#[test]
fn a_job_that_takes_longer_than_its_lease_runs_once() {
    let mut stage = stage(1);
    stage.enqueue(brief());
    stage.settle();
    let mut other = beside(&stage, second(1));
    for _ in 0..100 {
        stage.pass(Millis::new(100));
        other.pass(Millis::new(100));
    }
    assert_eq!(stage.started().len() + other.started().len(), 1);
    stage.complete("1.1");
    stage.settle();
    assert_eq!(state(&stage.store), StateName::Done);
}

/// A worker restarted under the name of its host, found its own old leases, took them for its
/// current ones, and neither ran nor released them. Here a worker has a name of its own per boot,
/// and what is taken back depends on the lease alone, whatever its holder is called.
#[test]
fn a_worker_that_restarts_under_its_old_name_does_not_keep_its_old_leases_alive() {
    let mut stage = stage(1);
    stage.enqueue(brief());
    stage.settle();
    let mut again = beside(&stage, Config { process: ProcessId(2), ..config(1) });
    again.pass(Millis::seconds(3));
    assert_eq!(again.started(), [token("1.2")]);
}

/// A crash on the last attempt left a job that was neither claimable, for its attempts were used
/// up, nor reapable, for the reaper only looked for jobs with attempts left. It happened twice.
#[test]
fn a_crash_on_the_last_attempt_ends_in_the_dead_letter_queue() {
    let mut stage = stage(1);
    stage.enqueue(last_chance());
    stage.settle();
    let mut other = beside(&stage, second(1));
    other.pass(Millis::seconds(2));
    assert_eq!(state(&stage.store), StateName::Failed);
    assert!(crate::detail(&stage.store).last_error.is_some());
}

/// The reaper read its first page again and again. Leases that could not be taken back filled it,
/// and those behind them were never reached. Here a pass goes on behind the page before it.
#[test]
fn leases_that_cannot_be_taken_back_do_not_hide_those_behind_them() {
    let limits = Limits { page: 2, ..Limits::default() };
    let mut stage = Stage::with(MemoryStore::new(), Config { limits, ..config(0) });
    for _ in 0..6 {
        stage.enqueue(job());
        stage.poll("remote", Millis::ZERO);
        stage.settle();
    }
    // Each of these leases was given before the clock was set: all are held, and all look expired.
    stage.step_wall(3_600_000);
    stage.settle();
    stage.enqueue(brief());
    stage.poll("another", Millis::ZERO);
    stage.settle();
    stage.pass(Millis::seconds(4));
    let dump = stage.store.reader().and_then(|mut reader| reader.dump()).expect("it dumps");
    let last = dump.jobs.last().expect("seven jobs");
    assert_eq!(last.job.state.name(), StateName::Queued, "it was behind six others");
    assert_eq!(stored(&stage.store), 7);
}

/// The thread that wrote died of its first error. The process stayed up, answered its health
/// check, and claimed nothing any more. Here an error of the store is tried again.
#[test]
fn a_process_goes_on_claiming_after_errors_of_its_store() {
    let mut stage = stage(1);
    let faults = [Fault::NotCommitted, Fault::UnknownNotCommitted, Fault::FatalNotCommitted];
    for fault in faults {
        stage.store.fail_next(fault);
        stage.enqueue(job());
        stage.settle();
        stage.pass(Millis::seconds(3));
    }
    let before = stage.started();
    for token in before {
        stage.complete(&token.to_string());
    }
    stage.take_effects();
    stage.enqueue(job());
    stage.settle();
    stage.pass(Millis::seconds(1));
    assert_eq!(stage.started().len(), 1, "{}", stage.log());
}

/// A job that another process had enqueued on a shared file waited for the next check, 149 ms at
/// the median. A hint of the other process brings the check forward; a thousand hints do not make
/// a thousand checks.
#[test]
fn a_hint_brings_the_next_check_forward_and_many_hints_do_not_make_many_checks() {
    let store = MemoryStore::new();
    let mut other = Stage::with(store.another(), second(0));
    let change_check = Some(Millis::new(250));
    let mut stage = Stage::with(store, Config { change_check, ..config(1) });
    stage.settle();
    other.now = stage.now;
    stage.pass(Millis::new(20));
    other.enqueue(job());
    other.settle();
    stage.input(Input::Changed);
    stage.settle();
    assert_eq!(stage.started(), [token("1.1")], "no time has passed\n{}", stage.log());
    let mut checks = 0;
    for _ in 0..1_000 {
        stage.input(Input::Changed);
        while let Some(call) = stage.take_call() {
            checks += usize::from(matches!(call, StoreCall::News(_)));
            stage.make_call(call);
        }
    }
    assert_eq!(checks, 0, "the check was made just now");
    let next = stage.machine.poll_timeout().expect("a check");
    assert_eq!(next.at.since(stage.now.mono), Millis::new(5), "{next:?}");
}
