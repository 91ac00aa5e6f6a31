//! Why an event was refused, and how the lease behind a stale token ended.

use core::fmt;

use thiserror::Error;

use crate::{Epoch, EventName, Job, LastVerdict, StateName, Wall};

/// Why an event was refused. The job is as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Rejected {
    /// The token is not that of the current lease.
    #[error(
        "the lease is lost: {}; the job is {state} at epoch {epoch}; \
         drop the work, and do not report it again", reason.detail()
    )]
    Stale {
        /// How the lease of the token ended.
        reason: StaleReason,
        /// Current state of the job.
        state: StateName,
        /// Epoch of the latest claim of the job.
        epoch: Epoch,
    },
    /// The event has no meaning in this state.
    #[error("cannot {event} a job that is {state}")]
    Illegal {
        /// The refused event.
        event: EventName,
        /// Current state of the job.
        state: StateName,
    },
    /// The job is scheduled for later.
    #[error("not due before {run_at}")]
    NotDue {
        /// Start of the first instant at which it can be claimed.
        run_at: Wall,
    },
    /// The gate of its queue is [`Gate::Paused`](crate::Gate::Paused).
    #[error("its queue is paused")]
    QueuePaused,
    /// Its queue is at its concurrency limit.
    #[error("its queue is at its concurrency limit")]
    ConcurrencyFull,
    /// Its kind is at its concurrency limit in its queue.
    #[error("its kind is at its concurrency limit in this queue")]
    KindFull,
    /// Its queue, or its kind in it, is at its rate.
    #[error("its queue or kind is at its rate until {until}")]
    RateLimited {
        /// When a job may start.
        until: Wall,
    },
    /// All attempts that its policy allows were made.
    #[error("all {attempts} attempts are used up")]
    AttemptsUsedUp {
        /// Attempts used.
        attempts: u32,
    },
    /// Its lease has not expired.
    #[error("its lease runs until {until}")]
    NotExpired {
        /// Expiry of the lease.
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
    pub fn of(job: &Job, epoch: Epoch) -> Self {
        match job.state.last_verdict() {
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
