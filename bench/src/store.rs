//! The `store` scenario: what `Store::commit` makes of the engine below it.

use std::error::Error;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use tempfile::TempDir;
use windlass_core::store::{Batch, ClaimFor, Settle, Store, Taker};
use windlass_core::{
    BatchId, Delay, Demand, Kind, NewJob, Payload, Policy, Priority, ProcessId, Verdict, Wall,
    When, WorkerId,
};
use windlass_store_memory::MemoryStore;
use windlass_store_sqlite::SqliteStore;

use crate::measure::{Line, rate, time};
use crate::sqlite_ceiling::SqliteCeiling;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// What to measure.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The store.
    #[arg(long, value_enum, default_value = "sqlite")]
    store: Which,
    /// How many jobs to enqueue, and then to claim and complete.
    #[arg(long, default_value_t = 100_000)]
    jobs: usize,
    /// How many of them in one commit.
    #[arg(long, default_value_t = 500)]
    batch: usize,
    /// How large their payloads are, in bytes.
    #[arg(long, default_value_t = 100)]
    payload: usize,
    /// Jobs that wait before the measurement begins.
    #[arg(long, default_value_t = 0)]
    queued: usize,
    /// Jobs scheduled far ahead, with a high priority, before the measurement begins.
    #[arg(long, default_value_t = 0)]
    scheduled: usize,
    /// Jobs done before the measurement begins.
    #[arg(long, default_value_t = 0)]
    done: usize,
    /// Where to put the files; a directory in it is made and removed.
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// How often to measure; the middle figures are told.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// One JSON line.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Which {
    Sqlite,
    Memory,
}

/// Figures of one run.
#[derive(Debug, Clone, Copy)]
struct Figures {
    enqueue: f64,
    work: f64,
}

impl Figures {
    /// The middle one of several runs, of each figure.
    fn median(runs: &[Self]) -> Self {
        let middle = |figure: fn(&Self) -> f64| {
            let mut all: Vec<f64> = runs.iter().map(figure).collect();
            all.sort_by(f64::total_cmp);
            all.get(all.len() / 2).copied().unwrap_or(0.0)
        };
        Self { enqueue: middle(|one| one.enqueue), work: middle(|one| one.work) }
    }
}

/// Runs the scenario and tells its figures.
pub(crate) fn run(options: &Options) -> Outcome<String> {
    let name = options.store.to_possible_value();
    let line = Line::new(options.json, "store")
        .word("store", name.as_ref().map_or("?", |name| name.get_name()))
        .count("jobs", options.jobs)
        .count("batch", options.batch)
        .count("payload", options.payload)
        .count("queued", options.queued)
        .count("scheduled", options.scheduled)
        .count("done", options.done)
        .count("rounds", options.rounds);
    match options.store {
        Which::Memory => {
            let rounds = 0..options.rounds;
            let ours: Outcome<Vec<Figures>> =
                rounds.map(|_| measure(MemoryStore::new(), options)).collect();
            Ok(tell(line, Figures::median(&ours?)).finish())
        }
        Which::Sqlite => sqlite(line, options),
    }
}

/// Rounds of ours and of the bare loop take turns, so that noise meets both alike.
fn sqlite(line: Line, options: &Options) -> Outcome<String> {
    let (mut ours, mut bare, mut bytes) = (Vec::new(), Vec::new(), 0);
    for _ in 0..options.rounds {
        let dir = TempDir::new_in(&options.dir)?;
        let path = dir.path().join("ours.db");
        ours.push(measure(SqliteStore::open(&path)?, options)?);
        bytes = bytes_of(&path)?;
        let mut ceiling = SqliteCeiling::open(&dir.path().join("bare.db"), options.payload)?;
        let ((), enqueue) = time(|| ceiling.enqueue(options.jobs, options.batch))?;
        let ((), work) = time(|| ceiling.work(options.jobs, options.batch))?;
        let (enqueue, work) = (rate(options.jobs, enqueue), rate(options.jobs, work));
        bare.push(Figures { enqueue, work });
    }
    let (ours, bare) = (Figures::median(&ours), Figures::median(&bare));
    let all = options.jobs + options.queued + options.scheduled + options.done;
    let line = tell(line, ours)
        .rate("ceiling_enqueue_per_s", bare.enqueue)
        .rate("ceiling_work_per_s", bare.work)
        .ratio("enqueue_ratio", ours.enqueue / bare.enqueue)
        .ratio("work_ratio", ours.work / bare.work)
        .count("bytes_per_job", bytes / all.max(1));
    Ok(line.finish())
}

fn tell(line: Line, figures: Figures) -> Line {
    line.rate("enqueue_per_s", figures.enqueue).rate("work_per_s", figures.work)
}

fn bytes_of(path: &Path) -> Outcome<usize> {
    Ok(usize::try_from(std::fs::metadata(path)?.len())?)
}

/// A store under measurement: it commits batch after batch.
struct Subject<S: Store> {
    store: S,
    seq: u64,
    worker: WorkerId,
}

fn measure<S: Store>(store: S, options: &Options) -> Outcome<Figures> {
    let mut subject = Subject { store, seq: 0, worker: WorkerId::new("bench")? };
    let new = new_job(options.payload)?;
    let far = NewJob {
        priority: Priority::MAX,
        when: When::After(Delay::new(31_536_000_000)?),
        ..new.clone()
    };
    subject.enqueue(&new, options.done, LOAD)?;
    subject.work(options.done, LOAD)?;
    subject.enqueue(&far, options.scheduled, LOAD)?;
    subject.enqueue(&new, options.queued, LOAD)?;
    let ((), enqueue) = time(|| subject.enqueue(&new, options.jobs, options.batch))?;
    let ((), work) = time(|| subject.work(options.jobs, options.batch))?;
    Ok(Figures { enqueue: rate(options.jobs, enqueue), work: rate(options.jobs, work) })
}

/// How many jobs are put in place per commit before the measurement begins.
const LOAD: usize = 5_000;

fn new_job(payload: usize) -> Outcome<NewJob> {
    let text = format!("\"{}\"", "x".repeat(payload.saturating_sub(2)));
    Ok(NewJob::new(Kind::default(), Payload::new(&text)?))
}

impl<S: Store> Subject<S> {
    fn batch(&mut self) -> Batch {
        self.seq += 1;
        Batch::new(BatchId { process: ProcessId(1), seq: self.seq }, Policy::default())
    }

    fn now(&self) -> Wall {
        Wall::new(1_700_000_000_000 + self.seq.cast_signed())
    }

    fn enqueue(&mut self, new: &NewJob, jobs: usize, batch: usize) -> Outcome<()> {
        let mut left = jobs;
        while left > 0 {
            let count = batch.min(left);
            let mut commands = self.batch();
            commands.enqueues = vec![new.clone(); count];
            self.store.commit(self.now(), &commands)?;
            left -= count;
        }
        Ok(())
    }

    /// Claims and completes: each commit completes what the one before has claimed.
    fn work(&mut self, jobs: usize, batch: usize) -> Outcome<()> {
        let mut left = jobs;
        let mut settles: Vec<Settle> = Vec::new();
        while left > 0 || !settles.is_empty() {
            let mut commands = self.batch();
            commands.settles = std::mem::take(&mut settles);
            let max = batch.min(left);
            if max > 0 {
                let taker = Taker { worker: self.worker.clone(), max, length: None };
                commands.claims.push(ClaimFor { demand: Demand::ALL, takers: vec![taker] });
            }
            let out = self.store.commit(self.now(), &commands)?;
            let claimed = out.claims.iter().flat_map(|claimed| &claimed.jobs);
            let verdict = || Verdict::Complete { result: None };
            settles
                .extend(claimed.map(|one| Settle { token: one.job.token(), verdict: verdict() }));
            left -= settles.len();
        }
        Ok(())
    }
}
