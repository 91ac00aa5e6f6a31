//! The table of settings. A setting is added here, and where its value is used: nowhere else.

use windlass_core::limits::{MAX_BACKOFF, QUEUES};
use windlass_core::store::Retention;
use windlass_core::{JobTimeout, LeaseLength, MaxRetries, Millis};

use super::value::{Type, Value};
use crate::cli::commands::nearest;

/// A setting; also its place in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Id {
    MaxRetries,
    RetryStrategy,
    RetryInitial,
    RetryFactor,
    RetryCap,
    RetryJitter,
    JobTimeout,
    VisibilityTimeout,
    IdempotencyWindow,
    MaxQueues,
    KeepDone,
    KeepFailed,
    KeepCancelled,
    Workers,
    WorkerConcurrency,
    WorkerHeartbeat,
}

#[derive(Debug)]
pub(crate) struct Setting {
    pub(crate) id: Id,
    pub(crate) name: &'static str,
    pub(crate) kind: Type,
    pub(crate) default: Value,
    /// Help text of the flag.
    pub(crate) help: &'static str,
}

impl Setting {
    /// Its environment variable, `WINDLASS_` and the name.
    pub(crate) fn variable(&self) -> String {
        format!("WINDLASS_{}", self.name.to_ascii_uppercase())
    }

    /// Its flag, without the leading dashes.
    pub(crate) fn flag(&self) -> String {
        self.name.replace('_', "-")
    }

    /// Parses a value; the error is a sentence with its name and bounds.
    pub(crate) fn read(&self, text: &str) -> Result<Value, String> {
        self.kind.read(text).map_err(|wrong| format!("{} {wrong}", self.name))
    }
}

/// Maximum of `max_queues`: lists and metrics show every queue.
const MOST_QUEUES: u64 = 1_000_000;

/// Maximum retention of jobs and keys, if they are not kept forever.
const LONGEST: Millis = Millis::days(3_650);

const fn time(min: Millis, max: Millis) -> Type {
    Type::Time { min, max, off: false }
}

const AGE: Type = Type::Time { min: Millis::seconds(1), max: LONGEST, off: true };

const fn age(kept: Option<Millis>) -> Value {
    match kept {
        Some(age) => Value::Time(age),
        None => Value::Off,
    }
}

const fn new(
    id: Id,
    name: &'static str,
    kind: Type,
    default: Value,
    help: &'static str,
) -> Setting {
    Setting { id, name, kind, default, help }
}

/// Every setting, in the order of `config list`.
pub(crate) static TABLE: [Setting; 16] = [
    new(
        Id::MaxRetries,
        "max_retries",
        Type::Whole { min: MaxRetries::MIN.get() as u64, max: MaxRetries::MAX.get() as u64 },
        Value::Whole(MaxRetries::DEFAULT.get() as u64),
        "Maximum number of retries, for jobs that do not set it",
    ),
    new(
        Id::RetryStrategy,
        "retry_strategy",
        Type::Choice(&["fixed", "linear", "exponential"]),
        Value::Choice("exponential"),
        "Backoff strategy between attempts",
    ),
    new(
        Id::RetryInitial,
        "retry_initial",
        time(Millis::new(0), MAX_BACKOFF),
        Value::Time(Millis::seconds(1)),
        "Backoff after the first failed attempt",
    ),
    new(
        Id::RetryFactor,
        "retry_factor",
        Type::Decimal { min: 1_000, max: 100_000 },
        Value::Decimal(2_000),
        "Factor of exponential backoff",
    ),
    new(
        Id::RetryCap,
        "retry_cap",
        time(Millis::new(0), MAX_BACKOFF),
        Value::Time(Millis::hours(1)),
        "Maximum backoff between attempts",
    ),
    new(
        Id::RetryJitter,
        "retry_jitter",
        Type::Decimal { min: 0, max: 1_000 },
        Value::Decimal(250),
        "Jitter of the backoff, as a fraction to either side",
    ),
    new(
        Id::JobTimeout,
        "job_timeout",
        Type::Time { min: JobTimeout::MIN.millis(), max: JobTimeout::MAX.millis(), off: true },
        Value::Off,
        "Timeout of an attempt, for jobs that do not set it",
    ),
    new(
        Id::VisibilityTimeout,
        "visibility_timeout",
        time(LeaseLength::MIN.millis(), LeaseLength::MAX.millis()),
        Value::Time(LeaseLength::DEFAULT.millis()),
        "Visibility timeout: length of a lease without heartbeats",
    ),
    new(
        Id::IdempotencyWindow,
        "idempotency_window",
        time(Millis::seconds(1), LONGEST),
        Value::Time(Millis::hours(24)),
        "Time after the creation of a job for which its idempotency key is kept",
    ),
    new(
        Id::MaxQueues,
        "max_queues",
        Type::Whole { min: 1, max: MOST_QUEUES },
        Value::Whole(QUEUES as u64),
        "Maximum number of queues; empty queues without settings are deleted",
    ),
    new(
        Id::KeepDone,
        "keep_done",
        AGE,
        age(Retention::USUAL.done),
        "Retention of done jobs; off: forever",
    ),
    new(
        Id::KeepFailed,
        "keep_failed",
        AGE,
        age(Retention::USUAL.failed),
        "Retention of dead letters; off: forever",
    ),
    new(
        Id::KeepCancelled,
        "keep_cancelled",
        AGE,
        age(Retention::USUAL.cancelled),
        "Retention of cancelled jobs; off: forever",
    ),
    new(
        Id::Workers,
        "workers",
        Type::Whole { min: 0, max: MOST_SLOTS },
        Value::Whole(16),
        "Maximum number of jobs of built-in kinds that a server runs at once",
    ),
    new(
        Id::WorkerConcurrency,
        "worker_concurrency",
        Type::Whole { min: 1, max: MOST_SLOTS },
        Value::Whole(1),
        "Maximum number of jobs that a worker process runs at once",
    ),
    new(
        Id::WorkerHeartbeat,
        "worker_heartbeat",
        time(Millis::seconds(1), Millis::seconds(20)),
        Value::Time(Millis::seconds(5)),
        "Interval of the heartbeats of servers and worker processes",
    ),
];

/// Maximum number of jobs that one process runs at once.
const MOST_SLOTS: u64 = 1_024;

/// The setting of this name; the error suggests a similar one.
pub(crate) fn find(name: &str) -> Result<&'static Setting, String> {
    let wanted = name.replace('-', "_");
    let found = TABLE.iter().find(|setting| setting.name == wanted);
    found.ok_or_else(|| {
        let near = nearest(&wanted, TABLE.iter().map(|setting| setting.name));
        let hint = near.map_or_else(
            || {
                let names: Vec<&str> = TABLE.iter().map(|setting| setting.name).collect();
                format!("there are {}", names.join(", "))
            },
            |near| format!("did you mean {near}?"),
        );
        format!("there is no setting {name:?}; {hint}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_stands_at_its_place_and_its_default_is_within_its_bounds() {
        for (place, setting) in TABLE.iter().enumerate() {
            assert_eq!(setting.id as usize, place, "{}", setting.name);
            let text = setting.default.to_string();
            assert_eq!(setting.read(&text), Ok(setting.default), "{}", setting.name);
            assert!(setting.name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'));
        }
    }

    /// The ends of the bounds of every setting, and what lies just beyond.
    #[test]
    fn every_setting_takes_its_bounds_and_refuses_what_lies_beyond_by_name() {
        for setting in &TABLE {
            let (inside, outside) = match setting.kind {
                Type::Whole { min, max } => {
                    let below = min.checked_sub(1).map(|n| n.to_string());
                    let outside: Vec<String> =
                        below.into_iter().chain([(max + 1).to_string()]).collect();
                    (vec![min.to_string(), max.to_string()], outside)
                }
                Type::Time { min, max, off } => {
                    let text = |ms: u64| format!("{ms}ms");
                    let below = min.get().checked_sub(1).map(text);
                    let word = (!off).then(|| "off".to_owned());
                    let mut inside = vec![text(min.get()), text(max.get())];
                    inside.extend(off.then(|| "off".to_owned()));
                    let outside = below.into_iter().chain(word);
                    (inside, outside.chain([text(max.get() + 1)]).collect())
                }
                Type::Decimal { min, max } => {
                    let text = |n: u32| Value::Decimal(n).to_string();
                    let below = min.checked_sub(1).map(text);
                    let outside = below.into_iter().chain([text(max + 1)]).collect();
                    (vec![text(min), text(max)], outside)
                }
                Type::Choice(words) => {
                    let words = words.iter().map(ToString::to_string).collect();
                    (words, vec!["none-of-these".to_owned()])
                }
            };
            for text in inside {
                assert!(setting.read(&text).is_ok(), "{} {text}", setting.name);
            }
            for text in outside {
                let refused = setting.read(&text).unwrap_err();
                assert!(refused.starts_with(setting.name), "{refused}");
                assert!(refused.contains(&setting.kind.to_string()), "{refused}");
            }
        }
    }

    #[test]
    fn a_name_that_is_nearly_right_is_answered_with_the_right_one() {
        assert_eq!(find("max-retries").unwrap().id, Id::MaxRetries);
        for (given, meant) in [
            ("max_retrys", "max_retries"),
            ("visibilty_timeout", "visibility_timeout"),
            ("keepdone", "keep_done"),
            ("WORKERS", ""),
            ("colour", ""),
            (&"x".repeat(100_000), ""),
        ] {
            let refused = find(given).unwrap_err();
            if meant.is_empty() {
                assert!(refused.contains("there are max_retries, "), "{refused:.200}");
            } else {
                assert!(refused.ends_with(&format!("did you mean {meant}?")), "{refused}");
            }
        }
    }
}
