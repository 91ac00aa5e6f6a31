//! What one transaction is asked to do: a section per family of commands, in the order in which
//! they are applied. Within a section, the order of the vector.

use alloc::vec::Vec;

use crate::limits::SLOTS;
use crate::{
    BatchId, Demand, JobId, Kind, LeaseLength, LeaseToken, Millis, NewJob, Payload, Policy,
    QueueName, QueueSettings, SettingKey, SettingValue, Verdict, View, Wall, WorkerId,
};

/// The commands of one commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// Its identity, written with it as the commit marker.
    pub id: BatchId,
    /// The defaults for its enqueues.
    pub policy: Policy,
    /// First, what workers report.
    pub settles: Vec<Settle>,
    /// Then, who is still at it.
    pub heartbeats: Vec<Heartbeat>,
    /// Then, what operators ask.
    pub admin: Vec<Admin>,
    /// Then, new jobs.
    pub enqueues: Vec<NewJob>,
    /// Then, leases that ran out.
    pub reap: Option<Reap>,
    /// Then, up to this many jobs that fell due.
    pub promote: Option<usize>,
    /// Then, finished jobs past their age.
    pub purge: Option<Purge>,
    /// Last, claims: they see all of the above.
    pub claims: Vec<ClaimFor>,
}

impl Batch {
    /// A batch that asks for nothing yet.
    pub fn new(id: BatchId, policy: Policy) -> Self {
        Self {
            id,
            policy,
            settles: Vec::new(),
            heartbeats: Vec::new(),
            admin: Vec::new(),
            enqueues: Vec::new(),
            reap: None,
            promote: None,
            purge: None,
            claims: Vec::new(),
        }
    }

    /// How many commands it holds.
    pub fn len(&self) -> usize {
        let sweeps = [self.reap.is_some(), self.promote.is_some(), self.purge.is_some()];
        let sweeps = sweeps.iter().filter(|there| **there).count();
        let clients = self.settles.len() + self.heartbeats.len() + self.admin.len();
        clients + self.enqueues.len() + sweeps + self.claims.len()
    }

    /// Whether it asks for nothing. Such a batch still tells when something is next due.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The holder of a lease gives its verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settle {
    /// Its token.
    pub token: LeaseToken,
    /// Its verdict.
    pub verdict: Verdict,
}

/// The holder of a lease is still at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heartbeat {
    /// Its token.
    pub token: LeaseToken,
    /// A new length for the lease.
    pub extend: Option<LeaseLength>,
    /// A note on how far it is.
    pub progress: Option<Payload>,
}

/// What an operator asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admin {
    /// Do not run this job, or stop it.
    Cancel(JobId),
    /// Run this failed or cancelled job again.
    Replay(JobId),
    /// Run dead-lettered jobs again, newest failure first.
    ReplayDead {
        /// Which.
        filter: DeadFilter,
        /// Where the last page ended.
        after: Option<super::Cursor>,
        /// At most so many.
        limit: usize,
    },
    /// Forget dead-lettered jobs, newest failure first.
    DiscardDead {
        /// Which.
        filter: DeadFilter,
        /// Where the last page ended.
        after: Option<super::Cursor>,
        /// At most so many.
        limit: usize,
    },
    /// Forget this finished job.
    Delete(JobId),
    /// Start nothing of this queue.
    Pause(QueueName),
    /// Start jobs of this queue again.
    Resume(QueueName),
    /// Replace the settings of this queue.
    SetQueue(QueueName, QueueSettings),
    /// Keep this setting, or forget it.
    SetSetting(SettingKey, Option<SettingValue>),
    /// This worker is there: first seen, or seen again.
    SeeWorker(Worker),
    /// This worker is gone.
    RemoveWorker(WorkerId),
    /// Ask this worker to stop, when it next looks.
    StopWorker(WorkerId),
    /// Whether this worker was asked to stop. Nothing is written.
    LookAtWorker(WorkerId),
}

/// Which dead-lettered jobs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeadFilter {
    /// Of this queue.
    pub queue: Option<QueueName>,
    /// Of this kind.
    pub kind: Option<Kind>,
    /// Whose last error holds this text.
    pub error_contains: Option<alloc::string::String>,
}

/// Take back leases that ran out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reap {
    /// At most so many in this batch.
    pub limit: usize,
    /// Where the last page ended.
    pub after: Option<super::Cursor>,
    /// Whether to look at leases that still run as well: after a clock was set back, they may have
    /// been written by the clock as it was before.
    pub all: bool,
    /// What the store's clock should read now, if that is known. If it disagrees by more than
    /// [`CLOCK_STEP`](crate::limits::CLOCK_STEP), the clock was stepped and nothing is reaped.
    pub expected: Option<Wall>,
    /// The instant from which the clock is trusted, if it was stepped.
    pub trusted_since: Option<Wall>,
}

/// Remove finished jobs past their age, keys past their window, and what is known of processes and
/// workers long silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Purge {
    /// Their ages.
    pub retention: Retention,
    /// At most so many jobs in this batch.
    pub limit: usize,
}

/// How long finished jobs are kept; forever if not set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Retention {
    /// Those done.
    pub done: Option<Millis>,
    /// Those in the dead-letter queue.
    pub failed: Option<Millis>,
    /// Those cancelled.
    pub cancelled: Option<Millis>,
}

impl Retention {
    /// The views that grow old, each with the age at which its jobs are removed.
    pub fn ages(&self) -> impl Iterator<Item = (View, Millis)> {
        let all = [
            (View::Done, self.done),
            (View::Failed, self.failed),
            (View::Cancelled, self.cancelled),
        ];
        all.into_iter().filter_map(|(view, age)| Some((view, age?)))
    }
}

/// Find jobs for everybody with the same demand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimFor {
    /// What they want.
    pub demand: Demand,
    /// Who they are; the first is served first.
    pub takers: Vec<Taker>,
}

/// One who takes jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taker {
    /// Who.
    pub worker: WorkerId,
    /// At most so many.
    pub max: usize,
    /// For how long, if not for each job's own visibility timeout.
    pub length: Option<LeaseLength>,
}

/// A process or a remote program that runs jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Worker {
    /// Unique per boot.
    pub id: WorkerId,
    /// Where it runs.
    pub host: alloc::sync::Arc<str>,
    /// Its process there, if it said so.
    pub pid: Option<u32>,
    /// What it is.
    pub kind: WorkerKind,
    /// What it would run.
    pub demand: Demand,
    /// How many jobs at once.
    pub slots: usize,
    /// How often it says that it is there.
    pub presence: Millis,
}

impl Worker {
    /// A worker that would run anything, one job at a time.
    pub fn new(id: WorkerId, host: &str, kind: WorkerKind) -> Self {
        let host = alloc::sync::Arc::from(host);
        Self { id, host, pid: None, kind, demand: Demand::ALL, slots: 1, presence: PRESENCE }
    }

    /// As much of it as is kept.
    #[must_use]
    pub fn kept(&self) -> Self {
        Self { demand: self.demand.kept(), slots: self.slots.min(SLOTS), ..self.clone() }
    }
}

/// How often a worker says that it is there, unless somebody says otherwise.
const PRESENCE: Millis = Millis::seconds(10);

/// What a worker is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WorkerKind {
    /// The pool of a server or of a program that embeds the queue.
    Local,
    /// A worker process on the same store.
    Process,
    /// A remote program that polls.
    Remote,
}

impl WorkerKind {
    /// Every kind, in the order of their stored codes.
    pub const ALL: [Self; 3] = [Self::Local, Self::Process, Self::Remote];

    /// The name used in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Process => "process",
            Self::Remote => "remote",
        }
    }
}
