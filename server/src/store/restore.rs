//! Putting a backup in the place of a store: the copy is checked, the store must not be in use, and
//! the old one is kept.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;
use windlass_core::store::Disagreement;
use windlass_store_file::{Alone, no_room_for};
use windlass_store_redb::RedbMaintenance;
use windlass_store_sqlite::SqliteMaintenance;

use super::StoreUrl;

/// A restore was refused; the store is as it was.
#[derive(Debug, Error)]
pub(crate) enum RestoreError {
    #[error("{file} cannot be restored: {why}")]
    BadCopy { file: String, why: String },
    #[error("{store} is in use; stop every server and worker process on it, then restore")]
    InUse { store: String },
    #[error(
        "a store on PostgreSQL is no file; restore it with PostgreSQL's own tools, such as \
         pg_restore, as docs/POSTGRESQL.md describes"
    )]
    NotAFile,
    #[error("{0}")]
    Failed(String),
}

/// A copy that was found to be whole.
#[derive(Debug)]
pub(crate) struct CheckedCopy<'a> {
    url: &'a StoreUrl,
    file: &'a Path,
}

impl<'a> CheckedCopy<'a> {
    /// Checks a copy of a store of this kind: every page, the schema, and whether it agrees with
    /// itself. One of an older schema is upgraded when it is next opened to write.
    pub(crate) fn of(url: &'a StoreUrl, file: &'a Path) -> Result<Self, RestoreError> {
        let bad = |why: String| RestoreError::BadCopy { file: file.display().to_string(), why };
        if url.file().is_some_and(|store| same_file(file, store)) {
            return Err(bad("it is the store itself".into()));
        }
        let found = match url {
            StoreUrl::Sqlite(_) => {
                SqliteMaintenance::of(file).verify_copy().map_err(|error| bad(error.to_string()))?
            }
            StoreUrl::Redb(_) => {
                RedbMaintenance::of(file).verify_copy().map_err(|error| bad(error.to_string()))?
            }
            StoreUrl::Postgres(_) => return Err(RestoreError::NotAFile),
        };
        match found.first() {
            None => Ok(Self { url, file }),
            Some(Disagreement(first)) => Err(bad(format!(
                "it is inconsistent: {first} ({} problems). Repair it first: \
                 windlass --store {} doctor --repair",
                found.len(),
                url.with_file(file),
            ))),
        }
    }

    /// Puts it in the place of the store. Returns where the old one is kept, if there was one.
    pub(crate) fn restore(self) -> Result<Option<PathBuf>, RestoreError> {
        let Self { url, file } = self;
        let path = url.file().ok_or(RestoreError::NotAFile)?;
        let failed = |error: io::Error| RestoreError::Failed(format!("{url}: {error}"));
        let alone = Alone::take(path).map_err(failed)?;
        let alone = alone.ok_or_else(|| RestoreError::InUse { store: url.to_string() })?;
        let bytes = fs::metadata(file).map_err(failed)?.len();
        if let Some(why) = no_room_for(path, bytes) {
            return Err(RestoreError::Failed(format!("{url}: {why}")));
        }
        let id = getrandom::u64().map_err(|error| RestoreError::Failed(error.to_string()))?;
        alone.replace(file, id).map_err(failed)
    }
}

fn same_file(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| fs::canonicalize(path).ok();
    real(one).is_some_and(|one| real(other) == Some(one))
}
