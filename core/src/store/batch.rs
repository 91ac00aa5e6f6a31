//! The commands of one transaction: a section per family, in the order in which they are applied;
//! within a section, in the order of the vector.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{CopyRows, Instance, SlotFigures};
use crate::bulk::{Step, Terms};
use crate::limits::{CLOCK_STEP, SLOTS};
use crate::text::without_nul;
use crate::{
    BatchId, BulkId, Demand, GroupId, JobId, Kind, LeaseLength, LeaseToken, Millis, NewJob,
    Payload, Policy, QueueName, QueueSettings, SettingKey, SettingValue, Verdict, View, Wall,
    WorkerId, WorkerVersion,
};

/// The commands of one commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// Written with the batch as the commit marker.
    pub id: BatchId,
    /// Defaults for `enqueues`.
    pub policy: Policy,
    /// The worker of the process that makes it: it stops its own attempts at their timeouts, and
    /// keeps their leases while it does.
    pub own: Option<WorkerId>,
    /// What that process knows of the store's clock.
    pub clock: ClockView,
    /// Workers known to be dead: a reaping takes their leases back at once.
    pub dead: Vec<WorkerId>,
    /// 1. Verdicts of workers.
    pub settles: Vec<Settle>,
    /// 2. Extensions of leases.
    pub heartbeats: Vec<Heartbeat>,
    /// 3. Commands of operators.
    pub admin: Vec<Admin>,
    /// 4. Steps of bulk actions.
    pub bulk: Vec<Step>,
    /// 5. New jobs.
    pub enqueues: Vec<NewJob>,
    /// 6. Take back expired leases.
    pub reap: Option<Reap>,
    /// 7. Make up to this many due jobs ready.
    pub promote: Option<usize>,
    /// 8. Delete finished jobs past their age.
    pub purge: Option<Purge>,
    /// 9. Delete queues that hold nothing.
    pub queue_sweep: Option<QueueSweep>,
    /// 10. What the process did earlier, to be added to its rows of figures; each slot once.
    pub figures: Vec<SlotFigures>,
    /// 11. Claims: they see the effects of all sections above.
    pub claims: Vec<ClaimFor>,
    /// Rows of another store, put in place as they are. A batch with some has no other commands
    /// than settings.
    pub import: Option<Box<CopyRows>>,
}

impl Batch {
    /// A batch that asks for nothing yet.
    pub fn new(id: BatchId, policy: Policy) -> Self {
        Self {
            id,
            policy,
            own: None,
            clock: ClockView::default(),
            dead: Vec::new(),
            settles: Vec::new(),
            heartbeats: Vec::new(),
            admin: Vec::new(),
            bulk: Vec::new(),
            enqueues: Vec::new(),
            reap: None,
            promote: None,
            purge: None,
            queue_sweep: None,
            figures: Vec::new(),
            claims: Vec::new(),
            import: None,
        }
    }

    /// Number of commands; figures are none.
    pub fn len(&self) -> usize {
        let pages = [self.reap.is_some(), self.promote.is_some(), self.purge.is_some()];
        let sweeps = pages.iter().filter(|there| **there).count();
        let sweeps = sweeps + usize::from(self.queue_sweep.is_some());
        let clients = self.settles.len() + self.heartbeats.len() + self.admin.len();
        clients + self.bulk.len() + self.enqueues.len() + sweeps + self.claims.len()
    }

    /// Whether it has no commands. The outcome of such a batch still holds the horizon.
    pub fn is_empty(&self) -> bool {
        self.len() == 0 && self.figures.is_empty() && self.import.is_none()
    }
}

/// The verdict of the holder of a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settle {
    /// Proves that the lease is still held.
    pub token: LeaseToken,
    /// Complete, fail, snooze or release.
    pub verdict: Verdict,
}

/// Extends a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heartbeat {
    /// Proves that the lease is still held.
    pub token: LeaseToken,
    /// The length of the lease from now on; `None` keeps it.
    pub extend: Option<LeaseLength>,
    /// Replaces the stored progress; `None` keeps it.
    pub progress: Option<Payload>,
}

/// A command of an operator, or of the machine about its workers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admin {
    /// Cancel a queued or running job.
    Cancel(JobId),
    /// Run a failed or cancelled job again, as a new generation.
    Replay(JobId),
    /// Run dead letters again, newest failure first.
    ReplayDead {
        /// The dead letters to run.
        filter: DeadFilter,
        /// Where the last page ended.
        after: Option<super::Cursor>,
        /// Maximum number of jobs.
        limit: usize,
    },
    /// Delete dead letters, newest failure first.
    DiscardDead {
        /// The dead letters to delete.
        filter: DeadFilter,
        /// Where the last page ended.
        after: Option<super::Cursor>,
        /// Maximum number of jobs.
        limit: usize,
    },
    /// Delete a finished job.
    Delete(JobId),
    /// Start a bulk action.
    StartBulk(Box<Terms>),
    /// Let a bulk action go on that is held.
    ContinueBulk(BulkId),
    /// End a bulk action.
    StopBulk(BulkId),
    /// Start no jobs of a queue. One that is paused already stays as it is.
    Pause {
        /// The queue; it is made if it does not exist.
        name: QueueName,
        /// Who pauses it, for people: the name of a token or of a program.
        by: Option<Arc<str>>,
    },
    /// Start jobs of this queue again.
    Resume(QueueName),
    /// Replace the settings of this queue.
    SetQueue {
        /// The queue; it is made if it does not exist.
        name: QueueName,
        /// Its settings from now on.
        settings: QueueSettings,
        /// Refuse unless these are its settings. A queue that does not exist has none set.
        expected: Option<Box<QueueSettings>>,
    },
    /// Delete this queue with its settings, unless it has jobs.
    DeleteQueue(QueueName),
    /// Replace the value of a setting.
    SetSetting {
        /// The name of the setting.
        key: SettingKey,
        /// Its value from now on; `None` deletes it.
        value: Option<SettingValue>,
        /// Refuse unless this is its value.
        expected: ExpectedSetting,
    },
    /// Store this worker, or update its `last_seen`.
    SeeWorker(Worker),
    /// Delete the row of this worker.
    RemoveWorker(WorkerId),
    /// The process of this worker is known to be dead: its row goes, and the dispatcher that was
    /// asked takes its leases back at once, charged like leases that ran out.
    EndWorker(WorkerId),
    /// Ask this worker to stop, when it next looks.
    StopWorker(WorkerId),
    /// Read whether this worker was asked to stop. Writes nothing.
    LookAtWorker(WorkerId),
}

impl Admin {
    /// Pauses a queue, and does not say who does.
    pub fn pause(name: QueueName) -> Self {
        Self::Pause { name, by: None }
    }

    /// Replaces the settings of a queue, whatever they are.
    pub fn set_queue(name: QueueName, settings: QueueSettings) -> Self {
        Self::SetQueue { name, settings, expected: None }
    }

    /// Replaces the value of a setting, whatever it is.
    pub fn set_setting(key: SettingKey, value: Option<SettingValue>) -> Self {
        Self::SetSetting { key, value, expected: ExpectedSetting::Any }
    }
}

/// The value that a setting must have for a command to change it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExpectedSetting {
    /// Whatever it is.
    Any,
    /// This one; `None` if it must not be set.
    Exactly(Option<SettingValue>),
}

/// Selects dead letters; all set conditions must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeadFilter {
    /// Exact name of the queue.
    pub queue: Option<QueueName>,
    /// Exact kind.
    pub kind: Option<Kind>,
    /// The error group.
    pub group: Option<GroupId>,
    /// A text that the last error contains.
    pub error_contains: Option<alloc::string::String>,
}

/// Take back expired leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reap {
    /// Maximum number of leases in this batch.
    pub limit: usize,
    /// Where the last page ended.
    pub after: Option<super::Cursor>,
    /// Also check leases that have not expired: after the clock was set back, they may have been
    /// written by the clock as it was before.
    pub all: bool,
}

/// What a process knows of the store's clock when it makes a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClockView {
    /// What the store's clock should read now, if that is known. If it disagrees by more than
    /// [`CLOCK_STEP`], the clock was stepped and nothing is reaped.
    pub expected: Option<Wall>,
    /// The instant from which the clock is trusted, if it was stepped.
    pub trusted_since: Option<Wall>,
}

impl ClockView {
    /// Whether a clock that reads `now` was stepped since the process last looked.
    pub(crate) fn is_stepped(self, now: Wall) -> bool {
        self.expected.is_some_and(|expected| expected.distance(now) > CLOCK_STEP)
    }
}

/// Remove finished jobs past their age, keys past their window, and what is known of processes and
/// workers long silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Purge {
    /// The age limits per state.
    pub retention: Retention,
    /// Maximum number of jobs in this batch.
    pub limit: usize,
}

/// Delete queues without jobs, pause and settings ([`Queue::is_plain`](crate::Queue::is_plain)). A
/// page by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueSweep {
    /// Where the last page ended.
    pub after: Option<QueueName>,
    /// Maximum number of queues to look at, those with jobs included.
    pub limit: usize,
}

/// The age at which finished jobs are purged; `None` keeps them for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Retention {
    /// Time from the completion of a job to its removal.
    pub done: Option<Millis>,
    /// Time from the last failure of a dead letter to its removal.
    pub failed: Option<Millis>,
    /// Time from the cancel of a job to its removal.
    pub cancelled: Option<Millis>,
}

impl Retention {
    /// The default of servers and of the library: done and cancelled jobs are purged after a week,
    /// dead letters after 30 days.
    pub const USUAL: Self = Self {
        done: Some(Millis::days(7)),
        failed: Some(Millis::days(30)),
        cancelled: Some(Millis::days(7)),
    };

    /// The views with an age limit, and the limit.
    pub fn ages(&self) -> impl Iterator<Item = (View, Millis)> {
        let all = [
            (View::Done, self.done),
            (View::Failed, self.failed),
            (View::Cancelled, self.cancelled),
        ];
        all.into_iter().filter_map(|(view, age)| Some((view, age?)))
    }
}

/// Claim jobs for all workers with the same demand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimFor {
    /// The queues and kinds to claim from.
    pub demand: Demand,
    /// The workers; the first is served first.
    pub takers: Vec<Taker>,
}

/// A worker of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taker {
    /// The owner of the leases.
    pub worker: WorkerId,
    /// Maximum number of jobs.
    pub max: usize,
    /// The length of the leases; `None` for each job's visibility timeout.
    pub length: Option<LeaseLength>,
}

/// A process or a remote program that runs jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Worker {
    /// Unique per start of a process.
    pub id: WorkerId,
    /// The name of its host, as it gave it.
    pub host: Arc<str>,
    /// Its process id there; `None` if a remote worker did not give it.
    pub pid: Option<u32>,
    /// Tells its process from others with the same `pid`; `None` if that is not known.
    pub instance: Option<Instance>,
    /// The version of its program; `None` if that is not known.
    pub version: Option<WorkerVersion>,
    /// Of a remote worker, the own worker of the process that it polled last.
    pub server: Option<WorkerId>,
    /// How it gets its jobs.
    pub kind: WorkerKind,
    /// The queues and kinds that it runs.
    pub demand: Demand,
    /// Maximum number of jobs at the same time.
    pub slots: usize,
    /// The period of updates of `last_seen`.
    pub presence: Millis,
}

impl Worker {
    /// A worker that runs all jobs, one at a time.
    pub fn new(id: WorkerId, host: &str, kind: WorkerKind) -> Self {
        let host = Arc::from(host);
        Self {
            id,
            host,
            pid: None,
            instance: None,
            version: None,
            server: None,
            kind,
            demand: Demand::ALL,
            slots: 1,
            presence: PRESENCE,
        }
    }

    /// The worker of the process that writes its row: itself, or of a remote worker the one that it
    /// polled last.
    pub fn node(&self) -> Option<&WorkerId> {
        match self.kind {
            WorkerKind::Local | WorkerKind::Process => Some(&self.id),
            WorkerKind::Remote => self.server.as_ref(),
        }
    }

    /// The worker as it is stored: see [`Demand::kept`]. NUL characters in the name of its host,
    /// which not every store can keep, become the character SUBSTITUTE.
    #[must_use]
    pub fn kept(&self) -> Self {
        let host = without_nul(&self.host);
        Self { host, demand: self.demand.kept(), slots: self.slots.min(SLOTS), ..self.clone() }
    }
}

/// The default period of updates of `last_seen`.
const PRESENCE: Millis = Millis::seconds(10);

/// How a worker gets its jobs.
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
