//! A real store as one process has it open, with the faults that the one in memory brings along.

use windlass_core::store::{Batch, Cause, CommitError, Outcomes, Store, StoreError};
use windlass_core::{BatchId, Wall};
use windlass_store_memory::Fault as Injected;

use super::{Executed, Opened, takes_place};

/// A real store with faults on demand.
pub(super) struct Faulty<S> {
    pub(super) store: S,
    /// How the store is opened anew: a crash of the process that had it, and a new one.
    pub(super) anew: Box<dyn FnMut() -> Result<S, String>>,
    /// Whether the store notices by itself what others write.
    pub(super) notices: bool,
    pub(super) poisoned: bool,
    pub(super) asked: bool,
}

impl<S: Store> Opened for Faulty<S> {
    fn commit(&mut self, now: Wall, batch: &Batch, fault: Option<Injected>) -> Executed {
        if self.poisoned {
            let cause = Cause::new("the store was not opened anew");
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

    fn look(&mut self, batch: BatchId) -> Result<bool, StoreError> {
        if self.poisoned {
            return Err(StoreError::Fatal(Cause::new("the store was not opened anew")));
        }
        self.store.look(batch)
    }

    fn reopen(&mut self) -> Result<(), StoreError> {
        self.store = (self.anew)().map_err(|error| StoreError::Fatal(Cause::new(&error)))?;
        (self.poisoned, self.asked) = (false, false);
        Ok(())
    }

    fn changed(&mut self, told: bool) -> Result<bool, StoreError> {
        let noticed = self.store.changed()?;
        let first = !std::mem::replace(&mut self.asked, true);
        if self.notices && told && !noticed && !first {
            let cause = Cause::new("a commit of another process was not noticed");
            return Err(StoreError::Corrupt(cause));
        }
        Ok(told)
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
