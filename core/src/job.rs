//! A job as its row is stored: narrow, without payload, result or error text.
//!
//! Each state owns the data that only it has, so a queued job with a lease cannot be written down.

use core::fmt;

use crate::{
    Epoch, IdempotencyKey, JobId, JobTimeout, Kind, LeaseLength, LeaseToken, MaxRetries, Priority,
    QueueName, Rank, RetryPolicy, Verdict, Wall, WorkerId,
};

/// One unit of work, as stored. [`transition`](crate::transition()) alone changes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Its number.
    pub id: JobId,
    /// The queue it stands in.
    pub queue: QueueName,
    /// What it runs.
    pub kind: Kind,
    /// Higher runs first.
    pub priority: Priority,
    /// Its place among the ready jobs.
    pub rank: Rank,
    /// Where it is, with what only that state knows.
    pub state: State,
    /// Claims charged in this generation.
    pub attempts: u32,
    /// How often it may be run again after a failure.
    pub max_retries: MaxRetries,
    /// Claims ever; the fence.
    pub epoch: Epoch,
    /// How often it was replayed.
    pub generation: u32,
    /// When it is, or was, due.
    pub run_at: Wall,
    /// How long one attempt may run.
    pub timeout: Option<JobTimeout>,
    /// How long a lease lasts without a heartbeat.
    pub visibility_timeout: LeaseLength,
    /// How long it waits between attempts.
    pub retry: RetryPolicy,
    /// The client's name for the request that made it.
    pub idempotency_key: Option<IdempotencyKey>,
    /// The length of its payload in bytes, known before the payload is read.
    pub payload_bytes: u32,
    /// When it was enqueued.
    pub created_at: Wall,
    /// When its row last changed.
    pub updated_at: Wall,
    /// When its latest attempt was claimed.
    pub started_at: Option<Wall>,
}

impl Job {
    /// The token of its latest claim.
    pub fn token(&self) -> LeaseToken {
        LeaseToken { job: self.id, epoch: self.epoch }
    }

    /// Whether another attempt is allowed in this generation.
    pub fn has_attempts_left(&self) -> bool {
        self.attempts < self.max_retries.attempts()
    }

    /// When it was finished, if it is.
    pub fn finished_at(&self) -> Option<Wall> {
        match self.state {
            State::Queued { .. } | State::Processing(_) => None,
            State::Done { finished_at }
            | State::Failed { finished_at, .. }
            | State::Cancelled { finished_at, .. } => Some(finished_at),
        }
    }

    /// Where a store finds it. This is the one place that knows the instant a view is ordered by.
    pub fn index_key(&self) -> IndexKey {
        let at = match &self.state {
            State::Queued { .. } => self.run_at,
            State::Processing(lease) => lease.until,
            State::Done { finished_at }
            | State::Failed { finished_at, .. }
            | State::Cancelled { finished_at, .. } => *finished_at,
        };
        IndexKey {
            view: self.state.view(),
            at,
            rank: self.rank,
            run_at: self.run_at,
            generation: self.generation,
            epoch: self.epoch,
        }
    }

    /// The lease it is held by, if it is running.
    pub fn lease(&self) -> Option<&Lease> {
        match &self.state {
            State::Processing(lease) => Some(lease),
            _ => None,
        }
    }
}

/// Where a store finds a job: everything that can change and that an index is built from. It is
/// also the precondition of a write: the row that is replaced must still have this key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexKey {
    /// Its view.
    pub view: View,
    /// The instant its view is ordered by: when it is due, when its lease ends, when it finished.
    pub at: Wall,
    /// Its place among the ready jobs.
    pub rank: Rank,
    /// When it is, or was, due.
    pub run_at: Wall,
    /// How often it was replayed.
    pub generation: u32,
    /// Claims ever; the fence.
    pub epoch: Epoch,
}

/// Where a job is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Waiting to be claimed.
    Queued {
        /// Whether it has fallen due: only then may it be claimed.
        ready: bool,
        /// The verdict its latest token gave, until it is claimed again.
        spent: Option<LastVerdict>,
    },
    /// Leased to a worker.
    Processing(Lease),
    /// Finished well.
    Done {
        /// When.
        finished_at: Wall,
    },
    /// Given up: the dead-letter queue.
    Failed {
        /// When.
        finished_at: Wall,
        /// The verdict its latest token gave; none if its lease expired.
        spent: Option<LastVerdict>,
    },
    /// Cancelled before it finished.
    Cancelled {
        /// When.
        finished_at: Wall,
        /// The verdict its latest token gave; none if it was cancelled while running.
        spent: Option<LastVerdict>,
    },
}

impl State {
    /// Its name.
    pub fn name(&self) -> StateName {
        self.view().state()
    }

    /// The state as filters and counts see it.
    pub fn view(&self) -> View {
        match self {
            Self::Queued { ready: true, .. } => View::Queued,
            Self::Queued { ready: false, .. } => View::Scheduled,
            Self::Processing(_) => View::Processing,
            Self::Done { .. } => View::Done,
            Self::Failed { .. } => View::Failed,
            Self::Cancelled { .. } => View::Cancelled,
        }
    }

    /// The verdict the latest token gave, as long as the job was not claimed since.
    pub fn spent(&self) -> Option<LastVerdict> {
        match self {
            Self::Queued { spent, .. }
            | Self::Failed { spent, .. }
            | Self::Cancelled { spent, .. } => *spent,
            Self::Done { .. } => Some(LastVerdict::Completed),
            Self::Processing(_) => None,
        }
    }
}

/// The right to run a job for a while.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Who holds it.
    pub worker: WorkerId,
    /// When it ends without a heartbeat.
    pub until: Wall,
    /// How far a heartbeat extends it.
    pub length: LeaseLength,
}

/// What the holder of a lease made of it, and what became of the job: the answer to a repetition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LastVerdict {
    /// Completed.
    Completed,
    /// Failed; the job waits for another attempt.
    Retried,
    /// Failed with the last attempt.
    Exhausted,
    /// Failed with an error that no attempt will mend.
    Permanent,
    /// Given back.
    Released,
    /// Put off.
    Snoozed,
}

impl LastVerdict {
    /// Every way, in the order of their stored codes.
    pub const ALL: [Self; 6] = [
        Self::Completed,
        Self::Retried,
        Self::Exhausted,
        Self::Permanent,
        Self::Released,
        Self::Snoozed,
    ];

    /// Whether `verdict` repeats what was reported then.
    pub fn repeats(self, verdict: &Verdict) -> bool {
        match (self, verdict) {
            (Self::Completed, Verdict::Complete { .. })
            | (Self::Released, Verdict::Release)
            | (Self::Snoozed, Verdict::Snooze { .. }) => true,
            (Self::Retried | Self::Exhausted, Verdict::Fail(failure)) => failure.retryable,
            (Self::Permanent, Verdict::Fail(failure)) => !failure.retryable,
            _ => false,
        }
    }

    /// The state the job went to then.
    pub fn answer(self) -> StateName {
        match self {
            Self::Completed => StateName::Done,
            Self::Retried | Self::Released | Self::Snoozed => StateName::Queued,
            Self::Exhausted | Self::Permanent => StateName::Failed,
        }
    }
}

/// The five states by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StateName {
    /// Waiting.
    Queued,
    /// Running.
    Processing,
    /// Finished well.
    Done,
    /// In the dead-letter queue.
    Failed,
    /// Cancelled.
    Cancelled,
}

impl StateName {
    /// All five, in the order a job meets them.
    pub const ALL: [Self; 5] =
        [Self::Queued, Self::Processing, Self::Done, Self::Failed, Self::Cancelled];

    /// The name used in JSON and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Processing => "processing",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether a job in this state stays there by itself.
    pub fn is_finished(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Cancelled)
    }
}

impl fmt::Display for StateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The six views by which jobs are counted and listed: `queued` is due, `scheduled` not yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum View {
    /// Queued and due.
    Queued,
    /// Queued, not yet due.
    Scheduled,
    /// Running.
    Processing,
    /// Finished well.
    Done,
    /// In the dead-letter queue.
    Failed,
    /// Cancelled.
    Cancelled,
}

impl View {
    /// All six, in the order of their counters.
    pub const ALL: [Self; 6] = [
        Self::Queued,
        Self::Scheduled,
        Self::Processing,
        Self::Done,
        Self::Failed,
        Self::Cancelled,
    ];

    /// The name used in filters and counts.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            other => other.state().as_str(),
        }
    }

    /// The state whose jobs this shows.
    pub fn state(self) -> StateName {
        match self {
            Self::Queued | Self::Scheduled => StateName::Queued,
            Self::Processing => StateName::Processing,
            Self::Done => StateName::Done,
            Self::Failed => StateName::Failed,
            Self::Cancelled => StateName::Cancelled,
        }
    }

    /// Its place among the counters, and its code in a store.
    pub fn index(self) -> usize {
        self as usize
    }

    /// The view with this code, if there is one.
    pub fn from_index(index: usize) -> Option<Self> {
        Self::ALL.get(index).copied()
    }
}

impl fmt::Display for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
