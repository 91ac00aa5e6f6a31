//! Memory stays bounded: when very many jobs fall due at once, and when callers flood the runtime.
//! One test at a time, since both look at the memory of the whole process.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::{Rig, note, poll_once, within, within_time};
use tokio::sync::Mutex;
use windlass_core::{Kind, NewJob as CoreJob, Payload, View};
use windlass_runtime_tokio::testing::TestQueue;
use windlass_runtime_tokio::{Context, EnqueueError, NewJob, Runtime, hours};
use windlass_store_sqlite::SqliteStore;

static ALONE: Mutex<()> = Mutex::const_new(());

/// Resident memory of this process, in MiB.
fn resident_mib() -> u64 {
    status_mib("VmRSS:")
}

/// Resets the peak of resident memory.
fn reset_peak() {
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
}

fn peak_mib() -> u64 {
    status_mib("VmHWM:")
}

fn status_mib(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1_024
}

#[tokio::test]
async fn a_hundred_thousand_jobs_due_at_one_instant_take_no_more_memory_and_starve_no_other() {
    const WORKERS: usize = 1_024;
    // Waiting for the other test is not counted.
    let _alone = ALONE.lock().await;
    within_time(Duration::from_mins(5), async {
        let dir = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(dir.path().join("jobs.db")).unwrap();
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (now, peak) = (Arc::clone(&running), Arc::clone(&most));
        let builder = Runtime::builder(store)
            .workers(WORKERS)
            .handler("work", move |(): (), _: Context| {
                let (now, peak) = (Arc::clone(&now), Arc::clone(&peak));
                async move {
                    peak.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    now.fetch_sub(1, Ordering::SeqCst);
                }
            })
            .handler("urgent", |(): (), _: Context| async {});
        let queue = TestQueue::start(builder).unwrap();
        let job = || NewJob::of("work", &()).unwrap().delay(hours(1));
        for _ in 0..10 {
            queue.enqueue_many((0..10_000).map(|_| job())).await.unwrap();
        }
        let before = resident_mib();
        reset_peak();
        queue.clock().advance(hours(1));
        let urgent = NewJob::of("urgent", &()).unwrap().priority(10);
        let urgent = queue.enqueue(urgent).await.unwrap().id;
        note("waiting for the urgent job");
        queue.wait(urgent).await.unwrap();
        let counts = queue.counts().await.unwrap();
        let done = counts.get(View::Done);
        assert!(done < 50_000, "an urgent job waited for {done} others");
        assert!(counts.get(View::Processing) <= WORKERS as u64, "{counts:?}");
        note("waiting for the hundred thousand");
        queue.run_until_idle().await;
        let grown = peak_mib().saturating_sub(before);
        assert_eq!(queue.counts().await.unwrap().get(View::Done), 100_001);
        assert!(most.load(Ordering::SeqCst) <= WORKERS);
        // Thirteen when written; 86 if all were promoted by one commit.
        assert!(grown < 48, "memory grew by {grown} MiB at its peak");
    })
    .await;
}

#[tokio::test]
async fn a_flood_takes_no_more_memory_than_there_is_room_and_workers_go_on() {
    const FLOOD: usize = 4_000;
    const PAYLOAD: usize = 64 * 1_024;
    // Waiting for the other test is not counted.
    let _alone = ALONE.lock().await;
    within(async {
        let rig = Rig::default();
        let queue = Runtime::builder(rig.store())
            .handler("work", |(): (), _: Context| async {})
            .start()
            .unwrap();
        let text = format!("\"{}\"", "x".repeat(PAYLOAD));
        // Each with a payload of its own: clones would share one.
        let large = || CoreJob::new(Kind::new("large").unwrap(), Payload::new(&text).unwrap());
        queue.idle().await.unwrap();
        rig.hold();
        let before = resident_mib();
        // A quarter of a gigabyte comes while nothing can be stored.
        let (mut taken, mut refused) = (Vec::new(), 0);
        for _ in 0..FLOOD {
            let mut caller = Box::pin(queue.try_enqueue(large()));
            match poll_once(&mut caller) {
                std::task::Poll::Pending => taken.push(caller),
                std::task::Poll::Ready(Err(EnqueueError::Unserved(unserved))) => {
                    assert!(unserved.is_overloaded(), "{unserved}");
                    refused += 1;
                }
                std::task::Poll::Ready(other) => panic!("{other:?}"),
            }
        }
        let grown = resident_mib().saturating_sub(before);
        note(format!("{} taken, {refused} refused, {grown} MiB", taken.len()));
        assert!(refused > FLOOD / 2, "only {refused} were refused");
        assert!(grown < 128, "memory grew by {grown} MiB");
        rig.let_go();
        let count = taken.len() as u64;
        for caller in taken {
            caller.await.unwrap();
        }
        let work = NewJob::of("work", &()).unwrap();
        queue.wait(queue.enqueue(work).await.unwrap().id).await.unwrap();
        assert_eq!(queue.counts().await.unwrap().get(View::Queued), count);
    })
    .await;
}
