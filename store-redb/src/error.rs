//! What goes wrong in redb, sorted into the classes of the core, with the original cause.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;
use windlass_core::store::{BadAnswer, Cause, StoreError};

use crate::bytes::Malformed;

/// Why a store could not be opened or copied.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The directory or the file could not be made.
    #[error("cannot create {path}: {source}")]
    Create {
        /// The path of the file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Another process, or another store of this one, has the file open.
    #[error(
        "{path} is open in another process, and a redb store belongs to one process at a time; \
         end that process, or give the path of another file"
    )]
    Locked {
        /// The path of the file.
        path: PathBuf,
    },
    /// The file or its directory may not be written.
    #[error(
        "{path} may not be written: {source}; make the file and its directory writable for this \
         user"
    )]
    ReadOnly {
        /// The path of the file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// There is no space left.
    #[error("no space left to open {path}: {source}; free some space")]
    Full {
        /// The path of the file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
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
        found: u64,
        /// The newest schema known here.
        known: u64,
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
        found: u64,
        /// The schema that can be read.
        known: u64,
    },
    /// The disk has no room for a copy.
    #[error("cannot copy to {path}: {why}")]
    NoRoom {
        /// The path of the file.
        path: PathBuf,
        /// The space that is missing, or the error of the system.
        why: String,
    },
    /// What is stored cannot be trusted.
    #[error("{path} is corrupt: {what}; run `windlass doctor`, or restore a backup")]
    Corrupt {
        /// The path of the file.
        path: PathBuf,
        /// Description of the damage.
        what: String,
    },
    /// redb refused for another reason.
    #[error("cannot open {path}: {source}")]
    Redb {
        /// The path of the file.
        path: PathBuf,
        /// The cause.
        source: Box<redb::Error>,
    },
}

impl OpenError {
    pub(crate) fn new(path: &Path, error: impl Into<TxError>) -> Self {
        let path = path.to_path_buf();
        match error.into() {
            TxError::BadRow(what) => Self::Corrupt { path, what },
            TxError::NoRoom(why) => Self::NoRoom { path, why: why.to_string() },
            TxError::Redb(source) => match *source {
                redb::Error::DatabaseAlreadyOpen => Self::Locked { path },
                redb::Error::Corrupted(what) => Self::Corrupt { path, what },
                redb::Error::UpgradeRequired(version) => {
                    let what = format!("it is in version {version} of redb's file format");
                    Self::Foreign { path, what }
                }
                redb::Error::Io(source) => Self::of_io(path, source),
                other => Self::Redb { path, source: Box::new(other) },
            },
        }
    }

    /// An error of the file system while a file is made.
    pub(crate) fn creating(path: &Path, source: io::Error) -> Self {
        let path = path.to_path_buf();
        match source.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                Self::ReadOnly { path, source }
            }
            kind if is_full(kind) => Self::Full { path, source },
            _ => Self::Create { path, source },
        }
    }

    fn of_io(path: PathBuf, source: io::Error) -> Self {
        if source.kind() == io::ErrorKind::InvalidData {
            return Self::Foreign { path, what: "it is no redb database".into() };
        }
        match Self::creating(&path, source) {
            Self::Create { path, source } => {
                Self::Redb { path, source: Box::new(redb::Error::Io(source)) }
            }
            other => other,
        }
    }

    /// The class of a reopening that failed.
    pub(crate) fn of_reopen(&self) -> StoreError {
        let cause = Cause::new(&self.to_string());
        match self {
            Self::Foreign { .. } | Self::Newer { .. } | Self::Corrupt { .. } => {
                StoreError::Corrupt(cause)
            }
            _ => StoreError::Busy(cause),
        }
    }
}

/// What can go wrong inside a transaction.
#[derive(Debug, Error)]
pub(crate) enum TxError {
    #[error("redb: {0}")]
    Redb(Box<redb::Error>),
    /// A row that this code cannot have written.
    #[error("{0}")]
    BadRow(String),
    /// The disk has no room for a copy.
    #[error("{0}")]
    NoRoom(Cause),
}

macro_rules! from_redb {
    ($($error:ident),*) => {$(
        impl From<redb::$error> for TxError {
            fn from(error: redb::$error) -> Self {
                Self::Redb(Box::new(error.into()))
            }
        }
    )*};
}
from_redb!(DatabaseError, TransactionError, TableError, StorageError, CommitError, CursorError);

impl From<Malformed> for TxError {
    fn from(malformed: Malformed) -> Self {
        Self::BadRow(format!("a row cannot be read: {malformed}"))
    }
}

/// Core refused an answer: the rows it was made of contradict each other.
impl From<BadAnswer> for TxError {
    fn from(bad: BadAnswer) -> Self {
        Self::BadRow(bad.to_string())
    }
}

/// What a caller can do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// There is no space. redb must be reopened, which the store does by itself.
    Full,
    /// Everything may work again once the file is reopened.
    Fatal,
    /// What is stored cannot be trusted.
    Corrupt,
}

impl TxError {
    pub(crate) fn class(&self) -> Class {
        let error = match self {
            Self::Redb(error) => error,
            Self::BadRow(_) => return Class::Corrupt,
            Self::NoRoom(_) => return Class::Full,
        };
        match &**error {
            redb::Error::Io(error) if is_full(error.kind()) => Class::Full,
            redb::Error::Corrupted(_)
            | redb::Error::TableTypeMismatch { .. }
            | redb::Error::TableIsMultimap(_)
            | redb::Error::TypeDefinitionChanged { .. }
            | redb::Error::TableDoesNotExist(_) => Class::Corrupt,
            _ => Class::Fatal,
        }
    }

    pub(crate) fn cause(&self) -> Cause {
        Cause::new(&self.to_string())
    }

    /// Whether this only reports that there was an earlier error.
    pub(crate) fn is_echo(&self) -> bool {
        let Self::Redb(error) = self else { return false };
        matches!(
            **error,
            redb::Error::PreviousIo
                | redb::Error::DatabaseClosed
                | redb::Error::TransactionPoisoned
        )
    }

    /// The class of an error of a read.
    pub(crate) fn of_read(&self, cause: Cause) -> StoreError {
        match self.class() {
            Class::Full | Class::Fatal => StoreError::Fatal(cause),
            Class::Corrupt => StoreError::Corrupt(cause),
        }
    }
}

fn is_full(kind: io::ErrorKind) -> bool {
    matches!(
        kind,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_has_the_class_its_caller_can_act_on() {
        let io = |kind: io::ErrorKind| TxError::from(redb::StorageError::Io(kind.into()));
        assert_eq!(io(io::ErrorKind::StorageFull).class(), Class::Full);
        assert_eq!(io(io::ErrorKind::QuotaExceeded).class(), Class::Full);
        assert_eq!(io(io::ErrorKind::Other).class(), Class::Fatal);
        let corrupted = redb::StorageError::Corrupted("a page".into());
        assert_eq!(TxError::from(corrupted).class(), Class::Corrupt);
        let gone = redb::TableError::TableDoesNotExist("jobs".into());
        assert_eq!(TxError::from(gone).class(), Class::Corrupt);
        assert_eq!(TxError::from(Malformed::Short).class(), Class::Corrupt);
        assert_eq!(TxError::from(BadAnswer("not job 1".into())).class(), Class::Corrupt);
        assert_eq!(TxError::from(redb::StorageError::PreviousIo).class(), Class::Fatal);
    }

    #[test]
    fn an_error_of_opening_says_what_to_do() {
        let path = Path::new("jobs.redb");
        let open = |error: redb::DatabaseError| OpenError::new(path, error).to_string();
        let io =
            |kind: io::ErrorKind| open(redb::DatabaseError::Storage(io::Error::from(kind).into()));
        assert!(open(redb::DatabaseError::DatabaseAlreadyOpen).contains("end that process"));
        assert!(io(io::ErrorKind::PermissionDenied).contains("make the file"));
        assert!(io(io::ErrorKind::StorageFull).contains("free some space"));
        assert!(io(io::ErrorKind::InvalidData).contains("another file"));
    }
}
