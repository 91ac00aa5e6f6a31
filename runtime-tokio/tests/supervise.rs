//! When the store or the writer fails: every caller gets an answer, health shows it, nothing hangs.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;
use std::time::Duration;

use common::{Rig, note, paced, state, within};
use windlass_core::machine::{Refused, StopReason};
use windlass_core::{Mono, Now, StateName, View};
use windlass_runtime_tokio::{
    Clock, Context, EnqueueError, Health, ManualClock, NewJob, Queue, Receipt, Runtime, Sleep,
    SystemClock, Unserved, WaitError, minutes, seconds,
};
use windlass_store_memory::{Fault, MemoryStore};

fn job() -> NewJob {
    NewJob::of("work", &()).unwrap()
}

/// Waits until the runtime says that it is doing like this.
async fn until(queue: &Queue, is: impl Fn(&Health) -> bool) -> Health {
    loop {
        let health = queue.health();
        note(format!("waiting for another health than {health:?}"));
        if is(&health) {
            return health;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_writer_that_dies_answers_all_callers_and_says_why() {
    within(async {
        let rig = Rig::default();
        let (gate, mut pace) = paced();
        let queue = Runtime::builder(rig.store())
            .handler("work", move |(): (), ctx: Context| gate.clone().run(ctx))
            .start()
            .unwrap();
        let running = queue.enqueue(job()).await.unwrap().id;
        pace.started().await;
        let waits = queue.clone();
        let waits = tokio::spawn(async move { waits.wait(running).await });
        rig.hold();
        let (in_commit, in_mailbox) = (queue.clone(), queue.clone());
        let in_commit = tokio::spawn(async move { in_commit.enqueue(job()).await });
        rig.hangs().await;
        let in_mailbox = tokio::spawn(async move { in_mailbox.enqueue(job()).await });
        tokio::task::yield_now().await;
        rig.panic();
        rig.let_go();

        for caller in [in_commit, in_mailbox] {
            let error = caller.await.unwrap().unwrap_err();
            let EnqueueError::Unserved(unserved) = &error else { panic!("{error}") };
            assert!(matches!(unserved, Unserved::Died(_)) && unserved.is_unknown(), "{error}");
            assert!(error.to_string().contains("the disk caught fire"), "{error}");
        }
        assert_eq!(waits.await.unwrap(), Err(WaitError::Stopped(running)));
        let health = until(&queue, |health| !health.is_good()).await;
        assert!(matches!(&health, Health::Died(cause) if cause.to_string().contains("fire")));
        let report = queue.shutdown(seconds(60)).await;
        assert_eq!(report.left.len(), 1, "the lease of what ran is left to run out");
        assert!(report.cause.is_some());
        let refused = queue.enqueue(job()).await.unwrap_err();
        assert!(matches!(refused, EnqueueError::Unserved(Unserved::Died(_))));
    })
    .await;
}

#[tokio::test]
async fn what_runs_is_stopped_when_the_writer_dies() {
    within(async {
        let rig = Rig::default();
        let (sender, mut received) = tokio::sync::mpsc::unbounded_channel();
        let queue = Runtime::builder(rig.store())
            .handler("work", move |(): (), ctx: Context| {
                let sender = sender.clone();
                async move {
                    sender.send(None).unwrap();
                    sender.send(Some(ctx.stopping().await)).unwrap();
                }
            })
            .start()
            .unwrap();
        queue.enqueue(job()).await.unwrap();
        assert_eq!(received.recv().await, Some(None));
        let lost = queue.clone();
        let lost = tokio::spawn(async move { lost.lost().await });
        rig.panic();
        queue.enqueue(job()).await.unwrap_err();
        assert_eq!(received.recv().await, Some(Some(StopReason::LeaseLost)));
        let cause = lost.await.unwrap().expect("a dead writer is a loss");
        assert!(cause.to_string().contains("the disk caught fire"), "{cause}");
        assert!(matches!(queue.health(), Health::Died(_)));
    })
    .await;
}

#[tokio::test]
async fn a_corrupt_store_is_lost_for_good_and_all_callers_get_that_error() {
    within(async {
        let rig = Rig::default();
        let (gate, mut pace) = paced();
        let queue = Runtime::builder(rig.store())
            .handler("work", move |(): (), ctx: Context| gate.clone().run(ctx))
            .start()
            .unwrap();
        let running = queue.enqueue(job()).await.unwrap().id;
        pace.started().await;
        let waits = queue.clone();
        let waits = tokio::spawn(async move { waits.wait(running).await });
        let lost = queue.clone();
        let lost = tokio::spawn(async move { (lost.lost().await, lost.health()) });
        rig.fail(Some(Fault::Corrupt));
        let refused = queue.enqueue(job()).await.unwrap_err();
        assert!(
            matches!(&refused, EnqueueError::Unserved(Unserved::Refused(Refused::Unavailable(_)))),
            "{refused}"
        );
        let (cause, health) = lost.await.unwrap();
        assert_eq!(health, Health::Lost(cause.expect("a corrupt store is a loss")));
        assert_eq!(queue.lost().await, health.cause().cloned(), "a later call gets it too");
        assert_eq!(waits.await.unwrap(), Err(WaitError::Stopped(running)));
        rig.fail(None);
        queue.enqueue(job()).await.unwrap_err();
        let report = queue.shutdown(seconds(60)).await;
        assert!(!report.is_clean(), "{report:?}");
    })
    .await;
}

#[tokio::test]
async fn an_end_in_order_is_no_loss() {
    within(async {
        let queue = Runtime::builder(Rig::default().store()).start().unwrap();
        let lost = queue.clone();
        let lost = tokio::spawn(async move { lost.lost().await });
        queue.enqueue(job()).await.unwrap();
        queue.shutdown(seconds(60)).await;
        assert_eq!(lost.await.unwrap(), None);
        assert_eq!(queue.lost().await, None);
    })
    .await;
}

#[tokio::test]
async fn a_store_that_fails_for_a_moment_is_tried_again_and_no_caller_notices() {
    within(async {
        let rig = Rig::default();
        let clock = ManualClock::new();
        let queue = Runtime::builder(rig.store())
            .clock(clock.clone())
            .handler("work", |(): (), _: Context| async {})
            .start()
            .unwrap();
        queue.idle().await.unwrap();
        rig.fail(Some(Fault::NotCommitted));
        let caller = queue.clone();
        let caller = tokio::spawn(async move { caller.enqueue(job()).await });
        let health = until(&queue, |health| !health.is_good()).await;
        assert!(matches!(health, Health::Retrying(_)), "{health:?}");
        rig.fail(None);
        served_in_time(&clock, &queue, caller).await;
        until(&queue, Health::is_good).await;
        for fault in [Fault::UnknownCommitted, Fault::UnknownNotCommitted] {
            rig.fail_once(fault);
            let caller = queue.clone();
            let caller = tokio::spawn(async move { caller.enqueue(job()).await });
            served_in_time(&clock, &queue, caller).await;
        }
        assert!(queue.metrics().dispatcher.failed_commits >= 3);
    })
    .await;
}

/// Lets time pass until the caller has its receipt, and waits for the job.
async fn served_in_time(
    clock: &ManualClock,
    queue: &Queue,
    caller: tokio::task::JoinHandle<Result<Receipt, EnqueueError>>,
) {
    while !caller.is_finished() {
        clock.advance(Duration::from_millis(10));
        tokio::task::yield_now().await;
    }
    let id = caller.await.unwrap().unwrap().id;
    let waiting = queue.clone();
    let waiting = tokio::spawn(async move { waiting.wait(id).await });
    while !waiting.is_finished() {
        clock.advance(Duration::from_millis(10));
        tokio::task::yield_now().await;
    }
    assert_eq!(waiting.await.unwrap().unwrap().job.state.name(), StateName::Done);
}

#[tokio::test]
async fn after_a_fatal_error_nothing_is_acknowledged_until_it_is_open_again() {
    within(async {
        let rig = Rig::default();
        let clock = ManualClock::new();
        let queue = Runtime::builder(rig.store())
            .clock(clock.clone())
            .handler("work", |(): (), _: Context| async {})
            .start()
            .unwrap();
        queue.idle().await.unwrap();
        rig.fail(Some(Fault::FatalCommitted));
        let refused = queue.enqueue(job()).await.unwrap_err();
        let EnqueueError::Unserved(unserved) = &refused else { panic!("{refused}") };
        assert!(unserved.is_unknown(), "{refused}");
        let health = until(&queue, |health| !health.is_good()).await;
        assert!(matches!(health, Health::Reopening(_)), "{health:?}");
        rig.fail(None);
        while !queue.health().is_good() {
            clock.advance(Duration::from_millis(100));
            tokio::task::yield_now().await;
        }
        let id = queue.enqueue(job()).await.unwrap().id;
        queue.wait(id).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_call_of_the_store_that_never_returns_is_noticed_and_no_caller_waits_for_it() {
    within(async {
        let rig = Rig::default();
        let clock = ManualClock::new();
        let (sender, mut received) = tokio::sync::mpsc::unbounded_channel();
        let queue = Runtime::builder(rig.store())
            .clock(clock.clone())
            .store_timeout(seconds(10))
            .handler("work", move |(): (), ctx: Context| {
                let sender = sender.clone();
                async move {
                    sender.send(None).unwrap();
                    sender.send(Some(ctx.stopping().await)).unwrap();
                }
            })
            .start()
            .unwrap();
        let lease = seconds(60);
        queue.enqueue(job().visibility_timeout(lease)).await.unwrap();
        assert_eq!(received.recv().await, Some(None));
        let began = clock.now().mono;
        rig.hold();
        let in_commit = queue.clone();
        let in_commit = tokio::spawn(async move { in_commit.enqueue(job()).await });
        rig.hangs().await;
        let in_mailbox = queue.clone();
        let in_mailbox = tokio::spawn(async move { in_mailbox.enqueue(job()).await });
        tokio::task::yield_now().await;
        assert!(queue.health().is_good(), "it may still return");
        clock.advance(seconds(10));
        assert!(matches!(queue.health(), Health::Stuck(_)));
        let unknown = in_commit.await.unwrap().unwrap_err();
        assert!(matches!(&unknown, EnqueueError::Unserved(u) if u.is_unknown()), "{unknown}");
        let untouched = in_mailbox.await.unwrap().unwrap_err();
        assert!(matches!(&untouched, EnqueueError::Unserved(u) if !u.is_unknown()), "{untouched}");
        let refused = queue.enqueue(job()).await.unwrap_err();
        assert!(refused.to_string().contains("has not answered"), "{refused}");

        // What runs is stopped well before its lease can have ended.
        let stopped = tokio::spawn(async move { received.recv().await });
        while !stopped.is_finished() {
            clock.advance(seconds(1));
            tokio::task::yield_now().await;
        }
        assert_eq!(stopped.await.unwrap(), Some(Some(StopReason::LeaseLost)));
        let waited = clock.now().mono.since(began);
        assert!(waited.get() < 60_000, "stopped only after {waited}");

        // A shutdown ends by its deadline all the same.
        let stopping = queue.clone();
        let asked = clock.now().mono;
        let stopping = tokio::spawn(async move { stopping.shutdown(minutes(5)).await });
        while !stopping.is_finished() {
            clock.advance(Duration::from_millis(500));
            tokio::task::yield_now().await;
        }
        let report = stopping.await.unwrap();
        assert!(report.cause.is_some() && report.forced, "{report:?}");
        let took = clock.now().mono.since(asked);
        assert!((300_000..305_000).contains(&took.get()), "the shutdown took {took}");
        rig.let_go();
    })
    .await;
}

#[tokio::test]
async fn a_store_that_answers_after_all_is_trusted_again() {
    within(async {
        let rig = Rig::default();
        let clock = ManualClock::new();
        let queue = Runtime::builder(rig.store())
            .clock(clock.clone())
            .handler("work", |(): (), _: Context| async {})
            .start()
            .unwrap();
        queue.idle().await.unwrap();
        rig.hold();
        let caller = queue.clone();
        let caller = tokio::spawn(async move { caller.enqueue(job()).await });
        rig.hangs().await;
        clock.advance(seconds(10));
        caller.await.unwrap().unwrap_err();
        rig.let_go();
        until(&queue, Health::is_good).await;
        let id = queue.enqueue(job()).await.unwrap().id;
        queue.wait(id).await.unwrap();
        // The job whose caller got "unknown" was stored, and ran.
        queue.idle().await.unwrap();
        let page = queue.list(windlass_core::store::Filter::default(), None, 10).await.unwrap();
        assert_eq!(page.jobs.len(), 2);
        for job in page.jobs {
            assert_eq!(state(&queue, job.id).await, StateName::Done);
        }
    })
    .await;
}

/// A clock that fails the thread that reads it next, unless that is the writer.
#[derive(Debug, Clone, Default)]
struct Broken {
    armed: Arc<AtomicBool>,
}

impl Clock for Broken {
    fn now(&self) -> Now {
        SystemClock.now()
    }

    fn micros(&self) -> u64 {
        let is_writer = std::thread::current().name() == Some("windlass-writer");
        assert!(is_writer || !self.armed.swap(false, Ordering::SeqCst), "the clock broke");
        SystemClock.micros()
    }

    fn wait(&self, at: Mono) -> Option<Duration> {
        SystemClock.wait(at)
    }

    fn sleep(&self, at: Mono) -> Sleep {
        SystemClock.sleep(at)
    }

    fn notify(&self, waker: Waker) {
        SystemClock.notify(waker);
    }
}

#[tokio::test]
async fn a_worker_that_panics_outside_of_a_handler_is_restarted_and_its_job_is_not_lost() {
    within(async {
        let clock = Broken::default();
        let armed = Arc::clone(&clock.armed);
        let queue = Runtime::builder(MemoryStore::new())
            .clock(clock)
            .workers(1)
            .handler("work", move |breaks: bool, ctx: Context| {
                // The next to ask the clock is the worker, right behind this handler.
                armed.store(breaks && ctx.epoch().get() == 1, Ordering::SeqCst);
                async {}
            })
            .start()
            .unwrap();
        let breaks = queue.enqueue(NewJob::of("work", &true).unwrap()).await.unwrap().id;
        note("waiting for the job whose worker panicked");
        let done = queue.wait(breaks).await.unwrap().job;
        assert_eq!((done.state.name(), done.epoch.get()), (StateName::Done, 2));
        let next = queue.enqueue(NewJob::of("work", &false).unwrap()).await.unwrap().id;
        note("waiting for the next job of the same worker");
        queue.wait(next).await.unwrap();
        assert!(queue.shutdown(seconds(10)).await.is_clean());
    })
    .await;
}

#[tokio::test]
async fn reads_after_a_reopen_go_to_the_store_as_it_is_then() {
    within(async {
        let rig = Rig::default();
        let clock = ManualClock::new();
        let queue = Runtime::builder(rig.store()).clock(clock.clone()).start().unwrap();
        queue.idle().await.unwrap();
        let before = rig.readers();
        rig.fail_once(Fault::FatalCommitted);
        queue.enqueue(job()).await.unwrap_err();
        // One read began before the reopen and ends after it: its reader is not lent again.
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let reads = queue.clone();
        let reads = tokio::spawn(async move {
            let read = move |reader: &mut dyn windlass_core::store::Reader| {
                let _ = wait.recv_timeout(seconds(20));
                reader.queues()
            };
            reads.read(read).await
        });
        tokio::task::yield_now().await;
        while !queue.health().is_good() {
            clock.advance(Duration::from_millis(100));
            tokio::task::yield_now().await;
        }
        assert_eq!(rig.readers(), 2 * before, "every reader was reopened");
        go.send(()).unwrap();
        reads.await.unwrap().unwrap();
        assert_eq!(rig.living_readers(), before, "those from before are gone");
        assert_eq!(queue.counts().await.unwrap().get(View::Queued), 1);
    })
    .await;
}
