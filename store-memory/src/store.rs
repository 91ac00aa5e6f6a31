//! The store: commits under one lock, with faults on demand and an image of what a crash leaves.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard};

use windlass_core::store::{Batch, Cause, CommitError, Durability, Outcomes, Store, StoreError};
use windlass_core::{BatchId, Millis, Wall, apply};

use crate::reader::{MemoryReader, keys_agree};
use crate::tables::{Shared, Tables};
use crate::tx::MemoryTx;

/// How a commit is to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing is written, and the caller is told so.
    NotCommitted,
    /// Nothing is written, for want of space.
    Full,
    /// The caller is told that it is not known; it was written.
    UnknownCommitted,
    /// The caller is told that it is not known; it was not written.
    UnknownNotCommitted,
    /// The store is unusable from now on; it was written.
    FatalCommitted,
    /// The store is unusable from now on; it was not written, and the caller cannot know.
    FatalNotCommitted,
    /// The store is unusable from now on; the batch never came to its commit.
    FatalBefore,
    /// What is stored cannot be trusted.
    Corrupt,
    /// The caller is told that it was committed, but a crash would lose it: a disk that lies.
    /// The next honest commit makes it durable after all.
    Unsynced,
}

/// A store in memory. Handles made by [`MemoryStore::another`] share it, like processes that share
/// a file.
#[derive(Debug, Default)]
pub struct MemoryStore {
    tables: Shared<Tables>,
    /// What a crash would leave, where that differs from what is read.
    durable: Shared<Option<Tables>>,
    faults: VecDeque<Option<Fault>>,
    poisoned: bool,
    seen: u64,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// Another handle to the same store, as another process would have it.
    #[must_use]
    pub fn another(&self) -> Self {
        let (tables, durable) = (Arc::clone(&self.tables), Arc::clone(&self.durable));
        Self { tables, durable, ..Self::default() }
    }

    /// What a crash at this moment would leave: a store of its own.
    #[must_use]
    pub fn crash_image(&self) -> Self {
        let durable = self.durable.read().unwrap_or_else(PoisonError::into_inner);
        let live = self.tables.read().unwrap_or_else(PoisonError::into_inner);
        let image = durable.as_ref().unwrap_or(&*live).clone();
        Self { tables: Arc::new(RwLock::new(image)), ..Self::default() }
    }

    /// Makes the next commit fail like this; a second call makes the one after it fail, and so on.
    pub fn fail_next(&mut self, fault: Fault) {
        self.faults.push_back(Some(fault));
    }

    /// Lets the next commit pass, before those that are to fail.
    pub fn pass_next(&mut self) {
        self.faults.push_back(None);
    }

    /// Lets every commit pass from now on.
    pub fn clear_faults(&mut self) {
        self.faults.clear();
    }

    /// Whether the keys by which jobs are found match the rows; every disagreement otherwise.
    pub fn verify(&self) -> Vec<String> {
        keys_agree(&self.tables.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// How many job rows commits have read so far: to show that a cost does not grow.
    pub fn rows_read(&self) -> u64 {
        self.tables().rows_read
    }

    fn tables(&self) -> RwLockWriteGuard<'_, Tables> {
        self.tables.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn durable(&self) -> RwLockWriteGuard<'_, Option<Tables>> {
        self.durable.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies a batch to the tables that everybody reads.
    fn write(&mut self, now: Wall, batch: &Batch) -> Outcomes {
        let mut tables = self.tables();
        let before = tables.version;
        let outcomes = run(&mut tables, now, batch);
        let after = tables.version;
        drop(tables);
        // One's own commits are no news.
        if self.seen == before {
            self.seen = after;
        }
        if outcomes.wrote {
            *self.durable() = None;
        }
        outcomes
    }

    /// What would come of a batch; nothing is kept.
    fn rehearse(&self, now: Wall, batch: &Batch) -> Outcomes {
        let mut copy = self.tables().clone();
        run(&mut copy, now, batch)
    }

    fn write_unsynced(&mut self, now: Wall, batch: &Batch) -> Outcomes {
        let before = self.tables().clone();
        let outcomes = run(&mut self.tables(), now, batch);
        self.durable().get_or_insert(before);
        outcomes
    }

    fn fail(&mut self, fault: Fault, now: Wall, batch: &Batch) -> Result<Outcomes, CommitError> {
        let cause = Cause::new(&format!("injected fault: {fault:?}"));
        match fault {
            Fault::NotCommitted => Err(CommitError::NotCommitted(cause)),
            Fault::Full => Err(CommitError::Full(cause)),
            Fault::Corrupt => Err(CommitError::Corrupt(cause)),
            Fault::Unsynced => Ok(self.write_unsynced(now, batch)),
            Fault::UnknownCommitted => {
                let outcomes = Box::new(self.write(now, batch));
                Err(CommitError::Unknown { cause, outcomes })
            }
            Fault::UnknownNotCommitted => {
                let outcomes = Box::new(self.rehearse(now, batch));
                Err(CommitError::Unknown { cause, outcomes })
            }
            Fault::FatalCommitted | Fault::FatalNotCommitted | Fault::FatalBefore => {
                self.poisoned = true;
                let outcomes = match fault {
                    Fault::FatalCommitted => Some(self.write(now, batch)),
                    Fault::FatalNotCommitted => Some(self.rehearse(now, batch)),
                    _ => None,
                };
                Err(CommitError::Fatal { cause, outcomes: outcomes.map(Box::new) })
            }
        }
    }
}

impl Store for MemoryStore {
    type Reader = MemoryReader;

    fn commit(&mut self, now: Wall, batch: &Batch) -> Result<Outcomes, CommitError> {
        if self.poisoned {
            let cause = Cause::new("the store failed before and was not opened anew");
            return Err(CommitError::Fatal { cause, outcomes: None });
        }
        match self.faults.pop_front().flatten() {
            None => Ok(self.write(now, batch)),
            Some(fault) => self.fail(fault, now, batch),
        }
    }

    fn look(&mut self, batch: BatchId) -> Result<bool, StoreError> {
        if self.poisoned {
            return Err(StoreError::Fatal(Cause::new("the store was not opened anew")));
        }
        let tables = self.tables();
        let marker = tables.markers.get(&batch.process);
        Ok(marker.is_some_and(|marker| marker.batch.seq >= batch.seq))
    }

    fn reopen(&mut self) -> Result<(), StoreError> {
        self.poisoned = false;
        Ok(())
    }

    fn durability(&self) -> Durability {
        Durability::Memory
    }

    fn change_check(&self) -> Option<Millis> {
        (Arc::strong_count(&self.tables) > 1).then_some(Millis::new(100))
    }

    fn changed(&mut self) -> Result<bool, StoreError> {
        let version = self.tables().version;
        let changed = version != self.seen;
        self.seen = version;
        Ok(changed)
    }

    fn reader(&self) -> Result<MemoryReader, StoreError> {
        Ok(MemoryReader { tables: Arc::clone(&self.tables) })
    }
}

fn run(tables: &mut Tables, now: Wall, batch: &Batch) -> Outcomes {
    let mut tx = MemoryTx { tables, now };
    match apply(&mut tx, batch) {
        Ok(outcomes) => outcomes,
        Err(never) => match never {},
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_in_memory_does_not_claim_to_survive_its_process() {
        assert_eq!(MemoryStore::new().durability(), Durability::Memory);
    }
}
