//! The open database, which a store and its readers share. The slot is empty from a failure of the
//! store until it is reopened, so that nothing keeps the file open.

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
    /// The first error since it was opened. redb itself reports later only that there was one.
    first_error: OnceLock<Cause>,
}

impl Slot {
    pub(crate) fn shared(&self) -> RwLockReadGuard<'_, Opened> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn exclusive(&self) -> RwLockWriteGuard<'_, Opened> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn fill(&self, db: Database) {
        let mut opened = self.exclusive();
        let count = opened.count + 1;
        *opened = Opened { db: Some(db), count, first_error: OnceLock::new() };
    }

    /// Closes the database. The cause is kept until it is reopened.
    pub(crate) fn close(&self, error: &TxError) {
        let mut opened = self.exclusive();
        opened.note(error);
        opened.db = None;
    }

    /// Runs reads in one snapshot; they get the number of the opening.
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
            let first_error =
                self.first_error.get().map_or_else(String::new, |cause| format!(": {cause}"));
            Cause::new(&format!("the store failed and was not reopened{first_error}"))
        })
    }

    /// Remembers an error if it is the first, and says what caused it.
    pub(crate) fn note(&self, error: &TxError) -> Cause {
        let cause = error.cause();
        let first = self.first_error.get_or_init(|| cause.clone());
        if error.is_echo() { first.clone() } else { cause }
    }
}
