//! Error groups: which dead letters failed for the same reason.
//!
//! The group of an error is a pure function of the job's kind and of one line of its error, in
//! which everything that differs from case to case (numbers, identifiers, hosts, paths, quoted
//! texts) is a [`Slot`]. Its cost is bounded whatever the text holds: only the beginning of one
//! line is looked at. What this function says is stored with each dead letter, so a change of its
//! rules is a new [`VERSION`] and a migration.

mod line;
mod row;
mod tally;
#[cfg(test)]
mod tests;
mod title;
mod word;
mod words;

use alloc::string::{String, ToString};
use core::fmt;
use core::str::FromStr;

pub use self::row::{BadGroup, GroupRow, Hours, QueueShare};
pub use self::tally::GroupTally;
pub use self::title::{Slot, Title, TitlePart};
use crate::{Attempt, Excerpt, Failure, FingerprintBuilder, Kind, ParseIdError};

/// The version of the rules by which errors are grouped.
const VERSION: u64 = 1;
/// Most bytes of a line that are looked at.
const LINE_BYTES: usize = 1_024;

/// The identity of an error group: a hash of the kind and the title.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub [u8; 16]);

impl GroupId {
    /// What a store reads for a dead letter that has lost its group: a check finds it.
    pub const LOST: Self = Self([0; 16]);
}

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl FromStr for GroupId {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        let digits = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = digits.then(|| u128::from_str_radix(text, 16).ok()).flatten();
        number.map(|number| Self(number.to_be_bytes())).ok_or(ParseIdError::Group)
    }
}

/// What is known of a group from one error alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorGroup {
    /// Hash of the kind and the title.
    pub id: GroupId,
    /// The error line with slots; at most [`GROUP_TITLE_BYTES`](crate::limits::GROUP_TITLE_BYTES)
    /// long.
    pub title: Title,
    /// The error line itself, as far as it is looked at.
    pub sample: String,
}

/// What of a failed attempt decides on its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ErrorText<'a> {
    /// The error message.
    pub error: &'a str,
    /// The exit code of a command.
    pub exit_code: Option<i32>,
    /// The end of what a command wrote to its standard error.
    pub stderr: Option<&'a str>,
}

impl ErrorGroup {
    /// The group of an error of a job of this kind.
    ///
    /// A command is grouped by its exit code and the last line of its standard error; everything
    /// else by the line of the error message that says what went wrong.
    ///
    /// ```
    /// use windlass_core::{ErrorGroup, ErrorText, Kind};
    /// let kind = Kind::new("mail.send")?;
    /// let group = |error| ErrorGroup::of(&kind, &ErrorText { error, ..ErrorText::default() });
    /// let one = group("mailbox 4711 is full (10.0.0.7:25)");
    /// assert_eq!(one.title.to_string(), "mailbox {number} is full ({address})");
    /// assert_eq!(one.id, group("mailbox 12 is full (10.0.0.9:25)").id);
    /// assert_ne!(one.id, group("mailbox 12 is unknown").id);
    /// # Ok::<(), windlass_core::NameError>(())
    /// ```
    pub fn of(kind: &Kind, text: &ErrorText<'_>) -> Self {
        let line = line::telling(text);
        let line = line::plain(line);
        let line = line::cut(&line);
        Self::titled(kind, line::title(text, line), line)
    }

    /// The group of a job whose last attempt this was.
    pub fn of_attempt(kind: &Kind, attempt: &Attempt) -> Self {
        Self::of(kind, &ErrorText::of(attempt))
    }

    /// The group of all errors of this kind that found no room for a group of their own.
    pub fn other(kind: &Kind) -> Self {
        let mut title = Title::default();
        title.push_slot(Slot::Other);
        Self::titled(kind, title, "")
    }

    fn titled(kind: &Kind, title: Title, line: &str) -> Self {
        let hash = FingerprintBuilder::new().number(VERSION);
        let hash = hash.bytes(kind.as_str().as_bytes()).bytes(title.as_stored().as_bytes());
        Self { id: GroupId(hash.finish().0.to_be_bytes()), title, sample: line.trim().to_string() }
    }
}

impl<'a> ErrorText<'a> {
    /// What decides if there is nothing but an error message.
    pub fn of_message(error: &'a str) -> Self {
        Self { error, exit_code: None, stderr: None }
    }

    /// What decides in the report of a worker.
    pub(crate) fn of_failure(failure: &'a Failure) -> Self {
        let Failure { error, exit_code, stderr, .. } = failure;
        let stderr = stderr.as_ref().map(Excerpt::as_str);
        Self { error: error.as_str(), exit_code: *exit_code, stderr }
    }

    /// What decides in the record of an attempt.
    pub fn of(attempt: &'a Attempt) -> Self {
        Self {
            error: attempt.error.as_ref().map_or("", Excerpt::as_str),
            exit_code: attempt.exit_code,
            stderr: attempt.stderr.as_ref().map(Excerpt::as_str),
        }
    }
}
