//! The shapes of the contract as commands read them. Payloads stay the text they are.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use windlass_core::StateName;

use crate::app::now;
use crate::wire::instant;

/// A job.
#[derive(Debug, Deserialize)]
pub(crate) struct Job {
    pub(crate) id: u64,
    pub(crate) queue: String,
    pub(crate) kind: String,
    pub(crate) state: String,
    pub(crate) payload: Box<RawValue>,
    pub(crate) priority: i64,
    pub(crate) attempts: u64,
    pub(crate) max_retries: u64,
    pub(crate) generation: u64,
    pub(crate) run_at: String,
    pub(crate) timeout_ms: Option<u64>,
    pub(crate) visibility_timeout_ms: u64,
    pub(crate) idempotency_key: Option<String>,
    pub(crate) worker: Option<String>,
    pub(crate) lease_until: Option<String>,
    pub(crate) created_at: String,
    pub(crate) started_at: Option<String>,
    pub(crate) finished_at: Option<String>,
    pub(crate) last_error: Option<String>,
    pub(crate) result: Option<Box<RawValue>>,
    pub(crate) progress: Option<Box<RawValue>>,
}

impl Job {
    /// Whether it has its verdict.
    pub(crate) fn is_finished(&self) -> bool {
        let state = StateName::ALL.into_iter().find(|state| state.as_str() == self.state);
        state.is_some_and(StateName::is_finished)
    }

    /// Whether it waits for an instant that is still to come.
    pub(crate) fn is_scheduled(&self) -> bool {
        let due = instant(&self.run_at);
        self.state == StateName::Queued.as_str() && due.is_ok_and(|due| due > now())
    }
}

/// A stored job.
#[derive(Debug, Deserialize)]
pub(crate) struct Enqueued {
    pub(crate) job: Job,
    pub(crate) duplicate: bool,
}

/// A page of jobs, each still as text.
#[derive(Debug, Deserialize)]
pub(crate) struct Jobs {
    pub(crate) jobs: Vec<Box<RawValue>>,
    pub(crate) next: Option<String>,
}

/// The queues.
#[derive(Debug, Deserialize)]
pub(crate) struct Queues {
    pub(crate) queues: Vec<Queue>,
}

/// A queue. Its settings stay as they are written.
#[derive(Debug, Deserialize)]
pub(crate) struct Queue {
    pub(crate) name: String,
    pub(crate) paused: bool,
    pub(crate) counts: Counts,
    pub(crate) oldest_ready_age_ms: Option<u64>,
    pub(crate) settings: Map<String, Value>,
}

/// How many jobs stand where.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(crate) struct Counts {
    pub(crate) queued: u64,
    pub(crate) scheduled: u64,
    pub(crate) processing: u64,
    pub(crate) done: u64,
    pub(crate) failed: u64,
    pub(crate) cancelled: u64,
}

/// The workers.
#[derive(Debug, Deserialize)]
pub(crate) struct Workers {
    pub(crate) workers: Vec<Worker>,
}

/// A worker.
#[derive(Debug, Deserialize)]
pub(crate) struct Worker {
    pub(crate) id: String,
    pub(crate) host: String,
    pub(crate) pid: Option<u32>,
    pub(crate) kind: String,
    pub(crate) last_heartbeat: String,
    pub(crate) alive: bool,
    #[serde(default)]
    stopping: bool,
    pub(crate) slots: Option<usize>,
    pub(crate) running: Vec<u64>,
}

impl Worker {
    pub(crate) fn state(&self) -> &'static str {
        match (self.alive, self.stopping) {
            (false, _) => "stale",
            (true, true) => "stopping",
            (true, false) => "alive",
        }
    }
}

/// Dead letters that were replayed or purged.
#[derive(Debug, Deserialize)]
pub(crate) struct Bulk {
    #[serde(alias = "replayed", alias = "purged")]
    pub(crate) count: u64,
    pub(crate) more: bool,
    pub(crate) next: Option<String>,
}

/// What became of each job of a batch.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct BatchAnswer {
    pub(crate) results: Vec<BatchResult>,
}

/// One of them.
#[derive(Debug, Deserialize)]
pub(crate) struct BatchResult {
    pub(crate) duplicate: Option<bool>,
    pub(crate) error: Option<Refused>,
}

/// Why it was refused.
#[derive(Debug, Deserialize)]
pub(crate) struct Refused {
    detail: String,
    #[serde(default)]
    errors: Vec<FieldError>,
}

/// What is wrong with one field.
#[derive(Debug, Deserialize)]
pub(crate) struct FieldError {
    pub(crate) pointer: String,
    pub(crate) detail: String,
}

impl Refused {
    /// Everything that is wrong, on one line.
    pub(crate) fn why(self) -> String {
        if self.errors.len() < 2 {
            return self.detail;
        }
        let each = self.errors.iter().map(|error| format!("{}: {}", error.pointer, error.detail));
        each.collect::<Vec<_>>().join("; ")
    }
}

/// Why a job is where it is.
#[derive(Debug, Deserialize)]
pub(crate) struct Explained {
    pub(crate) id: u64,
    pub(crate) state: String,
    pub(crate) reasons: Vec<Reason>,
    pub(crate) next_change_at: Option<String>,
}

/// One reason.
#[derive(Debug, Deserialize)]
pub(crate) struct Reason {
    pub(crate) code: String,
    pub(crate) detail: String,
}

/// Attempts that did not complete.
#[derive(Debug, Deserialize)]
pub(crate) struct Attempts {
    pub(crate) attempts: Vec<Attempt>,
}

/// One of them.
#[derive(Debug, Deserialize)]
pub(crate) struct Attempt {
    pub(crate) epoch: u64,
    pub(crate) worker: String,
    pub(crate) ended_at: String,
    pub(crate) outcome: String,
    pub(crate) error: Option<String>,
    pub(crate) exit_code: Option<i32>,
    pub(crate) stdout: Option<String>,
    pub(crate) stderr: Option<String>,
    pub(crate) truncated: bool,
}
