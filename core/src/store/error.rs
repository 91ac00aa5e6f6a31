//! Errors of a store, by what the caller can do about them.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::fmt;

use thiserror::Error;

use super::Outcomes;

/// The cause of an error as text: comparable, and the same wherever it is shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Cause(Arc<str>);

impl Cause {
    /// The text of an error and of everything that caused it.
    pub fn new(text: &str) -> Self {
        Self(Arc::from(text))
    }
}

impl fmt::Debug for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Why a commit did not come back as committed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CommitError {
    /// Nothing was written; the same may work later.
    #[error("not committed, retry: {0}")]
    NotCommitted(Cause),
    /// Nothing was written, for want of space.
    #[error("not committed, no space left in the store: {0}")]
    Full(Cause),
    /// It may have been written or not: ask
    /// [`Store::was_committed`](super::Store::was_committed). The outcomes hold if it was.
    #[error("the commit's outcome is unknown: {cause}")]
    Unknown {
        /// The error of the store during COMMIT.
        cause: Cause,
        /// The outcomes of the batch, if it was committed.
        outcomes: Box<Outcomes>,
    },
    /// The store is unusable until it is reopened. With outcomes the batch may have been written;
    /// without, it was not.
    #[error("the store failed and must be reopened: {cause}")]
    Fatal {
        /// The error that made the store unusable.
        cause: Cause,
        /// The outcomes of the batch, if it was committed.
        outcomes: Option<Box<Outcomes>>,
    },
    /// The stored data is damaged. An operator has to repair or restore it.
    #[error("the store is corrupt: {0}; stop, run `windlass doctor`, or restore a backup")]
    Corrupt(Cause),
}

/// Why a read, `was_committed`, `news` or a reopening failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum StoreError {
    /// The same may work later.
    #[error("the store did not answer, retry: {0}")]
    Busy(Cause),
    /// The store is unusable until it is reopened.
    #[error("the store failed and must be reopened: {0}")]
    Fatal(Cause),
    /// What is stored cannot be trusted.
    #[error("the store is corrupt: {0}; stop, run `windlass doctor`, or restore a backup")]
    Corrupt(Cause),
}
