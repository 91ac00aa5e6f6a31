//! Workers and the state of the server, as clients see them.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use windlass_core::store::WorkerRow;
use windlass_core::{Kinds, Queues, Wall};

use super::time::Time;

/// A body with nothing in it.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nothing {}

/// All workers that the store knows.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct WorkerList {
    pub(crate) workers: Vec<Worker>,
    /// Cursor of the next page; `null` on the last one, and without `limit`.
    #[serde(default)]
    pub(crate) next: Option<String>,
}

/// A server, worker process, remote worker or program that runs jobs.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Worker {
    pub(crate) id: String,
    pub(crate) host: String,
    pub(crate) pid: Option<u32>,
    /// `local`, `process` or `remote`.
    pub(crate) kind: Cow<'static, str>,
    /// Version of the program that runs it, of a remote worker as its polls give it; null if not
    /// known.
    pub(crate) version: Option<String>,
    /// The worker whose process writes to the store for it: itself, or of a remote worker the
    /// server that it polled last; null if not known.
    pub(crate) node: Option<String>,
    pub(crate) started_at: Time,
    pub(crate) last_heartbeat: Time,
    /// Whether a heartbeat came recently.
    pub(crate) alive: bool,
    /// Whether it is stopping: it claims no more jobs, and is listed until its running jobs end.
    pub(crate) stopping: bool,
    /// Maximum number of jobs it runs at once; of a remote worker, the `max` of its poll.
    pub(crate) slots: usize,
    /// The queues it takes jobs from; null if from all.
    pub(crate) queues: Option<Vec<String>>,
    /// The kinds it runs; null if all, or all but some.
    pub(crate) kinds: Option<Vec<String>>,
    /// The jobs it runs, by id; at most 20.
    pub(crate) running: Vec<u64>,
    /// Number of jobs that it runs.
    pub(crate) running_total: usize,
}

/// Jobs that a worker is listed with.
const RUNNING: usize = 20;

impl Worker {
    pub(crate) fn of(row: &WorkerRow, now: Wall) -> Self {
        let queues = match &row.worker.demand.queues {
            Queues::All => None,
            Queues::Only(names) => Some(names.iter().map(ToString::to_string).collect()),
        };
        let kinds = match &row.worker.demand.kinds {
            Kinds::All | Kinds::Except(_) => None,
            Kinds::Only(kinds) => Some(kinds.iter().map(ToString::to_string).collect()),
        };
        Self {
            id: row.worker.id.as_str().into(),
            host: row.worker.host.as_ref().into(),
            pid: row.worker.pid,
            kind: row.worker.kind.as_str().into(),
            version: row.worker.version.as_ref().map(ToString::to_string),
            node: row.worker.node().map(ToString::to_string),
            started_at: Time(row.started_at),
            last_heartbeat: Time(row.last_seen),
            alive: row.is_alive(now),
            stopping: row.stopping,
            slots: row.worker.slots,
            queues,
            kinds,
            running: row.running.iter().take(RUNNING).map(|id| id.get()).collect(),
            running_total: row.running.len(),
        }
    }

    /// How it is, in one word.
    pub(crate) fn state(&self) -> &'static str {
        match (self.alive, self.stopping) {
            (false, _) => "stale",
            (true, true) => "stopping",
            (true, false) => "alive",
        }
    }
}

/// Response of `GET /livez`.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct Alive {
    pub(crate) alive: bool,
}

/// Whether the server takes requests and stores jobs.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct Ready {
    #[expect(clippy::struct_field_names, reason = "the contract names it so")]
    pub(crate) ready: bool,
    /// Whether new jobs are taken; false while the disk has too little space for them.
    pub(crate) enqueues: bool,
    /// Why it is not ready, or does not take new jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) detail: Option<String>,
}
