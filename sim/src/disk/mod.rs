//! The shared store of a world, of any kind: handles for processes, reads for the ledger, and power
//! cuts.

mod memory;
#[cfg(feature = "stores")]
mod postgres;
#[cfg(feature = "stores")]
mod real;
#[cfg(feature = "stores")]
mod redb;
#[cfg(feature = "stores")]
mod sqlite;

use windlass_core::bulk::{Step, plan};
use windlass_core::store::{
    Batch, CommitError, Dump, JobDetail, News, Outcomes, Reader, StoreError, audit,
};
use windlass_core::{BatchId, JobId, LeaseToken, ProcessId, QueueRow, Wall};
use windlass_store_memory::{Conflict, Fault as Injected, Holding, Transaction};

/// The store of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreKind {
    /// The one in memory.
    Memory,
    /// SQLite, in a folder for the run.
    Sqlite,
    /// redb, on a disk in memory.
    Redb,
    /// PostgreSQL, on a server that is started for the run.
    Postgres,
}

impl StoreKind {
    /// The name on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Sqlite => "sqlite",
            Self::Redb => "redb",
            Self::Postgres => "postgres",
        }
    }
}

/// A store that processes share, with its medium.
trait Place {
    /// Opens the store for a process.
    fn open(&mut self) -> Result<Box<dyn Opened>, String>;

    /// Removes everything that is not durable. No process has the store open.
    fn power_cut(&mut self) -> Result<(), String>;

    /// Reads the committed rows.
    fn read(&mut self, ask: &mut dyn FnMut(&mut dyn Reader)) -> Result<(), StoreError>;

    /// Reads what a crash now would leave.
    fn durable(&mut self, ids: &[JobId]) -> Result<Vec<Option<JobDetail>>, StoreError>;

    /// Contradictions that the store's own check finds, beside those in a dump.
    fn verify(&self) -> Vec<String>;
}

/// A store as one process has it open.
trait Opened {
    fn commit(&mut self, now: Wall, batch: &Batch, fault: Option<Injected>) -> Executed;
    fn was_committed(&mut self, batch: BatchId) -> Result<bool, StoreError>;
    fn reopen(&mut self) -> Result<(), StoreError>;

    /// Changes by others. `wrote`: whether there were any, as the world knows; a store that detects
    /// them by itself must not miss any.
    fn news(&mut self, wrote: bool, held: &[LeaseToken]) -> Result<News, StoreError>;

    /// Begins a transaction in steps, if the store supports that.
    fn begin(&self, process: ProcessId) -> Option<Transaction> {
        let _ = process;
        None
    }

    /// Ends such a transaction, with a fault if one is given.
    fn finish(
        &mut self,
        transaction: Transaction,
        outcomes: Outcomes,
        fault: Option<Injected>,
    ) -> Result<Executed, Conflict> {
        let _ = (transaction, outcomes, fault);
        Err(Conflict)
    }
}

/// The shared store with its version.
pub struct Disk {
    place: Box<dyn Place>,
    /// Grows with every write.
    version: u64,
}

/// The shared store as one process has it open.
pub struct Handle {
    opened: Box<dyn Opened>,
    seen: u64,
}

/// The outcome of a commit.
#[derive(Debug)]
pub struct Executed {
    /// The answer that the process gets.
    pub result: Result<Outcomes, CommitError>,
    /// Whether it took place.
    pub applied: bool,
}

impl Executed {
    /// The outcomes, if it took place.
    pub fn outcomes(&self) -> Option<&Outcomes> {
        match &self.result {
            _ if !self.applied => None,
            Ok(outcomes) => Some(outcomes),
            Err(CommitError::Unknown { outcomes, .. }) => Some(outcomes),
            Err(CommitError::Fatal { outcomes, .. }) => outcomes.as_deref(),
            Err(_) => None,
        }
    }
}

impl Disk {
    /// Creates an empty store.
    pub fn new(kind: StoreKind, holding: Holding) -> Result<Self, String> {
        let place: Box<dyn Place> = match kind {
            StoreKind::Memory => Box::new(memory::MemoryPlace::new(holding)),
            #[cfg(feature = "stores")]
            StoreKind::Sqlite => Box::new(sqlite::SqlitePlace::new()?),
            #[cfg(feature = "stores")]
            StoreKind::Redb => Box::new(redb::RedbPlace::new()?),
            #[cfg(feature = "stores")]
            StoreKind::Postgres => Box::new(postgres::PostgresPlace::new()?),
            #[cfg(not(feature = "stores"))]
            StoreKind::Sqlite | StoreKind::Redb | StoreKind::Postgres => {
                return Err("built without the feature `stores`".into());
            }
        };
        Ok(Self { place, version: 0 })
    }

    /// Opens it for a process.
    pub fn open(&mut self) -> Result<Handle, String> {
        Ok(Handle { opened: self.place.open()?, seen: 0 })
    }

    /// Makes a commit for a process; with a fault, if one is given.
    pub fn commit(
        &mut self,
        handle: &mut Handle,
        now: Wall,
        batch: &Batch,
        fault: Option<Injected>,
    ) -> Executed {
        let before = self.version;
        let executed = handle.opened.commit(now, batch, fault);
        if executed.outcomes().is_some_and(|outcomes| outcomes.wrote) {
            self.version += 1;
            // A process's own commits are no news.
            if handle.seen == before {
                handle.seen = self.version;
            }
        }
        executed
    }

    /// Changes by other processes since the last call.
    pub fn news(&mut self, handle: &mut Handle, held: &[LeaseToken]) -> Result<News, StoreError> {
        let wrote = handle.seen != self.version;
        handle.seen = self.version;
        handle.opened.news(wrote, held)
    }

    /// Drops everything that is not durable. Every handle must be dropped before.
    pub fn power_cut(&mut self) -> Result<(), String> {
        self.place.power_cut()
    }

    // Reads. One that fails comes back empty, which no invariant lets pass.

    /// Rows and documents of jobs, `None` for one that is not stored.
    pub fn jobs(&mut self, ids: &[JobId]) -> Vec<Option<JobDetail>> {
        self.read(|reader| reader.jobs(ids)).unwrap_or_default()
    }

    /// Every queue with its counters.
    pub fn queues(&mut self) -> Vec<QueueRow> {
        self.read(|reader| reader.queues()).unwrap_or_default()
    }

    /// The next steps of bulk actions.
    pub fn plan_bulk(&mut self) -> Option<Vec<Step>> {
        self.read(|reader| plan(reader))
    }

    /// Every row of the store.
    pub fn dump(&mut self) -> Dump {
        self.read(|reader| reader.dump()).unwrap_or_else(nothing)
    }

    /// What a crash now would leave of these jobs.
    pub fn durable(&mut self, ids: &[JobId]) -> Vec<Option<JobDetail>> {
        self.place.durable(ids).unwrap_or_default()
    }

    /// Contradictions within the store.
    pub fn disagreements(&self, dump: &Dump) -> Vec<String> {
        let found = audit(dump);
        found.iter().map(ToString::to_string).chain(self.place.verify()).collect()
    }

    fn read<T>(
        &mut self,
        mut ask: impl FnMut(&mut dyn Reader) -> Result<T, StoreError>,
    ) -> Option<T> {
        let mut found = None;
        self.place.read(&mut |reader| found = ask(reader).ok()).ok()?;
        found
    }
}

impl Handle {
    /// Whether a batch was committed.
    pub fn was_committed(&mut self, batch: BatchId) -> Result<bool, StoreError> {
        self.opened.was_committed(batch)
    }

    /// Begins a transaction in steps, if the store supports that.
    pub fn begin(&self, process: ProcessId) -> Option<Transaction> {
        self.opened.begin(process)
    }

    /// Ends such a transaction, with a fault if one is given.
    pub fn finish(
        &mut self,
        transaction: Transaction,
        outcomes: Outcomes,
        fault: Option<Injected>,
    ) -> Result<Executed, Conflict> {
        self.opened.finish(transaction, outcomes, fault)
    }

    /// Reopens the store.
    pub fn reopen(&mut self) -> Result<(), StoreError> {
        self.opened.reopen()
    }
}

impl std::fmt::Debug for Disk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Disk at version {}", self.version)
    }
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Handle at version {}", self.seen)
    }
}

/// Whether a commit that fails like this takes place.
fn takes_place(fault: Injected) -> bool {
    matches!(fault, Injected::UnknownCommitted | Injected::FatalCommitted | Injected::Unsynced)
}

/// The dump of an empty store.
pub(crate) fn nothing() -> Dump {
    Dump {
        next_id: JobId::FIRST,
        jobs: Vec::new(),
        queues: Vec::new(),
        keys: Vec::new(),
        attempts: Vec::new(),
        workers: Vec::new(),
        settings: Vec::new(),
        markers: Vec::new(),
        figures: Vec::new(),
        groups: Vec::new(),
        bulk: Vec::new(),
    }
}
