//! The program of the README, which tidy compares with this file.
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use windlass_runtime_tokio::{Context, NewJob, Runtime, seconds};
use windlass_store_sqlite::SqliteStore;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let queue = Runtime::builder(SqliteStore::open("jobs.db")?)
        .handler("email", |to: String, _: Context| async move { println!("mail to {to}") })
        .start()?;
    let receipt = queue.enqueue(NewJob::of("email", "ada@example.org")?).await?; // it is on disk
    queue.wait(receipt.id).await?;
    queue.shutdown(seconds(30)).await;
    Ok(())
}
