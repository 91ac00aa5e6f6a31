//! Queues as clients see and set them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use windlass_core::{
    Aging, JobTimeout, LeaseLength, MaxQueued, MaxRetries, MaxRunning, QueueName, QueueRow,
    QueueSettings, Wall,
};

use super::flow::{self, Kinds, Rate};
use super::job::Retry;
use super::new_job::{NewRetry, lease_length};
use super::parse::Faults;
use super::status::{Counts, Rates};
use crate::api::problem::Problem;

/// All queues of the store.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct QueueList {
    pub(crate) queues: Vec<Queue>,
}

/// A queue with its counters.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Queue {
    pub(crate) name: String,
    /// Whether it is paused.
    pub(crate) paused: bool,
    pub(crate) counts: Counts,
    /// Number of queued and scheduled jobs that wait for another attempt.
    pub(crate) retrying: u64,
    /// Age of the oldest due job.
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

/// Settings of the queue; `null` means the default.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "QueueSettings")]
pub(crate) struct Shown {
    pub(crate) max_queued: Option<u64>,
    pub(crate) concurrency: Option<u32>,
    pub(crate) visibility_timeout_ms: Option<u64>,
    pub(crate) max_retries: Option<u32>,
    pub(crate) timeout_ms: Option<u64>,
    pub(crate) retry: Option<Retry>,
    pub(crate) aging_ms: Option<u64>,
    pub(crate) rate: Option<Rate>,
    pub(crate) kinds: Option<Kinds>,
}

impl Shown {
    pub(crate) fn of(settings: &QueueSettings) -> Self {
        Self {
            max_queued: settings.max_queued.map(MaxQueued::get),
            concurrency: settings.concurrency.map(MaxRunning::get),
            visibility_timeout_ms: settings.visibility_timeout.map(LeaseLength::get),
            max_retries: settings.max_retries.map(MaxRetries::get),
            timeout_ms: settings.timeout.map(JobTimeout::get),
            retry: settings.retry.as_ref().map(Retry::of),
            aging_ms: settings.flow.aging.map(Aging::get),
            rate: settings.flow.rate.as_ref().map(Rate::of),
            kinds: flow::kinds(&settings.flow),
        }
    }
}

impl Queue {
    pub(crate) fn of(row: &QueueRow, oldest: Option<Wall>, rates: Rates, now: Wall) -> Self {
        let counts = row.total();
        Self {
            name: row.queue.name.as_str().into(),
            paused: row.queue.is_paused(),
            counts: Counts::of(&counts),
            retrying: counts.retrying(),
            oldest_ready_age_ms: oldest.map(|oldest| now.since(oldest).get()),
            rates,
            settings: Shown::of(&row.queue.settings),
        }
    }
}

/// Progress of the deletion of a queue.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct QueueDeleted {
    pub(crate) name: String,
    /// Whether the queue is deleted. If not, it has more jobs: repeat the request.
    pub(crate) deleted: bool,
    /// Number of deleted jobs, by state.
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
    /// Maximum number of queued jobs, scheduled ones included.
    #[schemars(range(min = 1, max = 1_000_000_000_000_i64))]
    max_queued: Option<i64>,
    /// Maximum number of running jobs, over all workers.
    #[schemars(range(min = 1, max = 1_000_000))]
    concurrency: Option<i64>,
    /// Visibility timeout of jobs that do not set it.
    #[schemars(range(min = 1_000, max = 43_200_000))]
    visibility_timeout_ms: Option<i64>,
    /// `max_retries` of jobs that do not set it.
    #[schemars(range(min = 0, max = 1_000))]
    max_retries: Option<i64>,
    /// Timeout of jobs that do not set it.
    #[schemars(range(min = 1, max = 604_800_000))]
    timeout_ms: Option<i64>,
    /// Retry policy of jobs that do not set it.
    retry: Option<NewRetry>,
    /// How long a job has to wait to overtake one of the next higher priority; if absent, a higher
    /// priority always goes first.
    #[schemars(range(min = 1, max = 86_400_000))]
    aging_ms: Option<i64>,
    /// Maximum number of starts per period, over all workers.
    rate: Option<Rate>,
    /// Limits of single kinds, at most 100.
    kinds: Option<Kinds>,
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
        let (rate, kinds) = (self.rate.as_ref(), self.kinds.as_ref());
        let flow = flow::check(&mut faults, self.aging_ms, rate, kinds);
        faults.refuse()?;
        Ok(QueueSettings {
            max_queued,
            concurrency,
            visibility_timeout,
            max_retries,
            timeout,
            retry,
            flow,
        })
    }
}
