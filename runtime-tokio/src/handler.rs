//! Typed handlers: a function from a payload to an outcome, for one kind of job.
//!
//! This file decodes payloads and turns what a handler returns into a verdict. What the verdict
//! does to the job is core's affair.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use windlass_core::{Delay, Failure, Kind, Payload, Verdict};

use crate::Context;
use crate::new_job::millis;

/// Why a handler did not finish its job, and what to do about it.
///
/// Any error becomes a retry by `?`. It is not itself an [`Error`](std::error::Error), which is
/// what makes that possible.
///
/// ```
/// use windlass_runtime_tokio::{Context, JobError, minutes};
///
/// async fn charge(card: String, _ctx: Context) -> Result<u64, JobError> {
///     let amount: u64 = "17".parse()?; // an error here is retried by the job's policy
///     match card.as_str() {
///         "stolen" => Err(JobError::permanent("the card was reported stolen")),
///         "busy" => Err(JobError::snooze(minutes(10))),
///         "limit" => Err(JobError::retry("over the limit").after(minutes(60))),
///         _ => Ok(amount),
///     }
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobError(Kept);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kept {
    Retry { error: String, after: Option<Duration> },
    Permanent(String),
    Snooze(Duration),
}

impl JobError {
    /// It failed; another attempt may help.
    pub fn retry(error: impl fmt::Display) -> Self {
        Self(Kept::Retry { error: error.to_string(), after: None })
    }

    /// It failed, and no attempt will help: the job goes to the dead-letter queue.
    pub fn permanent(error: impl fmt::Display) -> Self {
        Self(Kept::Permanent(error.to_string()))
    }

    /// Not now: run it again after this time, and do not count this attempt.
    pub fn snooze(time: Duration) -> Self {
        Self(Kept::Snooze(time))
    }

    /// When to try again, instead of when the job's retry policy says. It changes nothing but a
    /// retry.
    #[must_use]
    pub fn after(mut self, time: Duration) -> Self {
        if let Kept::Retry { after, .. } = &mut self.0 {
            *after = Some(time);
        }
        self
    }

    fn verdict(self) -> Verdict {
        match self.0 {
            Kept::Retry { error, after } => {
                let mut failure = Failure::new(&error);
                failure.retry_in = after.map(delay);
                Verdict::Fail(failure.into())
            }
            Kept::Permanent(error) => Verdict::Fail(Failure::new(&error).permanent().into()),
            Kept::Snooze(time) => Verdict::Snooze { delay: delay(time) },
        }
    }
}

/// Longer than core allows is as long as it allows.
fn delay(time: Duration) -> Delay {
    Delay::new(millis(time)).unwrap_or(Delay::MAX)
}

impl<E: std::error::Error> From<E> for JobError {
    fn from(error: E) -> Self {
        let mut text = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            text.push_str(": ");
            text.push_str(&cause.to_string());
            source = cause.source();
        }
        Self::retry(text)
    }
}

/// What a handler may return: nothing, or a result that serde can write, or a [`JobError`].
pub trait IntoVerdict {
    /// What it says about the job.
    fn into_verdict(self) -> Verdict;
}

impl IntoVerdict for () {
    fn into_verdict(self) -> Verdict {
        Verdict::Complete { result: None }
    }
}

impl<T: Serialize, E: Into<JobError>> IntoVerdict for Result<T, E> {
    fn into_verdict(self) -> Verdict {
        match self {
            Ok(result) => completed(&result),
            Err(error) => error.into().verdict(),
        }
    }
}

/// A result of nothing is no result. One that cannot be kept fails the job for good: the work is
/// done, and doing it again would not make its result smaller.
fn completed<T: Serialize>(result: &T) -> Verdict {
    let json = match serde_json::to_string(result) {
        Ok(json) if json == "null" => return Verdict::Complete { result: None },
        Ok(json) => json,
        Err(error) => return unkept(&error.to_string()),
    };
    match Payload::new(&json) {
        Ok(result) => Verdict::Complete { result: Some(result) },
        Err(error) => unkept(&error.to_string()),
    }
}

fn unkept(error: &str) -> Verdict {
    JobError::permanent(format!("the job ran, but its result cannot be kept: {error}")).verdict()
}

type Running = Pin<Box<dyn Future<Output = Verdict> + Send>>;
type AsyncRun = Box<dyn Fn(&Payload, Context) -> Result<Running, Verdict> + Send + Sync>;
type BlockingRun = Box<dyn Fn(&Payload, Context) -> Verdict + Send + Sync>;

/// How to run one kind of job.
pub(crate) enum Handler {
    /// As a future, on the runtime.
    Async(AsyncRun),
    /// On a thread of its own.
    Blocking(BlockingRun),
}

impl fmt::Debug for Handler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Async(_) => "Async",
            Self::Blocking(_) => "Blocking",
        })
    }
}

/// The handler of every kind that this runtime runs.
pub(crate) type Handlers = BTreeMap<Kind, Arc<Handler>>;

impl Handler {
    pub(crate) fn asynchronous<T, F, Fut>(run: F) -> Self
    where
        T: DeserializeOwned,
        F: Fn(T, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoVerdict> + Send + 'static,
    {
        Self::Async(Box::new(move |payload, context| {
            let running = run(decode(payload)?, context);
            Ok(Box::pin(async move { running.await.into_verdict() }))
        }))
    }

    pub(crate) fn blocking<T, F, R>(run: F) -> Self
    where
        T: DeserializeOwned,
        F: Fn(T, Context) -> R + Send + Sync + 'static,
        R: IntoVerdict,
    {
        Self::Blocking(Box::new(move |payload, context| match decode(payload) {
            Ok(given) => run(given, context).into_verdict(),
            Err(verdict) => verdict,
        }))
    }
}

/// A payload that its handler cannot read fails the job for good, with the place of the error:
/// another attempt would read the same text.
fn decode<T: DeserializeOwned>(payload: &Payload) -> Result<T, Verdict> {
    let mut json = serde_json::Deserializer::from_str(payload.as_str());
    let decoded = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        format!("the payload cannot be decoded at {path}: {}", error.into_inner())
    });
    let decoded = decoded.and_then(|value| match json.end() {
        Ok(()) => Ok(value),
        Err(error) => Err(format!("the payload cannot be decoded: {error}")),
    });
    decoded.map_err(|error| JobError::permanent(error).verdict())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn failure(verdict: Verdict) -> Failure {
        match verdict {
            Verdict::Fail(failure) => *failure,
            other => panic!("a failure was expected, not {other:?}"),
        }
    }

    #[test]
    fn an_undecodable_payload_is_a_permanent_failure_that_names_the_path() {
        let payload = Payload::new(r#"{"to":["a",7]}"#).unwrap();
        let refused = decode::<BTreeMap<String, Vec<String>>>(&payload).unwrap_err();
        let failure = failure(refused);
        assert!(!failure.retryable);
        assert!(failure.error.as_str().contains("to[1]"), "{failure:?}");
    }

    #[test]
    fn what_stands_behind_the_payload_is_not_passed_over() {
        let payload = Payload::new("1 2").unwrap();
        assert!(decode::<u8>(&payload).is_err());
    }

    #[test]
    fn an_error_is_kept_with_everything_that_caused_it() {
        #[derive(Debug, thiserror::Error)]
        #[error("cannot send")]
        struct Outer(#[source] std::num::ParseIntError);
        let source = "x".parse::<u8>().unwrap_err();
        let failure = failure(Err::<(), _>(Outer(source)).into_verdict());
        assert!(failure.retryable);
        assert_eq!(failure.error.as_str(), "cannot send: invalid digit found in string");
    }

    #[test]
    fn outcomes_become_the_verdicts_they_name() {
        let done = Ok::<_, JobError>(17).into_verdict();
        assert_eq!(done, Verdict::Complete { result: Some(Payload::new("17").unwrap()) });
        assert_eq!(Ok::<(), JobError>(()).into_verdict(), ().into_verdict());
        let snoozed = Err::<(), _>(JobError::snooze(Duration::from_secs(1))).into_verdict();
        assert_eq!(snoozed, Verdict::Snooze { delay: Delay::new(1_000).unwrap() });
        let later = JobError::retry("x").after(Duration::from_secs(2));
        let later = failure(Err::<(), _>(later).into_verdict());
        assert_eq!(later.retry_in, Some(Delay::new(2_000).unwrap()));
    }
}
