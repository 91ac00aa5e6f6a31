//! Starting and stopping as a contract: in order, by force, twice, at once, too early, by dropping.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::{Rig, paced, state, within};
use tokio::sync::{Barrier, Notify};
use windlass_core::machine::{Refused, StopReason};
use windlass_core::{Millis, StateName, View};
use windlass_runtime_tokio::{
    Clock, Context, EnqueueError, Health, JobError, ManualClock, NewJob, ReadError, Runtime,
    StartError, SystemClock, Unserved, WaitError, hours, seconds,
};
use windlass_store_memory::MemoryStore;
use windlass_store_redb::RedbStore;

fn job(kind: &str) -> NewJob {
    NewJob::of(kind, &()).unwrap()
}

#[tokio::test]
async fn a_shutdown_waits_for_what_runs_and_starts_nothing_more() {
    within(async {
        let rig = Rig::default();
        let (gate, mut pace) = paced();
        let store = MemoryStore::new();
        let after = store.another();
        let queue = Runtime::builder(rig.on(store))
            .workers(2)
            .handler("work", move |(): (), ctx: Context| gate.clone().run(ctx))
            .start()
            .unwrap();
        let receipts = queue.enqueue_many((0..10).map(|_| job("work"))).await.unwrap();
        assert!(receipts.iter().all(Result::is_ok));
        pace.started().await;
        pace.started().await;
        let commits = rig.batches().len();
        let (stopping, ended) = (queue.clone(), queue.clone());
        let stopping = tokio::spawn(async move { stopping.shutdown(hours(1)).await });
        while ended.health().is_good() {
            tokio::task::yield_now().await;
        }
        let refused = queue.enqueue(job("work")).await.unwrap_err();
        assert_eq!(refused, EnqueueError::Unserved(Refused::ShuttingDown.into()));
        pace.go(10);
        let report = stopping.await.unwrap();
        assert_eq!((report.finished, report.released, report.forced), (2, 0, false));
        assert!(report.is_clean(), "{report:?}");
        assert!(!pace.has_started(), "nothing started after the shutdown began");
        let claims = rig.batches()[commits..].iter().map(|batch| batch.claims.len()).sum::<usize>();
        assert_eq!(claims, 0, "nothing was claimed after the shutdown began");
        let left = counts(&after);
        assert_eq!((left.get(View::Done), left.get(View::Queued)), (2, 8));
    })
    .await;
}

fn counts(store: &MemoryStore) -> windlass_core::Counts {
    use windlass_core::store::{Reader, Store};
    let rows = store.reader().unwrap().queues().unwrap();
    rows[0].total()
}

#[tokio::test]
async fn what_runs_at_the_deadline_is_stopped_given_back_and_not_charged() {
    within(async {
        let clock = ManualClock::new();
        let store = MemoryStore::new();
        let image = store.another();
        let (sender, mut received) = tokio::sync::mpsc::unbounded_channel();
        let queue = Runtime::builder(store)
            .clock(clock.clone())
            .workers(3)
            .handler("work", move |(): (), ctx: Context| {
                let sender = sender.clone();
                async move {
                    sender.send(None).unwrap();
                    sender.send(Some(ctx.stopping().await)).unwrap();
                    std::future::pending::<()>().await;
                }
            })
            .start()
            .unwrap();
        let ids: Vec<_> = queue.enqueue_many((0..3).map(|_| job("work"))).await.unwrap();
        for _ in 0..3 {
            assert_eq!(received.recv().await, Some(None));
        }
        let stopping = queue.clone();
        let stopping = tokio::spawn(async move { stopping.shutdown(seconds(9)).await });
        while !queue.metrics().draining {
            tokio::task::yield_now().await;
        }
        clock.advance(seconds(8));
        for _ in 0..3 {
            assert_eq!(received.recv().await, Some(Some(StopReason::Shutdown)));
        }
        // They do not end by themselves: they are dropped before the machine gives up on them.
        clock.advance(seconds(1));
        let report = stopping.await.unwrap();
        assert_eq!((report.finished, report.released, report.forced), (0, 3, true));
        let again = Runtime::builder(image).start().unwrap();
        for receipt in ids {
            let job = again.get(receipt.unwrap().id).await.unwrap().unwrap().job;
            assert_eq!((job.state.name(), job.attempts), (StateName::Queued, 0));
        }
    })
    .await;
}

#[tokio::test]
async fn handlers_see_a_drain_at_once_and_are_asked_to_stop_one_grace_before_the_deadline() {
    within(async {
        let clock = ManualClock::new();
        let (sender, mut received) = tokio::sync::mpsc::unbounded_channel();
        let queue = Runtime::builder(MemoryStore::new())
            .clock(clock.clone())
            .stop_grace(seconds(3))
            .handler("work", move |(): (), ctx: Context| {
                let sender = sender.clone();
                async move {
                    sender.send(format!("began, draining: {}", ctx.is_draining())).unwrap();
                    ctx.draining().await;
                    sender.send(format!("drains, asked to stop: {}", ctx.is_stopping())).unwrap();
                    let reason = ctx.stopping().await;
                    sender.send(format!("asked to stop: {reason:?}")).unwrap();
                    std::future::pending::<()>().await;
                }
            })
            .start()
            .unwrap();
        queue.enqueue(job("work")).await.unwrap();
        assert_eq!(received.recv().await.as_deref(), Some("began, draining: false"));
        let (asked, stopping) = (clock.now().mono, queue.clone());
        let stopping = tokio::spawn(async move { stopping.shutdown(seconds(10)).await });
        assert_eq!(received.recv().await.as_deref(), Some("drains, asked to stop: false"));
        while !queue.metrics().draining {
            tokio::task::yield_now().await;
        }
        clock.advance(Duration::from_millis(6_900));
        assert!(received.try_recv().is_err(), "its time is not over");
        clock.advance(Duration::from_millis(100));
        assert_eq!(received.recv().await.as_deref(), Some("asked to stop: Shutdown"));
        clock.advance(Duration::from_millis(2_900));
        tokio::task::yield_now().await;
        assert!(!stopping.is_finished(), "it has its whole grace");
        clock.advance(Duration::from_millis(100));
        let report = stopping.await.unwrap();
        assert_eq!(clock.now().mono.since(asked), Millis::seconds(10));
        assert_eq!((report.released, report.forced, report.is_clean()), (1, true, true));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_ignores_everything_does_not_hold_up_the_shutdown() {
    within(async {
        let release = Arc::new((std::sync::Mutex::new(false), std::sync::Condvar::new()));
        let held = Arc::clone(&release);
        let (started, mut running) = tokio::sync::mpsc::unbounded_channel();
        let queue = Runtime::builder(MemoryStore::new())
            .blocking_handler("deaf", move |(): (), _: Context| {
                started.send(()).unwrap();
                let mut free = held.0.lock().unwrap();
                while !*free {
                    free = held.1.wait(free).unwrap();
                }
            })
            .start()
            .unwrap();
        let id = queue.enqueue(job("deaf")).await.unwrap().id;
        running.recv().await.unwrap();
        let began = SystemClock.now().mono;
        let report = queue.shutdown(Duration::from_millis(100)).await;
        let took = SystemClock.now().mono.since(began);
        assert_eq!(report.left.len(), 1, "{report:?}");
        assert_eq!(report.left[0].job, id);
        assert!(report.forced && !report.is_clean());
        assert!(took.get() < 1_100, "deadline plus a second at most, not {took}");
        *release.0.lock().unwrap() = true;
        release.1.notify_all();
    })
    .await;
}

#[tokio::test]
async fn a_second_forced_stop_does_not_wait_for_handlers_and_the_next_start_recovers() {
    within(async {
        let clock = ManualClock::new();
        let store = MemoryStore::new();
        let image = store.another();
        let (gate, mut pace) = paced();
        let deaf = Arc::new(Notify::new());
        let queue = Runtime::builder(store)
            .clock(clock.clone())
            .handler("work", move |(): (), ctx: Context| {
                let (gate, deaf) = (gate.clone(), Arc::clone(&deaf));
                async move {
                    let _ = gate.run(ctx).await;
                    deaf.notified().await;
                }
            })
            .start()
            .unwrap();
        let id = queue.enqueue(job("work")).await.unwrap().id;
        pace.started().await;
        let (first, second) = (queue.clone(), queue.clone());
        let first = tokio::spawn(async move { first.stop_now().await });
        tokio::task::yield_now().await;
        let report = second.stop_now().await;
        assert_eq!(report.left.len(), 1, "its handler never ended: {report:?}");
        assert_eq!(first.await.unwrap(), report, "both get the same");

        clock.advance(hours(1));
        let again = Runtime::builder(image)
            .clock(clock.clone())
            .handler("work", |(): (), _: Context| async {})
            .start()
            .unwrap();
        assert_eq!(again.wait(id).await.unwrap().job.state.name(), StateName::Done);
    })
    .await;
}

#[tokio::test]
async fn stops_at_once_from_many_sides_end_once_with_one_report() {
    within(async {
        let queue = Runtime::builder(MemoryStore::new())
            .handler("work", |(): (), _: Context| async {})
            .start()
            .unwrap();
        queue.enqueue(job("work")).await.unwrap();
        let barrier = Arc::new(Barrier::new(8));
        let stops = (0..8).map(|_| {
            let (queue, barrier) = (queue.clone(), Arc::clone(&barrier));
            tokio::spawn(async move {
                barrier.wait().await;
                queue.shutdown(seconds(10)).await
            })
        });
        let stops: Vec<_> = stops.collect();
        let mut reports = Vec::new();
        for stop in stops {
            reports.push(stop.await.unwrap());
        }
        reports.dedup();
        assert_eq!(reports.len(), 1, "{reports:?}");
        assert_eq!(queue.shutdown(seconds(10)).await, reports[0], "and again later");
        assert_eq!(queue.stop_now().await, reports[0]);
    })
    .await;
}

#[tokio::test]
async fn a_caller_that_waits_for_quiet_is_answered_when_the_runtime_ends_before() {
    within(async {
        let (gate, mut pace) = paced();
        let queue = Runtime::builder(MemoryStore::new())
            .handler("work", move |(): (), ctx: Context| gate.clone().run(ctx))
            .start()
            .unwrap();
        queue.enqueue(job("work")).await.unwrap();
        pace.started().await;
        let waits = queue.clone();
        let waits = tokio::spawn(async move { waits.idle().await });
        tokio::task::yield_now().await;
        queue.stop_now().await;
        assert_eq!(waits.await.unwrap(), Err(Unserved::Stopped));
    })
    .await;
}

#[tokio::test]
async fn after_the_end_every_call_says_so() {
    within(async {
        let queue = Runtime::builder(MemoryStore::new())
            .handler("work", |(): (), _: Context| async {})
            .start()
            .unwrap();
        let id = queue.enqueue(job("work")).await.unwrap().id;
        queue.shutdown(seconds(10)).await;
        assert_eq!(queue.health(), Health::Stopped);
        let refused = queue.enqueue(job("work")).await.unwrap_err();
        assert_eq!(refused, EnqueueError::Unserved(Unserved::Stopped));
        assert_eq!(queue.get(id).await.unwrap_err(), ReadError::Stopped);
        assert_eq!(queue.wait(id).await.unwrap_err(), WaitError::Stopped(id));
        assert_eq!(queue.idle().await, Err(Unserved::Stopped));
        assert!(queue.events().next().await.is_none());
    })
    .await;
}

#[tokio::test]
async fn a_stop_right_behind_the_start_is_clean() {
    within(async {
        for round in 0..50 {
            let queue = Runtime::builder(MemoryStore::new())
                .handler("work", |(): (), _: Context| async {})
                .start()
                .unwrap();
            let report = if round % 2 == 0 {
                queue.shutdown(seconds(9)).await
            } else {
                queue.stop_now().await
            };
            assert!(report.is_clean(), "{report:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn the_store_is_closed_when_the_shutdown_returns() {
    within(async {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("jobs.redb");
        for round in 1..=3 {
            // One process at a time may have this file open: the last round has closed it.
            let queue = Runtime::builder(RedbStore::open(&path).unwrap())
                .handler("work", |(): (), _: Context| async {})
                .start()
                .unwrap();
            let id = queue.enqueue(job("work")).await.unwrap().id;
            queue.wait(id).await.unwrap();
            assert_eq!(queue.counts().await.unwrap().get(View::Done), round);
            queue.shutdown(seconds(10)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn dropping_the_last_handle_gives_back_what_runs() {
    within(async {
        let store = MemoryStore::new();
        let image = store.another();
        let (gate, mut pace) = paced();
        let queue = Runtime::builder(store)
            .handler("work", move |(): (), ctx: Context| gate.clone().run(ctx))
            .start()
            .unwrap();
        let id = queue.enqueue(job("work")).await.unwrap().id;
        pace.started().await;
        let other = queue.clone();
        drop(queue);
        assert!(other.health().is_good(), "another handle keeps it going");
        drop(other);
        let again =
            Runtime::builder(image).handler("work", |(): (), _: Context| async {}).start().unwrap();
        // The other runtime sees the job as soon as it was given back: its lease is far from over.
        let done = again.wait(id).await.unwrap().job;
        assert_eq!((done.state.name(), done.attempts), (StateName::Done, 1));
    })
    .await;
}

#[test]
fn dropping_the_tokio_runtime_gives_back_what_runs_and_answers_callers_outside() {
    let store = MemoryStore::new();
    let image = store.another();
    let outside = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut inside = tokio::runtime::Builder::new_multi_thread();
    let mut inside = inside.worker_threads(1).enable_all().build().ok();
    let (gate, mut pace) = paced();
    let queue = {
        let _entered = inside.as_ref().unwrap().enter();
        let builder = Runtime::builder(store);
        builder.handler("work", move |(): (), ctx: Context| gate.clone().run(ctx)).start().unwrap()
    };
    let id = outside.block_on(within(queue.enqueue(job("work")))).unwrap().id;
    outside.block_on(within(pace.started()));
    inside.take().unwrap().shutdown_background();
    outside.block_on(within(async {
        // Whatever comes first, every call gets an answer.
        while queue.enqueue(job("other")).await.is_ok() {}
        let again =
            Runtime::builder(image).handler("work", |(): (), _: Context| async {}).start().unwrap();
        assert_eq!(again.wait(id).await.unwrap().job.attempts, 1);
    }));
}

#[test]
fn a_program_that_ends_without_a_word_gives_back_what_runs() {
    let store = MemoryStore::new();
    let image = store.another();
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (gate, mut pace) = paced();
    let id = tokio.block_on(within(async {
        let queue = Runtime::builder(store)
            .handler("work", move |(): (), ctx: Context| gate.clone().run(ctx))
            .start()
            .unwrap();
        let id = queue.enqueue(job("work")).await.unwrap().id;
        pace.started().await;
        // The last handle goes first, the tokio runtime right behind it.
        id
    }));
    drop(tokio);
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio.block_on(within(async {
        let again =
            Runtime::builder(image).handler("work", |(): (), _: Context| async {}).start().unwrap();
        assert_eq!(again.wait(id).await.unwrap().job.attempts, 1);
    }));
}

#[test]
fn a_start_outside_of_tokio_is_refused() {
    let started = Runtime::builder(MemoryStore::new()).start();
    assert!(matches!(started, Err(StartError::NoTokio)), "{started:?}");
}

#[tokio::test]
async fn a_runtime_that_could_not_work_does_not_start() {
    within(async {
        let builder = || Runtime::builder(MemoryStore::new());
        let handler = |(): (), _: Context| async {};
        let without_handlers = builder().workers(3).start();
        assert!(matches!(
            without_handlers,
            Err(StartError::WorkerCount { handlers: 0, workers: 3 })
        ));
        let idle = builder().handler("a", handler).workers(0).start();
        assert!(matches!(idle, Err(StartError::WorkerCount { handlers: 1, workers: 0 })));
        let twice = builder().handler("a", handler).handler("a", handler).start();
        assert!(matches!(twice, Err(StartError::TwoHandlers(kind)) if kind == "a"));
        let named = builder().handler("a/b", handler).start();
        assert!(matches!(named, Err(StartError::Name { what: "kind", .. })), "{named:?}");
        let queues = builder().queues(["a b"]).start();
        assert!(matches!(queues, Err(StartError::Name { what: "queue", .. })), "{queues:?}");
        for version in ["", "2\n", &"2".repeat(65)] {
            let version = builder().version(version).start();
            assert!(
                matches!(version, Err(StartError::Name { what: "version", .. })),
                "{version:?}"
            );
        }
    })
    .await;
}

#[tokio::test]
async fn a_handler_that_gives_up_when_asked_is_released_and_one_that_completes_is_done() {
    within(async {
        let finish = Arc::new(AtomicBool::new(false));
        let finishes = Arc::clone(&finish);
        let store = MemoryStore::new();
        let image = store.another();
        let (started, mut running) = tokio::sync::mpsc::unbounded_channel();
        let queue = Runtime::builder(store)
            .workers(2)
            .handler("work", move |completes: bool, ctx: Context| {
                let (started, finishes) = (started.clone(), Arc::clone(&finishes));
                async move {
                    started.send(()).unwrap();
                    ctx.stopping().await;
                    finishes.store(true, Ordering::SeqCst);
                    if completes { Ok(()) } else { Err(JobError::retry("gave up")) }
                }
            })
            .start()
            .unwrap();
        let completes = queue.enqueue(NewJob::of("work", &true).unwrap()).await.unwrap().id;
        let gives_up = queue.enqueue(NewJob::of("work", &false).unwrap()).await.unwrap().id;
        running.recv().await.unwrap();
        running.recv().await.unwrap();
        let report = queue.shutdown(Duration::ZERO).await;
        assert_eq!((report.finished, report.released), (1, 1), "{report:?}");
        let again = Runtime::builder(image).start().unwrap();
        assert_eq!(state(&again, completes).await, StateName::Done);
        let gives_up = again.get(gives_up).await.unwrap().unwrap().job;
        assert_eq!((gives_up.state.name(), gives_up.attempts), (StateName::Queued, 0));
    })
    .await;
}
