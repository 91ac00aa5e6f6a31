//! What goes wrong in SQLite, sorted into the classes of the core, with the original cause.

use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;
use thiserror::Error;
use windlass_core::JobId;
use windlass_core::store::{BadAnswer, Cause, CommitError, Outcomes, StoreError};

/// Why a store could not be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The library is too old.
    #[error(
        "SQLite {found} is linked, but {needed} or newer is needed: older ones can lose a \
             committed transaction when a WAL is reset"
    )]
    Library {
        /// Version of the linked library.
        found: &'static str,
        /// The oldest version that is accepted.
        needed: &'static str,
    },
    /// The directory or the file could not be made.
    #[error("cannot create {path}: {source}")]
    Create {
        /// The path of the file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The file is not a Windlass store.
    #[error("{path} is not a Windlass store: {what}; give the path of another file")]
    Foreign {
        /// The path of the file.
        path: PathBuf,
        /// Description of what the file is.
        what: String,
    },
    /// A newer version of Windlass wrote the file.
    #[error(
        "{path} was written by a newer Windlass (schema {found}, this one knows {known}); \
         run that version, or restore a backup made before the upgrade"
    )]
    Newer {
        /// The path of the file.
        path: PathBuf,
        /// Version of the schema in the file.
        found: i64,
        /// The newest schema known here.
        known: i64,
    },
    /// An older version of Windlass wrote the file, and it was opened for reading alone.
    #[error(
        "{path} was written by an older Windlass (schema {found}, this one reads {known}); \
         back the file up, then start `windlass serve` on it once: that upgrades it"
    )]
    Older {
        /// The path of the file.
        path: PathBuf,
        /// Version of the schema in the file.
        found: i64,
        /// The schema that can be read.
        known: i64,
    },
    /// The disk has no room for a copy.
    #[error("cannot copy to {path}: {why}")]
    NoRoom {
        /// The path of the file.
        path: PathBuf,
        /// The space that is missing, or the error of the system.
        why: String,
    },
    /// What is stored cannot be read.
    #[error("{path} is damaged: {what}; restore another backup")]
    Damaged {
        /// The path of the file.
        path: PathBuf,
        /// Description of the damage.
        what: String,
    },
    /// The WAL beside the file seems to be that of the store that was there before.
    #[error(
        "{path} cannot be read with {path}-wal beside it: {why}; if a copy was put in the place of \
         the store, the WAL is still that of the old one: move {path}-wal and {path}-shm away, and \
         restore copies with `windlass restore FILE`; otherwise restore a backup"
    )]
    StaleWal {
        /// The path of the file.
        path: String,
        /// What is wrong with the two together.
        why: String,
    },
    /// A setting that durability depends on was not accepted.
    #[error(
        "{path}: SQLite reports {pragma}={found}, but {needed} is needed; \
             it may lie on a file system that cannot do it"
    )]
    Pragma {
        /// The path of the file.
        path: PathBuf,
        /// The name of the setting.
        pragma: &'static str,
        /// The value that SQLite reports.
        found: String,
        /// The value that is required.
        needed: &'static str,
    },
    /// The whole WAL has to be checkpointed again, which needs exclusive access.
    #[error(
        "{path} failed while others have it open; end the other processes that use it: \
         what was written last can only be recovered with exclusive access"
    )]
    NotAlone {
        /// The path of the file.
        path: PathBuf,
    },
    /// SQLite refused.
    #[error("cannot open {path}: {}", hint(source))]
    Sqlite {
        /// The path of the file.
        path: PathBuf,
        /// The cause.
        source: rusqlite::Error,
    },
}

impl OpenError {
    /// What SQLite said of the file at this path.
    pub(crate) fn sqlite(path: &Path, source: rusqlite::Error) -> Self {
        let path = path.to_path_buf();
        match source.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => {
                Self::Foreign { path, what: "it is no SQLite database".into() }
            }
            _ => Self::Sqlite { path, source },
        }
    }
}

impl OpenError {
    /// What went wrong in a step of the schema.
    pub(crate) fn inside(path: &Path, error: TxError) -> Self {
        match error {
            TxError::Sqlite(source) => Self::sqlite(path, source),
            other => Self::Damaged { path: path.into(), what: other.to_string() },
        }
    }

    /// The same, of a file that was opened by another name.
    pub(crate) fn at(self, path: &Path) -> Self {
        match self {
            Self::Sqlite { source, .. } => Self::sqlite(path, source),
            other => other,
        }
    }
}

fn hint(error: &rusqlite::Error) -> String {
    let advice = match error.sqlite_error_code() {
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => {
            "; make the file and its directory writable for this user"
        }
        Some(ErrorCode::CannotOpen) => "; check that the directory exists and may be written",
        Some(ErrorCode::DiskFull) => "; free some space",
        Some(ErrorCode::DatabaseCorrupt) => "; run `windlass doctor`, or restore a backup",
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            "; another process holds it: wait for it to finish, or end it"
        }
        _ => "",
    };
    format!("{error}{advice}")
}

/// What can go wrong inside a transaction.
#[derive(Debug, Error)]
pub(crate) enum TxError {
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    /// A row that this code cannot have written.
    #[error("{0}")]
    BadRow(String),
    /// The store has a mark, and takes no batches.
    #[error("{0}")]
    Sealed(Cause),
    /// A row was not as the transaction had read it.
    #[error("job {0} was changed by another transaction")]
    Conflict(JobId),
}

impl From<BadAnswer> for TxError {
    fn from(bad: BadAnswer) -> Self {
        Self::BadRow(bad.to_string())
    }
}

/// A batch that was refused for the mark of the store.
impl From<CommitError> for TxError {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::NotCommitted(cause) => Self::Sealed(cause),
            other => Self::Sealed(Cause::new(&other.to_string())),
        }
    }
}

/// What a caller can do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Busy,
    Full,
    Fatal,
    Corrupt,
}

impl TxError {
    fn class(&self) -> Class {
        let error = match self {
            Self::Sqlite(error) => error,
            Self::BadRow(_) => return Class::Corrupt,
            Self::Conflict(_) | Self::Sealed(_) => return Class::Busy,
        };
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Class::Busy,
            Some(ErrorCode::DiskFull) => Class::Full,
            // None: not from SQLite itself, but a value of the wrong type or a missing column.
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) | None => Class::Corrupt,
            Some(_) => Class::Fatal,
        }
    }

    /// Whether the same may work later, on the same connection.
    pub(crate) fn passes(&self) -> bool {
        matches!(self.class(), Class::Busy | Class::Full)
    }

    pub(crate) fn cause(&self) -> Cause {
        match self {
            Self::Sqlite(rusqlite::Error::SqliteFailure(code, message)) => {
                let text = message.as_deref().unwrap_or("no message");
                Cause::new(&format!("SQLite error {}: {text}", code.extended_code))
            }
            other => Cause::new(&other.to_string()),
        }
    }

    /// The class of an error before the commit: nothing was written.
    pub(crate) fn before_commit(&self) -> CommitError {
        let cause = self.cause();
        match self.class() {
            Class::Busy => CommitError::NotCommitted(cause),
            Class::Full => CommitError::Full(cause),
            Class::Fatal => CommitError::Fatal { cause, outcomes: None },
            Class::Corrupt => CommitError::Corrupt(cause),
        }
    }

    /// The class of an error of the commit itself; `undone` says that the transaction was still
    /// open afterwards, and could be rolled back. For want of space a commit fails at a write,
    /// before its last record is complete, and SQLite itself rolls it back.
    pub(crate) fn of_commit(&self, undone: bool, outcomes: Outcomes) -> CommitError {
        match self.class() {
            Class::Busy if undone => self.before_commit(),
            Class::Full => self.before_commit(),
            Class::Corrupt => CommitError::Corrupt(self.cause()),
            _ => {
                let outcomes = Some(Box::new(outcomes));
                CommitError::Fatal { cause: self.cause(), outcomes }
            }
        }
    }

    /// The class of an error of a read.
    pub(crate) fn of_read(&self) -> StoreError {
        let cause = self.cause();
        match self.class() {
            Class::Busy | Class::Full => StoreError::Busy(cause),
            Class::Fatal => StoreError::Fatal(cause),
            Class::Corrupt => StoreError::Corrupt(cause),
        }
    }
}
