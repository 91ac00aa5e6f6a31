//! What callers see: receipts, refusals, verdicts, events, commands; and that none blocks another.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{Rig, note, paced, poll_once, state, within};
use windlass_core::machine::{Poll, Refused, StopReason};
use windlass_core::store::{Durability, Filter, Settle, Worker, WorkerKind};
use windlass_core::{
    EnqueueRefused, JobId, MaxRunning, Millis, QueueSettings, StateName, Verdict, View, WorkerId,
};
use windlass_runtime_tokio::testing::TestQueue;
use windlass_runtime_tokio::{
    Clock, CommandError, Context, EnqueueError, Event, InvalidJob, ManualClock, NewJob, Queue,
    ReportError, Runtime, SystemClock, Unserved, WaitError, hours, seconds,
};
use windlass_store_memory::MemoryStore;
use windlass_store_sqlite::SqliteStore;

fn job() -> NewJob {
    NewJob::of("work", &()).unwrap()
}

fn idle_queue() -> Queue {
    Runtime::builder(MemoryStore::new()).start().unwrap()
}

#[tokio::test]
async fn a_receipt_tells_the_id_whether_it_is_new_and_what_the_job_survives() {
    within(async {
        let queue = idle_queue();
        let receipt = queue.enqueue(job()).await.unwrap();
        assert_eq!((receipt.id, receipt.duplicate), (JobId::FIRST, false));
        assert_eq!(receipt.durability, Durability::Memory);
        let dir = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(dir.path().join("jobs.db")).unwrap();
        let durable = Runtime::builder(store).start().unwrap();
        assert_eq!(durable.enqueue(job()).await.unwrap().durability, Durability::Synced);
    })
    .await;
}

#[tokio::test]
async fn a_repeated_request_finds_its_job_and_another_with_the_same_key_is_refused() {
    within(async {
        let queue = idle_queue();
        let keyed =
            |body: serde_json::Value| NewJob::of("pay", &body).unwrap().idempotency_key("k-1");
        let first = queue.enqueue(keyed(serde_json::json!({"a": 1, "b": 2}))).await.unwrap();
        // The reply was lost; the client asks again, and writes its JSON in another order.
        let again = windlass_core::Payload::new(r#"{ "b": 2, "a": 1 }"#).unwrap();
        let mut core = keyed(serde_json::json!({"a": 1, "b": 2})).check().unwrap();
        core.payload = again;
        let again = queue.enqueue(core).await.unwrap();
        assert_eq!((again.id, again.duplicate), (first.id, true));
        let other = queue.enqueue(keyed(serde_json::json!({"a": 2}))).await.unwrap_err();
        let existing = first.id;
        assert_eq!(other, EnqueueError::Refused(EnqueueRefused::IdempotencyConflict { existing }));
        assert_eq!(queue.counts().await.unwrap().get(View::Queued), 1);
        assert_eq!(queue.metrics().refusals.idempotency_conflict, 1);
    })
    .await;
}

#[tokio::test]
async fn many_jobs_in_one_request_have_an_answer_each_and_too_many_are_refused() {
    within(async {
        let queue = idle_queue();
        let jobs = [job().idempotency_key("a"), job().idempotency_key("a"), job()];
        let receipts = queue.enqueue_many(jobs).await.unwrap();
        let duplicates: Vec<bool> =
            receipts.iter().map(|r| r.as_ref().unwrap().duplicate).collect();
        assert_eq!(duplicates, [false, true, false]);
        let refused = queue.enqueue_many((0..10_001).map(|_| job())).await.unwrap_err();
        let (given, limit) = (10_001, 10_000);
        assert_eq!(refused, EnqueueError::Unserved(Refused::TooMany { given, limit }.into()));
        assert_eq!(queue.counts().await.unwrap().waiting(), 2, "none of them was stored");
        let none = queue.enqueue_many(Vec::<NewJob>::new()).await.unwrap();
        assert!(none.is_empty());
    })
    .await;
}

#[tokio::test]
async fn a_job_that_is_none_is_refused_before_the_store_is_asked() {
    within(async {
        let queue = idle_queue();
        let refused = queue.enqueue(job().priority(5_000)).await.unwrap_err();
        assert!(matches!(refused, EnqueueError::Invalid(InvalidJob::OutOfRange(_))), "{refused}");
        let refused = NewJob::of("a b", &()).unwrap_err();
        assert!(matches!(refused, InvalidJob::Name(_)), "{refused}");
        let refused =
            NewJob::of("a", &std::collections::BTreeMap::from([((1, 2), 3)])).unwrap_err();
        assert!(matches!(refused, InvalidJob::Json(_)), "{refused}");
    })
    .await;
}

#[tokio::test]
async fn a_flood_is_refused_at_once_or_waits_and_workers_go_on() {
    within(async {
        let rig = Rig::default();
        let queue = Runtime::builder(rig.store())
            .mailbox(10)
            .handler("work", |(): (), _: Context| async {})
            .start()
            .unwrap();
        queue.idle().await.unwrap();
        rig.hold();
        // One is being committed, ten fill the mailbox.
        let mut callers: Vec<_> = Vec::new();
        let enqueue = || {
            let queue = queue.clone();
            tokio::spawn(async move { queue.enqueue(job()).await })
        };
        callers.push(enqueue());
        rig.hangs().await;
        callers.extend((0..10).map(|_| enqueue()));
        tokio::task::yield_now().await;
        for _ in 0..1_000 {
            let refused = queue.try_enqueue(job()).await.unwrap_err();
            let EnqueueError::Unserved(unserved) = refused else { panic!("{refused}") };
            assert!(unserved.is_overloaded(), "{unserved}");
        }
        // Those who would rather wait are served once there is room.
        callers.extend((0..100).map(|_| enqueue()));
        tokio::task::yield_now().await;
        assert!(callers.iter().all(|caller| !caller.is_finished()));
        rig.let_go();
        for caller in callers {
            caller.await.unwrap().unwrap();
        }
        queue.idle().await.unwrap();
        assert_eq!(queue.counts().await.unwrap().get(View::Done), 111);
        assert_eq!(queue.metrics().refusals.overloaded, 1_000);
    })
    .await;
}

#[tokio::test]
async fn cancelling_a_running_job_stops_it_and_its_report_changes_nothing() {
    within(async {
        let (sender, mut received) = tokio::sync::mpsc::unbounded_channel();
        let (gate, mut pace) = paced();
        let queue = Runtime::builder(MemoryStore::new())
            .handler("work", move |(): (), ctx: Context| {
                let sender = sender.clone();
                async move {
                    sender.send(None).unwrap();
                    sender.send(Some(ctx.stopping().await)).unwrap();
                }
            })
            .handler("other", move |(): (), ctx: Context| gate.clone().run(ctx))
            .start()
            .unwrap();
        let bystander = queue.enqueue(NewJob::of("other", &()).unwrap()).await.unwrap().id;
        pace.started().await;
        let before = queue.get(bystander).await.unwrap();
        let id = queue.enqueue(job()).await.unwrap().id;
        assert_eq!(received.recv().await, Some(None));
        let cancelled = queue.cancel(id).await.unwrap();
        assert_eq!(cancelled.state.name(), StateName::Cancelled);
        assert_eq!(received.recv().await, Some(Some(StopReason::Cancelled)));
        assert_eq!(queue.get(bystander).await.unwrap(), before, "others are left alone");
        pace.go(1);
        queue.idle().await.unwrap();
        // Its handler returned well after it was cancelled; that changes nothing.
        assert_eq!(state(&queue, id).await, StateName::Cancelled);
        let token = windlass_core::LeaseToken { job: id, epoch: cancelled.epoch };
        let late = Settle { token, verdict: Verdict::Complete { result: None } };
        let refused = queue.settle(late).await.unwrap_err();
        assert!(matches!(refused, ReportError::Refused(_)), "{refused}");

        let replayed = queue.replay(id).await.unwrap();
        assert_eq!((replayed.attempts, replayed.generation), (0, 1));
        assert_eq!(received.recv().await, Some(None), "it runs again");
        let refused = queue.replay(JobId::LAST).await.unwrap_err();
        assert!(matches!(refused, CommandError::Refused(_)), "{refused}");
    })
    .await;
}

#[tokio::test]
async fn a_wait_ends_with_the_verdict_whether_it_came_before_or_after() {
    within(async {
        let (gate, mut pace) = paced();
        let queue = Runtime::builder(MemoryStore::new())
            .handler("work", move |(): (), ctx: Context| gate.clone().run(ctx))
            .start()
            .unwrap();
        let id = queue.enqueue(job()).await.unwrap().id;
        pace.started().await;
        let waits: Vec<_> = (0..10)
            .map(|_| {
                let queue = queue.clone();
                tokio::spawn(async move { queue.wait(id).await })
            })
            .collect();
        tokio::task::yield_now().await;
        pace.go(1);
        for wait in waits {
            assert_eq!(wait.await.unwrap().unwrap().job.state.name(), StateName::Done);
        }
        assert_eq!(queue.wait(id).await.unwrap().job.state.name(), StateName::Done);
        assert_eq!(queue.wait(JobId::LAST).await, Err(WaitError::NotFound(JobId::LAST)));
    })
    .await;
}

#[tokio::test]
async fn a_wait_ends_with_a_verdict_that_another_process_gave() {
    within(async {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("jobs.db");
        let here = Runtime::builder(SqliteStore::open(&path).unwrap()).start().unwrap();
        let id = here.enqueue(job()).await.unwrap().id;
        let waits = here.clone();
        let waits = tokio::spawn(async move { waits.wait(id).await });
        let there = Runtime::builder(SqliteStore::open(&path).unwrap())
            .handler("work", |(): (), _: Context| async {})
            .start()
            .unwrap();
        assert_eq!(waits.await.unwrap().unwrap().job.state.name(), StateName::Done);
        there.shutdown(seconds(5)).await;
    })
    .await;
}

#[tokio::test]
async fn events_tell_every_change_in_order_and_say_when_some_were_left_out() {
    within(async {
        let queue = TestQueue::start(
            Runtime::builder(MemoryStore::new())
                .event_buffer(4)
                .handler("work", |(): (), _: Context| async {}),
        )
        .unwrap();
        let mut events = queue.events();
        let id = queue.enqueue(job().delay(seconds(1))).await.unwrap().id;
        queue.advance(seconds(1)).await;
        let mut seen = Vec::new();
        while seen.len() < 3 {
            match events.next().await.unwrap() {
                Event::Job(change) => seen.push((change.id, change.from, change.to)),
                other => panic!("{other:?}"),
            }
        }
        let (queued, running) = (Some(StateName::Queued), Some(StateName::Processing));
        let done = Some(StateName::Done);
        assert_eq!(seen, [(id, None, queued), (id, queued, running), (id, running, done)]);

        queue.enqueue_many((0..10).map(|_| job().delay(hours(1)))).await.unwrap();
        assert_eq!(events.next().await, Some(Event::Lagged(6)));
        assert!(matches!(events.next().await, Some(Event::Job(_))));
        queue.pause("default").await.unwrap();
        let paused = loop {
            if let Some(Event::Queue(queue)) = events.next().await {
                break queue.is_paused();
            }
        };
        assert!(paused);
        queue.shutdown(seconds(1)).await;
        while events.next().await.is_some() {}
    })
    .await;
}

#[tokio::test]
async fn events_are_taken_by_the_page_with_what_was_left_out_and_none_at_the_end() {
    within(async {
        let queue = TestQueue::start(Runtime::builder(MemoryStore::new()).event_buffer(4)).unwrap();
        let mut events = queue.events();
        let ids: Vec<_> = queue.enqueue_many((0..3).map(|_| job())).await.unwrap();
        let ids: Vec<_> = ids.into_iter().map(|receipt| Some(receipt.unwrap().id)).collect();
        let id = |event: &Event| match event {
            Event::Job(change) => Some(change.id),
            _ => None,
        };
        let mut taken = Vec::new();
        assert_eq!(events.next_many(&mut taken, 2).await, 2);
        assert_eq!(events.next_many(&mut taken, 2).await, 1, "it does not wait for more");
        assert_eq!(taken.iter().map(id).collect::<Vec<_>>(), ids);

        queue.enqueue_many((0..10).map(|_| job())).await.unwrap();
        taken.clear();
        assert_eq!(events.next_many(&mut taken, 100).await, 5);
        assert_eq!(taken[0], Event::Lagged(6));
        queue.shutdown(seconds(1)).await;
        assert_eq!(events.next_many(&mut taken, 100).await, 0);
    })
    .await;
}

#[tokio::test]
async fn a_paused_queue_starts_nothing_and_a_limited_one_not_too_much() {
    within(async {
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (now, peak) = (Arc::clone(&running), Arc::clone(&most));
        let queue = Runtime::builder(MemoryStore::new())
            .workers(8)
            .handler("work", move |(): (), _: Context| {
                let (now, peak) = (Arc::clone(&now), Arc::clone(&peak));
                async move {
                    peak.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    now.fetch_sub(1, Ordering::SeqCst);
                }
            })
            .start()
            .unwrap();
        let concurrency = Some(MaxRunning::new(2).unwrap());
        let settings = QueueSettings { concurrency, ..QueueSettings::default() };
        queue.set_queue("default", settings).await.unwrap();
        queue.pause("default").await.unwrap();
        queue.enqueue_many((0..20).map(|_| job())).await.unwrap();
        queue.idle().await.unwrap();
        assert_eq!(queue.counts().await.unwrap().get(View::Queued), 20);
        queue.resume("default").await.unwrap();
        queue.idle().await.unwrap();
        let counts = queue.counts().await.unwrap();
        assert_eq!((counts.get(View::Done), counts.get(View::Queued)), (20, 0));
        assert_eq!(most.load(Ordering::SeqCst), 2);
        let filter = Filter { view: Some(View::Done), ..Filter::default() };
        assert_eq!(queue.list(filter, None, 7).await.unwrap().jobs.len(), 7);
    })
    .await;
}

fn poll(wait: Millis) -> Poll {
    let id = WorkerId::new("remote").unwrap();
    let worker = Worker::new(id, "there", WorkerKind::Remote);
    Poll { worker, wait, length: None }
}

#[tokio::test]
async fn how_long_jobs_waited_is_counted_for_remote_workers_too() {
    within(async {
        let clock = ManualClock::new();
        let queue = Runtime::builder(MemoryStore::new()).clock(clock.clone()).start().unwrap();
        queue.enqueue(job()).await.unwrap();
        clock.advance(seconds(5));
        assert_eq!(queue.poll(poll(Millis::ZERO)).await.unwrap().len(), 1);
        let wait = queue.metrics().wait;
        assert_eq!((wait.count(), wait.sum), (1, 5_000_000));
    })
    .await;
}

#[tokio::test]
async fn a_receipt_carries_the_row_if_it_was_asked_for() {
    within(async {
        let queue = idle_queue();
        assert_eq!(queue.enqueue(job()).await.unwrap().row, None);
        let receipt = queue.enqueue(job().priority(7).echo()).await.unwrap();
        let row = receipt.row.expect("it was asked for");
        assert_eq!(Some(*row), queue.get(receipt.id).await.unwrap().map(|detail| detail.job));
    })
    .await;
}

#[tokio::test]
async fn a_remote_worker_that_leaves_before_its_job_comes_leaves_the_job_to_others() {
    within(async {
        let rig = Rig::default();
        let queue = Runtime::builder(rig.store()).start().unwrap();
        queue.idle().await.unwrap();
        // It leaves while it waits for a job.
        let leaves = queue.clone();
        let leaves = tokio::spawn(async move { leaves.poll(poll(Millis::hours(1))).await });
        tokio::task::yield_now().await;
        leaves.abort();
        let _ = leaves.await;
        let id = queue.enqueue(job()).await.unwrap().id;
        assert_eq!(state(&queue, id).await, StateName::Queued);
        // It leaves while its claim is being committed.
        rig.hold();
        let leaves = queue.clone();
        let leaves = tokio::spawn(async move { leaves.poll(poll(Millis::hours(1))).await });
        rig.hangs().await;
        leaves.abort();
        let _ = leaves.await;
        rig.let_go();
        let runs = queue.poll(poll(Millis::hours(1))).await.unwrap();
        assert_eq!(runs[0].job.id, id);
        assert_eq!(runs[0].job.attempts, 1, "the lost claim was not charged");
        assert_eq!(
            runs[0].job.epoch.get(),
            2,
            "nothing was claimed for the one who had left before"
        );
        let verdict = Verdict::Complete { result: None };
        let settled = queue.settle(Settle { token: runs[0].job.token(), verdict }).await.unwrap();
        assert_eq!(settled, StateName::Done);
    })
    .await;
}

#[tokio::test]
async fn figures_count_what_happened() {
    within(async {
        let queue = TestQueue::start(
            Runtime::builder(MemoryStore::new())
                .workers(3)
                .handler("work", |(): (), _: Context| async {}),
        )
        .unwrap();
        queue.enqueue_many((0..5).map(|_| job().delay(seconds(2)))).await.unwrap();
        queue.advance(seconds(2)).await;
        queue.shutdown(seconds(1)).await;
        let refused = queue.enqueue(job()).await.unwrap_err();
        assert_eq!(refused, EnqueueError::Unserved(Unserved::Stopped));
        let figures = queue.metrics();
        assert_eq!((figures.dispatcher.enqueued, figures.attempts.completed), (5, 5));
        assert_eq!((figures.wait.count(), figures.run.count()), (5, 5));
        assert_eq!((figures.workers, figures.running), (3, 0));
        assert!(figures.commit.count() >= 2 && figures.batch.count() == figures.commit.count());
        assert_eq!(figures.refusals.shutting_down, 1);
    })
    .await;
}

/// A tokio runtime that stands still until the test drives it; the writer goes on meanwhile.
fn standing() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn changes_that_are_not_taken_are_summed_up_once_there_are_too_many() {
    const JOBS: usize = 10_000;
    let tokio = standing();
    let (queue, mut events) = tokio.block_on(within(async {
        let queue = Runtime::builder(MemoryStore::new()).event_buffer(200_000).start().unwrap();
        queue.idle().await.unwrap();
        (queue.clone(), queue.events())
    }));
    // Nothing is delivered: answers and changes pile up behind the writer.
    let mut callers = Vec::new();
    for round in 1..=10 {
        let jobs: Vec<NewJob> = (0..JOBS).map(|_| job()).collect();
        let mut caller = Box::pin(queue.enqueue_many(jobs));
        assert!(poll_once(&mut caller).is_pending());
        callers.push(caller);
        wait_for(|| queue.metrics().dispatcher.enqueued == round * JOBS as u64);
    }
    tokio.block_on(within(async {
        for caller in callers {
            assert_eq!(caller.await.unwrap().len(), JOBS, "answers are never left out");
        }
        queue.shutdown(seconds(5)).await;
        let (mut changes, mut sums) = (0, 0);
        while let Some(event) = events.next().await {
            match event {
                Event::Job(_) => changes += 1,
                Event::Lagged(0) => sums += 1,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((changes, sums), (7 * JOBS, 3), "65 536 changes are kept, or one batch more");
    }));
}

/// Waits for an effect of a thread that sends no signal.
fn wait_for(is_so: impl Fn() -> bool) {
    let latest = SystemClock.now().mono.plus(Millis::seconds(30));
    while !is_so() {
        assert!(SystemClock.now().mono < latest, "it did not come to pass in 30 s");
        std::thread::yield_now();
    }
}

#[test]
fn a_poller_that_leaves_while_its_answer_is_on_the_way_does_not_harm_the_next_with_its_number() {
    let (tokio, rig) = (standing(), Rig::default());
    let (queue, id) = tokio.block_on(within(async {
        let queue = Runtime::builder(rig.store()).start().unwrap();
        let id = queue.enqueue(job()).await.unwrap().id;
        queue.idle().await.unwrap();
        (queue, id)
    }));
    // Nothing is delivered: the first poller's answer stays on the way, and its number is free.
    let mut leaves = Box::pin(queue.poll(poll(Millis::hours(1))));
    assert!(poll_once(&mut leaves).is_pending());
    wait_for(|| rig.batches().iter().any(|batch| !batch.claims.is_empty()));
    let commits = queue.metrics().dispatcher.commits;
    let mut stays = Box::pin(queue.poll(poll(Millis::hours(1))));
    assert!(poll_once(&mut stays).is_pending());
    wait_for(|| queue.metrics().dispatcher.commits > commits);
    drop(leaves);
    tokio.block_on(within(async {
        note("waiting for the job that the first poller left behind");
        let runs = stays.await.unwrap();
        assert_eq!((runs[0].job.id, runs[0].job.attempts, runs[0].job.epoch.get()), (id, 1, 2));
    }));
}
