//! How a store and its server are doing, as clients see it.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use windlass_core::{Counts as Counters, Figures, Millis, View};

use super::time::Time;

/// Number of jobs by state. `queued` are due, `scheduled` are not yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Counts {
    pub(crate) queued: u64,
    pub(crate) scheduled: u64,
    pub(crate) processing: u64,
    pub(crate) done: u64,
    pub(crate) failed: u64,
    pub(crate) cancelled: u64,
}

impl Counts {
    pub(crate) fn of(counts: &Counters) -> Self {
        Self {
            queued: counts.get(View::Queued),
            scheduled: counts.get(View::Scheduled),
            processing: counts.get(View::Processing),
            done: counts.get(View::Done),
            failed: counts.get(View::Failed),
            cancelled: counts.get(View::Cancelled),
        }
    }

    /// Number of jobs in all states.
    pub(crate) fn all(&self) -> u64 {
        self.by_name().iter().map(|(_, count)| count).sum()
    }

    /// The sums, state by state.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            queued: self.queued + other.queued,
            scheduled: self.scheduled + other.scheduled,
            processing: self.processing + other.processing,
            done: self.done + other.done,
            failed: self.failed + other.failed,
            cancelled: self.cancelled + other.cancelled,
        }
    }

    /// As a sentence has it: `3 jobs (1 queued, 2 done)`.
    pub(crate) fn summary(&self) -> String {
        let some = self.by_name().into_iter().filter(|(_, count)| *count > 0);
        let some: Vec<String> = some.map(|(name, count)| format!("{count} {name}")).collect();
        let jobs = if self.all() == 1 { "job" } else { "jobs" };
        format!("{} {jobs} ({})", self.all(), some.join(", "))
    }

    fn by_name(&self) -> [(&'static str, u64); 6] {
        [
            ("queued", self.queued),
            ("scheduled", self.scheduled),
            ("processing", self.processing),
            ("done", self.done),
            ("failed", self.failed),
            ("cancelled", self.cancelled),
        ]
    }
}

impl Counts {
    /// Jobs that are due.
    pub(crate) fn waiting(&self) -> u64 {
        self.queued
    }
}

/// A store and the server that answers for it. Reads no rows of jobs.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Status {
    pub(crate) version: Cow<'static, str>,
    pub(crate) now: Time,
    /// `good`, or what is wrong.
    pub(crate) health: String,
    /// Jobs over all queues.
    pub(crate) counts: Counts,
    /// Number of queued and scheduled jobs that wait for another attempt.
    pub(crate) retrying: u64,
    /// Age of the oldest due job.
    pub(crate) oldest_ready_age_ms: Option<u64>,
    /// When the next scheduled job falls due.
    pub(crate) next_due: Option<Time>,
    pub(crate) queues: QueueSums,
    pub(crate) workers: WorkerSums,
    /// Rates of the last minute, over all servers and workers.
    pub(crate) rates: Rates,
    pub(crate) store: StoreSize,
}

/// Number of queues, and those that are paused.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct QueueSums {
    pub(crate) total: usize,
    pub(crate) paused: Vec<String>,
}

/// Number of workers, by whether they are alive.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct WorkerSums {
    pub(crate) alive: usize,
    /// Number without a recent heartbeat.
    pub(crate) stale: usize,
    /// Jobs held by live workers.
    pub(crate) running: usize,
}

/// What happened in the last minute, per second, by all servers and workers of the store. It is
/// about a second late.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Rates {
    /// Length of the time over which rates were measured.
    pub(crate) window_ms: u64,
    pub(crate) enqueued_per_s: f64,
    pub(crate) started_per_s: f64,
    pub(crate) done_per_s: f64,
    pub(crate) failed_per_s: f64,
}

impl Rates {
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    pub(crate) fn of(figures: &Figures, window: Millis) -> Self {
        let window_ms = window.get().max(1);
        let rate = |count: u64| (count as f64 * 1e6 / window_ms as f64).round() / 1e3;
        Self {
            window_ms,
            enqueued_per_s: rate(figures.enqueued),
            started_per_s: rate(figures.started),
            done_per_s: rate(figures.done),
            failed_per_s: rate(figures.failed),
        }
    }
}

/// The files of the store.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct StoreSize {
    pub(crate) path: String,
    pub(crate) bytes: u64,
    pub(crate) wal_bytes: u64,
}

/// What a check of the store has found.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Checkup {
    /// Whether no problems were found.
    pub(crate) ok: bool,
    pub(crate) jobs: u64,
    pub(crate) findings: Vec<String>,
    /// Number of findings beyond those listed.
    pub(crate) more: usize,
    /// What an operator should look at on the server of a store on PostgreSQL: who keeps dead rows,
    /// rights that are missing, settings. It is not counted in `ok`.
    #[serde(default)]
    pub(crate) notices: Vec<String>,
    /// Whether every page of the file was checked too.
    pub(crate) pages_checked: bool,
    pub(crate) took_ms: u64,
}

impl Checkup {
    /// Findings, of which at most this number are shown.
    pub(crate) const SHOWN: usize = 1_000;
}
