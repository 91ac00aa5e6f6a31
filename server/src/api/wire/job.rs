//! A job as clients see it, with its attempts and reasons.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::value::RawValue;
use windlass_core::store::JobDetail;
use windlass_core::{
    self as core, Attempt, Explanation, JobId, Payload, RetryPolicy, StateName, Strategy,
};

use super::time::{Time, rfc3339};
use crate::app::now;

/// JSON as it was stored, written and read without being understood.
#[derive(Debug, Clone)]
pub(crate) struct Raw(pub(super) Payload);

impl Serialize for Raw {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match serde_json::from_str::<&RawValue>(self.0.as_str()) {
            Ok(raw) => raw.serialize(serializer),
            // Not written by us: a text that is no JSON is still shown.
            Err(_) => serializer.serialize_str(self.0.as_str()),
        }
    }
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Payload::within(raw.get(), usize::MAX).map(Self).map_err(de::Error::custom)
    }
}

impl Raw {
    pub(crate) fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl JsonSchema for Raw {
    fn schema_name() -> Cow<'static, str> {
        "Json".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "description": "Any JSON, as it came in." })
    }
}

/// How long a failed job waits for its next attempt.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "RetryPolicy")]
pub(crate) struct Retry {
    /// `fixed`, `linear` or `exponential`.
    strategy: Cow<'static, str>,
    /// Backoff after the first failure.
    initial_ms: u64,
    /// Factor of exponential backoff.
    factor: Option<f64>,
    /// Maximum time between attempts.
    cap_ms: u64,
    /// Jitter as a fraction of the backoff.
    jitter: f64,
}

impl Retry {
    pub(crate) fn of(policy: &RetryPolicy) -> Self {
        let factor = match policy.strategy() {
            Strategy::Exponential { factor } => Some(f64::from(factor) / 1_000.0),
            Strategy::Fixed | Strategy::Linear => None,
        };
        Self {
            strategy: policy.strategy().name().into(),
            initial_ms: policy.initial().get(),
            factor,
            cap_ms: policy.cap().get(),
            jitter: f64::from(policy.jitter()) / 1_000.0,
        }
    }
}

/// A job as it is stored.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Job {
    pub(crate) id: u64,
    pub(crate) queue: String,
    pub(crate) kind: String,
    /// `queued`, `processing`, `done`, `failed` or `cancelled`.
    pub(crate) state: Cow<'static, str>,
    pub(crate) payload: Raw,
    pub(crate) priority: i16,
    /// Claims charged in this generation.
    pub(crate) attempts: u32,
    pub(crate) max_retries: u32,
    /// Number of replays.
    pub(crate) generation: u32,
    /// Time at which it is or was due.
    pub(crate) run_at: Time,
    pub(crate) timeout_ms: Option<u64>,
    pub(crate) visibility_timeout_ms: u64,
    pub(crate) retry: Retry,
    pub(crate) idempotency_key: Option<String>,
    /// The worker that runs it.
    pub(crate) worker: Option<String>,
    /// End of the lease unless a heartbeat extends it.
    pub(crate) lease_until: Option<Time>,
    pub(crate) created_at: Time,
    pub(crate) updated_at: Time,
    pub(crate) started_at: Option<Time>,
    pub(crate) finished_at: Option<Time>,
    pub(crate) last_error: Option<String>,
    pub(crate) result: Option<Raw>,
    /// The latest progress that a worker reported.
    pub(crate) progress: Option<Raw>,
    /// The error group of a dead letter.
    #[serde(default)]
    pub(crate) error_group: Option<String>,
}

/// What earlier attempts of a job have left beside its row.
#[derive(Debug)]
pub(crate) struct Notes {
    last_error: Option<core::Excerpt>,
    progress: Option<Payload>,
}

impl Notes {
    pub(crate) fn of(detail: JobDetail) -> Self {
        Self { last_error: detail.last_error, progress: detail.progress }
    }

    /// Their length.
    pub(crate) fn bytes(&self) -> u64 {
        let error = self.last_error.as_ref().map_or(0, |error| error.as_str().len());
        let progress = self.progress.as_ref().map_or(0, |progress| progress.as_str().len());
        (error + progress) as u64
    }
}

impl Job {
    /// A job without what is kept beside its row.
    pub(crate) fn bare(job: &core::Job, payload: Payload) -> Self {
        let lease = job.lease();
        Self {
            id: job.id.get(),
            queue: job.queue.as_str().into(),
            kind: job.kind.as_str().into(),
            state: job.state.name().as_str().into(),
            payload: Raw(payload),
            priority: job.priority.get(),
            attempts: job.attempts,
            max_retries: job.max_retries.get(),
            generation: job.generation,
            run_at: Time(job.run_at),
            timeout_ms: job.timeout.map(core::JobTimeout::get),
            visibility_timeout_ms: job.visibility_timeout.get(),
            retry: Retry::of(&job.retry),
            idempotency_key: job.idempotency_key.as_ref().map(|key| key.as_str().into()),
            worker: lease.map(|lease| lease.worker.as_str().into()),
            lease_until: lease.map(|lease| Time(lease.until)),
            created_at: Time(job.created_at),
            updated_at: Time(job.updated_at),
            started_at: job.started_at.map(Time),
            finished_at: job.finished_at().map(Time),
            last_error: None,
            result: None,
            progress: None,
            error_group: job.state.group().map(|group| group.to_string()),
        }
    }

    /// Adds what earlier attempts have left beside the row.
    pub(crate) fn with_notes(self, notes: &Notes) -> Self {
        Self {
            last_error: notes.last_error.as_ref().map(|error| error.as_str().into()),
            progress: notes.progress.clone().map(Raw),
            ..self
        }
    }

    /// Whether it has its verdict.
    pub(crate) fn is_finished(&self) -> bool {
        let state = StateName::ALL.into_iter().find(|state| state.as_str() == self.state);
        state.is_some_and(StateName::is_finished)
    }

    /// Whether it waits for an instant that is still to come.
    pub(crate) fn is_scheduled(&self) -> bool {
        self.state == StateName::Queued.as_str() && self.run_at.0 > now()
    }

    pub(crate) fn of(detail: JobDetail) -> Self {
        Self {
            last_error: detail.last_error.map(|error| error.as_str().into()),
            result: detail.result.map(Raw),
            progress: detail.progress.map(Raw),
            ..Self::bare(&detail.job, detail.payload)
        }
    }
}

/// A single job.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct JobAnswer {
    pub(crate) job: Job,
}

/// A page of jobs.
// A command that passes them on reads each as a text.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "JobList")]
pub(crate) struct JobList<J = Job> {
    pub(crate) jobs: Vec<J>,
    /// The cursor of the next page; `null` at the end. A page may be short and still have a next.
    pub(crate) next: Option<String>,
    /// Only of a search: number of jobs that were read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) scanned: Option<usize>,
    /// Only of a search that ended because it would cost too much: the instant it got to. The next
    /// page goes on from there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reached: Option<Time>,
}

/// Attempts that did not complete, oldest first.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Attempts {
    pub(crate) attempts: Vec<OneAttempt>,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Attempt")]
pub(crate) struct OneAttempt {
    pub(crate) epoch: u64,
    pub(crate) worker: String,
    pub(crate) started_at: Time,
    pub(crate) ended_at: Time,
    /// `failed`, `timed_out`, `expired`, `panicked` or `released`.
    pub(crate) outcome: Cow<'static, str>,
    pub(crate) error: Option<String>,
    pub(crate) exit_code: Option<i32>,
    /// The last 16 KiB of its standard output.
    pub(crate) stdout: Option<String>,
    /// The last 16 KiB of its standard error.
    pub(crate) stderr: Option<String>,
    /// Whether a text was cut.
    pub(crate) truncated: bool,
}

impl Attempts {
    pub(crate) fn of(attempts: &[Attempt]) -> Self {
        Self { attempts: attempts.iter().map(OneAttempt::of).collect() }
    }
}

impl OneAttempt {
    fn of(attempt: &Attempt) -> Self {
        let texts = [&attempt.error, &attempt.stdout, &attempt.stderr];
        let text = |excerpt: &Option<core::Excerpt>| excerpt.as_ref().map(|e| e.as_str().into());
        Self {
            epoch: attempt.epoch.get(),
            worker: attempt.worker.as_str().into(),
            started_at: Time(attempt.started_at),
            ended_at: Time(attempt.ended_at),
            outcome: attempt.outcome.as_str().into(),
            error: text(&attempt.error),
            exit_code: attempt.exit_code,
            stdout: text(&attempt.stdout),
            stderr: text(&attempt.stderr),
            truncated: texts.iter().any(|text| text.as_ref().is_some_and(core::Excerpt::is_cut)),
        }
    }
}

/// Why a job is in its state.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Explained {
    pub(crate) id: u64,
    pub(crate) state: Cow<'static, str>,
    /// Every reason that holds.
    pub(crate) reasons: Vec<Reason>,
    /// When the state can next change by itself.
    pub(crate) next_change_at: Option<Time>,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Reason {
    /// A stable name: `ready`, `delayed`, `queue_paused`, `no_worker`, `concurrency_full`,
    /// `kind_full`, `rate_limited`, `behind`, `leased`, `done`, `failed` or `cancelled`.
    pub(crate) code: Cow<'static, str>,
    /// The reason as a sentence.
    pub(crate) detail: String,
}

impl Explained {
    pub(crate) fn of(id: JobId, state: StateName, explanation: &Explanation) -> Self {
        let reason = |reason: &core::Reason| Reason {
            code: reason.code().into(),
            detail: reason.detail(rfc3339),
        };
        Self {
            id: id.get(),
            state: state.as_str().into(),
            reasons: explanation.reasons.iter().map(reason).collect(),
            next_change_at: explanation.next_change_at.map(Time),
        }
    }
}
