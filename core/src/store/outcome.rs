//! The outcomes of a batch: one answer per command, in the same sections and the same order.

use alloc::boxed::Box;
use alloc::vec::Vec;

use thiserror::Error;

use super::Cursor;
use crate::{
    EnqueueRefused, Figures, Job, JobId, Kind, Payload, Queue, QueueName, Receipt, Rejected,
    StateName, Wall, WorkerId,
};

/// The outcomes of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outcomes {
    /// The instant the batch was applied at: the store's clock as its last answer gave it. What
    /// was decided on an earlier answer bears the instant of that one.
    pub now: Wall,
    /// Whether anything was written.
    pub wrote: bool,
    /// Per settlement: the state the job went to, or why not.
    pub settles: Vec<Result<StateName, JobRefused>>,
    /// Per heartbeat.
    pub heartbeats: Vec<Result<LeaseExtended, JobRefused>>,
    /// Per operator's command.
    pub admin: Vec<Result<AdminDone, AdminRefused>>,
    /// Per new job.
    pub enqueues: Vec<Result<Receipt, EnqueueRefused>>,
    /// Of the reaping.
    pub reaped: Option<Reaped>,
    /// Of the jobs that fell due.
    pub promoted: Option<Promoted>,
    /// Of the purge.
    pub purged: Option<Purged>,
    /// Of the queues that hold nothing.
    pub queues_swept: Option<QueuesSwept>,
    /// Per claim.
    pub claims: Vec<Claimed>,
    /// Queues in which jobs may have become claimable, other than by an enqueue.
    pub ready_queues: Vec<QueueName>,
    /// When the next scheduled job falls due.
    pub next_due: Next,
    /// When the next lease runs out.
    pub next_expiry: Next,
    /// Every job that came, changed its state or its holder, or went.
    pub changes: Vec<Change>,
    /// What the batch did to the jobs of each queue, for the figures of the process.
    pub figures: Vec<(QueueName, Box<Figures>)>,
    /// Whether the store has left rows out because another transaction held them: a sweep has not
    /// seen everything.
    pub skipped: bool,
}

/// When something happens next, as far as a batch can tell. It may turn out to be later, never
/// earlier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// The store was asked: at this instant, or never.
    Known(Option<Wall>),
    /// The store was not asked. This batch itself has written one for this instant, if any; what
    /// was known before still holds.
    Written(Option<Wall>),
}

impl Default for Next {
    fn default() -> Self {
        Self::Written(None)
    }
}

impl Next {
    /// The instant.
    pub fn at(self) -> Option<Wall> {
        match self {
            Self::Known(at) | Self::Written(at) => at,
        }
    }

    /// Takes in that it happens at this instant at the latest.
    pub(crate) fn bring_forward(&mut self, to: Wall) {
        let (Self::Known(at) | Self::Written(at)) = self;
        *at = Some(at.map_or(to, |at| at.min(to)));
    }
}

/// A heartbeat that was heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseExtended {
    /// Until when the lease runs now.
    pub until: Wall,
}

/// What an operator's command did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdminDone {
    /// The job as it is now.
    Job(Box<Job>),
    /// The job is gone.
    Deleted,
    /// Dead-lettered jobs run again.
    Replayed {
        /// How many.
        count: usize,
        /// Where to go on, if there may be more.
        next: Option<Cursor>,
    },
    /// Dead-lettered jobs are gone.
    Discarded {
        /// How many.
        count: usize,
        /// Where to go on, if there may be more.
        next: Option<Cursor>,
    },
    /// The queue as it is now.
    Queue(Queue),
    /// The queue is gone.
    QueueDeleted,
    /// The setting was stored or deleted.
    Noted,
    /// A worker as it is now.
    Worker {
        /// Which.
        id: WorkerId,
        /// Whether it was asked to stop.
        stopping: bool,
    },
}

/// Why a command on a job was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum JobRefused {
    /// There is no such job.
    #[error("there is no job {0}; it may have been purged")]
    NotFound(JobId),
    /// The job does not allow it.
    #[error(transparent)]
    Rejected(#[from] Rejected),
}

/// Why an operator's command was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum AdminRefused {
    /// The job does not exist, or does not allow it.
    #[error(transparent)]
    Job(#[from] JobRefused),
    /// There are as many queues as there may be.
    #[error(transparent)]
    TooManyQueues(#[from] TooManyQueues),
    /// There is no such queue.
    #[error("there is no such queue; list the queues")]
    NoQueue,
    /// The queue has jobs.
    #[error("the queue has jobs ({jobs}); delete them first, or delete the queue with force")]
    QueueHasJobs {
        /// Number of its jobs, in all states.
        jobs: u64,
    },
    /// There is no such worker.
    #[error("there is no such worker; it may have ended, list the workers")]
    NoWorker,
}

/// There are as many queues as there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "the store has {limit} queues, the most that max_queues allows; use one of them, delete one, \
     or raise max_queues"
)]
pub struct TooManyQueues {
    /// [`Policy::max_queues`](crate::Policy::max_queues).
    pub limit: usize,
}

/// What became of leases that ran out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reaped {
    /// The page was worked through.
    Page {
        /// How many jobs wait again.
        requeued: usize,
        /// How many are in the dead-letter queue.
        failed: usize,
        /// Where to go on, if the page was full.
        next: Option<Cursor>,
    },
    /// The store's clock was stepped: nothing was reaped.
    ClockStepped,
}

/// What became of jobs that fell due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Promoted {
    /// How many.
    pub count: usize,
    /// Whether more are due.
    pub more: bool,
}

/// What was removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Purged {
    /// How many jobs.
    pub count: usize,
    /// Whether more are past their age.
    pub more: bool,
    /// When the next one will be.
    pub next: Option<Wall>,
}

/// Which queues were deleted because they hold nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuesSwept {
    /// The names of the deleted queues.
    pub deleted: Vec<QueueName>,
    /// Where to go on, if the page was full.
    pub next: Option<QueueName>,
}

/// What a claim found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Claimed {
    /// The jobs, in the order they were taken; those of one taker stand together.
    pub jobs: Vec<Leased>,
    /// Whether less was found than was asked for: there is nothing more to claim for this demand.
    pub dry: bool,
    /// Whether it ended early because of [`CLAIM_BYTES`](crate::limits::CLAIM_BYTES): there is
    /// more, and takers without a job were not tried.
    pub cut: bool,
}

/// A job that was claimed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leased {
    /// The place of its taker in [`ClaimFor::takers`](super::ClaimFor::takers).
    pub taker: usize,
    /// The job.
    pub job: Job,
    /// What to run it with.
    pub payload: Payload,
}

/// A job that came, changed its state or its holder, or went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Which.
    pub id: JobId,
    /// In which queue.
    pub queue: QueueName,
    /// Of which kind.
    pub kind: Kind,
    /// Where it was; nowhere if it is new.
    pub from: Option<StateName>,
    /// Where it is; nowhere if it was removed.
    pub to: Option<StateName>,
    /// When it is, or was, due.
    pub run_at: Wall,
    /// When its latest attempt was claimed.
    pub started_at: Option<Wall>,
    /// Whether the attempt that ran was given back, uncharged: released or snoozed.
    pub given_back: bool,
}
