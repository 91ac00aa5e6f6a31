//! Bugs that were found, each as the smallest scenario that shows it, with its story on top. One
//! module per part of the core.

mod apply;
mod clock;
mod demand;
mod peers;
mod runs;
mod single_job_store;
mod store;
mod sweep;

use windlass_core::machine::Config;
use windlass_core::store::{
    Batch, CommitError, JobDetail, Outcomes, Reader, Store, StoreError, WorkerKind,
};
use windlass_core::{BatchId, Job, JobId, LeaseLength, NewJob, ProcessId, StateName, Wall};
use windlass_store_memory::{MemoryReader, MemoryStore};
use windlass_tests::stage::{Stage, config, job, worker_named};

/// A stage that has called its empty store once.
fn stage(slots: usize) -> Stage<MemoryStore> {
    stage_with(config(slots))
}

/// The same, with this configuration.
fn stage_with(config: Config) -> Stage<MemoryStore> {
    let mut stage = Stage::with(MemoryStore::new(), config);
    stage.settle();
    stage
}

/// The configuration of a second process on the same store.
fn second(slots: usize) -> Config {
    Config::new(ProcessId(2), worker_named("second", WorkerKind::Process), slots)
}

/// A job with a lease of a second.
fn brief() -> NewJob {
    let mut new = job();
    new.visibility_timeout = Some(LeaseLength::new(1_000).expect("a length"));
    new
}

/// The first job with its documents.
fn detail<S: Store>(store: &S) -> JobDetail {
    let mut reader = store.reader().expect("a reader");
    let found = reader.jobs(&[JobId::FIRST]).expect("it reads").pop();
    found.flatten().expect("the first job is there")
}

/// The row of the first job.
fn row<S: Store>(store: &S) -> Job {
    detail(store).job
}

/// The state of the first job.
fn state<S: Store>(store: &S) -> StateName {
    row(store).state.name()
}

/// The number of stored jobs.
fn stored<S: Store>(store: &S) -> usize {
    store.reader().expect("a reader").dump().expect("it dumps").jobs.len()
}

/// A store in memory that commits in a way of its own.
struct Odd {
    memory: MemoryStore,
    commit: fn(&mut MemoryStore, Wall, &Batch) -> Result<Outcomes, CommitError>,
}

impl Store for Odd {
    type Reader = MemoryReader;

    fn commit(&mut self, now: Wall, batch: &Batch) -> Result<Outcomes, CommitError> {
        (self.commit)(&mut self.memory, now, batch)
    }

    fn was_committed(&mut self, batch: BatchId) -> Result<bool, StoreError> {
        self.memory.was_committed(batch)
    }

    fn reopen(&mut self) -> Result<(), StoreError> {
        self.memory.reopen()
    }

    fn reader(&self) -> Result<MemoryReader, StoreError> {
        self.memory.reader()
    }
}
