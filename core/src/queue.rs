//! Queues: their settings and their counters.

use alloc::vec::Vec;

use crate::{
    JobTimeout, Kind, LeaseLength, MaxQueued, MaxRetries, MaxRunning, QueueName, RetryPolicy, View,
};

/// A queue as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queue {
    /// Unique within a store.
    pub name: QueueName,
    /// While set, no job of the queue is claimed.
    pub paused: bool,
    /// Limits, and defaults for jobs that do not set an option.
    pub settings: QueueSettings,
}

impl Queue {
    /// A queue without settings.
    pub fn new(name: QueueName) -> Self {
        Self { name, paused: false, settings: QueueSettings::default() }
    }

    /// Whether another job may start while `running` jobs run.
    pub fn gate(&self, running: u64) -> Gate {
        match self.settings.concurrency {
            _ if self.paused => Gate::Paused,
            Some(most) if running >= u64::from(most.get()) => Gate::Full,
            _ => Gate::Open,
        }
    }

    /// Whether it is neither paused nor has settings: without jobs, it holds nothing, and making it
    /// again gives the same queue.
    pub fn is_plain(&self) -> bool {
        !self.paused && self.settings == QueueSettings::default()
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

/// Whether jobs of a queue may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// They may.
    Open,
    /// The queue is paused.
    Paused,
    /// The queue is at its concurrency limit.
    Full,
}

/// The settings of a queue. `None` means no limit, or the default of the [`Policy`](crate::Policy).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
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
}

impl QueueSettings {
    /// Whether the number of its jobs is limited.
    pub fn is_limited(&self) -> bool {
        self.concurrency.is_some() || self.max_queued.is_some()
    }
}

/// Number of jobs per [`View`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts([u64; View::ALL.len()]);

impl Counts {
    /// From counts in the order of [`View::ALL`].
    pub const fn new(counts: [u64; View::ALL.len()]) -> Self {
        Self(counts)
    }

    /// Number of jobs in a view.
    pub fn get(&self, view: View) -> u64 {
        self.0[view.index()]
    }

    /// Number of queued and scheduled jobs.
    pub fn waiting(&self) -> u64 {
        self.get(View::Queued) + self.get(View::Scheduled)
    }

    /// Whether all counts are zero.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Number of jobs in all views.
    pub fn all(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Adds one job to a view.
    pub fn add(&mut self, view: View) {
        self.0[view.index()] += 1;
    }

    /// Removes one job from a view; stays at zero.
    pub fn take(&mut self, view: View) {
        self.0[view.index()] = self.0[view.index()].saturating_sub(1);
    }

    /// The sums, view by view.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        for view in View::ALL {
            self.0[view.index()] += other.get(view);
        }
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
}

impl QueueRow {
    /// A queue without jobs.
    pub fn empty(queue: Queue) -> Self {
        Self { queue, kinds: Vec::new() }
    }

    /// The sum over all kinds.
    pub fn total(&self) -> Counts {
        self.kinds.iter().fold(Counts::default(), |sum, (_, counts)| sum.plus(counts))
    }
}
