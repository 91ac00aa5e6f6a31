//! A store without a runtime: batches go straight into `Store::commit`, one behind the other. It is
//! the ceiling of every scenario of the runtime, and puts jobs in place before they begin.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use tempfile::TempDir;
use windlass_core::store::{Batch, ClaimFor, Settle, Store, Taker};
use windlass_core::{
    BatchId, Demand, Kind, NewJob, Payload, Policy, ProcessId, Verdict, Wall, WorkerId,
};
use windlass_runtime_tokio::{Clock, SystemClock};

use crate::measure::Outcome;

/// The store to measure on, and where it lies.
#[derive(Debug, Clone, Args)]
pub(crate) struct Place {
    /// The store.
    #[arg(long, value_enum, default_value = "sqlite")]
    pub(crate) store: Which,
    /// Where to put the files; a directory in it is made and removed.
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// How large payloads are, in bytes.
    #[arg(long, default_value_t = 100)]
    payload: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Which {
    Sqlite,
    Redb,
    Memory,
}

/// Calls a function with a fresh store of the kind that a [`Place`] names, in a folder.
macro_rules! on_store {
    ($place:expr, $folder:expr, $call:expr) => {
        match $place.store {
            $crate::bare::Which::Sqlite => {
                $call(windlass_store_sqlite::SqliteStore::open($folder.join("jobs.db"))?)
            }
            $crate::bare::Which::Redb => {
                $call(windlass_store_redb::RedbStore::open($folder.join("jobs.redb"))?)
            }
            $crate::bare::Which::Memory => $call(windlass_store_memory::MemoryStore::new()),
        }
    };
}
pub(crate) use on_store;

impl Place {
    /// A store by its name, among temporary files.
    pub(crate) fn temporary(store: &str, payload: usize) -> Outcome<Self> {
        let store = Which::from_str(store, false)?;
        Ok(Self { store, dir: std::env::temp_dir(), payload })
    }

    /// A folder that is removed when it is dropped.
    pub(crate) fn folder(&self) -> Outcome<TempDir> {
        Ok(TempDir::new_in(&self.dir)?)
    }

    /// The name of the store.
    pub(crate) fn name(&self) -> &'static str {
        match self.store {
            Which::Sqlite => "sqlite",
            Which::Redb => "redb",
            Which::Memory => "memory",
        }
    }

    /// The same place, with payloads of another size.
    pub(crate) fn with_payload(&self, payload: usize) -> Self {
        Self { payload, ..self.clone() }
    }

    /// A job of the measurement.
    pub(crate) fn job(&self) -> Outcome<NewJob> {
        let text = format!("\"{}\"", "x".repeat(self.payload.saturating_sub(2)));
        Ok(NewJob::new(Kind::new(KIND)?, Payload::new(&text)?))
    }
}

/// The kind of every job of a measurement.
pub(crate) const KIND: &str = "bench";

/// How many jobs are put in place per commit before a measurement begins.
pub(crate) const LOAD: usize = 5_000;

/// Commits batch after batch.
pub(crate) struct Bare<S> {
    pub(crate) store: S,
    seq: u64,
    worker: WorkerId,
    held: Vec<Settle>,
}

impl<S: Store> Bare<S> {
    pub(crate) fn new(store: S) -> Outcome<Self> {
        Ok(Self { store, seq: 0, worker: WorkerId::new("bench")?, held: Vec::new() })
    }

    /// Stores jobs, so many per commit.
    pub(crate) fn enqueue(&mut self, job: &NewJob, jobs: usize, batch: usize) -> Outcome<()> {
        let mut left = jobs;
        while left > 0 {
            let count = batch.min(left);
            self.step(job, count, 0)?;
            left -= count;
        }
        Ok(())
    }

    /// Takes jobs through their whole life. Each commit enqueues so many and claims as many, and
    /// completes what the one before has claimed.
    pub(crate) fn live(&mut self, job: &NewJob, jobs: usize, batch: usize) -> Outcome<()> {
        let mut left = jobs;
        while left > 0 || !self.held.is_empty() {
            let count = batch.min(left);
            self.step(job, count, count)?;
            left -= count;
        }
        Ok(())
    }

    /// Claims and completes jobs that wait, so many per commit.
    pub(crate) fn work(&mut self, job: &NewJob, jobs: usize, batch: usize) -> Outcome<()> {
        let mut left = jobs;
        while left > 0 || !self.held.is_empty() {
            let count = batch.min(left);
            self.step(job, 0, count)?;
            left -= count;
        }
        Ok(())
    }

    /// Claims one job, and leaves it at that.
    pub(crate) fn claim_one(&mut self, job: &NewJob) -> Outcome<()> {
        self.step(job, 0, 1)?;
        if self.held.is_empty() { Err("no job waits to be claimed".into()) } else { Ok(()) }
    }

    fn step(&mut self, job: &NewJob, enqueue: usize, claim: usize) -> Outcome<()> {
        self.seq += 1;
        let id = BatchId { process: ProcessId(1), seq: self.seq };
        let mut batch = Batch::new(id, Policy::default());
        batch.settles = std::mem::take(&mut self.held);
        batch.enqueues = vec![job.clone(); enqueue];
        if claim > 0 {
            let taker = Taker { worker: self.worker.clone(), max: claim, length: None };
            batch.claims.push(ClaimFor { demand: Demand::ALL, takers: vec![taker] });
        }
        let out = self.store.commit(now(), &batch)?;
        let claimed = out.claims.iter().flat_map(|claimed| &claimed.jobs);
        let complete = || Verdict::Complete { result: None };
        let settles = claimed.map(|one| Settle { token: one.job.token(), verdict: complete() });
        self.held.extend(settles);
        Ok(())
    }
}

fn now() -> Wall {
    SystemClock.now().wall
}
