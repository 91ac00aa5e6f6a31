//! Two runtimes on one SQLite file: what one commits wakes the other. The clocks stand still, so no
//! check for changes falls due by itself.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod common;

use common::within;
use tokio::sync::mpsc::unbounded_channel;
use windlass_runtime_tokio::testing::TestQueue;
use windlass_runtime_tokio::{Context, NewJob, Runtime};
use windlass_store_sqlite::SqliteStore;

#[tokio::test]
async fn a_job_enqueued_by_one_process_is_started_by_another_before_its_next_check() {
    within(async {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("jobs.db");
        let (sender, mut started) = unbounded_channel();
        let works = Runtime::builder(SqliteStore::open(&path).unwrap()).handler(
            "work",
            move |n: u32, _: Context| {
                let sender = sender.clone();
                async move { sender.send(n).unwrap() }
            },
        );
        let works = TestQueue::start(works).unwrap();
        // The first check of a new process is due at once: it must not be the one that finds it.
        works.run_until_idle().await;
        let enqueues =
            TestQueue::start(Runtime::builder(SqliteStore::open(&path).unwrap())).unwrap();
        for n in 1..=3 {
            enqueues.enqueue(NewJob::of("work", &n).unwrap()).await.unwrap();
            // Checks have a gap between them, however many hints there are.
            works.clock().advance(std::time::Duration::from_millis(5));
            assert_eq!(started.recv().await, Some(n));
        }
    })
    .await;
}
