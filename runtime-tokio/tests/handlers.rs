//! How attempts end: results, errors, panics, timeouts, and what they cannot read.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::{paced, state, within};
use serde::{Deserialize, Serialize};
use windlass_core::machine::StopReason;
use windlass_core::{AttemptOutcome, StateName};
use windlass_runtime_tokio::testing::{Outcome, TestQueue};
use windlass_runtime_tokio::{Context, JobError, NewJob, Runtime, hours, minutes, seconds};
use windlass_store_memory::MemoryStore;

#[derive(Debug, Serialize, Deserialize)]
struct Sum {
    parts: Vec<u32>,
}

#[tokio::test]
async fn a_job_runs_with_its_payload_and_leaves_its_result() {
    within(async {
        let builder = Runtime::builder(MemoryStore::new());
        let queue = builder
            .handler("sum", |sum: Sum, _: Context| async move {
                Ok::<u32, JobError>(sum.parts.into_iter().sum())
            })
            .start()
            .unwrap();
        let receipt =
            queue.enqueue(NewJob::of("sum", &Sum { parts: vec![1, 2, 39] }).unwrap()).await;
        let done = queue.wait(receipt.unwrap().id).await.unwrap();
        assert_eq!(done.job.state.name(), StateName::Done);
        assert_eq!(done.result.unwrap().as_str(), "42");
    })
    .await;
}

#[tokio::test]
async fn a_retry_is_charged_a_snooze_is_not_and_a_permanent_error_ends_the_job() {
    within(async {
        let queue = TestQueue::start(Runtime::builder(MemoryStore::new()).handler(
            "odd",
            |(): (), ctx: Context| async move {
                match (ctx.epoch().get(), ctx.attempt()) {
                    (1, 1) => Err::<(), _>(JobError::snooze(minutes(1))),
                    (2, 1) => Err(JobError::retry("later").after(minutes(2))),
                    (3, 2) => Err(JobError::permanent("never")),
                    other => panic!("{other:?}"),
                }
            },
        ))
        .unwrap();
        let id = queue.enqueue(NewJob::of("odd", &()).unwrap().max_retries(9)).await.unwrap().id;
        queue.advance(hours(1)).await;
        let outcomes: Vec<Outcome> = queue.ran().into_iter().map(|ran| ran.outcome).collect();
        let (later, never) =
            (Outcome::Failed("later".into()), Outcome::FailedForGood("never".into()));
        assert_eq!(outcomes, [Outcome::Snoozed(minutes(1)), later, never]);
        let job = queue.get(id).await.unwrap().unwrap();
        assert_eq!(job.job.state.name(), StateName::Failed);
        assert_eq!(job.last_error.unwrap().as_str(), "never");
    })
    .await;
}

#[tokio::test]
async fn a_payload_that_cannot_be_decoded_fails_for_good_and_blocks_no_other() {
    within(async {
        let queue = TestQueue::start(
            Runtime::builder(MemoryStore::new())
                .workers(1)
                .handler("sum", |_: Sum, _: Context| async {}),
        )
        .unwrap();
        let bad = queue.enqueue(NewJob::of("sum", &"x").unwrap().priority(9)).await.unwrap().id;
        let worse =
            NewJob::of("sum", &serde_json::json!({"parts": [1, "two"]})).unwrap().priority(9);
        let worse = queue.enqueue(worse).await.unwrap().id;
        let good =
            queue.enqueue(NewJob::of("sum", &Sum { parts: vec![] }).unwrap()).await.unwrap().id;
        queue.run_until_idle().await;
        assert_eq!(state(&queue, good).await, StateName::Done);
        assert_eq!(state(&queue, bad).await, StateName::Failed);
        let worse = queue.get(worse).await.unwrap().unwrap();
        assert_eq!(worse.job.attempts, 1, "it is not tried again");
        let error = worse.last_error.unwrap();
        assert!(error.as_str().contains("parts[1]"), "{error:?}");
    })
    .await;
}

#[tokio::test]
async fn a_kind_without_a_handler_is_left_to_others_and_blocks_no_other() {
    within(async {
        let queue = TestQueue::start(
            Runtime::builder(MemoryStore::new())
                .workers(1)
                .handler("known", |(): (), _: Context| async {}),
        )
        .unwrap();
        let foreign =
            queue.enqueue(NewJob::of("foreign", &()).unwrap().priority(9)).await.unwrap().id;
        let known = queue.enqueue(NewJob::of("known", &()).unwrap()).await.unwrap().id;
        queue.run_until_idle().await;
        assert_eq!(state(&queue, known).await, StateName::Done);
        let foreign = queue.get(foreign).await.unwrap().unwrap().job;
        assert_eq!((foreign.state.name(), foreign.attempts), (StateName::Queued, 0));
    })
    .await;
}

#[tokio::test]
async fn ten_thousand_panics_are_ten_thousand_failed_attempts_and_no_worker_is_lost() {
    within(async {
        let concurrent = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0)));
        let seen = Arc::clone(&concurrent);
        let (gate, mut pace) = paced();
        let queue = TestQueue::start(
            Runtime::builder(MemoryStore::new())
                .workers(4)
                .handler("bang", |text: String, _: Context| async move {
                    assert!(!text.is_empty(), "no text");
                })
                .handler("count", move |(): (), ctx: Context| {
                    let (seen, gate) = (Arc::clone(&seen), gate.clone());
                    async move {
                        let now = seen.0.fetch_add(1, Ordering::SeqCst) + 1;
                        seen.1.fetch_max(now, Ordering::SeqCst);
                        gate.run(ctx).await
                    }
                }),
        )
        .unwrap();
        let bang = || NewJob::of("bang", "").unwrap().max_retries(0);
        let receipts = queue.enqueue_many((0..10_000).map(|_| bang())).await.unwrap();
        queue.run_until_idle().await;
        assert_eq!(queue.metrics().attempts.panicked, 10_000);
        let last = queue.get(receipts[9_999].as_ref().unwrap().id).await.unwrap().unwrap();
        assert_eq!(last.last_error.unwrap().as_str(), "the handler panicked: no text");
        let attempts = queue.attempts(last.job.id).await.unwrap();
        assert_eq!(attempts[0].outcome, AttemptOutcome::Panicked);

        let four = (0..4).map(|_| NewJob::of("count", &()).unwrap());
        queue.enqueue_many(four).await.unwrap();
        for _ in 0..4 {
            pace.started().await;
        }
        pace.go(4);
        queue.run_until_idle().await;
        assert_eq!(concurrent.1.load(Ordering::SeqCst), 4, "all four workers are there");
    })
    .await;
}

struct Fuse;

impl Drop for Fuse {
    fn drop(&mut self) {
        panic!("a fuse was dropped");
    }
}

#[tokio::test]
async fn a_panic_before_the_first_await_or_while_a_handler_is_dropped_ends_no_worker() {
    within(async {
        let queue = TestQueue::start(
            Runtime::builder(MemoryStore::new())
                .workers(1)
                .handler("early", |given: bool, _: Context| {
                    assert!(given, "early");
                    async {}
                })
                .handler("odd", |given: bool, _: Context| async move {
                    if !given {
                        std::panic::panic_any(Fuse);
                    }
                })
                .handler("late", |(): (), _: Context| async {
                    let _fuse = Fuse;
                    std::future::pending::<()>().await;
                })
                .handler("fine", |(): (), _: Context| async {}),
        )
        .unwrap();
        let early =
            queue.enqueue(NewJob::of("early", &false).unwrap().max_retries(0)).await.unwrap().id;
        queue.run_until_idle().await;
        assert_eq!(state(&queue, early).await, StateName::Failed);
        let odd =
            queue.enqueue(NewJob::of("odd", &false).unwrap().max_retries(0)).await.unwrap().id;
        queue.run_until_idle().await;
        assert_eq!(state(&queue, odd).await, StateName::Failed);
        let late = NewJob::of("late", &()).unwrap().max_retries(0).timeout(seconds(1));
        let late = queue.enqueue(late).await.unwrap().id;
        queue.clock().advance(seconds(1));
        let watched = queue.queue().clone();
        let waiting = tokio::spawn(async move { watched.wait(late).await });
        // The handler does not end by itself: it has a second, then it is dropped.
        while !waiting.is_finished() {
            queue.clock().advance(seconds(1));
            tokio::task::yield_now().await;
        }
        assert_eq!(state(&queue, late).await, StateName::Failed);
        let fine = queue.enqueue(NewJob::of("fine", &()).unwrap()).await.unwrap().id;
        queue.run_until_idle().await;
        assert_eq!(state(&queue, fine).await, StateName::Done);
    })
    .await;
}

#[tokio::test]
async fn a_job_over_its_timeout_is_signalled_then_dropped_and_its_attempt_fails() {
    within(async {
        let (sender, mut received) = tokio::sync::mpsc::unbounded_channel();
        let queue = TestQueue::start(Runtime::builder(MemoryStore::new()).workers(1).handler(
            "slow",
            move |polite: bool, ctx: Context| {
                let sender = sender.clone();
                async move {
                    assert_eq!(ctx.time_left(), Some(seconds(10)));
                    sender.send("started".to_string()).unwrap();
                    let reason = ctx.stopping().await;
                    sender.send(format!("{reason:?}")).unwrap();
                    if !polite {
                        std::future::pending::<()>().await;
                    }
                    Err::<(), _>(JobError::retry("interrupted"))
                }
            },
        ))
        .unwrap();
        for polite in [true, false] {
            let job = NewJob::of("slow", &polite).unwrap().max_retries(0).timeout(seconds(10));
            let id = queue.enqueue(job).await.unwrap().id;
            assert_eq!(received.recv().await.unwrap(), "started");
            queue.clock().advance(seconds(10));
            assert_eq!(received.recv().await.unwrap(), format!("{:?}", StopReason::TimedOut));
            if !polite {
                queue.clock().advance(seconds(1));
            }
            queue.run_until_idle().await;
            assert_eq!(state(&queue, id).await, StateName::Failed);
            let attempts = queue.attempts(id).await.unwrap();
            assert_eq!(attempts[0].outcome, AttemptOutcome::TimedOut, "polite: {polite}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_blocking_handler_runs_beside_the_tasks_and_gets_the_stop_signal() {
    within(async {
        let (started, mut running) = tokio::sync::mpsc::unbounded_channel();
        let queue = TestQueue::start(
            Runtime::builder(MemoryStore::new())
                .workers(2)
                .blocking_handler("panics", |given: bool, _: Context| {
                    assert!(given, "blocked and panicked");
                })
                .blocking_handler("listens", move |(): (), ctx: Context| {
                    started.send(()).unwrap();
                    let handle = tokio::runtime::Handle::current();
                    handle.block_on(ctx.stopping());
                    Err::<(), _>(JobError::retry("stopped"))
                }),
        )
        .unwrap();
        let panics =
            queue.enqueue(NewJob::of("panics", &false).unwrap().max_retries(0)).await.unwrap();
        queue.run_until_idle().await;
        let failed = queue.get(panics.id).await.unwrap().unwrap();
        let error = failed.last_error.unwrap();
        assert_eq!(error.as_str(), "the handler panicked: blocked and panicked");
        let listens = queue.enqueue(NewJob::of("listens", &()).unwrap()).await.unwrap().id;
        running.recv().await.unwrap();
        let report = queue.shutdown(Duration::ZERO).await;
        assert_eq!((report.released, report.left.len()), (1, 0), "{report:?}");
        let _ = listens;
    })
    .await;
}

#[tokio::test]
async fn a_handler_notes_its_progress_proves_its_lease_and_enqueues_what_follows() {
    within(async {
        let (gate, mut pace) = paced();
        let queue = TestQueue::start(
            Runtime::builder(MemoryStore::new())
                .handler("first", move |(): (), ctx: Context| {
                    let gate = gate.clone();
                    async move {
                        ctx.progress(&"half")?;
                        let until = ctx.heartbeat().await?.until;
                        let lease = ctx.job().lease().expect("it is leased").until;
                        assert!(until >= lease);
                        ctx.queue().enqueue(NewJob::of("second", &ctx.id().get())?).await?;
                        gate.run(ctx).await
                    }
                })
                .handler("second", |_: u64, _: Context| async {}),
        )
        .unwrap();
        let id = queue.enqueue(NewJob::of("first", &()).unwrap()).await.unwrap().id;
        pace.started().await;
        let job = queue.get(id).await.unwrap().unwrap();
        assert_eq!(job.progress.unwrap().as_str(), "\"half\"");
        pace.go(1);
        queue.run_until_idle().await;
        assert_eq!(queue.ran_kind("second")[0].as_str(), id.to_string());
    })
    .await;
}
