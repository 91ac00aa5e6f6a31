//! Queues: their settings and their counters.

use alloc::vec::Vec;

use crate::{
    JobTimeout, Kind, LeaseLength, MaxQueued, MaxRetries, MaxRunning, QueueName, RetryPolicy, View,
};

/// A queue as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queue {
    /// Its name.
    pub name: QueueName,
    /// Whether nothing of it may start.
    pub paused: bool,
    /// Its limits, and defaults for jobs that do not say.
    pub settings: QueueSettings,
}

impl Queue {
    /// A queue without settings.
    pub fn new(name: QueueName) -> Self {
        Self { name, paused: false, settings: QueueSettings::default() }
    }

    /// Whether another job may start while this many run.
    pub fn gate(&self, running: u64) -> Gate {
        match self.settings.concurrency {
            _ if self.paused => Gate::Paused,
            Some(most) if running >= u64::from(most.get()) => Gate::Full,
            _ => Gate::Open,
        }
    }

    /// Whether what is counted of it decides on anything: only then is it looked at.
    pub fn is_limited(&self) -> bool {
        self.settings.is_limited()
    }

    /// The limit that one more job would break, if this many wait.
    pub fn full(&self, waiting: u64) -> Option<MaxQueued> {
        self.settings.max_queued.filter(|most| waiting >= most.get())
    }
}

/// Whether a queue lets jobs start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// It does.
    Open,
    /// It is paused.
    Paused,
    /// As many run as may.
    Full,
}

/// What can be set on a queue; nothing set means the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueueSettings {
    /// How many jobs may wait, scheduled ones included.
    pub max_queued: Option<MaxQueued>,
    /// How many jobs may run at once.
    pub concurrency: Option<MaxRunning>,
    /// The visibility timeout of jobs that do not say.
    pub visibility_timeout: Option<LeaseLength>,
    /// The retries of jobs that do not say.
    pub max_retries: Option<MaxRetries>,
    /// The timeout of jobs that do not say.
    pub timeout: Option<JobTimeout>,
    /// The retry policy of jobs that do not say.
    pub retry: Option<RetryPolicy>,
}

impl QueueSettings {
    /// Whether the number of its jobs is limited.
    pub fn is_limited(&self) -> bool {
        self.concurrency.is_some() || self.max_queued.is_some()
    }
}

/// How many jobs stand in each [`View`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts([u64; View::ALL.len()]);

impl Counts {
    /// These numbers, in the order of [`View::ALL`].
    pub const fn new(counts: [u64; View::ALL.len()]) -> Self {
        Self(counts)
    }

    /// How many stand there.
    pub fn get(&self, view: View) -> u64 {
        self.0[view.index()]
    }

    /// How many wait: due or not.
    pub fn waiting(&self) -> u64 {
        self.get(View::Queued) + self.get(View::Scheduled)
    }

    /// Whether there is no job at all.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// One more there.
    pub fn add(&mut self, view: View) {
        self.0[view.index()] += 1;
    }

    /// One less there.
    pub fn take(&mut self, view: View) {
        self.0[view.index()] = self.0[view.index()].saturating_sub(1);
    }

    /// These and those together.
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
    /// The queue.
    pub queue: Queue,
    /// The counters of every kind with jobs, ordered by kind.
    pub kinds: Vec<(Kind, Counts)>,
}

impl QueueRow {
    /// A queue without jobs.
    pub fn empty(queue: Queue) -> Self {
        Self { queue, kinds: Vec::new() }
    }

    /// The counters of all kinds together.
    pub fn total(&self) -> Counts {
        self.kinds.iter().fold(Counts::default(), |sum, (_, counts)| sum.plus(counts))
    }
}
