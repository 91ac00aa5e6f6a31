//! River on SQLite, with the pool that its README shows: WAL, and what SQLite does by default,
//! which is to sync per commit. `tuned` lets it fetch every millisecond, not ten times a second.

use std::time::Duration;

use riverqueue::migrate::SqliteMigrator;
use riverqueue::sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions,
};
use riverqueue::{Client, Job, JobArgs, QueueConfig, WorkContext, WorkOutcome, Workers};
use serde::{Deserialize, Serialize};
use windlass_peers_plan::{AT_ONCE, Outcome, Peer, Ran, Task, payload};

pub(crate) struct River {
    pool: SqlitePool,
    task: Task,
    client: Client,
}

#[derive(Clone, Debug, Deserialize, JobArgs, Serialize)]
#[river(kind = "bench")]
struct Bench {
    text: String,
}

fn job() -> Bench {
    Bench { text: payload() }
}

pub(crate) async fn open(task: Task) -> Outcome<River> {
    let options = SqliteConnectOptions::new()
        .filename(task.folder.join("jobs.db"))
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .busy_timeout(Duration::from_secs(5));
    let pool = SqlitePoolOptions::new().max_connections(5).connect_with(options).await?;
    SqliteMigrator::new(pool.clone()).migrate_up().await?;
    let client = Client::builder(pool.clone()).allow_unregistered_job_kinds().build()?;
    Ok(River { pool, task, client })
}

impl Peer for River {
    async fn durability(&self) -> Outcome<String> {
        crate::durability(&self.pool).await
    }

    async fn enqueue(&self, _: usize) -> Outcome<()> {
        self.client.insert(job()).await?;
        Ok(())
    }

    async fn enqueue_bulk(&self, jobs: usize) -> Outcome<()> {
        self.client.insert_many((0..jobs).map(|_| job())).await?;
        Ok(())
    }

    async fn work(&self, ran: Ran) -> Outcome<()> {
        let mut workers = Workers::new();
        workers.add_fn(move |_: WorkContext, _: Job<Bench>| {
            ran.note();
            async { Ok::<_, std::io::Error>(WorkOutcome::Complete) }
        })?;
        let mut builder = Client::builder(self.pool.clone()).workers(workers);
        let mut queue = QueueConfig::new(AT_ONCE);
        match self.task.setting.as_str() {
            "default" => {}
            "tuned" => {
                let soon = Duration::from_millis(1);
                builder = builder.fetch_cooldown(soon);
                queue = queue.with_fetch_poll_interval(Duration::from_millis(10));
            }
            other => return Err(format!("River has no setting {other}").into()),
        }
        let client = builder.queue("default", queue).build()?;
        client.start()?.detach();
        Ok(())
    }

    async fn left(&self) -> Outcome<u64> {
        let left = "SELECT count(*) FROM river_job WHERE state <> 'completed'";
        let left: i64 = sqlx::query_scalar(left).fetch_one(&self.pool).await?;
        Ok(u64::try_from(left)?)
    }
}
