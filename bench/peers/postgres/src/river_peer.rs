//! River on PostgreSQL, tuned: it fetches every millisecond, not ten times a second.

use std::time::Duration;

use riverqueue::migrate::PostgresMigrator;
use riverqueue::{Client, Job, JobArgs, QueueConfig, WorkContext, WorkOutcome, Workers};
use serde::{Deserialize, Serialize};
use sqlx::postgres::PgPool;
use windlass_peers_plan::{AT_ONCE, Outcome, Peer, Ran, Task, payload};

pub(crate) struct River {
    pool: PgPool,
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
    let pool = crate::pool(&task).await?;
    PostgresMigrator::new(pool.clone()).migrate_up().await?;
    let client = Client::builder(pool.clone()).allow_unregistered_job_kinds().build()?;
    Ok(River { pool, client })
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
        let queue = QueueConfig::new(AT_ONCE).with_fetch_poll_interval(Duration::from_millis(10));
        let client = Client::builder(self.pool.clone())
            .workers(workers)
            .fetch_cooldown(Duration::from_millis(1))
            .queue("default", queue)
            .build()?;
        client.start()?.detach();
        Ok(())
    }

    async fn left(&self) -> Outcome<u64> {
        let left = "SELECT count(*) FROM river_job WHERE state <> 'completed'";
        let left: i64 = sqlx::query_scalar(left).fetch_one(&self.pool).await?;
        Ok(u64::try_from(left)?)
    }
}
