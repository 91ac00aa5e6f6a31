//! When a process writes its figures, and that each is counted once whatever becomes of a commit.

use windlass_core::machine::{Config, Input, Phase, StoreCall, WakeReason};
use windlass_core::store::{Store, WorkerKind};
use windlass_core::{FigureSet, Figures, Gauge, Gauges, Millis, ProcessId, Wall};
use windlass_store_memory::{Fault, MemoryStore};
use windlass_tests::stage::{Stage, config, job, worker_named};

/// A stage that has called its empty store once.
fn stage(slots: usize) -> Stage<MemoryStore> {
    let mut stage = Stage::with(MemoryStore::new(), config(slots));
    stage.settle();
    stage
}

/// The sum of all written figures.
fn totals(stage: &Stage<MemoryStore>) -> Figures {
    let mut reader = stage.store.reader().expect("memory gives readers");
    FigureSet::totals(&mut reader).expect("memory can be read").sum()
}

fn enqueued(stage: &Stage<MemoryStore>) -> u64 {
    totals(stage).enqueued
}

/// The number of commits with figures.
fn writes(stage: &Stage<MemoryStore>) -> usize {
    stage.log().matches("add figures").count()
}

#[test]
fn figures_are_written_once_a_second_however_many_batches_are_made() {
    let mut stage = stage(0);
    for _ in 0..50 {
        stage.enqueue(job());
        stage.settle();
        stage.pass(Millis::new(100));
    }
    assert!(writes(&stage) <= 5, "5 s have passed:\n{}", stage.log());
    stage.pass(Millis::seconds(1));
    assert_eq!(enqueued(&stage), 50);
    assert!(writes(&stage) <= 6, "6 s have passed:\n{}", stage.log());
}

#[test]
fn a_process_that_does_nothing_writes_no_figures_and_is_not_woken_for_them() {
    let mut stage = stage(0);
    stage.enqueue(job());
    stage.settle();
    stage.pass(Millis::seconds(1));
    let commits = stage.machine.stats().commits;
    let log = stage.log().len();
    stage.pass(Millis::seconds(50));
    assert_eq!(stage.machine.stats().commits, commits, "{}", &stage.log()[log..]);
    stage.pass(Millis::hours(2));
    assert!(!stage.log()[log..].contains("Figures"), "{}", &stage.log()[log..]);
}

/// Gives the machine the number of jobs that wait.
fn gauge(stage: &mut Stage<MemoryStore>, queued: u64) {
    let at = Wall::new(i64::try_from(queued).expect("it is small"));
    let all = Some(Gauge { at, queued, ..Gauge::default() });
    stage.input(Input::Gauges(Gauges { all, ..Gauges::default() }));
    stage.settle();
}

/// What waited at the latest instant that was written.
fn gauged(stage: &Stage<MemoryStore>) -> Option<u64> {
    let mut reader = stage.store.reader().expect("memory gives readers");
    let figures = FigureSet::totals(&mut reader).expect("memory can be read");
    figures.gauges().all.map(|gauge| gauge.queued)
}

#[test]
fn gauges_make_one_write_a_minute_and_go_with_other_figures_in_between() {
    let mut stage = stage(0);
    for n in 0..30 {
        gauge(&mut stage, n);
        stage.pass(Millis::seconds(10));
    }
    // At once, and after each of five minutes, though they are fed every ten seconds.
    assert!((5..=6).contains(&writes(&stage)), "{}: {}", writes(&stage), stage.log());
    let before = writes(&stage);
    gauge(&mut stage, 99);
    stage.enqueue(job());
    stage.settle();
    stage.pass(Millis::seconds(1));
    assert_eq!((writes(&stage), gauged(&stage)), (before + 1, Some(99)));
}

#[test]
fn a_start_is_counted_and_written_within_a_second() {
    let mut stage = stage(0);
    stage.input(Input::Started);
    stage.settle();
    stage.pass(Millis::seconds(1));
    assert_eq!((totals(&stage).starts, writes(&stage)), (1, 1));
}

#[test]
fn a_heartbeat_makes_no_figures() {
    let mut stage = stage(1);
    stage.enqueue(job());
    stage.settle();
    stage.pass(Millis::seconds(5));
    let before = writes(&stage);
    stage.pass(Millis::seconds(55));
    assert!(stage.log().contains("heartbeat 1.1"), "{}", stage.log());
    assert_eq!(writes(&stage), before);
}

#[test]
fn what_a_process_did_last_is_written_before_it_ends() {
    let mut stage = stage(1);
    stage.enqueue(job());
    stage.settle();
    stage.input(Input::Drain { deadline: Millis::seconds(30) });
    stage.settle();
    stage.complete("1.1");
    stage.settle();
    assert_eq!(stage.machine.phase(), Phase::Stopped);
    let figures = totals(&stage);
    assert_eq!((figures.enqueued, figures.started, figures.done), (1, 1, 1));
}

#[test]
fn the_last_figures_of_a_registered_worker_go_with_its_removal() {
    let presence = Some(Millis::seconds(10));
    let mut stage = Stage::with(MemoryStore::new(), Config { presence, ..config(0) });
    stage.settle();
    stage.enqueue(job());
    stage.settle();
    stage.input(Input::Drain { deadline: Millis::seconds(30) });
    stage.settle();
    assert_eq!((stage.machine.phase(), enqueued(&stage)), (Phase::Stopped, 1));
    assert!(stage.log().contains("RemoveWorker(\"here\") | add figures"), "{}", stage.log());
}

#[test]
fn a_batch_that_is_tried_again_counts_its_figures_once() {
    for fault in [
        Fault::NotCommitted,
        Fault::UnknownCommitted,
        Fault::UnknownNotCommitted,
        Fault::FatalCommitted,
        Fault::FatalNotCommitted,
        Fault::FatalBefore,
    ] {
        let mut stage = stage(0);
        stage.enqueue(job());
        stage.settle();
        // The batch that adds the figures of the first job, and makes a second one.
        let due = stage.idle(Millis::seconds(1));
        assert!(matches!(&due, Some(StoreCall::Commit(batch)) if !batch.figures.is_empty()));
        stage.store.fail_next(fault);
        stage.make_call(due.expect("it is a commit"));
        stage.pass(Millis::minutes(5));
        assert_eq!(enqueued(&stage), 1, "{fault:?}:\n{}", stage.log());
    }
}

#[test]
fn what_a_batch_in_doubt_did_is_counted_if_it_was_committed() {
    let cases = [
        (Fault::UnknownCommitted, 1),
        (Fault::FatalCommitted, 1),
        (Fault::FatalNotCommitted, 0),
        (Fault::FatalBefore, 0),
    ];
    for (fault, expected) in cases {
        let mut stage = stage(0);
        stage.enqueue(job());
        stage.store.fail_next(fault);
        stage.settle();
        stage.pass(Millis::minutes(5));
        assert_eq!(enqueued(&stage), expected, "{fault:?}:\n{}", stage.log());
    }
}

#[test]
fn figures_wait_while_the_store_is_full_and_are_written_afterwards() {
    let mut stage = stage(0);
    stage.enqueue(job());
    stage.settle();
    stage.enqueue(job());
    stage.store.fail_next(Fault::Full);
    stage.settle();
    stage.pass(Millis::minutes(1));
    stage.enqueue(job());
    stage.settle();
    stage.pass(Millis::seconds(2));
    assert_eq!(enqueued(&stage), 2, "{}", stage.log());
}

#[test]
fn two_processes_on_one_store_are_summed_and_what_they_wrote_is_folded() {
    let mut first = stage(0);
    let worker = worker_named("second", WorkerKind::Process);
    let other = Config::new(ProcessId(2), worker, 0);
    let mut second = Stage::with(first.store.another(), other);
    second.settle();
    for stage in [&mut first, &mut second] {
        stage.enqueue(job());
        stage.settle();
        stage.pass(Millis::minutes(11));
    }
    assert_eq!((enqueued(&first), enqueued(&second)), (2, 2));
    let dump = first.store.reader().and_then(|mut reader| {
        use windlass_core::store::Reader as _;
        reader.dump()
    });
    let rows = dump.expect("memory can be read").figures;
    let live = rows.iter().filter(|row| row.key.span == windlass_core::Span::Live).count();
    assert_eq!((live, rows.len()), (0, 2), "{rows:?}");
}

#[test]
fn the_timer_of_figures_is_one_second_behind_what_happened_first() {
    let mut stage = stage(0);
    let began = stage.now.mono;
    stage.enqueue(job());
    stage.settle();
    let wakeup = stage.machine.poll_timeout().expect("figures are to be written");
    assert_eq!((wakeup.reason, wakeup.at), (WakeReason::Figures, began.plus(Millis::seconds(1))));
}
