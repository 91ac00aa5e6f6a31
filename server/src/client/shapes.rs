//! The shapes of the contract as commands read them. Payloads stay the text they are.

use serde::Deserialize;
use serde_json::value::RawValue;

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

/// The queues, by name.
#[derive(Debug, Deserialize)]
pub(crate) struct QueueNames {
    pub(crate) queues: Vec<QueueName>,
}

/// One of them.
#[derive(Debug, Deserialize)]
pub(crate) struct QueueName {
    pub(crate) name: String,
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
