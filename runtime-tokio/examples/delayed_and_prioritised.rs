//! When jobs run, and in which order: delays, priorities, retries, keys.
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use windlass_runtime_tokio::core::{Millis, RetryPolicy, Strategy};
use windlass_runtime_tokio::{Context, JobError, NewJob, Runtime, seconds};
use windlass_store_memory::MemoryStore;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let order = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&order);
    let queue = Runtime::builder(MemoryStore::new())
        .workers(1)
        .handler("say", move |text: String, ctx: Context| {
            println!("{text} (attempt {})", ctx.attempt());
            seen.lock().expect("no holder of the lock panics").push(text.clone());
            async move {
                if text == "flaky" && ctx.attempt() == 1 {
                    return Err(JobError::retry("not yet"));
                }
                Ok(())
            }
        })
        .start()?;

    // Nothing starts until all of them are there.
    queue.pause("default").await?;
    let quickly = RetryPolicy::new(Strategy::Fixed, Millis::new(50), Millis::new(50), 0)?;
    let jobs = [
        NewJob::of("say", "usual")?,
        NewJob::of("say", "urgent")?.priority(10),
        NewJob::of("say", "later")?.delay(Duration::from_millis(200)),
        NewJob::of("say", "flaky")?.priority(-1).retry(quickly).max_retries(3),
        NewJob::of("say", "once")?.priority(-2).idempotency_key("request-17"),
        NewJob::of("say", "once")?.priority(-2).idempotency_key("request-17"),
    ];
    let receipts = queue.enqueue_many(jobs).await?;
    queue.resume("default").await?;
    for receipt in receipts {
        queue.wait(receipt?.id).await?;
    }
    let order = order.lock().expect("no holder of the lock panics").clone();
    assert_eq!(order, ["urgent", "usual", "flaky", "once", "flaky", "later"]);
    queue.shutdown(seconds(30)).await;
    Ok(())
}
