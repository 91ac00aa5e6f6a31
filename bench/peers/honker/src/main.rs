//! honker: queues inside SQLite, as functions of SQL, with a thin wrapper in Rust. Every call goes
//! through one connection behind a lock; it has no workers of its own, so a thread claims and
//! acknowledges batches, which is the fastest way its API has.

use std::time::Duration;

use honker::{Database, EnqueueOpts, Queue, QueueOpts};
use tokio::task::block_in_place;
use windlass_peers_plan::{AT_ONCE, Outcome, Peer, Ran, Task, payload, run};

struct Honker {
    database: Database,
    queue: Queue,
    task: Task,
}

fn database(task: &Task) -> Outcome<Database> {
    let database = Database::open(task.folder.join("jobs.db"))?;
    match task.setting.as_str() {
        "default" => {}
        "full" => database.with_conn(|conn| conn.execute_batch("PRAGMA synchronous=FULL"))?,
        other => return Err(format!("honker has no setting {other}").into()),
    }
    Ok(database)
}

async fn open(task: Task) -> Outcome<Honker> {
    let database = database(&task)?;
    let queue = database.queue("bench", QueueOpts::default());
    Ok(Honker { database, queue, task })
}

impl Honker {
    fn number(&self, sql: &str) -> Outcome<i64> {
        Ok(self.database.with_conn(|conn| conn.query_row(sql, [], |row| row.get(0)))?)
    }
}

impl Peer for Honker {
    async fn durability(&self) -> Outcome<String> {
        let synchronous = self.number("PRAGMA synchronous")?;
        Ok(match synchronous {
            2 => "WAL, synchronous=FULL: synced per commit".into(),
            1 => "WAL, synchronous=NORMAL: not synced per commit".into(),
            other => format!("WAL, synchronous={other}"),
        })
    }

    async fn enqueue(&self, _: usize) -> Outcome<()> {
        block_in_place(|| self.queue.enqueue(&payload(), EnqueueOpts::default()))?;
        Ok(())
    }

    async fn enqueue_bulk(&self, jobs: usize) -> Outcome<()> {
        block_in_place(|| {
            let transaction = self.database.transaction()?;
            for _ in 0..jobs {
                self.queue.enqueue_tx(&transaction, &payload(), EnqueueOpts::default())?;
            }
            transaction.commit()
        })?;
        Ok(())
    }

    async fn work(&self, ran: Ran) -> Outcome<()> {
        let database = database(&self.task)?;
        std::thread::spawn(move || work_off(&database, &ran));
        Ok(())
    }

    async fn left(&self) -> Outcome<u64> {
        let left = "SELECT count(*) FROM _honker_live";
        Ok(u64::try_from(block_in_place(|| self.number(left))?)?)
    }
}

fn work_off(database: &Database, ran: &Ran) -> Outcome<()> {
    let queue = database.queue("bench", QueueOpts::default());
    let changes = database.update_events();
    let at_once = i64::try_from(AT_ONCE)?;
    loop {
        let jobs = queue.claim_batch("bench", at_once)?;
        if jobs.is_empty() {
            changes.recv_timeout(Duration::from_secs(1))?;
            continue;
        }
        for job in &jobs {
            job.payload_as::<String>()?;
            ran.note();
        }
        let ids: Vec<i64> = jobs.iter().map(|job| job.id).collect();
        queue.ack_batch(&ids, "bench")?;
    }
}

#[expect(clippy::print_stdout, reason = "its output is the figures")]
fn main() -> Outcome<()> {
    let task = Task::from_arguments(std::env::args().skip(1))?;
    println!("{}", run(&task, open)?);
    Ok(())
}
