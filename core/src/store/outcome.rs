//! The outcomes of a batch: one answer per command, in the same sections and the same order.

use alloc::boxed::Box;
use alloc::vec::Vec;

use thiserror::Error;

use super::Cursor;
use crate::bulk::{Bulk, BulkRefused};
use crate::{
    EnqueueRefused, Figures, Job, JobId, Kind, Payload, Queue, QueueName, QueueSettings, Receipt,
    Rejected, SettingKey, SettingValue, StateName, TooManyKindLimits, Wall, WorkerId,
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
    /// When to claim again, because a rate has room by then that kept a claim of this batch from
    /// jobs; `None` if no rate did.
    pub next_open: Option<Wall>,
    /// When the next step of a bulk action is due.
    pub next_bulk: Next,
    /// Whether a step came too late: its bulk action had changed since it was planned.
    pub bulk_lost: bool,
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

/// An accepted heartbeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseExtended {
    /// When the extended lease expires.
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
        /// Number of jobs.
        count: usize,
        /// Where to go on, if there may be more.
        next: Option<Cursor>,
    },
    /// Dead-lettered jobs are gone.
    Discarded {
        /// Number of jobs.
        count: usize,
        /// Where to go on, if there may be more.
        next: Option<Cursor>,
    },
    /// The queue as it is now.
    Queue(Queue),
    /// The queue is gone.
    QueueDeleted,
    /// The bulk action as it is now.
    Bulk(Box<Bulk>),
    /// The setting was stored or deleted.
    Noted,
    /// A worker as it is now.
    Worker {
        /// The worker that was named.
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
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AdminRefused {
    /// The job does not exist, or does not allow it.
    #[error(transparent)]
    Job(#[from] JobRefused),
    /// There are as many queues as there may be.
    #[error(transparent)]
    TooManyQueues(#[from] TooManyQueues),
    /// Too many kinds of the queue have limits.
    #[error(transparent)]
    TooManyKindLimits(#[from] TooManyKindLimits),
    /// The bulk action cannot be started, continued or stopped.
    #[error(transparent)]
    Bulk(#[from] BulkRefused),
    /// The queue does not exist.
    #[error("there is no queue {0:?}; list the queues")]
    NoQueue(QueueName),
    /// A queue is deleted only without jobs.
    #[error("the queue has jobs ({jobs}); delete them first, or use --force (HTTP: force=true)")]
    QueueHasJobs {
        /// Number of its jobs, in all states.
        jobs: u64,
    },
    /// The settings of the queue are not those that were expected.
    #[error("the settings of the queue were changed since they were read; read them again")]
    SettingsChanged(Box<QueueSettings>),
    /// The value of the setting is not the one that was expected.
    #[error("the setting {key} was changed since it was read; read it again")]
    SettingChanged {
        /// The name of the setting.
        key: SettingKey,
        /// Its value; `None` if it is not set.
        value: Option<SettingValue>,
    },
    /// The worker is not registered.
    #[error("there is no worker {0:?}; it may have ended, list the workers")]
    NoWorker(WorkerId),
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

/// The result of reaping expired leases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reaped {
    /// The page was worked through.
    Page {
        /// Jobs that wait again.
        requeued: usize,
        /// Jobs that became dead letters.
        failed: usize,
        /// Where to go on, if the page was full.
        next: Option<Cursor>,
    },
    /// The store's clock was stepped: nothing was reaped.
    ClockStepped,
}

/// The result of promoting jobs that fell due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Promoted {
    /// Number of jobs that are ready now.
    pub count: usize,
    /// Whether more are due.
    pub more: bool,
}

/// The result of purging finished jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Purged {
    /// Number of jobs removed.
    pub count: usize,
    /// Whether more are past their age.
    pub more: bool,
    /// When the next finished job is past its age; `None` if no finished job is left.
    pub next: Option<Wall>,
}

/// The queues deleted because they hold nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuesSwept {
    /// The names of the deleted queues.
    pub deleted: Vec<QueueName>,
    /// Where to go on, if the page was full.
    pub next: Option<QueueName>,
}

/// The result of a claim.
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
    /// Its row, with the new lease.
    pub job: Job,
    /// The input for its handler.
    pub payload: Payload,
}

/// A job that came, changed its state or its holder, or went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The job may have been removed.
    pub id: JobId,
    /// Queue of the job.
    pub queue: QueueName,
    /// Kind of the job.
    pub kind: Kind,
    /// State before; `None` if the job is new.
    pub from: Option<StateName>,
    /// State after; `None` if the job was removed.
    pub to: Option<StateName>,
    /// When it is, or was, due.
    pub run_at: Wall,
    /// When its latest attempt was claimed.
    pub started_at: Option<Wall>,
    /// Whether the attempt that ran was given back, uncharged: released or snoozed.
    pub given_back: bool,
}
