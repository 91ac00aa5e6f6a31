//! How a store and its server are doing, as clients see it.

use schemars::JsonSchema;
use serde::Serialize;
use windlass_core::{Counts as Counters, View};

use super::time::Time;

/// How many jobs stand where. `queued` are due, `scheduled` are not yet.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
pub(crate) struct Counts {
    queued: u64,
    scheduled: u64,
    processing: u64,
    done: u64,
    failed: u64,
    cancelled: u64,
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
}

/// One screen about a store and whoever answers for it. No job is looked at.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct Status {
    pub(crate) version: &'static str,
    pub(crate) now: Time,
    /// `good`, or what is wrong.
    pub(crate) health: String,
    /// Jobs over all queues.
    pub(crate) counts: Counts,
    /// For how long the longest-waiting due job has been due.
    pub(crate) oldest_ready_age_ms: Option<u64>,
    /// When the next scheduled job falls due.
    pub(crate) next_due: Option<Time>,
    pub(crate) queues: QueueSums,
    pub(crate) workers: WorkerSums,
    /// What this server has counted lately; `null` where a command works on the store itself.
    pub(crate) rates: Option<Rates>,
    pub(crate) store: StoreSize,
}

/// Queues in sum.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct QueueSums {
    pub(crate) total: usize,
    pub(crate) paused: Vec<String>,
}

/// Workers in sum.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
pub(crate) struct WorkerSums {
    pub(crate) alive: usize,
    /// Not heard of lately.
    pub(crate) stale: usize,
    /// Jobs that those alive hold.
    pub(crate) running: usize,
}

/// What one server has committed in the last minute, per second. Worker processes on the same
/// store count for themselves.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct Rates {
    /// Over how long.
    pub(crate) window_ms: u64,
    pub(crate) enqueued_per_s: f64,
    pub(crate) started_per_s: f64,
    pub(crate) done_per_s: f64,
    pub(crate) failed_per_s: f64,
}

/// The files of the store.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct StoreSize {
    pub(crate) path: String,
    pub(crate) bytes: u64,
    pub(crate) wal_bytes: u64,
}

/// What a check of the store has found.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct Checkup {
    /// Whether nothing is wrong.
    pub(crate) ok: bool,
    pub(crate) jobs: u64,
    pub(crate) findings: Vec<String>,
    /// How many further findings there are.
    pub(crate) more: usize,
    /// Whether every page of the file was looked at too.
    pub(crate) pages_checked: bool,
    pub(crate) took_ms: u64,
}

impl Checkup {
    /// Findings, of which so many are shown.
    pub(crate) const SHOWN: usize = 1_000;
}
