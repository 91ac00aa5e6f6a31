//! The `queues` scenario: claim and complete the same number of jobs from one queue and from many,
//! with one kind of job and with many. Each combination has a store of its own. The stores take
//! turns, a few commits each, so that noise affects all of them alike.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use tempfile::TempDir;
use windlass_core::{Kind, NewJob, Payload, QueueName};

use crate::bare::{LOAD, Which};
use crate::contender::{batches, finish, payload, work};
use crate::measure::{Line, Outcome, median, rate};
use crate::store::order;
use crate::subject::Measured;

/// Options of `queues`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The store: sqlite, redb, memory, postgres (a private server), or a URL postgres://…
    #[arg(long, default_value = "sqlite")]
    store: Which,
    /// Numbers of queues to measure; ratios compare with the first.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 100, 2_000])]
    queues: Vec<usize>,
    /// Numbers of kinds per queue to measure.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 20])]
    kinds: Vec<usize>,
    /// Number of jobs in each store, spread round-robin over its queues and kinds.
    #[arg(long, default_value_t = 40_000)]
    jobs: usize,
    /// Number of jobs to claim per commit; the jobs claimed by the previous commit are completed
    /// in it too.
    #[arg(long, default_value_t = 500)]
    batch: usize,
    /// Size of a payload, in bytes.
    #[arg(long, default_value_t = 100)]
    payload: usize,
    /// Number of measurements, each with new stores; medians are reported.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Directory for the files; a temporary directory is created in it and removed.
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Print one JSON line per combination.
    #[arg(long)]
    json: bool,
}

/// One number of queues with one number of kinds, and its rate in each round.
struct Stage {
    queues: usize,
    kinds: usize,
    rates: Vec<f64>,
}

/// Number of commits that a store makes before the next store has its turn.
const TURN: usize = 5;

/// Measures every combination; returns a line for each.
pub(crate) fn run(options: &Options) -> Outcome<String> {
    let mut stages: Vec<Stage> = Vec::new();
    for kinds in options.kinds.iter().map(|kinds| (*kinds).max(1)) {
        let queues = options.queues.iter().map(|queues| (*queues).max(1));
        stages.extend(queues.map(|queues| Stage { queues, kinds, rates: Vec::new() }));
    }
    for _ in 0..options.rounds.max(1) {
        round(options, &mut stages)?;
    }
    let mut lines = Vec::new();
    for stage in &stages {
        let base = stages.iter().find(|base| base.kinds == stage.kinds).unwrap_or(stage);
        let ratios = stage.rates.iter().zip(&base.rates).map(|(rate, base)| rate / base);
        let line = Line::new(options.json, "queues")
            .word("store", options.store.name())
            .count("queues", stage.queues)
            .count("kinds", stage.kinds)
            .count("jobs", options.jobs)
            .count("batch", options.batch)
            .count("payload", options.payload)
            .count("rounds", options.rounds.max(1))
            .rate("jobs_per_s", median(stage.rates.clone()))
            .ratio("ratio", median(ratios.collect()));
        lines.push(line.finish());
    }
    Ok(lines.join("\n"))
}

/// Fills a new store for each combination, then drains all of them in turns.
fn round(options: &Options, stages: &mut [Stage]) -> Outcome<()> {
    let dir = TempDir::new_in(&options.dir)?;
    let mut stores: Vec<Box<dyn Measured>> = Vec::new();
    for (at, stage) in stages.iter().enumerate() {
        let mut store = options.store.open(&dir.path().join(at.to_string()), options.payload)?;
        for jobs in stage.jobs(options)?.chunks(LOAD) {
            store.enqueue_jobs(jobs.to_vec())?;
        }
        stores.push(store);
    }
    let mut took = vec![Duration::ZERO; stores.len()];
    let turns = batches(options.jobs, options.batch.saturating_mul(TURN));
    for (turn, jobs) in turns.enumerate() {
        for at in order(turn, stores.len()) {
            took[at] += work(&mut *stores[at], jobs, options.batch)?;
        }
    }
    for ((stage, store), took) in stages.iter_mut().zip(&mut stores).zip(took) {
        let took = took + finish(&mut **store)?;
        let done = store.done()?;
        if done != options.jobs as u64 {
            return Err(format!("{done} of {} jobs were completed", options.jobs).into());
        }
        stage.rates.push(rate(options.jobs, took));
    }
    Ok(())
}

impl Stage {
    /// The jobs of its store: neighbours are in different queues, and each pass over the queues
    /// takes the next kind.
    fn jobs(&self, options: &Options) -> Outcome<Vec<NewJob>> {
        let queues: Vec<QueueName> = (0..self.queues)
            .map(|at| QueueName::new(&format!("queue-{at}")))
            .collect::<Result<_, _>>()?;
        let kinds: Vec<Kind> =
            (0..self.kinds).map(|at| Kind::new(&format!("kind-{at}"))).collect::<Result<_, _>>()?;
        let payload = Payload::new(&payload(options.payload))?;
        let job = |at: usize| {
            let kind = kinds[at / self.queues % self.kinds].clone();
            let queue = queues[at % self.queues].clone();
            NewJob { queue, ..NewJob::new(kind, payload.clone()) }
        };
        Ok((0..options.jobs).map(job).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[derive(clap::Parser)]
    struct Asked {
        #[command(flatten)]
        options: Options,
    }

    fn options(arguments: &str) -> Options {
        let words = ["bench", "--json"].into_iter().chain(arguments.split(' '));
        let asked: Asked = clap::Parser::parse_from(words);
        asked.options
    }

    #[test]
    fn every_combination_is_one_line_with_its_ratio_to_the_first_number_of_queues() {
        let folder = tempfile::tempdir().unwrap();
        for store in ["sqlite", "redb", "memory"] {
            let sizes = "--queues 1,7 --kinds 1,3 --jobs 60 --batch 8 --rounds 2";
            let mut options = options(&format!("--store {store} {sizes}"));
            options.dir = folder.path().into();
            let output = run(&options).unwrap();
            let lines: Vec<serde_json::Value> =
                output.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            let of = |line: &serde_json::Value| [&line["queues"], &line["kinds"]].map(number);
            let points: Vec<[u64; 2]> = lines.iter().map(of).collect();
            assert_eq!(points, [[1, 1], [7, 1], [1, 3], [7, 3]]);
            let firsts = [&lines[0], &lines[2]].map(|line| line["ratio"].as_f64());
            assert_eq!(firsts, [Some(1.0), Some(1.0)], "{output}");
        }
    }

    fn number(value: &serde_json::Value) -> u64 {
        value.as_u64().unwrap()
    }

    #[test]
    fn jobs_are_spread_evenly_over_queues_and_kinds() {
        let options = options("--jobs 60");
        let stage = Stage { queues: 4, kinds: 3, rates: Vec::new() };
        let mut counts: BTreeMap<(QueueName, Kind), usize> = BTreeMap::new();
        for job in stage.jobs(&options).unwrap() {
            *counts.entry((job.queue, job.kind)).or_default() += 1;
        }
        assert_eq!(counts.len(), 12);
        assert!(counts.values().all(|count| *count == 5), "{counts:?}");
    }

    #[test]
    fn more_queues_than_a_store_holds_are_an_error_and_not_a_figure() {
        let options = options("--store memory --queues 10001 --kinds 1 --jobs 10001");
        let error = run(&options).unwrap_err().to_string();
        assert!(error.contains("10000"), "{error}");
    }
}
