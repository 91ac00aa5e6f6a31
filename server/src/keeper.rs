//! Checking and copying a store that is in use, whichever store it is.

use std::path::Path;

use windlass_core::store::{Disagreement, StoreError};
use windlass_store_redb::RedbMaintenance;
use windlass_store_sqlite::SqliteMaintenance;

/// A handle of the open store, for upkeep.
#[derive(Debug, Clone)]
pub(crate) enum Keeper {
    Sqlite(SqliteMaintenance),
    Redb(RedbMaintenance),
}

impl Keeper {
    /// Everything in the store that contradicts something else in it. It reads the whole store.
    pub(crate) fn verify(&self) -> Result<Vec<Disagreement>, StoreError> {
        match self {
            Self::Sqlite(keeper) => keeper.verify(),
            Self::Redb(keeper) => keeper.verify(),
        }
    }

    /// Whether `verify` looks at every page too.
    pub(crate) fn checks_pages(&self) -> bool {
        matches!(self, Self::Sqlite(_))
    }

    /// Copies the store as it is at one instant to a file that does not exist yet.
    pub(crate) fn backup(&self, to: &Path) -> Result<(), String> {
        match self {
            Self::Sqlite(keeper) => keeper.backup(to).map_err(|error| error.to_string()),
            Self::Redb(keeper) => keeper.backup(to).map_err(|error| error.to_string()),
        }
    }
}
