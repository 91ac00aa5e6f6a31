//! pgmq: the crate installs its functions without the extension, from the SQL that is embedded in
//! it. It is a queue of messages and has no workers: tasks read batches, hand them to the handler,
//! and delete them. A message whose reader has gone is visible again after 30 s.

use std::time::Duration;

use pgmq::{Message, PGMQueueExt, PgmqError};
use sqlx::postgres::PgPool;
use windlass_peers_plan::{AT_ONCE, Outcome, Peer, Ran, Task, payload};

pub(crate) struct Pgmq {
    pool: PgPool,
    queue: PGMQueueExt,
}

const QUEUE: &str = "bench";

/// Tasks that read; each takes its share of 64 messages at once.
const READERS: usize = 2;
/// How long a message that was read is hidden from other readers.
const HIDDEN_SECONDS: i32 = 30;
/// How long a task waits that has read nothing. `read_batch_with_poll` would wait in the server;
/// two tasks that do so were ten times slower.
const POLL: Duration = Duration::from_millis(10);

pub(crate) async fn open(task: Task) -> Outcome<Pgmq> {
    let pool = crate::pool(&task).await?;
    let queue = PGMQueueExt::new_with_pool(pool.clone()).await;
    queue.install_sql_from_embedded().await?;
    queue.create(QUEUE).await?;
    Ok(Pgmq { pool, queue })
}

impl Peer for Pgmq {
    async fn durability(&self) -> Outcome<String> {
        crate::durability(&self.pool).await
    }

    async fn enqueue(&self, _: usize) -> Outcome<()> {
        self.queue.send(QUEUE, &payload()).await?;
        Ok(())
    }

    async fn enqueue_bulk(&self, jobs: usize) -> Outcome<()> {
        self.queue.send_batch(QUEUE, &vec![payload(); jobs]).await?;
        Ok(())
    }

    async fn work(&self, ran: Ran) -> Outcome<()> {
        for _ in 0..READERS {
            let (queue, ran) = (self.queue.clone(), ran.clone());
            tokio::spawn(async move {
                while let Err(error) = read(&queue, &ran).await {
                    eprintln!("{error}");
                }
            });
        }
        Ok(())
    }

    async fn left(&self) -> Outcome<u64> {
        let left = "SELECT count(*) FROM pgmq.q_bench";
        let left: i64 = sqlx::query_scalar(left).fetch_one(&self.pool).await?;
        Ok(u64::try_from(left)?)
    }
}

/// Reads and deletes until something fails.
async fn read(queue: &PGMQueueExt, ran: &Ran) -> Result<(), PgmqError> {
    let share = i32::try_from(AT_ONCE / READERS).unwrap_or(1);
    loop {
        let batch: Vec<Message<String>> = queue.read_batch(QUEUE, HIDDEN_SECONDS, share).await?;
        let ids: Vec<i64> = batch.iter().map(|one| one.msg_id).collect();
        for _ in &ids {
            ran.note();
        }
        if ids.is_empty() {
            tokio::time::sleep(POLL).await;
        } else {
            queue.delete_batch(QUEUE, &ids).await?;
        }
    }
}
