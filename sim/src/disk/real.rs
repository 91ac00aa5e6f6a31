//! A handle to a real store, with the same faults as the store in memory.

use windlass_core::store::{
    Batch, Cause, CommitError, LostLease, News, Outcomes, Reader, Store, StoreError,
};
use windlass_core::{BatchId, JobId, LeaseToken, Wall};
use windlass_store_memory::Fault as Injected;

use super::{Executed, Opened, takes_place};

/// A real store with faults on demand.
pub(super) struct Faulty<S> {
    pub(super) store: S,
    /// Opens the store again, as a new process does after a crash.
    pub(super) reopen: Box<dyn FnMut() -> Result<S, String>>,
    /// Whether the store detects writes of others by itself.
    pub(super) notices: bool,
    pub(super) poisoned: bool,
    pub(super) asked: bool,
}

impl<S: Store> Opened for Faulty<S> {
    fn commit(&mut self, now: Wall, batch: &Batch, fault: Option<Injected>) -> Executed {
        if self.poisoned {
            let cause = Cause::new("the store was not reopened");
            let result = Err(CommitError::Fatal { cause, outcomes: None });
            return Executed { result, applied: false };
        }
        let Some(fault) = fault else {
            let result = self.store.commit(now, batch);
            return Executed { applied: result.is_ok(), result };
        };
        self.poisoned = matches!(
            fault,
            Injected::FatalCommitted | Injected::FatalNotCommitted | Injected::FatalBefore
        );
        if !takes_place(fault) {
            return Executed { result: Err(not_committed(fault)), applied: false };
        }
        match self.store.commit(now, batch) {
            Ok(outcomes) => {
                let (cause, outcomes) = (Cause::new("injected fault"), Box::new(outcomes));
                let result = Err(match fault {
                    Injected::UnknownCommitted => CommitError::Unknown { cause, outcomes },
                    _ => CommitError::Fatal { cause, outcomes: Some(outcomes) },
                });
                Executed { result, applied: true }
            }
            Err(error) => Executed { result: Err(error), applied: false },
        }
    }

    fn was_committed(&mut self, batch: BatchId) -> Result<bool, StoreError> {
        if self.poisoned {
            return Err(StoreError::Fatal(Cause::new("the store was not reopened")));
        }
        self.store.was_committed(batch)
    }

    fn reopen(&mut self) -> Result<(), StoreError> {
        self.store = (self.reopen)().map_err(|error| StoreError::Fatal(Cause::new(&error)))?;
        (self.poisoned, self.asked) = (false, false);
        Ok(())
    }

    fn news(&mut self, wrote: bool, held: &[LeaseToken]) -> Result<News, StoreError> {
        let noticed = self.store.news(held)?;
        let first = !std::mem::replace(&mut self.asked, true);
        let lost = if wrote { self.lost(held)? } else { Vec::new() };
        if self.notices && wrote && !first && noticed != (News { wrote, lost: lost.clone() }) {
            let cause = "a commit of another process, or a lost lease, was not noticed";
            return Err(StoreError::Corrupt(Cause::new(cause)));
        }
        Ok(News { wrote, lost })
    }
}

impl<S: Store> Faulty<S> {
    /// Those of these leases that the rows no longer have.
    fn lost(&self, held: &[LeaseToken]) -> Result<Vec<LostLease>, StoreError> {
        let ids: Vec<JobId> = held.iter().map(|token| token.job).collect();
        let jobs = self.store.reader()?.jobs(&ids)?;
        let lost = held.iter().zip(jobs).filter_map(|(token, row)| {
            LostLease::check(*token, row.map(|row| (row.job.state.view(), row.job.epoch)))
        });
        Ok(lost.collect())
    }
}

fn not_committed(fault: Injected) -> CommitError {
    let cause = Cause::new("injected fault");
    let outcomes = Box::<Outcomes>::default();
    match fault {
        Injected::Full => CommitError::Full(cause),
        Injected::Corrupt => CommitError::Corrupt(cause),
        Injected::UnknownNotCommitted => CommitError::Unknown { cause, outcomes },
        Injected::FatalNotCommitted => CommitError::Fatal { cause, outcomes: Some(outcomes) },
        Injected::FatalBefore => CommitError::Fatal { cause, outcomes: None },
        _ => CommitError::NotCommitted(cause),
    }
}
