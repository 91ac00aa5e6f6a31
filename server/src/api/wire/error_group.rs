//! Error groups as clients see them, and what the dead letters of one share.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use windlass_core::{GroupRow, JobId, Payload, TitlePart, Wall};

use super::job::Raw;
use super::snapshot::HistoryMark;
use super::time::Time;

/// Dead letters of a kind that failed for the same reason.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ErrorGroup {
    /// Id of the group: 32 hexadecimal digits.
    pub(crate) id: String,
    pub(crate) kind: String,
    /// The error line: texts, and slots where the errors differ.
    pub(crate) title: Vec<ErrorTitle>,
    /// The line of the newest error.
    pub(crate) sample: String,
    /// Dead letters in the group now.
    pub(crate) count: u64,
    /// When its first dead letter failed.
    pub(crate) first_at: Time,
    /// When the newest failed, also if it was replayed since.
    pub(crate) last_at: Time,
    /// The dead letters by queue; at most 32 queues are counted one by one.
    pub(crate) queues: Vec<ErrorQueue>,
    /// Dead letters made in each of the last 24 hours of the clock, oldest first, the present one
    /// last.
    pub(crate) hours: Vec<u32>,
    /// The newest dead letters, at most three.
    pub(crate) newest: Vec<u64>,
}

/// A part of a title.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ErrorTitle {
    /// What all errors of the group say.
    Text(String),
    /// What differs: `number`, `hex`, `uuid`, `id`, `time`, `address`, `host`, `path`, `quoted`,
    /// `data`, `worker` or `other`.
    Slot(Cow<'static, str>),
}

/// The dead letters of a group in one queue.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ErrorQueue {
    pub(crate) name: String,
    pub(crate) count: u64,
}

impl ErrorGroup {
    pub(crate) fn of(row: &GroupRow, newest: &[JobId], now: Wall) -> Self {
        let part = |part: TitlePart<'_>| match part {
            TitlePart::Text(text) => ErrorTitle::Text(text.into()),
            TitlePart::Slot(slot) => ErrorTitle::Slot(slot.as_str().into()),
        };
        let queues = row.queues.named.iter();
        let queues =
            queues.map(|(name, count)| ErrorQueue { name: name.to_string(), count: *count });
        Self {
            id: row.id.to_string(),
            kind: row.kind.to_string(),
            title: row.title.parts().map(part).collect(),
            sample: row.sample.clone(),
            count: row.live,
            first_at: Time(row.first_at),
            last_at: Time(row.last_at),
            queues: queues.collect(),
            hours: row.hours.until(now).to_vec(),
            newest: newest.iter().map(|id| id.get()).collect(),
        }
    }

    /// The title on one line, slots in braces.
    pub(crate) fn line(&self) -> String {
        let part = |part: &ErrorTitle| match part {
            ErrorTitle::Text(text) => text.clone(),
            ErrorTitle::Slot(slot) => format!("{{{slot}}}"),
        };
        self.title.iter().map(part).collect()
    }
}

/// A page of error groups.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ErrorList {
    pub(crate) groups: Vec<ErrorGroup>,
    /// The cursor of the next page; `null` at the end.
    pub(crate) next: Option<String>,
}

/// An error group, and what its newest dead letters share.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ErrorDetail {
    pub(crate) group: ErrorGroup,
    /// Number of the newest dead letters that were read: at most 200, and 4 MiB of payloads.
    pub(crate) sampled: usize,
    /// What at least half of them share, the most common first.
    pub(crate) shared: Vec<Shared>,
}

/// A value that dead letters share.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Shared {
    /// `payload`, `worker`, `exit_code`, or `mark`: what was done in the two minutes before the
    /// first failure.
    #[serde(rename = "where")]
    pub(crate) place: Cow<'static, str>,
    /// In a payload, the JSON pointer of the value; of a mark, what was done and to which queue.
    pub(crate) path: Option<String>,
    pub(crate) value: Raw,
    /// Fraction of the dead letters read that have this value.
    pub(crate) share: f64,
}

impl Shared {
    /// What was done before the first failure, and when.
    pub(crate) fn mark(mark: &HistoryMark) -> Option<Self> {
        let queue = mark.queue.as_deref().map_or_else(String::new, |queue| format!(" {queue}"));
        let path = Some(format!("{}{queue}", mark.what));
        Self::new("mark", path, &serde_json::to_string(&mark.at).ok()?, 1.0)
    }

    /// A value that is JSON.
    pub(crate) fn new(
        place: &'static str,
        path: Option<String>,
        json: &str,
        share: f64,
    ) -> Option<Self> {
        let value = Raw(Payload::new(json).ok()?);
        Some(Self { place: place.into(), path, value, share })
    }
}

/// Error groups with dead letters, in a snapshot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct ErrorCounts {
    pub(crate) groups: usize,
    /// Those whose first dead letter is less than a day old.
    pub(crate) new: usize,
    /// Dead letters in all of them.
    pub(crate) jobs: u64,
    /// Revision; changes when a group changes.
    pub(crate) rev: u64,
}
