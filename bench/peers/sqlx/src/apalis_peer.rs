//! apalis with its SQLite storage. `default` is what its README shows: a pool, and `setup`, which
//! turns syncing off on the connection that it happens to get. `full` migrates through a pool of
//! its own, which is closed again, and works on connections that sync.

use std::str::FromStr;
use std::time::Duration;

use apalis::prelude::*;
use apalis_sqlite::{Config, SqliteConnectOptions, SqlitePool, SqlitePoolOptions, SqliteStorage};
use sqlx::sqlite::{SqliteJournalMode, SqliteSynchronous};
use windlass_peers_plan::{AT_ONCE, Outcome, Peer, Ran, Task as Asked, payload};

pub(crate) struct Apalis {
    pool: SqlitePool,
    storage: SqliteStorage<String>,
    interval: Duration,
}

pub(crate) async fn open(task: Asked) -> Outcome<Apalis> {
    let url = format!("sqlite://{}?mode=rwc", task.folder.join("jobs.db").display());
    let pool = match task.setting.as_str() {
        "default" => {
            let pool = SqlitePool::connect(&url).await?;
            SqliteStorage::setup(&pool).await?;
            pool
        }
        "full" | "tuned" => {
            let first = SqlitePool::connect(&url).await?;
            SqliteStorage::setup(&first).await?;
            first.close().await;
            let options = SqliteConnectOptions::from_str(&url)?
                .journal_mode(SqliteJournalMode::Wal)
                .synchronous(SqliteSynchronous::Full);
            SqlitePoolOptions::new().connect_with(options).await?
        }
        other => return Err(format!("apalis has no setting {other}").into()),
    };
    // As its example for low latency has it: a claim is not written a second time when it starts.
    let config = Config::default().lock_tasks(task.setting != "tuned");
    let config = config.queue("bench").batch_size(AT_ONCE);
    let storage = SqliteStorage::new(&pool).with_config(config);
    // Its example polls ten times a second. More often is sooner, but now and then a worker that
    // polls every 10 ms was seen to stop picking up jobs.
    let interval = Duration::from_millis(if task.setting == "tuned" { 10 } else { 100 });
    Ok(Apalis { pool, storage, interval })
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
        let mut storage = self.storage.clone();
        storage.push(payload()).await?;
        Ok(())
    }

    async fn enqueue_bulk(&self, jobs: usize) -> Outcome<()> {
        let mut storage = self.storage.clone();
        storage.push_bulk(vec![payload(); jobs]).await?;
        Ok(())
    }

    async fn work(&self, ran: Ran) -> Outcome<()> {
        let storage = self.storage.clone().poll_with_interval(self.interval);
        let worker = WorkerBuilder::new("bench")
            .backend(storage)
            .data(ran)
            .concurrency(AT_ONCE)
            .build(handle);
        tokio::spawn(worker.run());
        Ok(())
    }

    async fn left(&self) -> Outcome<u64> {
        let left = "SELECT count(*) FROM Jobs WHERE status <> 'Done'";
        let left: i64 = sqlx::query_scalar(left).fetch_one(&self.pool).await?;
        Ok(u64::try_from(left)?)
    }
}
