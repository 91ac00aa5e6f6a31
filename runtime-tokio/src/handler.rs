//! Typed handlers: a function from a payload to a result, for one kind of job.
//!
//! This file decodes payloads and turns what a handler returns into a verdict. What the verdict
//! does to the job is decided by core.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::iter::successors;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use windlass_core::{Delay, Failure, Kind, Payload, Verdict};

use crate::Context;
use crate::new_job::millis;

/// Any error, as handlers return it.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// An error of a handler that also says what to do with the job.
///
/// A handler may return any error: a type of its own, `String`, `Box<dyn Error>`, `anyhow::Error`,
/// `eyre::Report`. Such an error is retried by the job's policy. A `JobError` asks for something
/// else, and is found anywhere in the chain of causes, so it keeps its effect when it is wrapped
/// or given a context. Of several, the outermost counts.
///
/// ```
/// use windlass_runtime_tokio::{BoxError, Context, JobError, minutes};
///
/// async fn charge(card: String, _ctx: Context) -> Result<u64, BoxError> {
///     let amount: u64 = "17".parse()?; // an error here is retried by the job's policy
///     match card.as_str() {
///         "stolen" => Err(JobError::permanent("the card was reported stolen").into()),
///         "busy" => Err(JobError::snooze(minutes(10)).into()),
///         "limit" => Err(JobError::retry("over the limit").after(minutes(60)).into()),
///         _ => Ok(amount),
///     }
/// }
/// ```
#[derive(Debug)]
pub struct JobError(Mark);

/// The part of a [`JobError`] that is found in a chain of causes. It is the error's `source`,
/// because wrappers such as `anyhow::Error` hide the type of the outermost error.
#[derive(Debug)]
struct Mark {
    decision: Decision,
    /// The error that the handler gave.
    error: BoxError,
}

#[derive(Debug, Clone, Copy)]
enum Decision {
    /// `None`: by the job's policy.
    Retry {
        after: Option<Duration>,
    },
    Permanent,
    Snooze(Duration),
}

impl JobError {
    /// The attempt failed, and the job is retried.
    pub fn retry(error: impl Into<BoxError>) -> Self {
        Self(Mark { decision: Decision::Retry { after: None }, error: error.into() })
    }

    /// The attempt failed, and the job is not retried: it becomes a dead letter.
    pub fn permanent(error: impl Into<BoxError>) -> Self {
        Self(Mark { decision: Decision::Permanent, error: error.into() })
    }

    /// Runs the job again after this time, without charging the attempt.
    pub fn snooze(time: Duration) -> Self {
        let error = format!("snoozed for {} ms", millis(time)).into();
        Self(Mark { decision: Decision::Snooze(time), error })
    }

    /// The time until the next attempt, instead of the one by the job's retry policy. Has an
    /// effect on [`retry`](JobError::retry) only.
    #[must_use]
    pub fn after(mut self, time: Duration) -> Self {
        if let Decision::Retry { after } = &mut self.0.decision {
            *after = Some(time);
        }
        self
    }
}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.error.fmt(f)
    }
}

impl Error for JobError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.0)
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.decision {
            Decision::Retry { after: None } => f.write_str("to be retried"),
            Decision::Retry { after: Some(time) } => {
                write!(f, "to be retried after {} ms", millis(time))
            }
            Decision::Permanent => f.write_str("not to be retried"),
            Decision::Snooze(_) => f.write_str("the attempt is not charged"),
        }
    }
}

impl Error for Mark {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.error.source()
    }
}

/// Causes of an error that are read; a chain that is longer, or has no end, is cut.
const MAX_CAUSES: usize = 64;

fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    successors(Some(error), |&error| error.source()).take(MAX_CAUSES)
}

/// The decision of the outermost [`JobError`]; otherwise a retry by the job's policy.
fn verdict(error: &(dyn Error + 'static)) -> Verdict {
    let mark = chain(error).find_map(|error| error.downcast_ref::<Mark>());
    let decision = mark.map_or(Decision::Retry { after: None }, |mark| mark.decision);
    match decision {
        Decision::Retry { after } => {
            let mut failure = Failure::new(&message(error));
            failure.retry_in = after.map(delay);
            Verdict::Fail(failure.into())
        }
        Decision::Permanent => Verdict::Fail(Failure::new(&message(error)).permanent().into()),
        Decision::Snooze(time) => Verdict::Snooze { delay: delay(time) },
    }
}

/// The error and its causes, separated by colons. A cause that its error already ends with is not
/// repeated.
fn message(error: &(dyn Error + 'static)) -> String {
    let mut message = String::new();
    for error in chain(error).filter(|error| !error.is::<Mark>()) {
        let text = error.to_string();
        if message.is_empty() {
            message = text;
        } else if !message.ends_with(&text) {
            message.push_str(": ");
            message.push_str(&text);
        }
    }
    message
}

/// A delay, cut to the longest that core allows.
fn delay(time: Duration) -> Delay {
    Delay::new(millis(time)).unwrap_or(Delay::MAX)
}

/// The return type of a handler: `()`, or a `Result` of a serialisable value and any error.
pub trait IntoVerdict {
    /// The verdict on the attempt.
    fn into_verdict(self) -> Verdict;
}

impl IntoVerdict for () {
    fn into_verdict(self) -> Verdict {
        Verdict::Complete { result: None }
    }
}

impl<T: Serialize, E: Into<BoxError>> IntoVerdict for Result<T, E> {
    fn into_verdict(self) -> Verdict {
        match self {
            Ok(result) => completed(&result),
            Err(error) => verdict(&*error.into()),
        }
    }
}

/// A result of `null` is not stored. A result that cannot be stored fails the job without a retry:
/// the work is done, and doing it again would not make the result smaller.
fn completed<T: Serialize>(result: &T) -> Verdict {
    let json = match serde_json::to_string(result) {
        Ok(json) if json == "null" => return Verdict::Complete { result: None },
        Ok(json) => json,
        Err(error) => return not_stored(&error.to_string()),
    };
    match Payload::new(&json) {
        Ok(result) => Verdict::Complete { result: Some(result) },
        Err(error) => not_stored(&error.to_string()),
    }
}

fn not_stored(error: &str) -> Verdict {
    permanent(&format!("the job ran, but its result cannot be stored: {error}"))
}

fn permanent(error: &str) -> Verdict {
    Verdict::Fail(Failure::new(error).permanent().into())
}

type Running = Pin<Box<dyn Future<Output = Verdict> + Send>>;
type AsyncRun = Box<dyn Fn(&Payload, Context) -> Result<Running, Verdict> + Send + Sync>;
type BlockingRun = Box<dyn Fn(&Payload, Context) -> Verdict + Send + Sync>;

/// The handler of one kind.
pub(crate) enum Handler {
    /// Runs as a future in the worker's task.
    Async(AsyncRun),
    /// Runs on a thread of tokio's blocking pool.
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

/// A payload that cannot be decoded fails the job without a retry, because the next attempt would
/// read the same text. The error names the field.
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
    decoded.map_err(|error| permanent(&error))
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
    fn text_after_the_json_value_is_an_error() {
        let payload = Payload::new("1 2").unwrap();
        assert!(decode::<u8>(&payload).is_err());
    }

    #[derive(Debug, thiserror::Error)]
    #[error("cannot send")]
    struct Outer(#[source] BoxError);

    fn no_digit() -> BoxError {
        "x".parse::<u8>().unwrap_err().into()
    }

    #[test]
    fn an_error_is_stored_with_its_causes() {
        let failure = failure(Err::<(), _>(Outer(no_digit())).into_verdict());
        assert!(failure.retryable);
        assert_eq!(failure.error.as_str(), "cannot send: invalid digit found in string");
    }

    #[test]
    fn a_cause_that_its_error_repeats_is_stored_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("cannot send: {0}")]
        struct Repeats(#[source] BoxError);
        let failure = failure(Err::<(), _>(Repeats(no_digit())).into_verdict());
        assert_eq!(failure.error.as_str(), "cannot send: invalid digit found in string");
    }

    #[test]
    fn an_error_that_is_its_own_cause_is_cut() {
        #[derive(Debug)]
        struct Endless;
        impl fmt::Display for Endless {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "endless")
            }
        }
        impl Error for Endless {
            fn source(&self) -> Option<&(dyn Error + 'static)> {
                Some(&Endless)
            }
        }
        assert_eq!(message(&Endless), "endless");
    }

    #[test]
    fn handlers_return_strings_boxes_and_errors_of_their_own() {
        fn error_of<E: Into<BoxError>>(error: E) -> String {
            failure(Err::<(), E>(error).into_verdict()).error.as_str().into()
        }
        assert_eq!(error_of("text"), "text");
        assert_eq!(error_of(String::from("text")), "text");
        assert_eq!(error_of(no_digit()), "invalid digit found in string");
        assert_eq!(error_of(fmt::Error), fmt::Error.to_string());
        assert_eq!(error_of(JobError::retry(Outer(no_digit()))), error_of(Outer(no_digit())));
    }

    /// What `anyhow::Error` and `eyre::Report` become in a box: the type of the error is hidden,
    /// its text and its source are not.
    #[derive(Debug)]
    struct Hidden(JobError);

    impl fmt::Display for Hidden {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.fmt(f)
        }
    }

    impl Error for Hidden {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.0.source()
        }
    }

    #[test]
    fn a_job_error_keeps_its_effect_inside_a_chain_and_behind_a_hidden_type() {
        let never = || JobError::permanent(Outer(no_digit()));
        for error in [never().into(), Hidden(never()).into(), Outer(never().into()).into()] {
            let error: BoxError = error;
            let failure = failure(Err::<(), _>(error).into_verdict());
            assert!(!failure.retryable, "{failure:?}");
            assert!(failure.error.as_str().starts_with("cannot send: "), "{failure:?}");
            assert!(!failure.error.as_str().contains("retried"), "{failure:?}");
        }
        let snoozed = Outer(Hidden(JobError::snooze(Duration::from_secs(1))).into());
        let snoozed = Err::<(), _>(snoozed).into_verdict();
        assert_eq!(snoozed, Verdict::Snooze { delay: Delay::new(1_000).unwrap() });
        let outermost = JobError::retry(Outer(never().into()));
        assert!(failure(Err::<(), _>(outermost).into_verdict()).retryable);
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
