//! What the dashboard shows: who asks, the state of everything at one instant, and how it came
//! to be so.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::bulk::BulkLine;
use super::error_group::ErrorCounts;
use super::status::Counts;
use super::time::Time;

/// The token of this request, and its scopes.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct Me {
    /// The name of the token; `null` where no tokens are configured.
    pub(crate) name: Option<String>,
    /// `read`, `enqueue`, `work` or `admin`, which includes the others.
    pub(crate) scopes: Vec<&'static str>,
    /// Whether the server takes requests without a token.
    pub(crate) open: bool,
    /// Name of the environment (`--label`).
    pub(crate) label: Option<String>,
}

/// The state of everything at one instant. Reads one row of a job, the last done.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct Snapshot {
    pub(crate) at: Time,
    /// Whether `queues` has every queue; if not, those that changed since the event before.
    pub(crate) full: bool,
    /// The build of the dashboard that this server holds.
    pub(crate) build: &'static str,
    pub(crate) version: &'static str,
    /// Host name of the server's machine.
    pub(crate) host: String,
    pub(crate) label: Option<String>,
    /// `good`, or what is wrong.
    pub(crate) health: String,
    /// When the process of this server started.
    pub(crate) started_at: Time,
    /// Jobs over all queues.
    pub(crate) counts: Counts,
    /// Number of queued and scheduled jobs that wait for another attempt.
    pub(crate) retrying: u64,
    /// Age of the oldest due job.
    pub(crate) oldest_ready_age_ms: Option<u64>,
    /// When the next scheduled job falls due.
    pub(crate) next_due: Option<Time>,
    /// When the last completed job completed, of those that are kept.
    pub(crate) last_done_at: Option<Time>,
    pub(crate) slots: Slots,
    pub(crate) workers: WorkerCounts,
    /// Recent rates of the store, over all servers and workers.
    pub(crate) rates: LateRates,
    pub(crate) queues: Vec<QueueLine>,
    /// Queues of earlier events that were deleted.
    pub(crate) removed: Vec<String>,
    /// Whether queues were left out: `GET /queues` has all.
    pub(crate) more: bool,
    /// Number of queues.
    pub(crate) queues_total: usize,
    pub(crate) errors: ErrorCounts,
    /// Bulk actions that have not ended, and those that ended in the last minute.
    pub(crate) bulk: Vec<BulkLine>,
    pub(crate) store: StoreFacts,
}

/// The slots of the workers that are alive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct Slots {
    pub(crate) total: usize,
    pub(crate) busy: usize,
}

/// Number of workers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct WorkerCounts {
    pub(crate) alive: usize,
    /// Number without a recent heartbeat.
    pub(crate) stale: usize,
    /// Jobs held by stale workers.
    pub(crate) stale_jobs: usize,
    /// Changes whenever anything but the time of a heartbeat changes.
    pub(crate) rev: u64,
}

/// Rates of the last ten seconds, or of a shorter time after the start.
#[expect(clippy::struct_field_names, reason = "the contract names them so")]
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, JsonSchema)]
pub(crate) struct LateRates {
    pub(crate) enqueued_per_s: f64,
    pub(crate) done_per_s: f64,
    pub(crate) failed_per_s: f64,
}

/// A queue in a snapshot.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub(crate) struct QueueLine {
    pub(crate) name: String,
    pub(crate) paused: bool,
    /// `null` if it was paused before the store kept it.
    pub(crate) paused_at: Option<Time>,
    /// The name of the token that paused it, or `command line` for a command on the store itself;
    /// `null` without tokens.
    pub(crate) paused_by: Option<String>,
    pub(crate) counts: Counts,
    pub(crate) oldest_ready_age_ms: Option<u64>,
    /// Maximum number of running jobs; `null` without a limit.
    pub(crate) concurrency: Option<u32>,
    pub(crate) enqueued_per_s: f64,
    pub(crate) done_per_s: f64,
    /// 95th percentile of the waiting time, over jobs claimed in the last minute.
    pub(crate) wait_p95_ms: Option<u64>,
    /// 95th percentile of the run time, over attempts that ended in the last minute.
    pub(crate) run_p95_ms: Option<u64>,
    pub(crate) run_p50_ms: Option<u64>,
    /// Whether it has due jobs that no worker asks for.
    pub(crate) starved: bool,
    /// Changes whenever anything but ages and rates changes.
    pub(crate) rev: u64,
}

/// The store, its size and commit times.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct StoreFacts {
    pub(crate) kind: &'static str,
    pub(crate) durability: &'static str,
    pub(crate) bytes: u64,
    pub(crate) wal_bytes: u64,
    /// Space on its disk, if the file system reports it.
    pub(crate) free_bytes: Option<u64>,
    /// Size of its disk.
    pub(crate) total_bytes: Option<u64>,
    /// Commit times of this server.
    pub(crate) commit_p50_ms: f64,
    pub(crate) commit_p95_ms: f64,
}

/// Counts and latencies over time, in steps.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct History {
    /// The start of the first step.
    pub(crate) from: Time,
    pub(crate) step_ms: u64,
    /// `store`: the figures are those of all servers and workers, also of earlier ones.
    pub(crate) covers: Cow<'static, str>,
    pub(crate) series: HistorySeries,
    /// At most 200, the latest. Older ones are as exact as the steps in which the store keeps them.
    pub(crate) marks: Vec<HistoryMark>,
    /// With `split=queue`: each queue with what was done in it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) queues: Vec<QueueHistory>,
}

/// A value for each step; `null` where it is not known.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct HistorySeries {
    pub(crate) enqueued: Vec<f64>,
    pub(crate) done: Vec<f64>,
    pub(crate) failed: Vec<f64>,
    pub(crate) retried: Vec<f64>,
    pub(crate) queued: Vec<Option<u64>>,
    pub(crate) processing: Vec<Option<u64>>,
    pub(crate) oldest_age_ms: Vec<Option<u64>>,
    pub(crate) wait_p50_ms: Vec<Option<u64>>,
    pub(crate) wait_p95_ms: Vec<Option<u64>>,
    pub(crate) run_p50_ms: Vec<Option<u64>>,
    pub(crate) run_p95_ms: Vec<Option<u64>>,
}

/// An event that explains a change of the rates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct HistoryMark {
    pub(crate) at: Time,
    /// `started` (a server or a worker process), `paused`, `resumed` or `settings`.
    pub(crate) what: Cow<'static, str>,
    pub(crate) queue: Option<String>,
}

/// Completed jobs of one queue, in 60 steps over the same time.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct QueueHistory {
    pub(crate) name: String,
    pub(crate) done: Vec<u64>,
}
