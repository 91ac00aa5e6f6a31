//! The `backlog` scenario: whether a long queue costs more per job, or more memory, than a short
//! one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use clap::Args;
use tokio::sync::Notify;
use windlass_core::store::Store;
use windlass_runtime_tokio::{Clock, Context, Runtime, SystemClock};
use windlass_store_memory::MemoryStore;

use crate::bare::{Bare, KIND, LOAD, Outcome, Place, Which, on_store};
use crate::measure::{Line, median, rate};
use crate::proc;

/// What to measure.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    place: Place,
    /// The short queue.
    #[arg(long, default_value_t = 10_000)]
    short: usize,
    /// The long queue.
    #[arg(long, default_value_t = 1_000_000)]
    long: usize,
    /// How many jobs to claim and complete, beside those that stay.
    #[arg(long, default_value_t = 50_000)]
    jobs: usize,
    /// Jobs that run at once.
    #[arg(long, default_value_t = 256)]
    workers: usize,
    /// How often to measure; the middle figures are told.
    #[arg(long, default_value_t = 1)]
    rounds: usize,
    /// One JSON line.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy)]
struct Round {
    per_s: f64,
    rss_kib: u64,
}

/// Measures a short and a long queue in turn.
pub(crate) fn run(options: &Options) -> Outcome<String> {
    let (mut short, mut long) = (Vec::new(), Vec::new());
    for _ in 0..options.rounds.max(1) {
        short.push(one(options, options.short)?);
        long.push(one(options, options.long)?);
    }
    let per_s = |rounds: &[Round]| median(rounds.iter().map(|round| round.per_s).collect());
    let rss = |rounds: &[Round]| rounds.iter().map(|round| round.rss_kib).max().unwrap_or(0);
    let line = Line::new(options.json, "backlog")
        .word("store", options.place.name())
        .count("workers", options.workers)
        .count("jobs", options.jobs)
        .count("short", options.short)
        .count("long", options.long)
        .rate("short_per_s", per_s(&short))
        .rate("long_per_s", per_s(&long))
        .ratio("ratio", per_s(&long) / per_s(&short))
        .count("short_rss_kib", usize::try_from(rss(&short))?)
        .count("long_rss_kib", usize::try_from(rss(&long))?);
    Ok(line.finish())
}

fn one(options: &Options, queued: usize) -> Outcome<Round> {
    let folder = options.place.folder()?;
    let path = folder.path();
    let count = queued + options.jobs;
    if options.place.store == Which::Memory {
        return work_off(options, fill(options, MemoryStore::new(), count)?);
    }
    on_store!(options.place, path, |store| fill(options, store, count).map(drop))?;
    // Opened anew, so that memory is what running takes, not what filling took.
    on_store!(options.place, path, |store| work_off(options, store))
}

fn fill<S: Store>(options: &Options, store: S, jobs: usize) -> Outcome<S> {
    let mut bare = Bare::new(store)?;
    bare.enqueue(&options.place.job()?, jobs, LOAD)?;
    Ok(bare.store)
}

fn work_off<S>(options: &Options, store: S) -> Outcome<Round>
where
    S: Store + Send + 'static,
    S::Reader: Send + 'static,
{
    let (left, enough) = (Arc::new(AtomicUsize::new(options.jobs)), Arc::new(Notify::new()));
    let (count, tell) = (Arc::clone(&left), Arc::clone(&enough));
    let tokio = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    tokio.block_on(async {
        let began = SystemClock.micros();
        let queue = Runtime::builder(store)
            .workers(options.workers)
            .handler(KIND, move |_: String, _: Context| {
                if count.fetch_sub(1, Ordering::Relaxed) == 1 {
                    tell.notify_one();
                }
                async {}
            })
            .start()?;
        enough.notified().await;
        let took = Duration::from_micros(SystemClock.micros() - began);
        let rss_kib = proc::look()?.rss_kib;
        queue.shutdown(Duration::ZERO).await;
        Ok(Round { per_s: rate(options.jobs, took), rss_kib })
    })
}
