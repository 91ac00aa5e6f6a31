//! The store in memory as the shared store. It has faults and crash images of its own.

use windlass_core::store::{Batch, JobDetail, News, Outcomes, Reader, Store, StoreError};
use windlass_core::{BatchId, JobId, LeaseToken, ProcessId, Wall};
use windlass_store_memory::{Conflict, Fault as Injected, Holding, MemoryStore, Transaction};

use super::{Executed, Opened, Place, takes_place};

#[derive(Debug)]
pub(super) struct MemoryPlace(MemoryStore);

impl MemoryPlace {
    pub(super) fn new(holding: Holding) -> Self {
        let store = MemoryStore::new();
        store.hold(holding);
        Self(store)
    }
}

impl Place for MemoryPlace {
    fn open(&mut self) -> Result<Box<dyn Opened>, String> {
        Ok(Box::new(self.0.another()))
    }

    fn power_cut(&mut self) -> Result<(), String> {
        self.0 = self.0.crash_image();
        Ok(())
    }

    fn read(&mut self, ask: &mut dyn FnMut(&mut dyn Reader)) -> Result<(), StoreError> {
        ask(&mut self.0.reader()?);
        Ok(())
    }

    fn durable(&mut self, ids: &[JobId]) -> Result<Vec<Option<JobDetail>>, StoreError> {
        self.0.crash_image().reader()?.jobs(ids)
    }

    fn verify(&self) -> Vec<String> {
        self.0.verify()
    }
}

impl Opened for MemoryStore {
    fn commit(&mut self, now: Wall, batch: &Batch, fault: Option<Injected>) -> Executed {
        if let Some(fault) = fault {
            self.fail_next(fault);
        }
        let result = Store::commit(self, now, batch);
        self.clear_faults();
        let applied = result.is_ok() || result.is_err() && fault.is_some_and(takes_place);
        Executed { result, applied }
    }

    fn was_committed(&mut self, batch: BatchId) -> Result<bool, StoreError> {
        Store::was_committed(self, batch)
    }

    fn reopen(&mut self) -> Result<(), StoreError> {
        Store::reopen(self)
    }

    fn news(&mut self, _: bool, held: &[LeaseToken]) -> Result<News, StoreError> {
        Store::news(self, held)
    }

    fn begin(&self, process: ProcessId) -> Option<Transaction> {
        Some(Self::begin(self, process))
    }

    fn finish(
        &mut self,
        transaction: Transaction,
        outcomes: Outcomes,
        fault: Option<Injected>,
    ) -> Result<Executed, Conflict> {
        let result = Self::finish(self, transaction, outcomes, fault)?;
        let applied = result.is_ok() || fault.is_some_and(takes_place);
        Ok(Executed { result, applied })
    }
}
