//! Where the open database stands. A store and its readers share it; it is empty while the store
//! is broken and not opened anew, so that nothing holds on to the file.

use std::sync::{OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use redb::{Database, ReadTransaction, ReadableDatabase};
use windlass_core::store::{Cause, StoreError};

use crate::error::TxError;
use crate::tables::Found;

/// The place of the open database.
#[derive(Debug, Default)]
pub(crate) struct Slot(RwLock<Opened>);

/// What is in the slot.
#[derive(Debug, Default)]
pub(crate) struct Opened {
    pub(crate) db: Option<Database>,
    /// How often it was opened.
    pub(crate) count: u64,
    /// What first went wrong since it was opened. redb itself says later only that something did.
    trouble: OnceLock<Cause>,
}

impl Slot {
    pub(crate) fn shared(&self) -> RwLockReadGuard<'_, Opened> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn alone(&self) -> RwLockWriteGuard<'_, Opened> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn fill(&self, db: Database) {
        let mut opened = self.alone();
        let count = opened.count + 1;
        *opened = Opened { db: Some(db), count, trouble: OnceLock::new() };
    }

    /// Closes the database. What led to it is remembered until it is opened anew.
    pub(crate) fn close(&self, error: &TxError) {
        let mut opened = self.alone();
        opened.note(error);
        opened.db = None;
    }

    /// Runs reads in one snapshot; they are told which opening of the file it is.
    pub(crate) fn read<R>(
        &self,
        read: impl FnOnce(&ReadTransaction, u64) -> Found<R>,
    ) -> Result<R, StoreError> {
        let opened = self.shared();
        let db = opened.db().map_err(StoreError::Fatal)?;
        let run = || read(&db.begin_read()?, opened.count);
        run().map_err(|error: TxError| error.of_read(opened.note(&error)))
    }
}

impl Opened {
    /// The database, or why it is closed.
    pub(crate) fn db(&self) -> Result<&Database, Cause> {
        self.db.as_ref().ok_or_else(|| {
            let trouble = self.trouble.get().map_or_else(String::new, |cause| format!(": {cause}"));
            Cause::new(&format!("the store failed before and was not opened anew{trouble}"))
        })
    }

    /// Remembers an error if it is the first, and says what caused it.
    pub(crate) fn note(&self, error: &TxError) -> Cause {
        let cause = error.cause();
        let first = self.trouble.get_or_init(|| cause.clone());
        if error.is_echo() { first.clone() } else { cause }
    }
}
