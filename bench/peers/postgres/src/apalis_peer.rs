//! apalis with its PostgreSQL storage: batches of 64, and a poll every 10 ms.

use std::time::Duration;

use apalis::prelude::*;
use apalis_postgres::{Config, PostgresStorage};
use sqlx::postgres::PgPool;
use windlass_peers_plan::{AT_ONCE, Outcome, Peer, Ran, Task as Asked, payload};

pub(crate) struct Apalis {
    pool: PgPool,
    storage: PostgresStorage<String>,
}

pub(crate) async fn open(task: Asked) -> Outcome<Apalis> {
    let pool = crate::pool(&task).await?;
    PostgresStorage::setup(&pool).await?;
    let config = Config::default().queue("bench").batch_size(AT_ONCE);
    let storage = PostgresStorage::new(&pool).with_config(config);
    Ok(Apalis { pool, storage })
}

async fn handle(_: String, ran: Data<Ran>) -> Result<(), BoxDynError> {
    ran.note();
    Ok(())
}

impl Peer for Apalis {
    async fn durability(&self) -> Outcome<String> {
        crate::durability(&self.pool).await
    }

    async fn enqueue(&self, _: usize) -> Outcome<()> {
        self.storage.clone().push(payload()).await?;
        Ok(())
    }

    async fn enqueue_bulk(&self, jobs: usize) -> Outcome<()> {
        self.storage.clone().push_bulk(vec![payload(); jobs]).await?;
        Ok(())
    }

    async fn work(&self, ran: Ran) -> Outcome<()> {
        let storage = self.storage.clone().poll_with_interval(Duration::from_millis(10));
        let worker = WorkerBuilder::new(format!("bench-{}", std::process::id()))
            .backend(storage)
            .data(ran)
            .concurrency(AT_ONCE)
            .build(handle);
        tokio::spawn(async move { worker.run().await.map_err(|error| eprintln!("{error}")) });
        Ok(())
    }

    async fn left(&self) -> Outcome<u64> {
        let left = "SELECT count(*) FROM apalis.jobs WHERE status <> 'Done'";
        let left: i64 = sqlx::query_scalar(left).fetch_one(&self.pool).await?;
        Ok(u64::try_from(left)?)
    }
}
