//! awa with its queue storage, set up as its own benches are: no deadline per claim, which lets it
//! claim and complete in compact batches, and bulk through `COPY`.

use std::time::Duration;

use awa::model::insert::params_with;
use awa::{
    AwaError, Client, InsertOpts, InsertParams, JobArgs, JobResult, QueueConfig, QueueStorage,
    QueueStorageConfig,
};
use serde::{Deserialize, Serialize};
use sqlx::postgres::PgPool;
use tokio::sync::OnceCell;
use windlass_peers_plan::{AT_ONCE, Outcome, Peer, Ran, Task, payload};

pub(crate) struct Awa {
    pool: PgPool,
    store: QueueStorage,
    /// Its workers end when this is dropped.
    client: OnceCell<Client>,
}

#[derive(Debug, Deserialize, JobArgs, Serialize)]
struct Bench {
    text: String,
}

const QUEUE: &str = "bench";

/// Into how many heads its queue is split, so that producers do not wait for one row; jobs are then
/// in order within each only.
const SHARDS: i16 = 8;

fn job() -> Result<InsertParams, AwaError> {
    let options = InsertOpts { queue: QUEUE.into(), ..InsertOpts::default() };
    params_with(&Bench { text: payload() }, options)
}

pub(crate) async fn open(task: Task) -> Outcome<Awa> {
    let pool = crate::pool(&task).await?;
    awa::migrations::run(&pool).await?;
    // What its workers do when they start on tables that were just made: from then on it uses its
    // queue storage, not the tables that it had before 0.6.
    let chosen = "SELECT awa.storage_auto_finalize_if_fresh('awa')";
    let _: bool = sqlx::query_scalar(chosen).fetch_one(&pool).await?;
    let shards = "INSERT INTO awa.queue_meta (queue, enqueue_shards) VALUES ($1, $2)
        ON CONFLICT (queue) DO UPDATE SET enqueue_shards = EXCLUDED.enqueue_shards";
    sqlx::query(shards).bind(QUEUE).bind(SHARDS).execute(&pool).await?;
    let store = QueueStorage::new(QueueStorageConfig::default())?;
    Ok(Awa { pool, store, client: OnceCell::new() })
}

impl Peer for Awa {
    async fn durability(&self) -> Outcome<String> {
        crate::durability(&self.pool).await
    }

    async fn enqueue(&self, _: usize) -> Outcome<()> {
        self.store.enqueue_params_batch(&self.pool, &[job()?]).await?;
        Ok(())
    }

    async fn enqueue_bulk(&self, jobs: usize) -> Outcome<()> {
        let jobs: Vec<InsertParams> = (0..jobs).map(|_| job()).collect::<Result<_, _>>()?;
        self.store.enqueue_params_copy(&self.pool, &jobs).await?;
        Ok(())
    }

    async fn work(&self, ran: Ran) -> Outcome<()> {
        let queue = QueueConfig {
            max_workers: u32::try_from(AT_ONCE)?,
            poll_interval: Duration::from_millis(50),
            deadline_duration: Duration::ZERO,
            claimers: 4,
            ..QueueConfig::default()
        };
        let client = Client::builder(self.pool.clone())
            .queue(QUEUE, queue)
            .register::<Bench, _, _>(move |_, _| {
                ran.note();
                async { Ok(JobResult::Completed) }
            })
            .build()?;
        client.start().await?;
        let _ = self.client.set(client);
        Ok(())
    }

    async fn left(&self) -> Outcome<u64> {
        let counts = self.store.queue_counts(&self.pool, QUEUE).await?;
        Ok(u64::try_from(counts.available + counts.running)?)
    }
}
