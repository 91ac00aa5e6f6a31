//! Ending: what runs may finish, the rest is given back, and nothing that was promised is lost.
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::time::Duration;

use tokio::sync::mpsc;
use windlass_runtime_tokio::{Context, NewJob, Runtime};
use windlass_store_memory::MemoryStore;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = MemoryStore::new();
    let same_store = store.another();
    let (started, mut starts) = mpsc::unbounded_channel();
    let queue = Runtime::builder(store)
        .workers(2)
        .handler("work", move |endless: bool, ctx: Context| {
            started.send(()).expect("main listens");
            async move {
                if endless {
                    // A handler gets a signal, and has a moment to clean up.
                    let reason = ctx.stopping().await;
                    println!("job {} has to stop: {reason:?}", ctx.id());
                    return Err("stopped half way");
                }
                Ok(())
            }
        })
        .start()?;
    let endless = queue.enqueue(NewJob::of("work", &true)?).await?;
    let quick = queue.enqueue(NewJob::of("work", &false)?).await?;
    starts.recv().await;
    starts.recv().await;

    // In a program of your own: on a signal.
    let report = queue.shutdown(Duration::from_millis(100)).await;
    println!("{report:?}");
    assert!(report.is_clean());
    assert_eq!(report.released, 1);

    // The next start finds it where it was: runnable, and not charged an attempt.
    let queue = Runtime::builder(same_store).start()?;
    let job = queue.get(endless.id).await?.ok_or("the job is gone")?.job;
    assert_eq!((job.state.name().as_str(), job.attempts), ("queued", 0));
    let job = queue.get(quick.id).await?.ok_or("the job is gone")?.job;
    assert_eq!(job.state.name().as_str(), "done");
    queue.stop_now().await;
    Ok(())
}
