//! Errors of the public API, one enum per kind of call. Every message says what to do.

use thiserror::Error;
use windlass_core::machine::Refused;
use windlass_core::store::{AdminRefused, Cause, JobRefused, Seal, StoreError};
use windlass_core::{EnqueueRefused, JobId, NameError};

use crate::InvalidJob;

/// Why a request was not served, whatever it asked for.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Unserved {
    /// The runtime refused it. Retry [`Refused::Overloaded`] after a short time; a request that
    /// ends as [`Refused::Unknown`] may have been stored.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The runtime has stopped. Nothing was stored.
    #[error("the queue has stopped; start another runtime on the store")]
    Stopped,
    /// The writer thread panicked. The request may have been stored.
    #[error(
        "the writer thread panicked: {0}; the request may or may not be stored: start another \
         runtime on the store, then check, or repeat with the same idempotency key"
    )]
    Died(Cause),
}

impl Unserved {
    /// Whether the request may have been stored in spite of the error.
    pub fn is_unknown(&self) -> bool {
        matches!(self, Self::Refused(Refused::Unknown(_)) | Self::Died(_))
    }

    /// Whether a limit was reached, so that the same request may succeed after a short time.
    pub fn is_overloaded(&self) -> bool {
        matches!(self, Self::Refused(Refused::Overloaded { .. }))
    }
}

/// Why a job was not enqueued.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum EnqueueError {
    /// A value of the job is not valid. Retrying does not help.
    #[error(transparent)]
    Invalid(#[from] InvalidJob),
    /// The queue is full, or the idempotency key belongs to another request.
    #[error(transparent)]
    Refused(#[from] EnqueueRefused),
    /// The request was not served.
    #[error(transparent)]
    Unserved(#[from] Unserved),
}

/// Why a command was not carried out.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CommandError {
    /// A name in the command is not valid.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The state of the job, queue or worker does not allow it.
    #[error(transparent)]
    Refused(#[from] AdminRefused),
    /// The request was not served.
    #[error(transparent)]
    Unserved(#[from] Unserved),
}

/// Why a report or a heartbeat was not recorded.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ReportError {
    /// The lease is lost, or the job was deleted. Stop the work.
    #[error(transparent)]
    Refused(#[from] JobRefused),
    /// The request was not served.
    #[error(transparent)]
    Unserved(#[from] Unserved),
}

/// A read was not made, or failed in the store.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ReadError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The runtime has stopped.
    #[error("the queue has stopped; start another runtime on the store")]
    Stopped,
}

/// Why a wait for a verdict ended without one.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum WaitError {
    /// No job has this id.
    #[error("there is no job {0}; it may have been purged")]
    NotFound(JobId),
    /// The job could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The runtime stopped, or its store was lost, before there was a verdict.
    #[error("the queue stopped before job {0} had a verdict; wait again on another runtime")]
    Stopped(JobId),
}

/// Why a runtime did not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// `start` was called outside of a tokio runtime.
    #[error("start the queue inside a tokio runtime, for instance in `#[tokio::main]`")]
    NoTokio,
    /// The name of a kind or queue is not valid.
    #[error("{what} {given:?} cannot be used: {source}")]
    Name {
        /// `kind`, `queue` or `worker`.
        what: &'static str,
        /// The name as it was given.
        given: String,
        /// The rule that it breaks.
        source: NameError,
    },
    /// A kind has two handlers.
    #[error("there are two handlers for kind {0:?}; give each kind one")]
    TwoHandlers(String),
    /// Handlers without workers, or workers without handlers.
    #[error(
        "{handlers} handlers and {workers} workers; to run jobs register a handler and allow at \
         least one worker, to run none use neither"
    )]
    #[expect(missing_docs, reason = "the fields are counts")]
    WorkerCount { handlers: usize, workers: usize },
    /// The store was moved or is being moved to another one.
    #[error("{0}")]
    Sealed(Seal),
    /// The store could not open its readers.
    #[error("cannot open readers of the store: {0}")]
    Store(#[from] StoreError),
    /// The operating system gave no thread, or no random number.
    #[error("the operating system refused a resource: {0}")]
    System(String),
}
