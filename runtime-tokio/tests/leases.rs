//! Leases seen from the library: they are kept while work goes on, given up in time when they
//! cannot be, and taken back from processes that died.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod common;

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::{Rig, note, paced, state, within};
use windlass_core::machine::StopReason;
use windlass_core::store::{Batch, ClaimFor, Store, Taker};
use windlass_core::{
    AttemptOutcome, BatchId, Demand, Millis, Policy, ProcessId, RetryPolicy, StateName, Strategy,
    Verdict, View, WorkerId,
};
use windlass_runtime_tokio::testing::TestQueue;
use windlass_runtime_tokio::{
    Clock, Context, ManualClock, NewJob, Runtime, hours, minutes, seconds,
};
use windlass_store_memory::{Fault, MemoryStore};
use windlass_store_sqlite::SqliteStore;

fn job() -> NewJob {
    NewJob::of("work", &()).unwrap()
}

#[tokio::test]
async fn a_verdict_that_cannot_be_written_is_tried_again_until_it_is() {
    within(async {
        let rig = Rig::default();
        let clock = ManualClock::new();
        let (gate, mut pace) = paced();
        let queue = Runtime::builder(rig.store())
            .clock(clock.clone())
            .handler("work", move |(): (), ctx: Context| gate.clone().run(ctx))
            .start()
            .unwrap();
        let id = queue.enqueue(job()).await.unwrap().id;
        pace.started().await;
        rig.fail(Some(Fault::NotCommitted));
        pace.go(1);
        while queue.metrics().dispatcher.failed_commits < 8 {
            clock.advance(Duration::from_millis(100));
            tokio::task::yield_now().await;
        }
        rig.fail(None);
        let before = rig.batches().len();
        let waits = queue.clone();
        let waits = tokio::spawn(async move { waits.wait(id).await });
        while !waits.is_finished() {
            clock.advance(Duration::from_millis(100));
            tokio::task::yield_now().await;
        }
        let job = waits.await.unwrap().unwrap().job;
        assert_eq!((job.state.name(), job.epoch.get()), (StateName::Done, 1), "it ran once");
        let batches = &rig.batches()[before..];
        let heartbeats = batches.iter().flat_map(|batch| &batch.heartbeats).count();
        assert_eq!(heartbeats, 0, "a job whose handler has returned gets no heartbeat");
        let completes = batches.iter().flat_map(|batch| &batch.settles);
        let completes =
            completes.filter(|settle| matches!(settle.verdict, Verdict::Complete { .. }));
        assert_eq!(completes.count(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_job_whose_heartbeats_cannot_be_written_is_stopped_before_its_lease_ends() {
    within(async {
        let rig = Rig::default();
        let (sender, mut received) = tokio::sync::mpsc::unbounded_channel();
        let builder = Runtime::builder(rig.store()).handler("work", move |(): (), ctx: Context| {
            let sender = sender.clone();
            async move {
                sender.send(None).unwrap();
                sender.send(Some(ctx.stopping().await)).unwrap();
            }
        });
        let queue = TestQueue::start(builder).unwrap();
        queue.enqueue(job().visibility_timeout(minutes(10))).await.unwrap();
        assert_eq!(received.recv().await, Some(None));
        let claimed = queue.clock().now().wall;
        rig.fail(Some(Fault::NotCommitted));
        let stopped = tokio::spawn(async move { received.recv().await });
        while !stopped.is_finished() {
            queue.clock().advance(seconds(1));
            queue.settle().await;
        }
        assert_eq!(stopped.await.unwrap(), Some(Some(StopReason::LeaseLost)));
        let ran = queue.clock().now().wall.since(claimed).get();
        assert!(ran < 600_000, "it was stopped {ran} ms after its claim, past its lease");
        assert!(ran >= 500_000, "it was given up after {ran} ms already");
    })
    .await;
}

/// A lease of three seconds was renewed, then another process held the store for longer: the run
/// got its stop signal from the writer thread only, which could not send it while its call was
/// blocked, and it went on beside the next attempt. Its attempt was given back besides, so that it
/// ran once more than its retries allow.
#[tokio::test]
async fn a_run_is_stopped_before_its_lease_ends_while_the_store_blocks_and_is_charged() {
    within(async {
        let rig = Rig::default();
        let clock = ManualClock::new();
        let (sender, mut received) = tokio::sync::mpsc::unbounded_channel();
        let alive = Arc::new(());
        let running = Arc::clone(&alive);
        let queue = Runtime::builder(rig.store())
            .clock(clock.clone())
            .handler("work", move |(): (), ctx: Context| {
                let (sender, running) = (sender.clone(), Arc::clone(&running));
                async move {
                    sender.send(None).unwrap();
                    sender.send(Some(ctx.stopping().await)).unwrap();
                    std::future::pending::<()>().await;
                    drop(running);
                }
            })
            .start()
            .unwrap();
        let new = job().visibility_timeout(seconds(3)).max_retries(0);
        let id = queue.enqueue(new).await.unwrap().id;
        assert_eq!(received.recv().await, Some(None));
        let claimed = clock.now().mono;
        rig.hold();
        let other = queue.clone();
        let other =
            tokio::spawn(async move { other.enqueue(NewJob::of("none", &()).unwrap()).await });
        rig.hangs().await;
        let stopped = tokio::spawn(async move { received.recv().await });
        while !stopped.is_finished() {
            clock.advance(Duration::from_millis(10));
            tokio::task::yield_now().await;
        }
        assert_eq!(stopped.await.unwrap(), Some(Some(StopReason::LeaseLost)));
        let ran = clock.now().mono.since(claimed).get();
        assert!((2_700..2_800).contains(&ran), "stopped {ran} ms after its claim, not at 2.7 s");
        clock.advance(Duration::from_millis(160));
        while Arc::strong_count(&alive) > 2 {
            tokio::task::yield_now().await;
        }
        rig.let_go();
        other.await.unwrap().unwrap();
        let detail = queue.wait(id).await.unwrap();
        assert_eq!(detail.job.state.name(), StateName::Failed, "its one attempt is used up");
        let error = detail.last_error.unwrap();
        assert!(error.as_str().contains("could not be extended"), "{error:?}");
    })
    .await;
}

#[tokio::test]
async fn a_job_longer_than_its_lease_runs_once() {
    within(async {
        let runs = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&runs);
        let (gate, mut pace) = paced();
        let clock = ManualClock::new();
        let rig = Rig::default();
        let queue = Runtime::builder(rig.store())
            .clock(clock.clone())
            .workers(2)
            .handler("work", move |(): (), ctx: Context| {
                counted.fetch_add(1, Ordering::SeqCst);
                gate.clone().run(ctx)
            })
            .start()
            .unwrap();
        let id = queue.enqueue(job().visibility_timeout(seconds(30))).await.unwrap().id;
        pace.started().await;
        // An hour of night work, a third of the lease at a time.
        for round in 0..360 {
            clock.advance(seconds(10));
            while heartbeats(&rig) <= round {
                tokio::task::yield_now().await;
            }
        }
        pace.go(1);
        let done = queue.wait(id).await.unwrap().job;
        assert_eq!((done.state.name(), done.attempts), (StateName::Done, 1));
        assert_eq!(runs.load(Ordering::SeqCst), 1);
    })
    .await;
}

fn heartbeats(rig: &Rig) -> usize {
    rig.batches().iter().map(|batch| batch.heartbeats.len()).sum()
}

#[tokio::test]
async fn a_crash_on_the_last_attempt_ends_in_the_dead_letter_queue_with_a_reason() {
    within(async {
        let clock = ManualClock::new();
        let store = MemoryStore::new();
        let disk = store.another();
        let (gate, mut pace) = paced();
        let queue = Runtime::builder(store)
            .clock(clock.clone())
            .handler("work", move |(): (), ctx: Context| gate.clone().run(ctx))
            .start()
            .unwrap();
        let last = job().max_retries(0).visibility_timeout(seconds(30));
        let id = queue.enqueue(last).await.unwrap().id;
        pace.started().await;
        // The process dies here: what it leaves is what the disk holds.
        let image = disk.crash_image();
        let again = Runtime::builder(image)
            .clock(clock.clone())
            .handler("work", |(): (), _: Context| async {})
            .start()
            .unwrap();
        again.idle().await.unwrap();
        assert_eq!(state(&again, id).await, StateName::Processing, "its lease still runs");
        clock.advance(seconds(31));
        let failed = again.wait(id).await.unwrap();
        assert_eq!((failed.job.state.name(), failed.job.attempts), (StateName::Failed, 1));
        let error = failed.last_error.unwrap();
        assert!(error.as_str().contains("the lease ran out"), "{error:?}");
    })
    .await;
}

#[tokio::test]
async fn more_leases_of_a_dead_process_than_a_page_holds_are_all_taken_back() {
    within(async {
        let mut store = MemoryStore::new();
        let clock = ManualClock::new();
        claim_by_a_dead_process(&mut store, &clock, 1, vec![job(); 2_500]);
        clock.advance(seconds(31));
        let queue = Runtime::builder(store)
            .clock(clock.clone())
            .handler("work", |(): (), _: Context| async {})
            .start()
            .unwrap();
        queue.idle().await.unwrap();
        while queue.counts().await.unwrap().get(View::Done) < 2_500 {
            // Taken back now, they run after their backoff.
            clock.advance(seconds(1));
            queue.idle().await.unwrap();
        }
        assert_eq!(queue.metrics().dispatcher.leases_expired, 2_500);
    })
    .await;
}

/// Leases given before the wall clock was set forward count their length again, so they
/// look expired and cannot be reaped yet. They fill more than a page, in front of others that can.
#[tokio::test]
async fn leases_that_cannot_be_reaped_do_not_keep_later_ones_from_being_reaped() {
    const HELD: usize = 2_500;
    within(async {
        let (mut store, clock) = (MemoryStore::new(), ManualClock::new());
        let long = job().visibility_timeout(hours(1));
        claim_by_a_dead_process(&mut store, &clock, 1, vec![long; HELD]);
        clock.advance(minutes(59));
        // Their leases end later than those of the others, but are short.
        let at_once = RetryPolicy::new(Strategy::Fixed, Millis::ZERO, Millis::ZERO, 0).unwrap();
        let short = job().visibility_timeout(minutes(5)).retry(at_once);
        claim_by_a_dead_process(&mut store, &clock, 2, vec![short; 3]);
        let queue = Runtime::builder(store)
            .clock(clock.clone())
            .handler("work", |(): (), _: Context| async {})
            .start()
            .unwrap();
        queue.idle().await.unwrap();
        clock.set_wall(clock.now().wall.plus(Millis::hours(2)));
        queue.idle().await.unwrap();
        clock.advance(minutes(4));
        queue.idle().await.unwrap();
        assert_eq!(queue.metrics().dispatcher.leases_expired, 0, "a step of the clock is no time");
        let mut waited = 0;
        while queue.counts().await.unwrap().get(View::Done) < 3 {
            waited += 1;
            note(format!("{waited} s beyond four minutes, {:?}", queue.metrics().dispatcher));
            assert!(waited <= 90, "leases that had ended were not taken back");
            clock.advance(seconds(1));
            queue.idle().await.unwrap();
        }
        assert_eq!(queue.counts().await.unwrap().get(View::Processing), HELD as u64);
        assert_eq!(queue.metrics().dispatcher.leases_expired, 3);
    })
    .await;
}

/// A process claims these jobs and never extends them.
fn claim_by_a_dead_process(
    store: &mut MemoryStore,
    clock: &ManualClock,
    seq: u64,
    jobs: Vec<NewJob>,
) {
    let max = jobs.len();
    let mut batch = Batch::new(BatchId { process: ProcessId(7), seq }, Policy::default());
    batch.enqueues = jobs.into_iter().map(|job| job.check().unwrap()).collect();
    let takers = vec![Taker { worker: WorkerId::new("dead").unwrap(), max, length: None }];
    batch.claims.push(ClaimFor { demand: Demand::ALL, takers });
    let claimed = store.commit(clock.now().wall, &batch).unwrap();
    assert_eq!(claimed.claims[0].jobs.len(), max);
}

/// What the child process of the next test is given: the store to work on.
const CHILD: &str = "WINDLASS_TEST_CHILD";

#[test]
fn a_job_that_aborts_its_process_ends_after_its_attempts_and_others_go_on() {
    if let Some(path) = std::env::var_os(CHILD) {
        return child(std::path::Path::new(&path));
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs.db");
    let (poison, good) = with_store(&path, |queue| async move {
        let at_once = RetryPolicy::new(Strategy::Fixed, Millis::ZERO, Millis::ZERO, 0).unwrap();
        let poison = job().max_retries(2).visibility_timeout(seconds(1)).priority(10);
        let poison = queue.enqueue(poison.retry(at_once)).await.unwrap().id;
        (poison, queue.enqueue(NewJob::of("good", &()).unwrap()).await.unwrap().id)
    });
    let name = "a_job_that_aborts_its_process_ends_after_its_attempts_and_others_go_on";
    let mut crashes = 0;
    loop {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let child = command.args(["--exact", name, "--nocapture", "-q"]).env(CHILD, &path);
        let output = child.output().unwrap();
        if output.status.success() {
            break;
        }
        crashes += 1;
        assert!(crashes <= 3, "it crashed more often than it may be tried");
    }
    assert_eq!(crashes, 3, "one attempt and two retries");
    with_store(&path, |queue| async move {
        let failed = queue.get(poison).await.unwrap().unwrap();
        assert_eq!((failed.job.state.name(), failed.job.attempts), (StateName::Failed, 3));
        assert!(failed.last_error.is_some());
        let attempts = queue.attempts(poison).await.unwrap();
        assert!(attempts.iter().all(|attempt| attempt.outcome == AttemptOutcome::Expired));
        assert_eq!(state(&queue, good).await, StateName::Done);
    });
}

fn with_store<R, F: Future<Output = R>>(
    path: &std::path::Path,
    then: impl FnOnce(windlass_runtime_tokio::Queue) -> F,
) -> R {
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio.block_on(within(async {
        let queue = Runtime::builder(SqliteStore::open(path).unwrap()).start().unwrap();
        let result = then(queue.clone()).await;
        queue.shutdown(seconds(5)).await;
        result
    }))
}

/// Works until nothing is left to be done, or the poison has killed it.
fn child(path: &std::path::Path) {
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio.block_on(within(async {
        let queue = Runtime::builder(SqliteStore::open(path).unwrap())
            .workers(1)
            .handler("work", |(): (), _: Context| async {
                if true {
                    std::process::abort();
                }
            })
            .handler("good", |(): (), _: Context| async {})
            .start()
            .unwrap();
        let mut events = queue.events();
        while queue.counts().await.unwrap().waiting() > 0
            || queue.counts().await.unwrap().get(View::Processing) > 0
        {
            events.next().await.expect("the queue runs until it is killed");
        }
        queue.shutdown(seconds(5)).await;
    }));
}
