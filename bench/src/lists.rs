//! The `lists` scenario: the first page of lists whose few jobs are older than hundreds of
//! thousands of done ones. A list that does not seek reads all of those.

use std::path::PathBuf;

use clap::Args;
use tempfile::TempDir;
use windlass_core::store::Filter;
use windlass_core::{
    Fingerprint, Idempotency, IdempotencyKey, Kind, NewJob, Payload, QueueName, View,
};

use crate::bare::{LOAD, Which};
use crate::contender::{enqueue, finish, payload, work};
use crate::measure::{Line, Outcome, quantile};
use crate::subject::Measured;

/// Options of `lists`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The store: sqlite, redb, memory, postgres (a private server), or a URL postgres://…
    #[arg(long, default_value = "sqlite")]
    store: Which,
    /// Number of done jobs that are in no list.
    #[arg(long, default_value_t = 300_000)]
    jobs: usize,
    /// Number of jobs in the rare queue.
    #[arg(long, default_value_t = 5)]
    rare: usize,
    /// Number of times that each list is read.
    #[arg(long, default_value_t = 1_000)]
    reads: usize,
    /// Size of a payload, in bytes.
    #[arg(long, default_value_t = 100)]
    payload: usize,
    /// Directory for the files; a temporary directory is created in it and removed.
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Print one JSON line per list.
    #[arg(long)]
    json: bool,
}

/// Queue, kind and key of the listed jobs.
const RARE: &str = "rare";

/// Fills a store and measures each list; returns a line for each.
pub(crate) fn run(options: &Options) -> Outcome<String> {
    let dir = TempDir::new_in(&options.dir)?;
    let mut store = options.store.open(&dir.path().join("store"), options.payload)?;
    let rare = options.rare.max(1);
    fill(&mut *store, options, rare)?;
    let mut lines = Vec::new();
    for (name, filter, wanted) in lists(rare)? {
        let (found, times) = store.first_pages(&filter, options.reads.max(1))?;
        if found != wanted {
            return Err(format!("{name} found {found} jobs, not {wanted}").into());
        }
        let micros: Vec<u64> = times.iter().map(|time| saturated(time.as_micros())).collect();
        let at = |thousandths| usize::try_from(quantile(&micros, thousandths));
        let line = Line::new(options.json, "lists")
            .word("store", options.store.name())
            .word("list", name)
            .count("jobs", options.jobs)
            .count("payload", options.payload)
            .count("reads", times.len())
            .count("found", found)
            .count("p50_us", at(500)?)
            .count("p99_us", at(990)?)
            .count("max_us", at(1_000)?);
        lines.push(line.finish());
    }
    Ok(lines.join("\n"))
}

fn saturated(micros: u128) -> u64 {
    u64::try_from(micros).unwrap_or(u64::MAX)
}

/// Name, filter and number of jobs on the first page of each list.
fn lists(rare: usize) -> Outcome<[(&'static str, Filter, usize); 3]> {
    let all = Filter::default;
    let queue = Filter { queue: Some(QueueName::new(RARE)?), ..all() };
    let dead = Filter { kind: Some(Kind::new(RARE)?), view: Some(View::Failed), ..all() };
    let key = Filter { key: Some(IdempotencyKey::new(RARE)?), ..all() };
    Ok([("queue=rare", queue, rare), ("kind=rare&state=failed", dead, 1), ("key=rare", key, 1)])
}

/// Enqueues the rare jobs first: all others are newer.
fn fill(store: &mut dyn Measured, options: &Options, rare: usize) -> Outcome<()> {
    let payload = Payload::new(&payload(options.payload))?;
    let common = |kind: Kind| NewJob::new(kind, payload.clone());
    store.enqueue_jobs(vec![common(Kind::new(RARE)?)])?;
    store.fail()?;
    let key = IdempotencyKey::new(RARE)?;
    let keyed = Idempotency { key, payload: Fingerprint(1) };
    let of_queue = NewJob { queue: QueueName::new(RARE)?, ..common(Kind::default()) };
    let mut jobs = vec![of_queue; rare];
    jobs.push(NewJob { idempotency: Some(keyed), ..common(Kind::default()) });
    let stored = options.jobs + jobs.len();
    store.enqueue_jobs(jobs)?;
    enqueue(store, options.jobs, LOAD)?;
    work(store, stored, LOAD)?;
    finish(store)?;
    let done = store.done()?;
    if done != stored as u64 {
        return Err(format!("{done} of {stored} jobs were completed").into());
    }
    Ok(())
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
    fn every_list_is_one_line_and_finds_its_jobs_behind_the_others() {
        let folder = tempfile::tempdir().unwrap();
        for store in ["sqlite", "redb", "memory"] {
            let words = "bench --json --jobs 300 --reads 5 --rare 3 --store";
            let words = words.split(' ').chain([store]);
            let mut asked: Asked = clap::Parser::parse_from(words);
            asked.options.dir = folder.path().into();
            let output = run(&asked.options).unwrap();
            let lines: Vec<serde_json::Value> =
                output.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            let found = lines.iter().map(|line| line["found"].as_u64());
            assert!(found.eq([Some(3), Some(1), Some(1)]), "{output}");
            for line in &lines {
                let [p50, p99, max] =
                    ["p50_us", "p99_us", "max_us"].map(|name| line[name].as_u64());
                assert!(p50 <= p99 && p99 <= max, "{output}");
            }
        }
    }
}
