//! A job as clients send it, alone or in a batch, and the answers.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use windlass_core::{
    self as core, Delay, Idempotency, IdempotencyKey, JobTimeout, Kind, LeaseLength, MaxRetries,
    Millis, Payload, Priority, QueueName, RetryPolicy, Strategy, When,
};
use windlass_runtime_tokio::fingerprint;

use super::job::Job;
use super::parse::Faults;
use super::time::instant;
use crate::api::problem::{Document, Problem};

/// A job to enqueue. What is not given is taken from its queue's settings, then the defaults.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewJob<'a> {
    /// Any JSON; `null` if absent. It is stored and returned as the text that came in.
    #[serde(borrow)]
    #[schemars(with = "Option<serde_json::Value>")]
    payload: Option<&'a RawValue>,
    /// What to run; a letter or digit, then up to 127 letters, digits and `._:-`.
    #[schemars(regex(pattern = NAME))]
    pub(crate) kind: Option<String>,
    /// The same as `kind`.
    #[serde(rename = "type")]
    #[schemars(regex(pattern = NAME))]
    kind_too: Option<String>,
    /// Queue of the job.
    #[schemars(regex(pattern = NAME))]
    queue: Option<String>,
    /// Priority; higher runs first.
    #[schemars(range(min = -1_000, max = 1_000))]
    priority: Option<i64>,
    /// Maximum number of retries.
    #[schemars(range(min = 0, max = 1_000))]
    max_retries: Option<i64>,
    /// Time at which it is due, at most ten years ahead; now if it has passed.
    #[schemars(extend("format" = "date-time"))]
    run_at: Option<String>,
    /// Delay until it is due.
    #[schemars(range(min = 0, max = 315_619_200_000_i64))]
    delay_ms: Option<i64>,
    /// Idempotency key: the same request with the same key returns the first job.
    #[schemars(length(min = 1, max = 255), regex(pattern = r"^[!-~]+$"))]
    idempotency_key: Option<String>,
    /// Timeout of an attempt.
    #[schemars(range(min = 1, max = 604_800_000))]
    timeout_ms: Option<i64>,
    /// Visibility timeout: length of its lease without heartbeats.
    #[schemars(range(min = 1_000, max = 43_200_000))]
    visibility_timeout_ms: Option<i64>,
    /// Retry policy; that of the queue if absent.
    retry: Option<NewRetry>,
}

/// The names that kinds and queues may have.
pub(crate) const NAME: &str = "^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$";

/// Retry policy. Absent fields have their defaults.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewRetry {
    /// Backoff strategy; `exponential` if absent.
    strategy: Option<NewStrategy>,
    /// Backoff after the first failure; 1000 if absent.
    #[schemars(range(min = 0, max = 31_536_000_000_i64))]
    initial_ms: Option<i64>,
    /// Factor of exponential backoff, 1 to 100; 2 if absent.
    #[schemars(range(min = 1, max = 100))]
    factor: Option<f64>,
    /// Maximum backoff; 3600000 if absent.
    #[schemars(range(min = 0, max = 31_536_000_000_i64))]
    cap_ms: Option<i64>,
    /// Jitter as a fraction of the backoff, 0 to 1; 0.25 if absent.
    #[schemars(range(min = 0, max = 1))]
    jitter: Option<f64>,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "RetryStrategy")]
enum NewStrategy {
    Fixed,
    Linear,
    Exponential,
}

impl NewRetry {
    /// The policy, with every part checked by core.
    pub(super) fn check(&self, faults: &mut Faults) -> Option<RetryPolicy> {
        let default = RetryPolicy::default();
        let mut millis = |field: &str, given: Option<i64>, default: Millis| match given {
            None => Some(default),
            Some(given) => {
                let millis = u64::try_from(given).map_err(|_| "must not be negative");
                faults.check(&format!("/retry/{field}"), millis).map(Millis::new)
            }
        };
        let initial = millis("initial_ms", self.initial_ms, default.initial())?;
        let cap = millis("cap_ms", self.cap_ms, default.cap())?;
        let jitter = self.jitter.map_or(default.jitter(), thousandths);
        let strategy = match (self.strategy, self.factor) {
            (Some(NewStrategy::Fixed | NewStrategy::Linear), Some(_)) => {
                faults.add("/retry/factor", "is for the strategy `exponential`; leave it out");
                return None;
            }
            (Some(NewStrategy::Fixed), None) => Strategy::Fixed,
            (Some(NewStrategy::Linear), None) => Strategy::Linear,
            (Some(NewStrategy::Exponential) | None, factor) => {
                Strategy::Exponential { factor: factor.map_or(2_000, thousandths) }
            }
        };
        let pointer = |error: &core::RetryError| match error {
            core::RetryError::TooLong { field, .. } => format!("/retry/{field}"),
            core::RetryError::Factor { .. } => "/retry/factor".into(),
            core::RetryError::Jitter { .. } => "/retry/jitter".into(),
        };
        let policy = RetryPolicy::new(strategy, initial, cap, jitter);
        policy.map_err(|error| faults.add(&pointer(&error), error)).ok()
    }
}

/// A fraction in thousandths; one that cannot be becomes one that core refuses.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the value is in the range of u32 there"
)]
fn thousandths(fraction: f64) -> u32 {
    let thousandths = (fraction * 1_000.0).round();
    if (0.0..=4e9).contains(&thousandths) { thousandths as u32 } else { u32::MAX }
}

impl NewJob<'_> {
    /// The job as core takes it. `header` is the `Idempotency-Key` of the request.
    pub(crate) fn check(&self, header: Option<&str>) -> Result<core::NewJob, Problem> {
        let mut faults = Faults::default();
        let kind = self.kind(&mut faults);
        let queue = self.queue.as_deref().map(QueueName::new);
        let queue = faults.maybe("/queue", queue).unwrap_or_default();
        let payload = faults.raw("/payload", self.payload).unwrap_or_else(Payload::null);
        let mut job = core::NewJob::new(kind, payload);
        job.queue = queue;
        let (least, most) = (Priority::MIN.get(), Priority::MAX.get());
        job.priority = faults
            .number("priority", self.priority, (least, most), Priority::new)
            .unwrap_or(Priority::DEFAULT);
        let bounds = (MaxRetries::MIN.get(), MaxRetries::MAX.get());
        job.max_retries = faults.number("max_retries", self.max_retries, bounds, MaxRetries::new);
        let bounds = (JobTimeout::MIN.get(), JobTimeout::MAX.get());
        job.timeout = faults.number("timeout_ms", self.timeout_ms, bounds, JobTimeout::new);
        job.visibility_timeout = lease_length(&mut faults, self.visibility_timeout_ms);
        job.retry = self.retry.as_ref().and_then(|retry| retry.check(&mut faults));
        job.when = self.when(&mut faults);
        job.idempotency = self.idempotency(header, &job.payload, &mut faults);
        faults.refuse()?;
        Ok(job)
    }

    fn kind(&self, faults: &mut Faults) -> Kind {
        let (kind, pointer) = match (&self.kind, &self.kind_too) {
            (Some(kind), Some(other)) if kind != other => {
                faults.add("/type", "differs from `kind`; give one of the two");
                return Kind::default();
            }
            (Some(kind), _) => (kind, "/kind"),
            (None, Some(kind)) => (kind, "/type"),
            (None, None) => return Kind::default(),
        };
        faults.check(pointer, Kind::new(kind)).unwrap_or_default()
    }

    fn when(&self, faults: &mut Faults) -> When {
        if self.run_at.is_some() && self.delay_ms.is_some() {
            faults.add("/delay_ms", "cannot be given together with `run_at`; give one of the two");
        }
        if let Some(text) = &self.run_at {
            return faults.check("/run_at", instant(text)).map_or(When::Now, When::At);
        }
        let bounds = (Delay::MIN.get(), Delay::MAX.get());
        let delay = faults.number("delay_ms", self.delay_ms, bounds, Delay::new);
        delay.map_or(When::Now, When::After)
    }

    fn idempotency(
        &self,
        header: Option<&str>,
        payload: &Payload,
        faults: &mut Faults,
    ) -> Option<Idempotency> {
        let key = match (self.idempotency_key.as_deref(), header) {
            (Some(field), Some(header)) if field != header => {
                faults.add("/idempotency_key", "differs from the header; give one of the two");
                return None;
            }
            (field, header) => field.or(header)?,
        };
        let key = faults.check("/idempotency_key", IdempotencyKey::new(key))?;
        let payload = faults.check("/payload", fingerprint(payload.as_str()))?;
        Some(Idempotency { key, payload })
    }
}

/// The length of a lease, if one is given.
pub(super) fn lease_length(faults: &mut Faults, given: Option<i64>) -> Option<LeaseLength> {
    let bounds = (LeaseLength::MIN.get(), LeaseLength::MAX.get());
    faults.number("visibility_timeout_ms", given, bounds, LeaseLength::new)
}

/// A job was stored, or had been stored before.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Enqueued {
    pub(crate) job: Job,
    /// Whether an earlier request with the same idempotency key had made it.
    pub(crate) duplicate: bool,
    /// What the job survives: `fsync` is a kill of the process and a power cut.
    pub(crate) durability: Cow<'static, str>,
}

/// Jobs to enqueue in one commit.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Batch<'a> {
    /// Up to 10 000. Each has its own answer: one invalid job does not affect the others.
    #[serde(borrow)]
    #[schemars(with = "Vec<NewJob<'a>>")]
    pub(crate) jobs: Vec<&'a RawValue>,
}

/// One answer per job, in the order of the request.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct BatchAnswer {
    pub(crate) results: Vec<BatchResult>,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum BatchResult {
    /// The job is stored.
    Stored { id: u64, duplicate: bool },
    /// The job was refused.
    Refused { error: Document },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::wire::json;

    fn checked(body: &str, header: Option<&str>) -> Result<core::NewJob, Problem> {
        json::<NewJob<'_>>(body.as_bytes())?.check(header)
    }

    fn pointers(body: &str) -> Vec<String> {
        let problem = checked(body, None).unwrap_err();
        problem.errors().iter().map(|error| error.pointer.clone()).collect()
    }

    #[test]
    fn nothing_given_is_a_job_with_every_default() {
        assert_eq!(checked("{}", None).unwrap(), {
            core::NewJob::new(Kind::default(), Payload::null())
        });
    }

    #[test]
    fn every_field_that_is_out_of_bounds_is_named_at_once() {
        let body = r#"{"priority":1001,"max_retries":-1,"timeout_ms":0,"queue":"a/b","kind":"",
            "visibility_timeout_ms":999,"delay_ms":315619200001,"retry":{"jitter":1.5}}"#;
        let mut found = pointers(body);
        found.sort();
        assert_eq!(
            found,
            [
                "/delay_ms",
                "/kind",
                "/max_retries",
                "/priority",
                "/queue",
                "/retry/jitter",
                "/timeout_ms",
                "/visibility_timeout_ms"
            ]
        );
    }

    #[test]
    fn numbers_that_fit_no_type_are_refused_with_their_limits() {
        let problem = checked(r#"{"priority":70000}"#, None).unwrap_err();
        assert!(problem.detail().contains("between -1000 and 1000, not 70000"), "{problem:?}");
        assert_eq!(pointers(r#"{"priority":1.5}"#), ["/priority"]);
        let problem = checked(r#"{"delay_ms":1e400}"#, None).unwrap_err();
        assert_eq!(problem.kind(), crate::api::problem::BAD_JSON);
    }

    #[test]
    fn two_ways_to_say_one_thing_must_agree() {
        assert!(checked(r#"{"kind":"a","type":"a"}"#, None).is_ok());
        assert_eq!(pointers(r#"{"kind":"a","type":"b"}"#), ["/type"]);
        let both = r#"{"delay_ms":1,"run_at":"2026-01-02T03:04:05Z"}"#;
        assert_eq!(pointers(both), ["/delay_ms"]);
        let keyed = r#"{"idempotency_key":"a"}"#;
        assert!(checked(keyed, Some("a")).unwrap().idempotency.is_some());
        assert!(checked(keyed, Some("b")).is_err());
        assert!(checked("{}", Some("b")).unwrap().idempotency.is_some());
    }

    #[test]
    fn a_retry_policy_is_filled_in_and_checked() {
        let job = checked(r#"{"retry":{"strategy":"linear","initial_ms":5}}"#, None).unwrap();
        let retry = job.retry.unwrap();
        assert_eq!((retry.strategy(), retry.initial().get()), (Strategy::Linear, 5));
        assert_eq!(retry.cap(), RetryPolicy::default().cap());
        for (body, pointer) in [
            (r#"{"retry":{"strategy":"fixed","factor":2}}"#, "/retry/factor"),
            (r#"{"retry":{"factor":0.5}}"#, "/retry/factor"),
            (r#"{"retry":{"factor":1e300}}"#, "/retry/factor"),
            (r#"{"retry":{"initial_ms":-1}}"#, "/retry/initial_ms"),
            (r#"{"retry":{"strategy":"often"}}"#, "/retry/strategy"),
            (r#"{"retry":{"tries":1}}"#, "/retry/tries"),
        ] {
            assert_eq!(pointers(body), [pointer], "{body}");
        }
    }
}
