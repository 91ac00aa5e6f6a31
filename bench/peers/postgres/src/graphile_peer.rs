//! graphile_worker as its own benches set it up: a poll every 10 ms and a local queue of 100 jobs;
//! completions go in batches, with the delay that its documentation shows.

use std::time::Duration;

use graphile_worker::{
    IntoTaskHandlerResult, JobSpec, LocalQueueConfig, RawJobSpec, TaskHandler, WorkerContext,
    WorkerOptions, WorkerUtils,
};
use serde::{Deserialize, Serialize};
use sqlx::postgres::PgPool;
use windlass_peers_plan::{AT_ONCE, Outcome, Peer, Ran, Task, payload};

pub(crate) struct Graphile {
    pool: PgPool,
    utils: WorkerUtils,
}

#[derive(Debug, Deserialize, Serialize)]
struct Bench {
    text: String,
}

/// What a handler is given beside its job.
#[derive(Clone, Debug)]
struct Note(Ran);

const SCHEMA: &str = "graphile_worker";

fn job() -> Bench {
    Bench { text: payload() }
}

impl TaskHandler for Bench {
    const IDENTIFIER: &'static str = "bench";

    async fn run(self, context: WorkerContext) -> impl IntoTaskHandlerResult {
        if let Some(note) = context.get_ext::<Note>() {
            note.0.note();
        }
        Ok::<(), String>(())
    }
}

fn options(pool: &PgPool) -> WorkerOptions {
    WorkerOptions::default().pg_pool(pool.clone()).schema(SCHEMA).define_job::<Bench>()
}

pub(crate) async fn open(task: Task) -> Outcome<Graphile> {
    let pool = crate::pool(&task).await?;
    // Making a worker makes its tables.
    options(&pool).init().await?;
    let utils = WorkerUtils::new(pool.clone(), SCHEMA);
    Ok(Graphile { pool, utils })
}

impl Peer for Graphile {
    async fn durability(&self) -> Outcome<String> {
        crate::durability(&self.pool).await
    }

    async fn enqueue(&self, _: usize) -> Outcome<()> {
        self.utils.add_job(job(), JobSpec::default()).await?;
        Ok(())
    }

    async fn enqueue_bulk(&self, jobs: usize) -> Outcome<()> {
        let one = || {
            let (identifier, spec) = (Bench::IDENTIFIER.to_owned(), JobSpec::default());
            Ok(RawJobSpec { identifier, payload: serde_json::to_value(job())?, spec })
        };
        let jobs: Vec<RawJobSpec> = (0..jobs).map(|_| one()).collect::<Outcome<_>>()?;
        self.utils.add_raw_jobs(&jobs).await?;
        Ok(())
    }

    async fn work(&self, ran: Ran) -> Outcome<()> {
        let worker = options(&self.pool)
            .concurrency(AT_ONCE)
            .poll_interval(Duration::from_millis(10))
            .local_queue(LocalQueueConfig::default().with_size(100))
            .complete_job_batch_delay(Duration::from_millis(5))
            .add_extension(Note(ran))
            .init()
            .await?;
        tokio::spawn(async move { worker.run().await.map_err(|error| eprintln!("{error}")) });
        Ok(())
    }

    async fn left(&self) -> Outcome<u64> {
        let left = "SELECT count(*) FROM graphile_worker._private_jobs";
        let left: i64 = sqlx::query_scalar(left).fetch_one(&self.pool).await?;
        Ok(u64::try_from(left)?)
    }
}
