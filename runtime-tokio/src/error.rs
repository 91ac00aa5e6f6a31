//! What can go wrong for a caller, one enum per kind of call. Every message says what to do.

use thiserror::Error;
use windlass_core::machine::Refused;
use windlass_core::store::{AdminRefused, Cause, JobRefused, StoreError};
use windlass_core::{EnqueueRefused, JobId, NameError};

use crate::InvalidJob;

/// Why a request was not served, whatever it asked for.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Unserved {
    /// The runtime refused it. [`Refused::Overloaded`] is worth another try soon;
    /// [`Refused::Unknown`] may have been stored.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The runtime has stopped. Nothing was stored.
    #[error("the queue has stopped; start another runtime on the store")]
    Stopped,
    /// The thread that writes has died. What waited for it may have been stored.
    #[error(
        "the writer of the queue has died: {0}; it is not known whether this was stored: \
         start another runtime on the store, then look, or repeat with the same idempotency key"
    )]
    Died(Cause),
}

impl Unserved {
    /// Whether the request may have been stored all the same.
    pub fn is_unknown(&self) -> bool {
        matches!(self, Self::Refused(Refused::Unknown(_)) | Self::Died(_))
    }

    /// Whether the same request may be served soon.
    pub fn is_overloaded(&self) -> bool {
        matches!(self, Self::Refused(Refused::Overloaded { .. }))
    }
}

/// Why a job was not enqueued.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum EnqueueError {
    /// It is not a job. Mend it.
    #[error(transparent)]
    Invalid(#[from] InvalidJob),
    /// The queue does not take it.
    #[error(transparent)]
    Refused(#[from] EnqueueRefused),
    /// The request was not served.
    #[error(transparent)]
    Unserved(#[from] Unserved),
}

/// Why a command was not carried out.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CommandError {
    /// What it names is not a name.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The job or the queue does not allow it.
    #[error(transparent)]
    Refused(#[from] AdminRefused),
    /// The request was not served.
    #[error(transparent)]
    Unserved(#[from] Unserved),
}

/// Why a report or a heartbeat was not recorded.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ReportError {
    /// The lease is lost, or the job is gone. Stop the work.
    #[error(transparent)]
    Refused(#[from] JobRefused),
    /// The request was not served.
    #[error(transparent)]
    Unserved(#[from] Unserved),
}

/// Why something could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ReadError {
    /// The store did not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The runtime has stopped.
    #[error("the queue has stopped; start another runtime on the store")]
    Stopped,
}

/// Why a wait for a verdict ended without one.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum WaitError {
    /// There is no such job.
    #[error("there is no job {0}; it may have been purged")]
    NotFound(JobId),
    /// It could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The runtime stopped, or its store was lost, before there was a verdict.
    #[error("the queue stopped before job {0} had a verdict; wait again on another runtime")]
    Stopped(JobId),
}

/// Why a runtime did not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// There is no tokio runtime here.
    #[error("start the queue inside a tokio runtime, for instance in `#[tokio::main]`")]
    NoTokio,
    /// A kind or a queue is not a name.
    #[error("{what} {given:?} cannot be used: {source}")]
    Name {
        /// What was given.
        what: &'static str,
        /// The text.
        given: String,
        /// What is wrong with it.
        source: NameError,
    },
    /// A kind has two handlers.
    #[error("there are two handlers for kind {0:?}; give each kind one")]
    TwoHandlers(String),
    /// Handlers without workers, or workers without handlers.
    #[error("{handlers} handlers and {workers} workers: jobs need one of each at least")]
    Unmanned {
        /// How many handlers.
        handlers: usize,
        /// How many workers.
        workers: usize,
    },
    /// The store cannot be read.
    #[error("the store gives no reader: {0}")]
    Store(#[from] StoreError),
    /// The system gave no thread, or no random number.
    #[error("the system refused: {0}")]
    System(String),
}
