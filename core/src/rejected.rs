//! Why an event was refused, and what became of the lease behind a stale token.

use core::fmt;

use thiserror::Error;

use crate::{Epoch, EventName, Job, LastVerdict, StateName, Wall};

/// Why an event was refused. The job is as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Rejected {
    /// The token is not, or no longer, the one the job is held by.
    #[error(
        "the lease is lost: {}; the job is {state} at epoch {epoch}; \
         drop the work, and do not report it again", reason.detail()
    )]
    Stale {
        /// How the lease of the token ended.
        reason: StaleReason,
        /// Where the job is.
        state: StateName,
        /// The epoch of its latest claim.
        epoch: Epoch,
    },
    /// The event has no meaning in this state.
    #[error("cannot {event} a job that is {state}")]
    Illegal {
        /// What was wanted.
        event: EventName,
        /// Where the job is.
        state: StateName,
    },
    /// It is not due yet.
    #[error("not due before {run_at}")]
    NotDue {
        /// When it will be.
        run_at: Wall,
    },
    /// Its queue is paused.
    #[error("its queue is paused")]
    QueuePaused,
    /// As many jobs of its queue run as may.
    #[error("as many jobs of its queue run as its concurrency allows")]
    ConcurrencyFull,
    /// It was run as often as it may be.
    #[error("all {attempts} attempts are used up")]
    AttemptsUsedUp {
        /// How often.
        attempts: u32,
    },
    /// Its lease still runs.
    #[error("its lease runs until {until}")]
    NotExpired {
        /// Until when.
        until: Wall,
    },
}

/// How the lease of a stale token ended, as far as the row of its job tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StaleReason {
    /// The job was cancelled while it ran.
    Cancelled,
    /// The lease ran out, or the job was claimed again since, or the token was never given out.
    Expired,
    /// The token gave another verdict before.
    Settled,
    /// The attempt ran longer than its timeout.
    TimedOut,
}

impl StaleReason {
    /// The name used in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cancelled => "cancelled",
            Self::Expired => "expired",
            Self::Settled => "settled",
            Self::TimedOut => "timed_out",
        }
    }

    fn detail(self) -> &'static str {
        match self {
            Self::Cancelled => "the job was cancelled",
            Self::Expired => "it ran out",
            Self::Settled => "it was given up by a verdict",
            Self::TimedOut => "the attempt ran longer than its timeout",
        }
    }

    /// How the lease with this epoch ended, which holds the job no longer.
    pub(crate) fn of(job: &Job, epoch: Epoch) -> Self {
        match job.state.spent() {
            // An older lease has left no trace in the row. It was claimed again after it ran out,
            // unless its holder gave it up, in which case it has no reason to report once more.
            _ if epoch != job.epoch => Self::Expired,
            Some(LastVerdict::TimedOut) => Self::TimedOut,
            Some(_) => Self::Settled,
            None if job.state.name() == StateName::Cancelled => Self::Cancelled,
            None => Self::Expired,
        }
    }
}

impl fmt::Display for StaleReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
