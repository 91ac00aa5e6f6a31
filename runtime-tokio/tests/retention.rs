//! Finished jobs are purged by default, as by a server.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod common;

use common::within;
use windlass_runtime_tokio::core::store::Retention;
use windlass_runtime_tokio::testing::TestQueue;
use windlass_runtime_tokio::{Builder, Context, NewJob, Runtime, days};
use windlass_store_memory::MemoryStore;

fn builder() -> Builder<MemoryStore> {
    Runtime::builder(MemoryStore::new())
        .handler("works", |(): (), _: Context| async {})
        .handler("fails", |(): (), _: Context| async { Err::<(), _>("no luck") })
}

/// The kinds of the stored jobs on these days after one was done, one failed and one was cancelled.
async fn kept<const N: usize>(builder: Builder<MemoryStore>, on: [u64; N]) -> [Vec<String>; N] {
    let queue = TestQueue::start(builder).unwrap();
    queue.enqueue(NewJob::of("works", &()).unwrap()).await.unwrap();
    queue.enqueue(NewJob::of("fails", &()).unwrap().max_retries(0)).await.unwrap();
    let later = NewJob::of("later", &()).unwrap().delay(days(1));
    queue.cancel(queue.enqueue(later).await.unwrap().id).await.unwrap();
    queue.run_until_idle().await;
    let mut found = [const { Vec::new() }; N];
    let mut today = 0;
    for (kinds, day) in found.iter_mut().zip(on) {
        queue.advance(days(day - today)).await;
        today = day;
        let dump = queue.read(|reader| reader.dump()).await.unwrap();
        kinds.extend(dump.jobs.iter().map(|row| row.job.kind.to_string()));
    }
    found
}

#[tokio::test]
async fn done_and_cancelled_jobs_are_kept_for_a_week_and_dead_letters_for_thirty_days() {
    within(async {
        let [early, week, month] = kept(builder(), [6, 8, 31]).await;
        assert_eq!(early, ["works", "fails", "later"]);
        assert_eq!(week, ["fails"]);
        assert_eq!(month, <[&str; 0]>::default());
    })
    .await;
}

#[tokio::test]
async fn with_a_retention_without_ages_all_are_kept() {
    within(async {
        let [year] = kept(builder().retention(Retention::default()), [365]).await;
        assert_eq!(year, ["works", "fails", "later"]);
    })
    .await;
}
