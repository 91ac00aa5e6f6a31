//! What goes wrong on PostgreSQL, sorted into the classes of the core, with the original cause.

use std::error::Error as _;
use std::fmt;
use std::time::Duration;

use thiserror::Error;
use tokio_postgres::error::SqlState;
use windlass_core::store::{BadAnswer, Cause, CommitError, StoreError};

/// Why a store could not be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The URL cannot be used.
    #[error("the store URL is not valid: {0}")]
    Url(String),
    /// No connection, or the server refused it.
    #[error("cannot connect to {url}: {why}")]
    Connect {
        /// The URL without its password.
        url: String,
        /// Why, and what to do.
        why: String,
        /// The code by which the server refused it, if it did.
        sqlstate: Option<String>,
    },
    /// A setting of the server that durability rests on.
    #[error("{url}: {setting} is {found} ({origin}), but {needed} is needed: {why}")]
    Setting {
        /// The URL without its password.
        url: String,
        /// The name of the setting.
        setting: &'static str,
        /// The value that the server has.
        found: String,
        /// Where the value was set.
        origin: String,
        /// The value that is required.
        needed: &'static str,
        /// The damage that the found value allows.
        why: &'static str,
    },
    /// The server takes no writes.
    #[error(
        "{url} is read-only: it is a standby, or default_transaction_read_only is set; connect \
         to the primary"
    )]
    ReadOnly {
        /// The URL without its password.
        url: String,
    },
    /// The schema holds something else.
    #[error(
        "schema {schema} of {url} is not a Windlass store: {what}; give another schema with \
         ?schema=NAME"
    )]
    Foreign {
        /// The URL without its password.
        url: String,
        /// Name of the schema.
        schema: String,
        /// Description of what the schema holds.
        what: String,
    },
    /// A newer version of Windlass wrote the schema.
    #[error(
        "schema {schema} of {url} was written by a newer Windlass (schema {found}, this one \
         knows {known}); run that version, or restore a backup made before the upgrade"
    )]
    Newer {
        /// The URL without its password.
        url: String,
        /// Name of the schema.
        schema: String,
        /// Version of the stored schema.
        found: i64,
        /// The newest number known here.
        known: i64,
    },
    /// The schema is missing or old, and may not be changed here.
    #[error(
        "schema {schema} of {url} has to be migrated from {found} to {known}; run `windlass \
         migrate`, or start without --no-migrate"
    )]
    NotMigrated {
        /// The URL without its password.
        url: String,
        /// Name of the schema.
        schema: String,
        /// Version of the stored schema; zero if it does not exist.
        found: i64,
        /// The number that is needed.
        known: i64,
    },
    /// PostgreSQL refused something else.
    #[error("cannot open {url}: {why}")]
    Refused {
        /// The URL without its password.
        url: String,
        /// Why, and what to do.
        why: String,
        /// The code of its refusal.
        sqlstate: Option<String>,
    },
}

impl OpenError {
    fn sqlstate(&self) -> Option<&str> {
        match self {
            Self::Connect { sqlstate, .. } | Self::Refused { sqlstate, .. } => sqlstate.as_deref(),
            _ => None,
        }
    }

    /// Whether user, password, certificate or rights were refused.
    pub fn is_denied(&self) -> bool {
        // 3F000: the schema exists, and is not seen without USAGE on it.
        matches!(self.sqlstate(), Some("28P01" | "28000" | "42501" | "3F000"))
    }

    /// Whether the database, or the schema in it, does not exist.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::NotMigrated { found: 0, .. }) || self.sqlstate() == Some("3D000")
    }

    /// Whether the server could not be reached, or takes no connections now.
    pub fn is_unreachable(&self) -> bool {
        match self {
            Self::Connect { sqlstate, .. } => {
                matches!(sqlstate.as_deref(), None | Some("53300" | "57P01" | "57P02" | "57P03"))
            }
            _ => false,
        }
    }
}

/// What can go wrong inside a transaction.
#[derive(Debug, Error)]
pub(crate) enum TxError {
    /// The server refused a statement: the transaction is over and has changed nothing.
    #[error("{0}")]
    Refused(Refusal),
    /// The connection is gone, or did not answer in time.
    #[error("{0}")]
    Lost(String),
    /// A row that this code cannot have written.
    #[error("{0}")]
    BadRow(String),
    /// A row was not as the transaction had read it.
    #[error("{0}")]
    Conflict(String),
    /// The store has a mark, and takes no batches.
    #[error("{0}")]
    Sealed(Cause),
    /// Names of queues, kinds or retry policies are not those that are known here.
    #[error("names of queues or kinds have changed")]
    StaleNames,
    /// Another version of Windlass has migrated the schema since this process opened the store.
    #[error(
        "the store was {} Windlass (schema {found}, this one knows {known}); restart this process \
         with the version that the other nodes run",
        if found > known { "migrated by a newer" } else { "replaced by that of an older" }
    )]
    OtherSchema { found: i64, known: i64 },
}

/// An error that the server reported.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) code: SqlState,
    text: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PostgreSQL error {}: {}", self.code.code(), self.text)
    }
}

impl From<tokio_postgres::Error> for TxError {
    fn from(error: tokio_postgres::Error) -> Self {
        let Some(refused) = error.as_db_error() else { return Self::Lost(chain(&error)) };
        let code = refused.code().clone();
        // The server has closed, or is closing, the connection; or it does not know how the
        // transaction has ended.
        if UNKNOWN.contains(&code)
            || matches!(refused.parsed_severity(), Some(tokio_postgres::error::Severity::Fatal))
            || code.code().starts_with("57P")
        {
            return Self::Lost(format!("PostgreSQL error {}: {}", code.code(), refused.message()));
        }
        let hint = refused.hint().filter(|hint| hint.contains(LOCKS));
        let advice = hint.map_or("", |_| "; raise max_locks_per_transaction of the server");
        Self::Refused(Refusal { code, text: format!("{}{advice}", refused.message()) })
    }
}

impl From<BadAnswer> for TxError {
    fn from(nonsense: BadAnswer) -> Self {
        Self::BadRow(nonsense.to_string())
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

impl TxError {
    pub(crate) fn cause(&self) -> Cause {
        Cause::new(&self.to_string())
    }

    /// Whether another transaction was in the way: the batch is applied again.
    pub(crate) fn is_conflict(&self) -> bool {
        match self {
            Self::Conflict(_) | Self::StaleNames => true,
            Self::Refused(refusal) => CONFLICTS.contains(&refusal.code),
            Self::Lost(_) | Self::BadRow(_) | Self::Sealed(_) | Self::OtherSchema { .. } => false,
        }
    }

    /// How long to wait before the batch is applied again: after a conflict that goes away by
    /// itself only.
    pub(crate) fn pause(&self) -> Option<Duration> {
        let is_short = |refusal: &Refusal| refusal.code == SqlState::OUT_OF_MEMORY;
        matches!(self, Self::Refused(refusal) if is_short(refusal)).then_some(LOCKS_PAUSE)
    }

    /// Whether a row with that key was there already.
    pub(crate) fn is_duplicate(&self) -> bool {
        matches!(self, Self::Refused(refusal) if refusal.code == SqlState::UNIQUE_VIOLATION)
    }

    /// The class of an error before the commit was sent: nothing was written.
    pub(crate) fn before_commit(&self) -> CommitError {
        let cause = self.cause();
        match self {
            Self::BadRow(_) => CommitError::Corrupt(cause),
            Self::Refused(refusal) if refusal.code == SqlState::DISK_FULL => {
                CommitError::Full(cause)
            }
            Self::Refused(refusal) if is_damage(&refusal.code) => CommitError::Corrupt(cause),
            _ => CommitError::NotCommitted(cause),
        }
    }

    /// The class of an error of a read.
    pub(crate) fn of_read(&self) -> StoreError {
        match self.before_commit() {
            CommitError::Corrupt(cause) => StoreError::Corrupt(cause),
            _ => StoreError::Busy(self.cause()),
        }
    }
}

/// Refusals after which a batch is applied again: another transaction was in the way. A division by
/// zero is what `write.rs` has a statement fail with that did not meet the rows it was to replace.
/// Out of memory is mostly the table of locks, which has room again when others commit. The last
/// three are of a schema that was migrated meanwhile, as the next try finds out.
const CONFLICTS: [SqlState; 9] = [
    SqlState::T_R_SERIALIZATION_FAILURE,
    SqlState::T_R_DEADLOCK_DETECTED,
    SqlState::LOCK_NOT_AVAILABLE,
    SqlState::DIVISION_BY_ZERO,
    SqlState::UNIQUE_VIOLATION,
    SqlState::OUT_OF_MEMORY,
    SqlState::UNDEFINED_TABLE,
    SqlState::UNDEFINED_COLUMN,
    SqlState::FEATURE_NOT_SUPPORTED,
];

/// Answers after which it is not known whether the transaction was committed.
const UNKNOWN: [SqlState; 2] =
    [SqlState::T_R_STATEMENT_COMPLETION_UNKNOWN, SqlState::TRANSACTION_RESOLUTION_UNKNOWN];

/// The setting that the server names when its table of locks is full.
const LOCKS: &str = "max_locks_per_transaction";
/// How long to wait for room in it.
const LOCKS_PAUSE: Duration = Duration::from_millis(100);

fn is_damage(code: &SqlState) -> bool {
    [SqlState::DATA_CORRUPTED, SqlState::INDEX_CORRUPTED].contains(code)
}

/// The text of an error and of what caused it.
pub(crate) fn chain(error: &tokio_postgres::Error) -> String {
    if let Some(refused) = error.as_db_error() {
        return format!("{} (SQLSTATE {})", refused.message(), refused.code().code());
    }
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: SqlState) -> TxError {
        TxError::Refused(Refusal { code, text: "no".into() })
    }

    #[test]
    fn a_server_without_space_is_full_and_a_damaged_one_corrupt() {
        let full = refused(SqlState::DISK_FULL);
        assert!(matches!(full.before_commit(), CommitError::Full(_)) && !full.is_conflict());
        let damaged = refused(SqlState::INDEX_CORRUPTED);
        assert!(matches!(damaged.before_commit(), CommitError::Corrupt(_)));
        let other = refused(SqlState::READ_ONLY_SQL_TRANSACTION);
        assert!(matches!(other.before_commit(), CommitError::NotCommitted(_)));
    }

    #[test]
    fn deadlocks_serialization_failures_and_lock_timeouts_are_tried_again() {
        for code in CONFLICTS {
            assert!(refused(code).is_conflict());
        }
        assert!(!refused(SqlState::DISK_FULL).is_conflict());
        assert!(!TxError::Lost("gone".into()).is_conflict());
    }
}
