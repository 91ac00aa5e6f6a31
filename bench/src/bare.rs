//! A store without a runtime: batches go into `Store::commit`, one after the other. It is the
//! ceiling of every scenario of the runtime, and enqueues the jobs that a scenario needs at its
//! start.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::Args;
use tempfile::TempDir;
use windlass_core::store::{Batch, ClaimFor, Settle, Store, Taker};
use windlass_core::{
    BatchId, Demand, Kind, NewJob, Payload, Policy, ProcessId, Verdict, Wall, WorkerId,
};
use windlass_runtime_tokio::{Clock, SystemClock};

use crate::measure::Outcome;
use crate::postgres;
use crate::proc;

/// The store to measure on, and the directory of its files.
#[derive(Debug, Clone, Args)]
pub(crate) struct Place {
    /// The store: sqlite, redb, memory, postgres (a private server), or a URL postgres://…
    #[arg(long, default_value = "sqlite")]
    pub(crate) store: Which,
    /// Directory for the files; a temporary directory is created in it and removed.
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Size of a payload, in bytes.
    #[arg(long, default_value_t = 100)]
    payload: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Which {
    Sqlite,
    Redb,
    Memory,
    /// The URL of a server; `None` for a private one. Each store has its own schema.
    Postgres(Option<String>),
}

impl FromStr for Which {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "sqlite" => Self::Sqlite,
            "redb" => Self::Redb,
            "memory" => Self::Memory,
            "postgres" => Self::Postgres(None),
            url if url.starts_with("postgres://") || url.starts_with("postgresql://") => {
                Self::Postgres(Some(url.to_owned()))
            }
            _ => return Err("use sqlite, redb, memory, postgres or postgres://…".to_owned()),
        })
    }
}

impl Which {
    /// The name of the store.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Redb => "redb",
            Self::Memory => "memory",
            Self::Postgres(_) => "postgres",
        }
    }

    /// Value of `--store` for the store in this folder; an error for one in memory.
    pub(crate) fn of_server(&self, folder: &Path) -> Outcome<String> {
        match self {
            Self::Sqlite => Ok(format!("sqlite:{}", folder.join("jobs.db").display())),
            Self::Redb => Ok(format!("redb:{}", folder.join("jobs.redb").display())),
            Self::Postgres(url) => postgres::url(url.as_deref(), folder),
            Self::Memory => Err("a server keeps jobs in sqlite, redb or postgres".into()),
        }
    }

    /// Address by which another process opens the store in this folder; an error if only one
    /// process can.
    pub(crate) fn address(&self, folder: &Path) -> Outcome<String> {
        match self {
            Self::Sqlite => Ok(folder.join("jobs.db").to_string_lossy().into_owned()),
            Self::Postgres(url) => postgres::url(url.as_deref(), folder),
            Self::Redb | Self::Memory => {
                let name = self.name();
                Err(format!("{name} is for one process: use --store sqlite or postgres").into())
            }
        }
    }
}

/// Calls a function with a new store of the kind that a [`Place`] names, in a folder.
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
            $crate::bare::Which::Postgres(ref url) => {
                let url = $crate::postgres::url(url.as_deref(), $folder.as_ref())?;
                $call(windlass_store_postgres::PgStore::connect(&url)?)
            }
        }
    };
}
pub(crate) use on_store;

impl Place {
    /// A store by its name, among temporary files.
    pub(crate) fn temporary(store: &str, payload: usize) -> Outcome<Self> {
        Ok(Self::among_temporary(store.parse()?, payload))
    }

    /// The same, for a parsed name.
    pub(crate) fn among_temporary(store: Which, payload: usize) -> Self {
        Self { store, dir: std::env::temp_dir(), payload }
    }

    /// A folder that is removed when it is dropped.
    pub(crate) fn folder(&self) -> Outcome<TempDir> {
        Ok(TempDir::new_in(&self.dir)?)
    }

    /// The name of the store.
    pub(crate) fn name(&self) -> &'static str {
        self.store.name()
    }

    /// The size of the files of the store in this folder, in KiB.
    pub(crate) fn size_kib(&self, folder: &Path) -> Outcome<u64> {
        match &self.store {
            Which::Postgres(url) => postgres::size_kib(url.as_deref(), folder),
            _ => proc::folder_kib(folder),
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

/// Jobs per commit before a measurement begins.
pub(crate) const LOAD: usize = 5_000;

/// Commits batches to a store, one after the other.
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

    /// Enqueues jobs, `batch` per commit.
    pub(crate) fn enqueue(&mut self, job: &NewJob, jobs: usize, batch: usize) -> Outcome<()> {
        let mut left = jobs;
        while left > 0 {
            let count = batch.min(left);
            self.step(job, count, 0)?;
            left -= count;
        }
        Ok(())
    }

    /// Enqueues, claims and completes jobs. Each commit enqueues and claims `batch` jobs, and
    /// completes those that the previous one claimed.
    pub(crate) fn live(&mut self, job: &NewJob, jobs: usize, batch: usize) -> Outcome<()> {
        let mut left = jobs;
        while left > 0 || !self.held.is_empty() {
            let count = batch.min(left);
            self.step(job, count, count)?;
            left -= count;
        }
        Ok(())
    }

    /// One commit of [`live`](Self::live).
    pub(crate) fn live_once(&mut self, job: &NewJob, batch: usize) -> Outcome<()> {
        self.step(job, batch, batch)
    }

    /// Claims and completes queued jobs, `batch` per commit.
    pub(crate) fn work(&mut self, job: &NewJob, jobs: usize, batch: usize) -> Outcome<()> {
        let mut left = jobs;
        while left > 0 || !self.held.is_empty() {
            let count = batch.min(left);
            self.step(job, 0, count)?;
            left -= count;
        }
        Ok(())
    }

    /// Claims one job and does not complete it.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_given_the_store_of_the_folder() {
        let folder = Path::new("/a/b");
        let of = |store: &str| store.parse::<Which>().unwrap().of_server(folder);
        assert_eq!(of("sqlite").unwrap(), "sqlite:/a/b/jobs.db");
        assert_eq!(of("redb").unwrap(), "redb:/a/b/jobs.redb");
        let url = of("postgres://me@db.example/x").unwrap();
        assert!(url.starts_with("postgres://me@db.example/x?schema=bench_"), "{url}");
        assert!(of("memory").unwrap_err().to_string().contains("sqlite, redb or postgres"));
    }
}
