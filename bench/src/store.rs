//! The `store` scenario: the rate of `Store::commit` beside a bare loop on the same engine.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use tempfile::TempDir;
use windlass_store_memory::MemoryStore;
use windlass_store_postgres::PgStore;
use windlass_store_redb::RedbStore;
use windlass_store_sqlite::SqliteStore;

use crate::bare::Which;
use crate::contender::{Contender, batches, enqueue, finish, work};
use crate::flat;
use crate::measure::{Line, Outcome, median, rate, resident_kib};
use crate::postgres;
use crate::postgres_ceiling::PgCeiling;
use crate::redb_ceiling::RedbCeiling;
use crate::sqlite_ceiling::SqliteCeiling;
use crate::subject::{Measured, Reads, Subject};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The store: sqlite, redb, memory, postgres (a private server), or a URL postgres://…
    #[arg(long, default_value = "sqlite")]
    pub(crate) store: Which,
    /// Number of jobs to enqueue, and then to claim and complete.
    #[arg(long, default_value_t = 100_000)]
    pub(crate) jobs: usize,
    /// Number of jobs per commit.
    #[arg(long, default_value_t = 500)]
    pub(crate) batch: usize,
    /// Size of a payload, in bytes.
    #[arg(long, default_value_t = 100)]
    pub(crate) payload: usize,
    /// Number of measurements; the median is reported.
    #[arg(long, default_value_t = 3)]
    pub(crate) rounds: usize,
    /// Also measure a bare loop that keeps the payload in the job's row, and so rewrites it.
    #[arg(long)]
    rewrite: bool,
    /// Instead, measure claim and completion beside a backlog.
    #[arg(long, conflicts_with = "rewrite")]
    flat: bool,
    /// Number of jobs that wait or are scheduled; half as many are done.
    #[arg(long, default_value_t = 1_000_000, requires = "flat")]
    pub(crate) backlog: usize,
    /// Directory for the files; a temporary directory is created in it and removed.
    #[arg(long, default_value = ".")]
    pub(crate) dir: PathBuf,
    /// Print one JSON line.
    #[arg(long)]
    json: bool,
}

impl Which {
    /// Opens a store of Windlass.
    pub(crate) fn open(&self, path: &Path, payload: usize) -> Outcome<Box<dyn Measured>> {
        Ok(match self {
            Self::Sqlite => Box::new(Subject::new(SqliteStore::open(path)?, payload)?),
            Self::Redb => Box::new(Subject::new(RedbStore::open(path)?, payload)?),
            Self::Memory => Box::new(Subject::new(MemoryStore::new(), payload)?),
            Self::Postgres(url) => {
                let url = postgres::url(url.as_deref(), path)?;
                Box::new(Subject::new(PgStore::connect(&url)?, payload)?)
            }
        })
    }

    /// Opens the bare loops: the ceiling, and with `--rewrite` one that rewrites payloads.
    fn ceilings(&self, dir: &Path, options: &Options) -> Outcome<Vec<Box<dyn Contender>>> {
        let payload = options.payload;
        let layouts = [false, true].into_iter().filter(|in_row| options.rewrite || !in_row);
        let mut all: Vec<Box<dyn Contender>> = Vec::new();
        for in_row in layouts {
            let path = dir.join(if in_row { "rewriting" } else { "bare" });
            match self {
                Self::Sqlite => all.push(Box::new(SqliteCeiling::open(&path, payload, in_row)?)),
                Self::Redb => all.push(Box::new(RedbCeiling::open(&path, payload, in_row)?)),
                Self::Postgres(url) if !in_row => {
                    let url = postgres::url(url.as_deref(), &path)?;
                    all.push(Box::new(PgCeiling::open(&url, payload)?));
                }
                Self::Memory | Self::Postgres(_) => {}
            }
        }
        Ok(all)
    }
}

/// Runs the scenario; returns its figures.
pub(crate) fn run(options: &Options) -> Outcome<String> {
    let line = Line::new(options.json, if options.flat { "store-flat" } else { "store" })
        .word("store", options.store.name())
        .count("jobs", options.jobs)
        .count("batch", options.batch)
        .count("payload", options.payload)
        .count("rounds", options.rounds);
    let line = if options.flat { flat::run(line, options)? } else { beside(line, options)? };
    Ok(line.finish())
}

/// Times of one contender in one round.
#[derive(Debug, Clone, Copy, Default)]
struct Took {
    enqueue: Duration,
    work: Duration,
}

/// Measurements of one round.
struct Round {
    /// Ours first, then the bare loops.
    took: Vec<Took>,
    reads: Reads,
    bytes: u64,
    resident: (usize, usize),
}

fn beside(line: Line, options: &Options) -> Outcome<Line> {
    let rounds: Outcome<Vec<Round>> = (0..options.rounds.max(1)).map(|_| round(options)).collect();
    let rounds = rounds?;
    let [first, ..] = rounds.as_slice() else { return Ok(line) };
    let figure = |of: &dyn Fn(&Round) -> f64| median(rounds.iter().map(of).collect());
    let per_s = |at: usize, phase: fn(&Took) -> Duration| {
        figure(&|round| rate(options.jobs, phase(&round.took[at])))
    };
    let ratio = |to: usize, phase: fn(&Took) -> Duration| {
        figure(&|round| phase(&round.took[to]).as_secs_f64() / phase(&round.took[0]).as_secs_f64())
    };
    let mut line = line
        .rate("enqueue_per_s", per_s(0, |took| took.enqueue))
        .rate("work_per_s", per_s(0, |took| took.work));
    if first.took.len() > 1 {
        line = line
            .rate("ceiling_enqueue_per_s", per_s(1, |took| took.enqueue))
            .rate("ceiling_work_per_s", per_s(1, |took| took.work))
            .ratio("enqueue_ratio", ratio(1, |took| took.enqueue))
            .ratio("work_ratio", ratio(1, |took| took.work));
    }
    if first.took.len() > 2 {
        line = line
            .rate("rewrite_work_per_s", per_s(2, |took| took.work))
            .ratio("rewrite_ratio", ratio(2, |took| took.work));
    }
    let bytes = usize::try_from(first.bytes)? / options.jobs.max(1);
    let (before, after) = first.resident;
    Ok(add_reads(line, "", &first.reads)
        .count("bytes_per_done_job", bytes)
        .count("resident_before_kib", before)
        .count("resident_after_kib", after))
}

/// Adds the times of reads.
pub(crate) fn add_reads(line: Line, prefix: &str, reads: &Reads) -> Line {
    line.spread(&format!("{prefix}counts"), reads.counts)
        .spread(&format!("{prefix}list"), reads.list)
        .spread(&format!("{prefix}next_due"), reads.next_due)
}

/// Commits of one contender before the next has its turn: enough to be warm, few enough that noise
/// affects all alike.
const TURN: usize = 20;

fn round(options: &Options) -> Outcome<Round> {
    let dir = TempDir::new_in(&options.dir)?;
    let path = dir.path().join("ours");
    let before = resident_kib();
    let mut ours = options.store.open(&path, options.payload)?;
    let mut bare = options.store.ceilings(dir.path(), options)?;
    let mut took = vec![Took::default(); 1 + bare.len()];
    let turns = batches(options.jobs, options.batch.saturating_mul(TURN));
    let turns: Vec<usize> = turns.collect();
    for (turn, jobs) in turns.iter().enumerate() {
        for at in order(turn, took.len()) {
            let time = match at.checked_sub(1) {
                None => enqueue(&mut *ours, *jobs, options.batch)?,
                Some(at) => enqueue(&mut *bare[at], *jobs, options.batch)?,
            };
            took[at].enqueue += time;
        }
    }
    for (turn, jobs) in turns.iter().enumerate() {
        for at in order(turn, took.len()) {
            let time = match at.checked_sub(1) {
                None => work(&mut *ours, *jobs, options.batch)?,
                Some(at) => work(&mut *bare[at], *jobs, options.batch)?,
            };
            took[at].work += time;
        }
    }
    took[0].work += finish(&mut *ours)?;
    for (at, bare) in bare.iter_mut().enumerate() {
        took[at + 1].work += finish(&mut **bare)?;
    }
    let (reads, after) = (ours.reads()?, resident_kib());
    drop(ours);
    let bytes = match &options.store {
        Which::Postgres(url) => postgres::size_kib(url.as_deref(), &path)? * 1_024,
        // Without its WAL, which the last to close the file has checkpointed.
        _ => std::fs::metadata(&path).map_or(0, |file| file.len()),
    };
    Ok(Round { took, reads, bytes, resident: (before, after) })
}

/// The order of contenders in a turn; each is first in some turns.
pub(crate) fn order(turn: usize, contenders: usize) -> impl Iterator<Item = usize> {
    (0..contenders).map(move |at| (at + turn) % contenders)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use clap::Parser;
    use windlass_core::store::{Reader, Store};
    use windlass_core::{Counts, QueueName};

    /// Fails unless the default queue counts these jobs, by view.
    pub(crate) fn assert_counts(store: &impl Store, expected: [u64; 6]) {
        let row = store.reader().unwrap().queue(&QueueName::default()).unwrap();
        assert_eq!(row.unwrap().total(), Counts::new(expected));
    }

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn line(arguments: &str) -> String {
        let dir = tempfile::tempdir().unwrap();
        let words = ["bench", "--json", "--rounds", "1"].into_iter();
        let mut options = Line::parse_from(words.chain(arguments.split(' '))).options;
        options.dir = dir.path().into();
        run(&options).unwrap()
    }

    fn assert_names(line: &str, names: &[&str]) {
        for name in names {
            assert!(line.contains(&format!("\"{name}\":")), "{name} is missing in {line}");
        }
        assert!(!line.contains("NaN") && !line.contains("inf"), "{line}");
    }

    #[test]
    fn each_store_is_reported_beside_its_ceiling() {
        for store in ["sqlite", "redb"] {
            let line = line(&format!("--store {store} --jobs 60 --batch 7 --rewrite"));
            assert_names(
                &line,
                &["enqueue_ratio", "work_ratio", "rewrite_ratio", "bytes_per_done_job"],
            );
            assert_names(&line, &["counts_us", "list_worst_us", "next_due_us"]);
        }
        assert!(!line("--store memory --jobs 60").contains("ratio"));
    }

    #[test]
    fn flat_tells_each_backlog_beside_the_short_one() {
        let line = line("--store sqlite --jobs 60 --batch 7 --flat --backlog 50");
        assert_names(&line, &["queued_ratio", "scheduled_ratio", "done_ratio"]);
        assert_names(&line, &["queued_list_us", "done_resident_kib"]);
    }

    #[test]
    fn each_subject_is_first_in_turn() {
        assert_eq!(order(0, 2).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(order(1, 2).collect::<Vec<_>>(), [1, 0]);
    }
}
