//! What the dashboard stands on: who asks, the state of everything at one instant, and how it came
//! to be so.

use schemars::JsonSchema;
use serde::Serialize;

use super::status::Counts;
use super::time::Time;

/// Who asks, and what they may do.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct Me {
    /// The name of the token; `null` where no tokens are configured.
    pub(crate) name: Option<String>,
    /// `read`, `enqueue`, `work` or `admin`, which includes the others.
    pub(crate) scopes: Vec<&'static str>,
    /// Whether the server takes requests without a token.
    pub(crate) open: bool,
    /// What this environment is called.
    pub(crate) label: Option<String>,
}

/// The state of everything at one instant. No job is looked at but the one done last.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct Snapshot {
    pub(crate) at: Time,
    /// Whether `queues` has every queue; if not, those that changed since the event before.
    pub(crate) full: bool,
    /// The build of the dashboard that this server holds.
    pub(crate) build: &'static str,
    pub(crate) version: &'static str,
    /// The machine that this server runs on.
    pub(crate) host: String,
    pub(crate) label: Option<String>,
    /// `good`, or what is wrong.
    pub(crate) health: String,
    /// When this server started.
    pub(crate) started_at: Time,
    /// Jobs over all queues.
    pub(crate) counts: Counts,
    /// For how long the longest-waiting due job has been due.
    pub(crate) oldest_ready_age_ms: Option<u64>,
    /// When the next scheduled job falls due.
    pub(crate) next_due: Option<Time>,
    /// When the job that was done last was done, of those that are kept.
    pub(crate) last_done_at: Option<Time>,
    pub(crate) slots: Slots,
    pub(crate) workers: WorkerCounts,
    /// What happened lately, whoever ran it.
    pub(crate) rates: LateRates,
    pub(crate) queues: Vec<QueueLine>,
    /// Queues of earlier events that are gone.
    pub(crate) removed: Vec<String>,
    /// Whether there are queues that are not told here: `GET /queues` has them all.
    pub(crate) more: bool,
    /// How many queues there are.
    pub(crate) queues_total: usize,
    pub(crate) store: StoreFacts,
}

/// The slots of the workers that are alive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct Slots {
    pub(crate) total: usize,
    pub(crate) busy: usize,
}

/// Workers in sum.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct WorkerCounts {
    pub(crate) alive: usize,
    /// Silent for too long.
    pub(crate) stale: usize,
    /// Jobs that silent workers hold.
    pub(crate) stale_jobs: usize,
}

/// What happened in the last ten seconds, or since this is watched if that is shorter.
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
    /// `null` if it is not known to this server.
    pub(crate) paused_at: Option<Time>,
    /// The name of the token that paused it, if it is known to this server.
    pub(crate) paused_by: Option<String>,
    pub(crate) counts: Counts,
    pub(crate) oldest_ready_age_ms: Option<u64>,
    /// How many of its jobs may run at once.
    pub(crate) concurrency: Option<u32>,
    pub(crate) enqueued_per_s: f64,
    pub(crate) done_per_s: f64,
    /// 95 of 100 jobs claimed in the last minute had waited no longer.
    pub(crate) wait_p95_ms: Option<u64>,
    /// 95 of 100 attempts that ended in the last minute ran no longer.
    pub(crate) run_p95_ms: Option<u64>,
    pub(crate) run_p50_ms: Option<u64>,
    /// Whether jobs wait that no worker takes.
    pub(crate) starved: bool,
    /// Another number once anything but ages and rates has changed.
    pub(crate) rev: u64,
}

/// The store and what it costs.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct StoreFacts {
    pub(crate) kind: &'static str,
    pub(crate) durability: &'static str,
    pub(crate) bytes: u64,
    pub(crate) wal_bytes: u64,
    /// Of its disk, if the file system says.
    pub(crate) free_bytes: Option<u64>,
    /// Of the commits of this server.
    pub(crate) commit_p50_ms: f64,
    pub(crate) commit_p95_ms: f64,
}

/// What happened over some time, in steps.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct History {
    /// The start of the first step.
    pub(crate) from: Time,
    pub(crate) step_ms: u64,
    /// `store`: counters and times are those of all servers and workers, also of earlier ones. What
    /// waits and runs was seen by this server.
    pub(crate) covers: &'static str,
    pub(crate) series: HistorySeries,
    pub(crate) marks: Vec<HistoryMark>,
    /// With `split=queue`: each queue with what was done in it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) queues: Vec<QueueHistory>,
}

/// A value for each step; `null` where it is not known.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
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

/// Something that explains a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct HistoryMark {
    pub(crate) at: Time,
    /// `started`, `paused`, `resumed` or `settings`.
    pub(crate) what: &'static str,
    pub(crate) queue: Option<String>,
}

/// What was done in one queue, in 60 steps over the same time.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct QueueHistory {
    pub(crate) name: String,
    pub(crate) done: Vec<u64>,
}
