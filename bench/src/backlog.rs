//! The `backlog` scenario: time and memory per job beside many queued or done jobs, and beside few.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use clap::{Args, ValueEnum};
use tempfile::TempDir;
use tokio::sync::Notify;
use windlass_core::store::Store;
use windlass_runtime_tokio::{Clock, Context, Runtime, SystemClock};
use windlass_store_memory::MemoryStore;

use crate::bare::{Bare, KIND, LOAD, Place, Which, on_store};
use crate::measure::{Line, Outcome, median, rate};
use crate::proc;

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    place: Place,
    /// Numbers of stored jobs; ratios compare with the first.
    #[arg(long, value_delimiter = ',', default_values_t = [10_000, 100_000, 1_000_000])]
    sizes: Vec<usize>,
    /// State of the stored jobs.
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["queued", "done"])]
    views: Vec<StoredView>,
    /// Number of jobs to claim and complete, beside those that are stored.
    #[arg(long, default_value_t = 50_000)]
    jobs: usize,
    /// Number of jobs that run at once.
    #[arg(long, default_value_t = 256)]
    workers: usize,
    /// Number of measurements; the median is reported.
    #[arg(long, default_value_t = 1)]
    rounds: usize,
    /// Print one JSON line per size and view.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum StoredView {
    Queued,
    Done,
}

impl StoredView {
    fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Done => "done",
        }
    }
}

/// One size of one view, with the figures of its rounds.
struct Stage {
    view: StoredView,
    size: usize,
    /// The store, if it is kept between rounds because a round changes little of it.
    kept: Option<TempDir>,
    rates: Vec<f64>,
    rss_kib: u64,
    file_kib: u64,
}

#[derive(Debug, Clone, Copy)]
struct Round {
    per_s: f64,
    rss_kib: u64,
}

/// Measures every size of every view in turn; returns a line for each.
pub(crate) fn run(options: &Options) -> Outcome<String> {
    let mut stages: Vec<Stage> = Vec::new();
    for view in &options.views {
        let of = |size: &usize| Stage {
            view: *view,
            size: *size,
            kept: None,
            rates: Vec::new(),
            rss_kib: 0,
            file_kib: 0,
        };
        stages.extend(options.sizes.iter().map(of));
    }
    for _ in 0..options.rounds.max(1) {
        for stage in &mut stages {
            one(options, stage)?;
        }
    }
    let mut lines = Vec::new();
    for stage in &stages {
        let base = stages.iter().find(|base| base.view == stage.view).unwrap_or(stage);
        let ratios = stage.rates.iter().zip(&base.rates).map(|(rate, base)| rate / base);
        let line = Line::new(options.json, "backlog")
            .word("store", options.place.name())
            .word("view", stage.view.name())
            .count("size", stage.size)
            .count("workers", options.workers)
            .count("jobs", options.jobs)
            .rate("jobs_per_s", median(stage.rates.clone()))
            .ratio("ratio", median(ratios.collect()))
            .count("rss_kib", usize::try_from(stage.rss_kib)?)
            .count("file_kib", usize::try_from(stage.file_kib)?);
        lines.push(line.finish());
    }
    Ok(lines.join("\n"))
}

/// One round of a stage. A large store is filled once, so that the sizes take turns within seconds.
fn one(options: &Options, stage: &mut Stage) -> Outcome<()> {
    let (folder, lies) = match stage.kept.take() {
        Some(folder) => (folder, true),
        None => (options.place.folder()?, false),
    };
    let path = folder.path();
    let round = if options.place.store == Which::Memory {
        work_off(options, fill(options, stage, lies, MemoryStore::new())?)?
    } else {
        on_store!(options.place, path, |store| fill(options, stage, lies, store).map(drop))?;
        stage.file_kib = options.place.size_kib(path)?;
        // Reopened, so that the memory of filling is not measured.
        let round = on_store!(options.place, path, |store| work_off(options, store))?;
        stage.kept = Some(folder).filter(|_| stage.size >= 10 * options.jobs);
        round
    };
    stage.rates.push(round.per_s);
    stage.rss_kib = stage.rss_kib.max(round.rss_kib);
    Ok(())
}

/// Enqueues the jobs of a round behind those that are stored.
fn fill<S: Store>(options: &Options, stage: &Stage, lies: bool, store: S) -> Outcome<S> {
    let (mut bare, job) = (Bare::new(store)?, options.place.job()?);
    if !lies {
        bare.enqueue(&job, stage.size, LOAD)?;
        if stage.view == StoredView::Done {
            bare.work(&job, stage.size, LOAD)?;
        }
    }
    bare.enqueue(&job, options.jobs, LOAD)?;
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
        let rss_kib = proc::usage()?.rss_kib;
        queue.shutdown(Duration::ZERO).await;
        Ok(Round { per_s: rate(options.jobs, took), rss_kib })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Asked {
        #[command(flatten)]
        options: Options,
    }

    #[test]
    fn every_size_of_every_view_is_one_line_beside_the_first_size() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().to_str().unwrap();
        for store in ["sqlite", "redb", "memory"] {
            let words = ["bench", "--json", "--sizes", "5,50", "--jobs", "20", "--dir", folder];
            let words = words.into_iter().chain(["--store", store, "--rounds", "2"]);
            let asked: Asked = clap::Parser::parse_from(words);
            let output = run(&asked.options).unwrap();
            let lines: Vec<serde_json::Value> =
                output.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            let of = |line: &serde_json::Value| format!("{} {}", line["view"], line["size"]);
            let points: Vec<String> = lines.iter().map(of).collect();
            assert_eq!(points, [r#""queued" 5"#, r#""queued" 50"#, r#""done" 5"#, r#""done" 50"#]);
            let firsts = [&lines[0], &lines[2]].map(|line| line["ratio"].as_f64());
            assert_eq!(firsts, [Some(1.0), Some(1.0)], "{output}");
        }
    }
}
