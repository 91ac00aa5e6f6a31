//! The builder of a job to enqueue: a kind, a serialisable payload, options.
//!
//! Values are checked by core when they are set. The first error is stored and returned by the
//! enqueue, so that a chain of options needs no `?` after each call.

use std::time::Duration;

use serde::Serialize;
use thiserror::Error;
use windlass_core::{
    Delay, Idempotency, IdempotencyKey, JobTimeout, Kind, LeaseLength, MaxRetries, NameError,
    OutOfRange, Payload, PayloadError, Priority, QueueName, RetryPolicy, Wall, When,
};

use crate::fingerprint::fingerprint;

/// Why a job cannot be enqueued as it is. Retrying does not help.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidJob {
    /// The kind, the queue or the idempotency key is not valid.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The payload could not be written as JSON.
    #[error("the payload could not be written as JSON: {0}")]
    Json(String),
    /// The payload is too large, or contains characters that cannot be stored.
    #[error(transparent)]
    Payload(#[from] PayloadError),
    /// An option is out of range.
    #[error(transparent)]
    OutOfRange(#[from] OutOfRange),
}

/// A job to enqueue. Options that are not set come from the settings of the queue, then from the
/// policy of the runtime.
///
/// ```
/// use serde::Serialize;
/// use windlass_runtime_tokio::{NewJob, hours, minutes};
///
/// #[derive(Serialize)]
/// struct Email { to: String }
///
/// let job = NewJob::of("email", &Email { to: "ada@example.org".into() })?
///     .queue("mail")
///     .priority(10)
///     .delay(minutes(5))
///     .max_retries(8)
///     .timeout(minutes(2))
///     .idempotency_key("welcome-mail-17");
/// assert!(job.check().is_ok());
///
/// // A value out of range is an error of the enqueue (or of `check`) that names the option.
/// let refused = NewJob::of("email", &())?.delay(hours(24 * 365 * 20)).check().unwrap_err();
/// assert!(refused.to_string().starts_with("delay_ms must be between"));
/// # Ok::<(), windlass_runtime_tokio::InvalidJob>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "a job does nothing until it is enqueued"]
pub struct NewJob {
    job: windlass_core::NewJob,
    invalid: Option<InvalidJob>,
}

impl NewJob {
    /// A job of this kind with this payload, for the default queue, to run at once.
    pub fn of<T: Serialize + ?Sized>(kind: &str, payload: &T) -> Result<Self, InvalidJob> {
        let json = serde_json::to_string(payload);
        let json = json.map_err(|error| InvalidJob::Json(error.to_string()))?;
        Ok(windlass_core::NewJob::new(Kind::new(kind)?, Payload::new(&json)?).into())
    }

    /// The queue to enqueue into; `default` if not set.
    pub fn queue(self, name: &str) -> Self {
        self.set(QueueName::new(name), |job, name| job.queue = name)
    }

    /// Higher priorities run first; from -1000 to 1000, 0 if not set.
    pub fn priority(self, priority: i16) -> Self {
        self.set(Priority::new(priority), |job, priority| job.priority = priority)
    }

    /// Time from the enqueue until the job may run.
    pub fn delay(self, delay: Duration) -> Self {
        self.set(Delay::new(millis(delay)), |job, delay| job.when = When::After(delay))
    }

    /// The earliest instant at which the job runs; at once if it has passed.
    pub fn run_at(mut self, at: Wall) -> Self {
        self.job.when = When::At(at);
        self
    }

    /// Maximum number of attempts after the first failed one.
    pub fn max_retries(self, retries: u32) -> Self {
        self.set(MaxRetries::new(retries), |job, retries| job.max_retries = Some(retries))
    }

    /// How long one attempt may run before it is stopped.
    pub fn timeout(self, timeout: Duration) -> Self {
        self.set(JobTimeout::new(millis(timeout)), |job, timeout| job.timeout = Some(timeout))
    }

    /// Length of the lease without heartbeats: after this time the job runs again if the process
    /// that ran it died.
    pub fn visibility_timeout(self, length: Duration) -> Self {
        let length = LeaseLength::new(millis(length));
        self.set(length, |job, length| job.visibility_timeout = Some(length))
    }

    /// The time between attempts.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.job.retry = Some(policy);
        self
    }

    /// Makes the enqueue idempotent: a repeated request with this key returns the receipt of the
    /// first. A different job with the same key is refused. Parses the payload.
    pub fn idempotency_key(self, key: &str) -> Self {
        let payload = fingerprint(self.job.payload.as_str());
        let idempotency = match (IdempotencyKey::new(key), payload) {
            (Ok(key), Ok(payload)) => Ok(Idempotency { key, payload }),
            (Err(error), _) => Err(InvalidJob::from(error)),
            (_, Err(error)) => Err(InvalidJob::Json(error.to_string())),
        };
        self.set(idempotency, |job, idempotency| job.idempotency = Some(idempotency))
    }

    /// Returns the stored row, with all defaults, in [`Receipt::row`](crate::Receipt::row). Costs
    /// a copy of the row.
    pub fn echo(mut self) -> Self {
        self.job.echo = true;
        self
    }

    /// The job as core's type, or the first error of an option.
    pub fn check(self) -> Result<windlass_core::NewJob, InvalidJob> {
        match self.invalid {
            None => Ok(self.job),
            Some(invalid) => Err(invalid),
        }
    }

    fn set<V, E: Into<InvalidJob>>(
        mut self,
        value: Result<V, E>,
        set: impl FnOnce(&mut windlass_core::NewJob, V),
    ) -> Self {
        match value {
            Ok(value) => set(&mut self.job, value),
            Err(error) => self.invalid = self.invalid.or_else(|| Some(error.into())),
        }
        self
    }
}

impl From<windlass_core::NewJob> for NewJob {
    fn from(job: windlass_core::NewJob) -> Self {
        Self { job, invalid: None }
    }
}

/// A duration in seconds.
pub const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A duration in minutes.
pub const fn minutes(minutes: u64) -> Duration {
    Duration::from_secs(minutes.saturating_mul(60))
}

/// A duration in hours.
pub const fn hours(hours: u64) -> Duration {
    minutes(hours.saturating_mul(60))
}

/// A duration in days of 24 hours.
pub const fn days(days: u64) -> Duration {
    hours(days.saturating_mul(24))
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_option_out_of_bounds_is_the_one_that_is_named() {
        let job = NewJob::of("a", &()).unwrap().priority(2_000).queue("a/b");
        let refused = job.check().unwrap_err();
        assert!(refused.to_string().starts_with("priority must be between"), "{refused}");
    }
}
