//! Checking and copying a store that is in use, whichever store it is.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::Duration;

use thiserror::Error;
use windlass_core::store::{Disagreement, StoreError};
use windlass_store_file::directory_of;
use windlass_store_postgres::{OldestXmin, PgMaintenance, PgStore, StoreUrl as PgUrl};
use windlass_store_redb::{OpenError as RedbError, RedbMaintenance};
use windlass_store_sqlite::{OpenError as SqliteError, SqliteMaintenance};

use super::StoreUrl;

/// A handle of the open store, for upkeep.
#[derive(Debug, Clone)]
pub(crate) enum Maintenance {
    Sqlite(SqliteMaintenance),
    Redb(RedbMaintenance),
    /// With the age from which on a transaction that keeps dead rows is named.
    Postgres(PgMaintenance, Duration),
}

/// That age, if the URL gives none. A batch takes milliseconds.
const OLD_TRANSACTION: Duration = Duration::from_secs(10);

impl Maintenance {
    /// Of a store that was opened by this URL.
    pub(super) fn of_postgres(store: &PgStore, url: &PgUrl) -> Self {
        let old = url.old_transaction().unwrap_or(OLD_TRANSACTION);
        Self::Postgres(store.maintenance(), old)
    }

    /// Everything in the store that contradicts something else in it. It reads the whole store.
    pub(crate) fn verify(&self) -> Result<Vec<Disagreement>, StoreError> {
        match self {
            Self::Sqlite(maintenance) => maintenance.verify(),
            Self::Redb(maintenance) => maintenance.verify(),
            Self::Postgres(maintenance, _) => maintenance.verify(),
        }
    }

    /// Whether `verify` looks at every page too.
    pub(crate) fn checks_pages(&self) -> bool {
        match self {
            Self::Sqlite(_) => true,
            Self::Redb(maintenance) => maintenance.checks_pages(),
            Self::Postgres(..) => false,
        }
    }

    /// Copies the store as it is at one instant to a file that does not exist yet.
    pub(crate) fn backup(&self, to: &Path) -> Result<(), CopyError> {
        match self {
            Self::Sqlite(maintenance) => maintenance.backup(to).map_err(|error| match error {
                SqliteError::NoRoom { .. } => CopyError::NoRoom(error.to_string()),
                other => CopyError::Failed(other.to_string()),
            }),
            Self::Redb(maintenance) => maintenance.backup(to).map_err(|error| match error {
                RedbError::NoRoom { .. } => CopyError::NoRoom(error.to_string()),
                other => CopyError::Failed(other.to_string()),
            }),
            Self::Postgres(..) => Err(CopyError::NotAFile),
        }
    }

    /// Copies the store beside itself to a file that has no name any more: it is gone when it is
    /// closed, also by a kill.
    pub(crate) fn unnamed_copy(&self, store: &StoreUrl) -> Result<File, CopyError> {
        let store = store.file().ok_or(CopyError::NotAFile)?;
        let failed = |error: io::Error| CopyError::Failed(error.to_string());
        let random = getrandom::u64().map_err(|error| CopyError::Failed(error.to_string()))?;
        let path = directory_of(store).join(format!("{UNNAMED}{random:016x}"));
        self.backup(&path)?;
        let opened = File::open(&path);
        fs::remove_file(&path).map_err(failed)?;
        opened.map_err(failed)
    }
}

/// The names of copies that are to lose them, before a random number.
const UNNAMED: &str = ".backup-";

/// Removes what a process that was killed while it copied left beside the store.
pub(crate) fn remove_leftovers(store: &StoreUrl) {
    let Some(store) = store.file() else { return };
    let removed = windlass_store_file::remove_leftovers(directory_of(store), UNNAMED);
    if removed > 0 {
        tracing::info!(removed, "copies that a killed process left half-written were removed");
    }
}

impl Maintenance {
    /// What an operator should look at on the server of the store. It does not say that anything is
    /// wrong with the jobs.
    pub(crate) fn notices(&self) -> Result<Vec<String>, StoreError> {
        match self {
            Self::Sqlite(_) | Self::Redb(_) => Ok(vec![]),
            Self::Postgres(maintenance, old) => {
                let found = maintenance.findings(*old)?;
                Ok(found.iter().map(ToString::to_string).collect())
            }
        }
    }

    /// The oldest snapshot that keeps dead rows, where there is such a thing and it is known.
    pub(crate) fn oldest_xmin(&self) -> Option<OldestXmin> {
        match self {
            Self::Sqlite(_) | Self::Redb(_) => None,
            Self::Postgres(maintenance, old) => maintenance.oldest_xmin(*old).ok().flatten(),
        }
    }
}

/// Bytes of a store, and of its write-ahead log if that is a file of its own.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct StoreBytes {
    pub(crate) store: u64,
    pub(crate) wal: u64,
}

impl Maintenance {
    /// How much space the store takes; zero if it is not known now. It may wait for a server.
    pub(crate) fn bytes(&self, store: &StoreUrl) -> StoreBytes {
        match (self, store.file()) {
            (Self::Postgres(maintenance, _), _) => {
                StoreBytes { store: maintenance.bytes().unwrap_or_default(), wal: 0 }
            }
            (_, Some(path)) => {
                let mut wal = path.as_os_str().to_owned();
                wal.push("-wal");
                StoreBytes { store: length(path), wal: length(Path::new(&wal)) }
            }
            (_, None) => StoreBytes::default(),
        }
    }
}

/// The length of a file. It is not opened: that would drop the locks of SQLite.
fn length(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.len())
}

/// Why there is no copy.
#[derive(Debug, Error)]
pub(crate) enum CopyError {
    #[error("{0}")]
    NoRoom(String),
    #[error(
        "a store on PostgreSQL is no file; back it up with PostgreSQL's own tools, such as \
         pg_dump --schema=windlass, as docs/POSTGRESQL.md describes"
    )]
    NotAFile,
    #[error("{0}")]
    Failed(String),
}
