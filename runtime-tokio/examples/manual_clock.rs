//! Testing what happens "in three days" without waiting three days.
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use windlass_runtime_tokio::testing::TestQueue;
use windlass_runtime_tokio::{BoxError, Context, NewJob, Runtime, days};
use windlass_store_memory::MemoryStore;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // In a test of your own, take the builder of your program.
    let builder = Runtime::builder(MemoryStore::new()).handler(
        "remind",
        |name: String, ctx: Context| async move {
            // Every reminder enqueues the next one.
            let next = NewJob::of("remind", &name)?.delay(days(7));
            ctx.queue().enqueue(next).await?;
            Ok::<(), BoxError>(())
        },
    );
    let queue = TestQueue::start(builder)?;
    queue.enqueue(NewJob::of("remind", "Ada")?.delay(days(3))).await?;

    queue.advance(days(2)).await;
    assert_eq!(queue.ran().len(), 0);
    queue.advance(days(1)).await;
    assert_eq!(queue.ran().len(), 1);
    queue.advance(days(28)).await;
    println!("{} reminders in 31 days, and no time has passed", queue.ran().len());
    assert_eq!(queue.ran_kind("remind").len(), 5);
    Ok(())
}
