//! Windlass as a library on its SQLite store. It has one setting: every acknowledged job is synced.

use windlass_peers_plan::{AT_ONCE, Outcome, Peer, Ran, Task, payload};
use windlass_runtime_tokio::{Context, NewJob, Queue, Runtime};
use windlass_store_sqlite::SqliteStore;

use std::sync::Mutex;
use std::time::Duration;

pub(crate) struct Windlass {
    task: Task,
    queue: Mutex<Queue>,
}

const KIND: &str = "bench";

pub(crate) async fn open(task: Task) -> Outcome<Windlass> {
    let queue = Runtime::builder(store(&task)?).start()?;
    Ok(Windlass { task, queue: Mutex::new(queue) })
}

fn store(task: &Task) -> Outcome<SqliteStore> {
    Ok(SqliteStore::open(task.folder.join("jobs.db"))?)
}

impl Windlass {
    fn queue(&self) -> Outcome<Queue> {
        Ok(self.queue.lock().map_err(|_| "poisoned")?.clone())
    }
}

fn job() -> Outcome<NewJob> {
    Ok(NewJob::of(KIND, &payload())?)
}

impl Peer for Windlass {
    async fn durability(&self) -> Outcome<String> {
        let durability = self.queue()?.durability();
        Ok(format!("WAL, synchronous=FULL: synced per commit ({durability:?})"))
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

    /// The queue that only enqueues is ended, and one that works is opened on the same file.
    async fn work(&self, ran: Ran) -> Outcome<()> {
        self.queue()?.shutdown(Duration::from_secs(10)).await;
        let queue = Runtime::builder(store(&self.task)?)
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
        Ok(0)
    }
}
