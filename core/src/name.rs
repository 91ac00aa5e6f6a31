//! Names: queues, kinds, workers and their versions, settings, idempotency keys.
//!
//! Checked when they are constructed, then shared by reference count: a batch of a thousand jobs of
//! one queue holds its name once.

use alloc::sync::Arc;
use core::fmt;

use thiserror::Error;

use crate::limits::{IDEMPOTENCY_KEY_BYTES, NAME_BYTES, SETTING_VALUE_BYTES, VERSION_BYTES};

/// Why a text is not a valid name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{field} {problem}")]
pub struct NameError {
    /// The name of the field in the API.
    pub field: &'static str,
    /// The rule that the text breaks.
    pub problem: NameProblem,
}

/// The rules of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum NameProblem {
    /// The text has no characters.
    #[error("must not be empty")]
    Empty,
    /// More than the limit.
    #[error("is {given} bytes long, at most {limit} are allowed")]
    TooLong {
        /// Length in bytes.
        given: usize,
        /// Most bytes of a name of this field.
        limit: usize,
    },
    /// A name starts with something other than a letter or a digit.
    #[error("must start with a letter or a digit, not with {given:?}")]
    BadStart {
        /// The first character.
        given: char,
    },
    /// A character that is not allowed.
    #[error("holds {given:?} at byte {at}; allowed are {allowed}")]
    BadCharacter {
        /// The character.
        given: char,
        /// Offset of the character in bytes.
        at: usize,
        /// The allowed characters, for the message.
        allowed: &'static str,
    },
    /// The name is used by a route of the HTTP API.
    #[error("must not be {name:?}: that name is used by a route of the HTTP API")]
    Reserved {
        /// The reserved name.
        name: &'static str,
    },
}

macro_rules! text_type {
    ($(#[$doc:meta])* $name:ident, $field:literal, $check:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks the text and keeps it.
            pub fn new(text: &str) -> Result<Self, NameError> {
                let check: fn(&str) -> Result<(), NameProblem> = $check;
                check(text).map_err(|problem| NameError { field: $field, problem })?;
                Ok(Self(Arc::from(text)))
            }

            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// The address of the text: the same for names that share their text.
            pub fn address(&self) -> u64 {
                Arc::as_ptr(&self.0).cast::<u8>().addr() as u64
            }

            /// Equality, with a fast path for names that share their text.
            pub fn same(&self, other: &Self) -> bool {
                Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl core::str::FromStr for $name {
            type Err = NameError;

            fn from_str(text: &str) -> Result<Self, NameError> {
                Self::new(text)
            }
        }
    };
}

text_type! {
    /// The name of a queue.
    ///
    /// ```
    /// use windlass_core::QueueName;
    /// assert!(QueueName::new("emails.high").is_ok());
    /// let error = QueueName::new("a/b").unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "queue holds '/' at byte 1; allowed are letters, digits and . _ : -"
    /// );
    /// ```
    QueueName, "queue", |text| name(text).and_then(|()| not_reserved(text))
}
text_type! {
    /// The kind of a job: it selects the handler.
    Kind, "kind", name
}
text_type! {
    /// The id of a worker: unique per start of a process.
    WorkerId, "worker", name
}
text_type! {
    /// The version of the program that a worker runs, as that program writes it.
    ///
    /// ```
    /// use windlass_core::WorkerVersion;
    /// assert!(WorkerVersion::new("2.0.1+build 7").is_ok());
    /// let error = WorkerVersion::new("2\n").unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "version holds '\\n' at byte 1; allowed are printable ASCII characters"
    /// );
    /// ```
    WorkerVersion, "version", printable
}
text_type! {
    /// The name of a setting kept in the store.
    SettingKey, "setting", name
}
text_type! {
    /// The value of a setting kept in the store.
    SettingValue, "setting value", setting_value
}
text_type! {
    /// A client's name for a request, so that a repeated request makes one job.
    IdempotencyKey, "idempotency_key", visible
}

/// The queue, or the kind, of a job that names none.
const DEFAULT_NAME: &str = "default";

impl QueueName {
    /// Whether this is the queue of jobs that name none.
    pub fn is_default(&self) -> bool {
        self.as_str() == DEFAULT_NAME
    }
}

impl Default for QueueName {
    fn default() -> Self {
        Self(Arc::from(DEFAULT_NAME))
    }
}

impl Default for Kind {
    fn default() -> Self {
        Self(Arc::from(DEFAULT_NAME))
    }
}

fn within(text: &str, limit: usize) -> Result<(), NameProblem> {
    match text.len() {
        0 => Err(NameProblem::Empty),
        given if given > limit => Err(NameProblem::TooLong { given, limit }),
        _ => Ok(()),
    }
}

fn name(text: &str) -> Result<(), NameProblem> {
    within(text, NAME_BYTES)?;
    let bad = |c: char| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | ':' | '-'));
    match text.char_indices().find(|&(at, c)| bad(c) || at == 0 && !c.is_ascii_alphanumeric()) {
        None => Ok(()),
        Some((0, given)) => Err(NameProblem::BadStart { given }),
        Some((at, given)) => {
            let allowed = "letters, digits and . _ : -";
            Err(NameProblem::BadCharacter { given, at, allowed })
        }
    }
}

fn setting_value(text: &str) -> Result<(), NameProblem> {
    within(text, SETTING_VALUE_BYTES)?;
    match text.find('\0') {
        None => Ok(()),
        Some(at) => {
            let allowed = "all characters but NUL";
            Err(NameProblem::BadCharacter { given: '\0', at, allowed })
        }
    }
}

fn not_reserved(text: &str) -> Result<(), NameProblem> {
    if text == "stats" { Err(NameProblem::Reserved { name: "stats" }) } else { Ok(()) }
}

fn visible(text: &str) -> Result<(), NameProblem> {
    within(text, IDEMPOTENCY_KEY_BYTES)?;
    only(text, "visible ASCII characters", |c| c.is_ascii_graphic())
}

fn printable(text: &str) -> Result<(), NameProblem> {
    within(text, VERSION_BYTES)?;
    only(text, "printable ASCII characters", |c| c.is_ascii_graphic() || c == ' ')
}

fn only(text: &str, allowed: &'static str, is: fn(char) -> bool) -> Result<(), NameProblem> {
    match text.char_indices().find(|(_, c)| !is(*c)) {
        None => Ok(()),
        Some((at, given)) => Err(NameProblem::BadCharacter { given, at, allowed }),
    }
}
