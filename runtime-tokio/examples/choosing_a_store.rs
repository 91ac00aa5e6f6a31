//! The same program on every embedded store: `choosing_a_store sqlite|redb|memory`.
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use windlass_runtime_tokio::core::store::Store;
use windlass_runtime_tokio::{Context, NewJob, Runtime, seconds};
use windlass_store_memory::MemoryStore;
use windlass_store_redb::RedbStore;
use windlass_store_sqlite::SqliteStore;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let chosen: Vec<String> = std::env::args().skip(1).collect();
    let all = ["sqlite", "redb", "memory"].map(String::from);
    for name in if chosen.is_empty() { &all[..] } else { &chosen } {
        match name.as_str() {
            // One file; several processes may share it.
            "sqlite" => run(SqliteStore::open(dir.path().join("jobs.db"))?).await?,
            // One file, one process, in pure Rust.
            "redb" => run(RedbStore::open(dir.path().join("jobs.redb"))?).await?,
            // Gone with the process: for tests.
            "memory" => run(MemoryStore::new()).await?,
            other => return Err(format!("no store {other:?}: sqlite, redb or memory").into()),
        }
    }
    Ok(())
}

async fn run<S>(store: S) -> Result<(), Box<dyn std::error::Error>>
where
    S: Store + Send + 'static,
    S::Reader: Send + 'static,
{
    let queue = Runtime::builder(store)
        .handler("add", |(a, b): (u32, u32), _: Context| async move {
            Ok::<u32, windlass_runtime_tokio::JobError>(a + b)
        })
        .start()?;
    let receipt = queue.enqueue(NewJob::of("add", &(19, 23))?).await?;
    let result = queue.wait(receipt.id).await?.result.ok_or("no result")?;
    println!("{:?}: 19 + 23 = {}", receipt.durability, result.as_str());
    assert_eq!(result.as_str(), "42");
    queue.shutdown(seconds(30)).await;
    Ok(())
}
