//! effectum: a queue on SQLite with one thread that writes, which gathers what waits for it into
//! one transaction. Its API sets no durability.

use std::sync::Arc;

use effectum::{Job, JobRunner, Queue, RunningJob, Worker};
use windlass_peers_plan::{AT_ONCE, Outcome, Peer, Ran, Task, payload, run};

struct Effectum {
    queue: Queue,
    task: Task,
    worker: std::sync::Mutex<Option<Worker>>,
}

const KIND: &str = "bench";
const FILE: &str = "jobs.db";

async fn open(task: Task) -> Outcome<Effectum> {
    let path = task.folder.join(FILE);
    match task.setting.as_str() {
        "default" => {}
        // Its code asks for this mode by a name that SQLite does not know; the file remembers it.
        "wal" => {
            let file = rusqlite::Connection::open(&path)?;
            file.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()))?;
        }
        other => return Err(format!("effectum has no setting {other}").into()),
    }
    let queue = Queue::new(&path).await?;
    Ok(Effectum { queue, task, worker: std::sync::Mutex::new(None) })
}

fn job() -> Outcome<Job> {
    Ok(Job::builder(KIND).json_payload(&payload())?.build())
}

impl Peer for Effectum {
    async fn durability(&self) -> Outcome<String> {
        // The mode is known from the files; `synchronous` is set by its code.
        let wal = self.task.folder.join(format!("{FILE}-wal")).exists();
        Ok(if wal {
            "WAL, synchronous=NORMAL: not synced per commit".into()
        } else {
            "rollback journal, synchronous=NORMAL: synced per commit, the end of a journal is not"
                .into()
        })
    }

    async fn enqueue(&self, _: usize) -> Outcome<()> {
        self.queue.add_job(job()?).await?;
        Ok(())
    }

    async fn enqueue_bulk(&self, jobs: usize) -> Outcome<()> {
        let jobs: Vec<Job> = (0..jobs).map(|_| job()).collect::<Outcome<_>>()?;
        self.queue.add_jobs(jobs).await?;
        Ok(())
    }

    async fn work(&self, ran: Ran) -> Outcome<()> {
        let runner = JobRunner::builder(KIND, |job: RunningJob, ran: Arc<Ran>| async move {
            ran.note();
            job.json_payload::<String>().map(drop)
        });
        let at_once = u16::try_from(AT_ONCE)?;
        let worker = Worker::builder(&self.queue, Arc::new(ran))
            .jobs(vec![runner.build()])
            .min_concurrency(at_once / 2)
            .max_concurrency(at_once)
            .build()
            .await?;
        *self.worker.lock().map_err(|_| "poisoned")? = Some(worker);
        Ok(())
    }

    async fn left(&self) -> Outcome<u64> {
        let count = self.queue.num_active_jobs().await?;
        Ok(count.pending + count.running)
    }
}

#[expect(clippy::print_stdout, reason = "its output is the figures")]
fn main() -> Outcome<()> {
    let task = Task::from_arguments(std::env::args().skip(1))?;
    println!("{}", run(&task, open)?);
    Ok(())
}
