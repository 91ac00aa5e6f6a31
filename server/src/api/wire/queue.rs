//! Queues as clients see and set them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use windlass_core::{
    JobTimeout, LeaseLength, MaxQueued, MaxRetries, MaxRunning, QueueName, QueueRow, QueueSettings,
    Wall,
};

use super::job::Retry;
use super::new_job::{NewRetry, lease_length};
use super::parse::Faults;
use super::status::{Counts, Rates};
use crate::api::problem::Problem;

/// Every queue.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct QueueList {
    pub(crate) queues: Vec<Queue>,
}

/// A queue with its counters.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Queue {
    pub(crate) name: String,
    /// Whether nothing of it may start.
    pub(crate) paused: bool,
    pub(crate) counts: Counts,
    /// For how long the longest-waiting due job has been due.
    pub(crate) oldest_ready_age_ms: Option<u64>,
    pub(crate) rates: Rates,
    pub(crate) settings: Shown,
}

/// One queue, with the jobs of each kind.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct QueueDetail {
    #[serde(flatten)]
    queue: Queue,
    kinds: Vec<KindCounts>,
}

/// The jobs of one kind in a queue.
#[derive(Debug, Clone, Serialize, JsonSchema)]
struct KindCounts {
    kind: String,
    counts: Counts,
}

impl QueueDetail {
    pub(crate) fn new(queue: Queue, row: &QueueRow) -> Self {
        let kinds = row.kinds.iter().map(|(kind, counts)| KindCounts {
            kind: kind.as_str().into(),
            counts: Counts::of(counts),
        });
        Self { queue, kinds: kinds.collect() }
    }
}

/// What is set; `null` means the default.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "QueueSettings")]
pub(crate) struct Shown {
    pub(crate) max_queued: Option<u64>,
    pub(crate) concurrency: Option<u32>,
    pub(crate) visibility_timeout_ms: Option<u64>,
    pub(crate) max_retries: Option<u32>,
    pub(crate) timeout_ms: Option<u64>,
    pub(crate) retry: Option<Retry>,
}

impl Queue {
    pub(crate) fn of(row: &QueueRow, oldest: Option<Wall>, rates: Rates, now: Wall) -> Self {
        let counts = row.total();
        let settings = &row.queue.settings;
        Self {
            name: row.queue.name.as_str().into(),
            paused: row.queue.paused,
            counts: Counts::of(&counts),
            oldest_ready_age_ms: oldest.map(|oldest| now.since(oldest).get()),
            rates,
            settings: Shown {
                max_queued: settings.max_queued.map(MaxQueued::get),
                concurrency: settings.concurrency.map(MaxRunning::get),
                visibility_timeout_ms: settings.visibility_timeout.map(LeaseLength::get),
                max_retries: settings.max_retries.map(MaxRetries::get),
                timeout_ms: settings.timeout.map(JobTimeout::get),
                retry: settings.retry.as_ref().map(Retry::of),
            },
        }
    }
}

/// What became of a queue that is to be deleted.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct QueueDeleted {
    pub(crate) name: String,
    /// Whether the queue is gone. If not, there are more jobs: ask again.
    pub(crate) deleted: bool,
    /// The jobs that were deleted with it, by where they were.
    pub(crate) jobs: Counts,
}

impl QueueDeleted {
    pub(crate) fn new(name: &QueueName, deleted: bool, jobs: &windlass_core::Counts) -> Self {
        Self { name: name.as_str().into(), deleted, jobs: Counts::of(jobs) }
    }
}

/// All settings of a queue: they replace what was set. `null` or absent means the default.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "NewQueueSettings")]
pub(crate) struct Settings {
    /// How many jobs may wait, scheduled ones included.
    #[schemars(range(min = 1, max = 1_000_000_000_000_i64))]
    max_queued: Option<i64>,
    /// How many jobs may run at once, over all workers.
    #[schemars(range(min = 1, max = 1_000_000))]
    concurrency: Option<i64>,
    /// The visibility timeout of jobs that do not say.
    #[schemars(range(min = 1_000, max = 43_200_000))]
    visibility_timeout_ms: Option<i64>,
    /// The retries of jobs that do not say.
    #[schemars(range(min = 0, max = 1_000))]
    max_retries: Option<i64>,
    /// The timeout of jobs that do not say.
    #[schemars(range(min = 1, max = 604_800_000))]
    timeout_ms: Option<i64>,
    /// The retry policy of jobs that do not say.
    retry: Option<NewRetry>,
}

impl Settings {
    pub(crate) fn check(&self) -> Result<QueueSettings, Problem> {
        let mut faults = Faults::default();
        let bounds = (MaxQueued::MIN.get(), MaxQueued::MAX.get());
        let max_queued = faults.number("max_queued", self.max_queued, bounds, MaxQueued::new);
        let bounds = (MaxRunning::MIN.get(), MaxRunning::MAX.get());
        let concurrency = faults.number("concurrency", self.concurrency, bounds, MaxRunning::new);
        let visibility_timeout = lease_length(&mut faults, self.visibility_timeout_ms);
        let bounds = (MaxRetries::MIN.get(), MaxRetries::MAX.get());
        let max_retries = faults.number("max_retries", self.max_retries, bounds, MaxRetries::new);
        let bounds = (JobTimeout::MIN.get(), JobTimeout::MAX.get());
        let timeout = faults.number("timeout_ms", self.timeout_ms, bounds, JobTimeout::new);
        let retry = self.retry.as_ref().and_then(|retry| retry.check(&mut faults));
        faults.refuse()?;
        Ok(QueueSettings {
            max_queued,
            concurrency,
            visibility_timeout,
            max_retries,
            timeout,
            retry,
        })
    }
}
