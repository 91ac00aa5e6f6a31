//! The `lifecycle` and `drain` scenarios: whole lives of jobs through the runtime, beside the same
//! commits without it. Producers enqueue one by one, each waiting for its durable receipt.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use clap::Args;
use tokio::task::JoinHandle;
use windlass_core::View;
use windlass_core::store::Store;
use windlass_runtime_tokio::{Clock, Context, EnqueueError, Queue, Runtime, SystemClock};

use crate::bare::{Bare, KIND, LOAD, Place, on_store};
use crate::measure::{Line, Outcome, median, rate, time};

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    place: Place,
    /// Number of jobs that run at once; 64 if not given, or twice the number of producers: with
    /// fewer, jobs wait in the queue, and each is written once more.
    #[arg(long)]
    workers: Option<usize>,
    /// Number of jobs.
    #[arg(long, default_value_t = 100_000)]
    jobs: usize,
    /// Number of measurements; the median is reported.
    #[arg(long, default_value_t = 1)]
    rounds: usize,
    /// Print one JSON line.
    #[arg(long)]
    json: bool,
}

/// Options of `lifecycle`.
#[derive(Debug, Args)]
pub(crate) struct WithProducers {
    #[command(flatten)]
    options: Options,
    /// Number of tasks that enqueue, each one job after the other.
    #[arg(long, default_value_t = 64)]
    producers: usize,
}

/// Figures of one round of the runtime.
#[derive(Debug, Clone, Copy)]
struct Round {
    per_s: f64,
    ceiling: f64,
    commits: u64,
    commit_us: f64,
}

/// Runs producers and workers at once, until everything is done.
pub(crate) fn lifecycle(given: &WithProducers) -> Outcome<String> {
    let producers = given.producers.max(1);
    let workers = given.options.workers.unwrap_or(2 * producers);
    rounds(&given.options, "lifecycle", producers, workers)
}

/// Runs workers only: the jobs were enqueued before.
pub(crate) fn drain(options: &Options) -> Outcome<String> {
    rounds(options, "drain", 0, options.workers.unwrap_or(64))
}

/// Load of a measurement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub(crate) jobs: usize,
    /// Tasks that enqueue; 0 if the jobs were enqueued before.
    pub(crate) producers: usize,
    /// Jobs that run at once.
    pub(crate) workers: usize,
}

impl Load {
    /// Jobs per commit without a runtime.
    fn batch(self) -> usize {
        if self.producers == 0 { self.workers } else { self.producers }
    }
}

/// Medians of all rounds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Figures {
    pub(crate) per_s: f64,
    pub(crate) ceiling: f64,
    pub(crate) ratio: f64,
    pub(crate) commits: u64,
    pub(crate) commit_us: f64,
}

/// Measures the runtime and the bare store in turns, so that noise affects both alike.
pub(crate) fn measure(place: &Place, load: Load, rounds: usize) -> Outcome<Figures> {
    let mut all = Vec::new();
    for _ in 0..rounds.max(1) {
        let folder = place.folder()?;
        let [bare, ours] = ["bare", "ours"].map(|name| folder.path().join(name));
        let ceiling = on_store!(place, bare, |store| ceiling(place, store, load))?;
        let round = on_store!(place, ours, |store| ours_on(place, store, load));
        all.push(Round { ceiling, ..round? });
    }
    let of = |figure: fn(&Round) -> f64| median(all.iter().map(figure).collect());
    Ok(Figures {
        per_s: of(|round| round.per_s),
        ceiling: of(|round| round.ceiling),
        ratio: of(|round| round.per_s / round.ceiling),
        commits: all.first().map_or(0, |round| round.commits),
        commit_us: of(|round| round.commit_us),
    })
}

fn rounds(options: &Options, scenario: &str, producers: usize, workers: usize) -> Outcome<String> {
    let (place, jobs) = (&options.place, options.jobs);
    let figures = measure(place, Load { jobs, producers, workers }, options.rounds)?;
    let line = Line::new(options.json, scenario)
        .word("store", place.name())
        .count("producers", producers)
        .count("workers", workers)
        .count("jobs", jobs)
        .count("rounds", options.rounds.max(1));
    Ok(figures.add_to(line)?.finish())
}

impl Figures {
    pub(crate) fn add_to(self, line: Line) -> Outcome<Line> {
        Ok(line
            .rate("jobs_per_s", self.per_s)
            .rate("ceiling_per_s", self.ceiling)
            .ratio("ratio", self.ratio)
            .count("commits", usize::try_from(self.commits)?)
            .rate("commit_us", self.commit_us))
    }
}

fn ceiling<S: Store>(place: &Place, store: S, load: Load) -> Outcome<f64> {
    let (mut bare, job) = (Bare::new(store)?, place.job()?);
    let (jobs, batch) = (load.jobs, load.batch());
    let took = if load.producers == 0 {
        bare.enqueue(&job, jobs, LOAD)?;
        time(|| bare.work(&job, jobs, batch))?.1
    } else {
        time(|| bare.live(&job, jobs, batch))?.1
    };
    Ok(rate(jobs, took))
}

fn ours_on<S>(place: &Place, store: S, load: Load) -> Outcome<Round>
where
    S: Store + Send + 'static,
    S::Reader: Send + 'static,
{
    let Load { jobs, producers, workers } = load;
    let mut bare = Bare::new(store)?;
    if producers == 0 {
        bare.enqueue(&place.job()?, jobs, LOAD)?;
    }
    let tokio = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    tokio.block_on(async {
        let began = SystemClock.micros();
        let queue = Runtime::builder(bare.store)
            .workers(workers)
            .handler(KIND, |_: String, _: Context| async {})
            .start()?;
        if producers > 0 {
            produce_all(&queue, place, jobs, producers).await?;
        }
        queue.idle().await?;
        let micros = SystemClock.micros() - began;
        let done = queue.counts().await?.get(View::Done);
        if done != jobs as u64 {
            return Err(format!("{done} of {jobs} jobs are done").into());
        }
        let commit = queue.metrics().commit;
        queue.shutdown(std::time::Duration::from_secs(10)).await;
        let took = std::time::Duration::from_micros(micros);
        let commits = commit.count();
        let mean = per(commit.sum, commits);
        Ok(Round { per_s: rate(jobs, took), ceiling: 0.0, commits, commit_us: mean })
    })
}

/// Enqueues one by one, without workers; jobs per second. What clients of a server are
/// compared with.
pub(crate) fn enqueue_one_by_one(place: &Place, jobs: usize, producers: usize) -> Outcome<f64> {
    let folder = place.folder()?;
    on_store!(place, folder.path(), |store| {
        let tokio = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        tokio.block_on(async {
            let queue = Runtime::builder(store).start()?;
            let began = SystemClock.micros();
            produce_all(&queue, place, jobs, producers).await?;
            let took = std::time::Duration::from_micros(SystemClock.micros() - began);
            queue.shutdown(std::time::Duration::from_secs(10)).await;
            Ok(rate(jobs, took))
        })
    })
}

#[expect(clippy::cast_precision_loss, reason = "figures are rounded anyway")]
fn per(sum: u64, count: u64) -> f64 {
    sum as f64 / count.max(1) as f64
}

async fn produce_all(queue: &Queue, place: &Place, jobs: usize, producers: usize) -> Outcome<()> {
    let next = Arc::new(AtomicUsize::new(0));
    for task in produce(queue, place, &next, jobs, producers)? {
        task.await??;
    }
    Ok(())
}

/// Starts producers. Each takes the next job while there is one, and waits for its receipt.
pub(crate) fn produce(
    queue: &Queue,
    place: &Place,
    next: &Arc<AtomicUsize>,
    jobs: usize,
    producers: usize,
) -> Outcome<Vec<JoinHandle<Result<(), EnqueueError>>>> {
    let job = place.job()?;
    let tasks = (0..producers)
        .map(|_| {
            let (queue, next, job) = (queue.clone(), Arc::clone(next), job.clone());
            tokio::spawn(async move {
                while next.fetch_add(1, Ordering::Relaxed) < jobs {
                    queue.enqueue(job.clone()).await?;
                }
                Ok(())
            })
        })
        .collect();
    Ok(tasks)
}
