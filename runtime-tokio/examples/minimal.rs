//! The least there is: a store, a handler, a job, a verdict.
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use serde::{Deserialize, Serialize};
use windlass_runtime_tokio::{Context, NewJob, Runtime, seconds};
use windlass_store_sqlite::SqliteStore;

#[derive(Serialize, Deserialize)]
struct Email {
    to: String,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let queue = Runtime::builder(SqliteStore::open(dir.path().join("jobs.db"))?)
        .handler("email", |mail: Email, ctx: Context| async move {
            println!("attempt {} of job {}: mail to {}", ctx.attempt(), ctx.id(), mail.to);
        })
        .start()?;

    // When this returns, the job is on disk.
    let email = Email { to: "ada@example.org".into() };
    let receipt = queue.enqueue(NewJob::of("email", &email)?).await?;
    let job = queue.wait(receipt.id).await?;
    println!("job {} is {}", receipt.id, job.job.state.name());
    assert_eq!(job.job.state.name().as_str(), "done");

    queue.shutdown(seconds(30)).await;
    Ok(())
}
