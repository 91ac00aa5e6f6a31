//! Queues: their settings and their counters.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::{
    Counted, Flow, Job, JobTimeout, Kind, LeaseLength, MaxQueued, MaxRetries, MaxRunning,
    QueueName, Rank, RetryPolicy, Tats, Usage, View, Wall,
};

/// A queue as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queue {
    /// Unique within a store.
    pub name: QueueName,
    /// While set, no job of the queue is claimed.
    pub paused: Option<Pause>,
    /// Limits, and defaults for jobs that do not set an option.
    pub settings: QueueSettings,
}

impl Queue {
    /// A queue without settings.
    pub fn new(name: QueueName) -> Self {
        Self { name, paused: None, settings: QueueSettings::default() }
    }

    /// Whether it is paused.
    pub fn is_paused(&self) -> bool {
        self.paused.is_some()
    }

    /// Whether it is neither paused nor has settings: without jobs, it holds nothing, and making it
    /// again gives the same queue.
    pub fn is_plain(&self) -> bool {
        !self.is_paused() && self.settings == QueueSettings::default()
    }

    /// Whether it has a limit, so that its counters have to be read.
    pub fn is_limited(&self) -> bool {
        self.settings.is_limited()
    }

    /// The limit of waiting jobs, if `waiting` has reached it.
    pub fn full(&self, waiting: u64) -> Option<MaxQueued> {
        self.settings.max_queued.filter(|most| waiting >= most.get())
    }
}

/// Since when a queue is paused, and by whom.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pause {
    /// When it was paused; `None` if that was before stores kept it.
    pub at: Option<Wall>,
    /// Who paused it, as [`Admin::Pause`](crate::store::Admin::Pause) said.
    pub by: Option<Arc<str>>,
}

/// The settings of a queue. `None` means no limit, or the default of the [`Policy`](crate::Policy).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QueueSettings {
    /// Limit of waiting jobs, scheduled ones included.
    pub max_queued: Option<MaxQueued>,
    /// Limit of running jobs, over all workers.
    pub concurrency: Option<MaxRunning>,
    /// Default of jobs that do not set it, like the following.
    pub visibility_timeout: Option<LeaseLength>,
    /// Default of jobs that do not set it.
    pub max_retries: Option<MaxRetries>,
    /// Default of jobs that do not set it.
    pub timeout: Option<JobTimeout>,
    /// Default of jobs that do not set it.
    pub retry: Option<RetryPolicy>,
    /// When jobs may start, and in which order.
    pub flow: Flow,
}

impl QueueSettings {
    /// Whether something counts against a limit of the queue.
    pub fn is_limited(&self) -> bool {
        self.max_queued.is_some() || self.limits_starts()
    }

    /// Whether jobs may have to wait although the queue is not paused.
    pub fn limits_starts(&self) -> bool {
        self.concurrency.is_some() || self.flow.limits_starts()
    }

    /// The rank of a job that becomes ready or is scheduled in this queue.
    pub fn rank(&self, job: &Job) -> Rank {
        match self.flow.aging {
            None => Rank::new(job.priority, job.run_at, job.id),
            Some(aging) => Rank::aged(job.priority, job.run_at, job.id, aging),
        }
    }
}

/// Number of jobs per [`View`], and of those that wait for another attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    views: [u64; View::ALL.len()],
    retrying: u64,
}

impl Counts {
    /// From counts in the order of [`View::ALL`]; none is retrying.
    pub const fn new(views: [u64; View::ALL.len()]) -> Self {
        Self { views, retrying: 0 }
    }

    /// The same with this number of retrying jobs.
    #[must_use]
    pub const fn with_retrying(self, retrying: u64) -> Self {
        Self { retrying, ..self }
    }

    /// Number of jobs in a view.
    pub fn get(&self, view: View) -> u64 {
        self.views[view.index()]
    }

    /// Number of jobs that wait for another attempt: queued or scheduled, with attempts charged.
    pub fn retrying(&self) -> u64 {
        self.retrying
    }

    /// Number of queued and scheduled jobs.
    pub fn waiting(&self) -> u64 {
        self.get(View::Queued).saturating_add(self.get(View::Scheduled))
    }

    /// Whether all counts are zero.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Number of jobs in all views.
    pub fn all(&self) -> u64 {
        self.views.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Adds one job.
    pub fn add(&mut self, job: Counted) {
        let count = &mut self.views[job.view.index()];
        *count = count.saturating_add(1);
        self.retrying = self.retrying.saturating_add(job.retrying.into());
    }

    /// Removes one job; stays at zero.
    pub fn take(&mut self, job: Counted) {
        let count = &mut self.views[job.view.index()];
        *count = count.saturating_sub(1);
        self.retrying = self.retrying.saturating_sub(job.retrying.into());
    }

    /// The sums, counter by counter.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        for view in View::ALL {
            self.views[view.index()] = self.get(view).saturating_add(other.get(view));
        }
        self.retrying = self.retrying.saturating_add(other.retrying);
        self
    }
}

/// A queue with the counters of its kinds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueRow {
    /// Name and settings.
    pub queue: Queue,
    /// The counters of every kind with jobs, ordered by kind.
    pub kinds: Vec<(Kind, Counts)>,
    /// The state of its rates.
    pub tats: Tats,
}

impl QueueRow {
    /// A queue without jobs.
    pub fn empty(queue: Queue) -> Self {
        Self { queue, kinds: Vec::new(), tats: Tats::default() }
    }

    /// What counts against its limits.
    pub fn usage(&self) -> Usage {
        Usage::new(self.kinds.iter().map(|(kind, counts)| (kind, counts)), self.tats.clone())
    }

    /// The sum over all kinds.
    pub fn total(&self) -> Counts {
        self.kinds.iter().fold(Counts::default(), |sum, (_, counts)| sum.plus(counts))
    }
}
