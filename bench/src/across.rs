//! The `across` scenario: the time from the call that enqueues a job in one process to the start of
//! its handler in another, idle process. The process that enqueues is this program again, with the
//! hidden command `enqueue-from`. Both read the same monotonic clock.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use tokio::sync::mpsc::unbounded_channel;
use windlass_core::store::{Batch, Store};
use windlass_core::{BatchId, JobId, Mono, NewJob, Policy, ProcessId};
use windlass_runtime_tokio::{Clock as _, Context, Runtime, SystemClock};

use crate::bare::{KIND, Place, on_store};
use crate::cancel::{Commit, Instants, committer, in_other_process, plan, read, written};
use crate::measure::{Line, Outcome, quantile};
use crate::proc;

/// Options of `across`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    place: Place,
    /// Number of jobs, each enqueued at a random moment.
    #[arg(long, default_value_t = 200)]
    jobs: usize,
    /// Average time between two jobs, in milliseconds.
    #[arg(long, default_value_t = 50)]
    every_ms: u64,
    /// Print one JSON line.
    #[arg(long)]
    json: bool,
}

/// Options of the process that enqueues.
#[derive(Debug, Args)]
pub(crate) struct EnqueueFrom {
    /// The SQLite file or the URL of the store.
    address: String,
}

/// Measures the scenario; returns one line.
pub(crate) fn run(options: &Options) -> Outcome<String> {
    let folder = options.place.folder()?;
    let address = options.place.store.address(folder.path())?;
    on_store!(options.place, folder.path(), |store| run_on(options, store, address))
}

fn run_on<S>(options: &Options, store: S, address: String) -> Outcome<String>
where
    S: Store + Send + 'static,
    S::Reader: Send + 'static,
{
    let jobs = options.jobs.max(1);
    let tokio = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let (delays_us, on_core) = tokio.block_on(async {
        let (tell, mut started) = unbounded_channel();
        let queue = Runtime::builder(store)
            .handler(KIND, move |_: String, context: Context| {
                let _ = tell.send((context.id(), SystemClock.micros()));
                async {}
            })
            .start()?;
        // A job of its own first, so that everything has been used once.
        let first = queue.enqueue(options.place.job()?).await?.id;
        queue.wait(first).await?;
        started.recv().await.ok_or("no handler runs any more")?;
        let ids: Vec<JobId> = (1..=jobs as u64).filter_map(JobId::new).collect();
        let span_ms = options.every_ms.saturating_mul(jobs as u64);
        let plan = plan(&ids, SystemClock.now().mono.get() + START_MS, span_ms, 0);
        let before = proc::usage()?.on_core_ns;
        let other = move || in_other_process("enqueue-from", &address, &plan);
        let enqueued = tokio::task::spawn_blocking(other).await??;
        let mut starts = BTreeMap::new();
        while starts.len() < jobs {
            let next = tokio::time::timeout(TIMEOUT, started.recv()).await;
            let (id, at_us) = next.map_err(|_| "a job was not started")?.ok_or("no handler")?;
            starts.insert(id, at_us);
        }
        let on_core_us = (proc::usage()?.on_core_ns - before) / 1_000;
        queue.shutdown(Duration::from_secs(10)).await;
        let delay = |(id, at_us): &(JobId, u64)| Some(starts.get(id)?.saturating_sub(*at_us));
        let delays: Vec<u64> = enqueued.iter().filter_map(delay).collect();
        Outcome::Ok((delays, on_core_us))
    })?;
    let us = |thousandths| usize::try_from(quantile(&delays_us, thousandths));
    let line = Line::new(options.json, "across")
        .word("store", options.place.name())
        .count("jobs", jobs)
        .count("every_ms", usize::try_from(options.every_ms)?)
        .count("p50_us", us(500)?)
        .count("p99_us", us(990)?)
        .count("max_us", us(1_000)?)
        .count("on_core_us_per_job", usize::try_from(on_core)? / jobs);
    Ok(line.finish())
}

/// Time for the other process to start, in milliseconds.
const START_MS: u64 = 300;
/// Time limit for a job to start.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The process that enqueues: reads instants from standard input, enqueues a job at each, and
/// returns its output: the jobs, and the instant before each enqueue.
pub(crate) fn from(options: &EnqueueFrom) -> Outcome<String> {
    let mut commit = committer(&options.address)?;
    let plan = read(&std::io::read_to_string(std::io::stdin())?)?;
    let tokio = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let job = Place::temporary("sqlite", 100)?.job()?;
    let mut enqueued = Instants::new();
    for (seq, (_, at_ms)) in (1..).zip(plan) {
        tokio.block_on(SystemClock.sleep(Mono::new(at_ms)));
        let began_us = SystemClock.micros();
        enqueued.push((enqueue(&mut *commit, seq, &job)?, began_us));
    }
    Ok(written(&enqueued).trim_end().to_owned())
}

fn enqueue(commit: &mut Commit, seq: u64, job: &NewJob) -> Outcome<JobId> {
    let id = BatchId { process: ProcessId(u64::from(std::process::id())), seq };
    let mut batch = Batch::new(id, Policy::default());
    batch.enqueues.push(job.clone());
    let out = commit(SystemClock.now().wall, &batch)?;
    let receipt = out.enqueues.into_iter().next().ok_or("no receipt")?;
    Ok(receipt?.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_for_one_process_is_refused() {
        let place = Place::temporary("redb", 100).unwrap();
        let options = Options { place, jobs: 1, every_ms: 1, json: false };
        assert!(run(&options).unwrap_err().to_string().contains("--store sqlite"));
    }
}
