//! A job as its row is stored: narrow, without payload, result or error text.
//!
//! Each state owns the data that only it has, so a queued job with a lease cannot be written down.

use core::fmt;

use crate::{
    Epoch, GroupId, IdempotencyKey, JobId, JobTimeout, Kind, LeaseLength, LeaseToken, MaxRetries,
    Priority, QueueName, Rank, RetryPolicy, Verdict, Wall, WorkerId,
};

/// One unit of work, as stored. Only [`transition`](crate::transition()) changes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Given by the store; never reused.
    pub id: JobId,
    /// Set by the client; never changes.
    pub queue: QueueName,
    /// Selects the handler; never changes.
    pub kind: Kind,
    /// Higher priorities are claimed first.
    pub priority: Priority,
    /// The sort key among ready jobs; set when the job is enqueued or requeued.
    pub rank: Rank,
    /// The state, with the data that only this state has.
    pub state: State,
    /// Claims charged in this generation.
    pub attempts: u32,
    /// Attempts allowed after the first failed one.
    pub max_retries: MaxRetries,
    /// Number of claims ever: the fencing token.
    pub epoch: Epoch,
    /// Number of replays.
    pub generation: u32,
    /// When it falls due, or fell due for its latest attempt.
    pub run_at: Wall,
    /// Maximum duration of one attempt; `None` for no limit.
    pub timeout: Option<JobTimeout>,
    /// The length of a lease without heartbeats.
    pub visibility_timeout: LeaseLength,
    /// The time between attempts.
    pub retry: RetryPolicy,
    /// Set by the client.
    pub idempotency_key: Option<IdempotencyKey>,
    /// The length of the payload in bytes. The payload itself is not part of the row.
    pub payload_bytes: u32,
    /// When the enqueue was committed, by the store's clock.
    pub created_at: Wall,
    /// When its row was last written.
    pub updated_at: Wall,
    /// When it was last claimed; `None` before the first claim.
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

    /// When it finished; `None` if it has not.
    pub fn finished_at(&self) -> Option<Wall> {
        match self.state {
            State::Queued { .. } | State::Processing(_) => None,
            State::Done { finished_at }
            | State::Failed { finished_at, .. }
            | State::Cancelled { finished_at, .. } => Some(finished_at),
        }
    }

    /// Its index key. Only this function knows the instant by which a view is ordered.
    pub fn index_key(&self) -> IndexKey {
        let at = match &self.state {
            State::Queued { ready: true, .. } => self.rank.due,
            State::Queued { ready: false, .. } => self.run_at,
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

    /// The lease of a running job.
    pub fn lease(&self) -> Option<&Lease> {
        match &self.state {
            State::Processing(lease) => Some(lease),
            _ => None,
        }
    }
}

/// The changing columns by which stores index a job. It is also the precondition of a write: the
/// row that is replaced must still have this key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexKey {
    /// The list in which the job is found.
    pub view: View,
    /// The instant by which its view is ordered: due (of ready jobs as their rank has it), end of
    /// the lease, or finished.
    pub at: Wall,
    /// See [`Job::rank`].
    pub rank: Rank,
    /// See [`Job::run_at`].
    pub run_at: Wall,
    /// See [`Job::generation`].
    pub generation: u32,
    /// See [`Job::epoch`].
    pub epoch: Epoch,
}

/// The state of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Waiting to be claimed.
    Queued {
        /// Whether it has fallen due and may be claimed.
        ready: bool,
        /// The last verdict, until the next claim; `None` if there is none.
        last_verdict: Option<LastVerdict>,
    },
    /// Leased to a worker.
    Processing(Lease),
    /// Completed.
    Done {
        /// When the completion was recorded.
        finished_at: Wall,
    },
    /// A dead letter: no attempts left, or a failure without a retry.
    Failed {
        /// When the last failure was recorded.
        finished_at: Wall,
        /// The last verdict; `None` if the lease expired.
        last_verdict: Option<LastVerdict>,
        /// The group of its last error.
        group: GroupId,
    },
    /// Cancelled by an operator.
    Cancelled {
        /// When the cancel was recorded.
        finished_at: Wall,
        /// The last verdict; `None` if it was cancelled while running.
        last_verdict: Option<LastVerdict>,
    },
}

impl State {
    /// The state without its data.
    pub fn name(&self) -> StateName {
        self.view().state()
    }

    /// The view in which jobs of this state are counted and listed.
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

    /// The error group of a dead letter.
    pub fn group(&self) -> Option<GroupId> {
        match self {
            Self::Failed { group, .. } => Some(*group),
            _ => None,
        }
    }

    /// The last verdict, until the next claim.
    pub fn last_verdict(&self) -> Option<LastVerdict> {
        match self {
            Self::Queued { last_verdict, .. }
            | Self::Failed { last_verdict, .. }
            | Self::Cancelled { last_verdict, .. } => *last_verdict,
            Self::Done { .. } => Some(LastVerdict::Completed),
            Self::Processing(_) => None,
        }
    }
}

/// The right to run a job until an instant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// The owner.
    pub worker: WorkerId,
    /// When it expires, unless a heartbeat extends it.
    pub until: Wall,
    /// How far a heartbeat extends it from now.
    pub length: LeaseLength,
}

/// The last verdict on a job, kept until the next claim, so that a repeated report gets the same
/// answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LastVerdict {
    /// The attempt completed, and with it the job.
    Completed,
    /// Failed; the job waits for another attempt.
    Retried,
    /// Failed with the last attempt.
    Exhausted,
    /// Failed with an error that is not retried.
    Permanent,
    /// Given back.
    Released,
    /// Put off by the holder; not charged.
    Snoozed,
    /// None: the lease was taken back because the attempt ran longer than its timeout.
    TimedOut,
}

impl LastVerdict {
    /// All verdicts, in the order of their stored codes.
    pub const ALL: [Self; 7] = [
        Self::Completed,
        Self::Retried,
        Self::Exhausted,
        Self::Permanent,
        Self::Released,
        Self::Snoozed,
        Self::TimedOut,
    ];

    /// The answer given then, if `verdict` repeats what was reported: the state the job went to.
    pub fn repeated(self, verdict: &Verdict) -> Option<StateName> {
        match (self, verdict) {
            (Self::Completed, Verdict::Complete { .. }) => Some(StateName::Done),
            (Self::Released, Verdict::Release) | (Self::Snoozed, Verdict::Snooze { .. }) => {
                Some(StateName::Queued)
            }
            (Self::Retried, Verdict::Fail(failure)) if failure.retryable => Some(StateName::Queued),
            (Self::Exhausted, Verdict::Fail(failure)) if failure.retryable => {
                Some(StateName::Failed)
            }
            (Self::Permanent, Verdict::Fail(failure)) if !failure.retryable => {
                Some(StateName::Failed)
            }
            _ => None,
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
    /// By a client or an operator.
    Cancelled,
}

impl StateName {
    /// All states.
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

    /// Whether the job has ended: done, failed or cancelled.
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
    /// By a client or an operator.
    Cancelled,
}

/// What a job is counted as: in its view, and among the retrying.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counted {
    /// The view that shows it.
    pub view: View,
    /// Whether it waits for another attempt: queued or scheduled, with attempts charged to it.
    pub retrying: bool,
}

impl From<&Job> for Counted {
    fn from(job: &Job) -> Self {
        let view = job.state.view();
        Self { view, retrying: view.state() == StateName::Queued && job.attempts > 0 }
    }
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

    /// Its index in [`Counts`](crate::Counts), and its code in a store.
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
