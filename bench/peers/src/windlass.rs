//! Windlass as a library, on a store of its own. It has one setting: every acknowledged job is
//! synced. The crate `postgres` has this file too.

use windlass_core::View;
use windlass_core::store::Store;
use windlass_peers_plan::{AT_ONCE, Outcome, Peer, Ran, Task, payload};
use windlass_runtime_tokio::{Context, NewJob, Queue, Runtime};

use std::sync::Mutex;
use std::time::Duration;

pub(crate) struct Windlass<S> {
    task: Task,
    store: fn(&Task) -> Outcome<S>,
    syncs: &'static str,
    queue: Mutex<Queue>,
}

const KIND: &str = "bench";

/// Windlass on a store; `syncs` is the setting of it that makes it sync.
pub(crate) fn open<S>(
    task: Task,
    store: fn(&Task) -> Outcome<S>,
    syncs: &'static str,
) -> Outcome<Windlass<S>>
where
    S: Store + Send + 'static,
    S::Reader: Send + 'static,
{
    let queue = Runtime::builder(store(&task)?).start()?;
    Ok(Windlass { task, store, syncs, queue: Mutex::new(queue) })
}

impl<S> Windlass<S> {
    fn queue(&self) -> Outcome<Queue> {
        Ok(self.queue.lock().map_err(|_| "poisoned")?.clone())
    }
}

fn job() -> Outcome<NewJob> {
    Ok(NewJob::of(KIND, &payload())?)
}

impl<S> Peer for Windlass<S>
where
    S: Store + Send + 'static,
    S::Reader: Send + 'static,
{
    async fn durability(&self) -> Outcome<String> {
        let durability = self.queue()?.durability();
        Ok(format!("{}: synced per commit ({durability:?})", self.syncs))
    }

    async fn enqueue(&self, _: usize) -> Outcome<()> {
        self.queue()?.enqueue(job()?).await?;
        Ok(())
    }

    async fn enqueue_bulk(&self, jobs: usize) -> Outcome<()> {
        let jobs: Vec<NewJob> = (0..jobs).map(|_| job()).collect::<Outcome<_>>()?;
        for receipt in self.queue()?.enqueue_many(jobs).await? {
            receipt?;
        }
        Ok(())
    }

    /// The queue that only enqueues is ended, and one that works is opened on the same store.
    async fn work(&self, ran: Ran) -> Outcome<()> {
        self.queue()?.shutdown(Duration::from_secs(10)).await;
        let queue = Runtime::builder((self.store)(&self.task)?)
            .workers(AT_ONCE)
            .handler(KIND, move |_: String, _: Context| {
                ran.note();
                async {}
            })
            .start()?;
        *self.queue.lock().map_err(|_| "poisoned")? = queue;
        Ok(())
    }

    async fn left(&self) -> Outcome<u64> {
        self.queue()?.idle().await?;
        let counts = self.queue()?.counts().await?;
        Ok(View::ALL.iter().filter(|view| **view != View::Done).map(|view| counts.get(*view)).sum())
    }
}
