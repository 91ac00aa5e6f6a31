//! underway: one worker that runs up to 64 tasks. It starts one more loop per poll and per
//! notification, so it polls every 10 ms.

use std::sync::Arc;

use jiff::ToSpan as _;
use sqlx::postgres::{PgPool, Postgres};
use underway::{Queue, Worker};
use windlass_peers_plan::{AT_ONCE, Outcome, Peer, Ran, Task, payload};

pub(crate) struct Underway {
    pool: PgPool,
    queue: Arc<Queue<Bench>>,
}

/// Enqueues without, and works with, somewhere to tell that it ran.
pub(crate) struct Bench {
    ran: Option<Ran>,
}

impl underway::Task for Bench {
    type Input = String;
    type Output = ();

    async fn execute(
        &self,
        _: sqlx::Transaction<'_, Postgres>,
        _: String,
    ) -> underway::task::Result<()> {
        if let Some(ran) = &self.ran {
            ran.note();
        }
        Ok(())
    }
}

pub(crate) async fn open(task: Task) -> Outcome<Underway> {
    let pool = crate::pool(&task).await?;
    underway::run_migrations(&pool).await?;
    let queue = Queue::builder().name("bench").pool(pool.clone()).build().await?;
    Ok(Underway { pool, queue: Arc::new(queue) })
}

impl Peer for Underway {
    async fn durability(&self) -> Outcome<String> {
        crate::durability(&self.pool).await
    }

    async fn enqueue(&self, _: usize) -> Outcome<()> {
        self.queue.enqueue(&self.pool, &Bench { ran: None }, &payload()).await?;
        Ok(())
    }

    async fn enqueue_bulk(&self, jobs: usize) -> Outcome<()> {
        let inputs = vec![payload(); jobs];
        self.queue.enqueue_multi(&self.pool, &Bench { ran: None }, &inputs).await?;
        Ok(())
    }

    async fn work(&self, ran: Ran) -> Outcome<()> {
        let mut worker = Worker::new(Arc::clone(&self.queue), Bench { ran: Some(ran) });
        worker.set_concurrency_limit(AT_ONCE);
        tokio::spawn(async move {
            let ended = worker.run_every(10.milliseconds()).await;
            ended.map_err(|error| eprintln!("{error}"))
        });
        Ok(())
    }

    async fn left(&self) -> Outcome<u64> {
        let left = "SELECT count(*) FROM underway.task WHERE state <> 'succeeded'";
        let left: i64 = sqlx::query_scalar(left).fetch_one(&self.pool).await?;
        Ok(u64::try_from(left)?)
    }
}
