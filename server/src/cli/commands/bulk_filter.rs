//! Which jobs a bulk action is for, by the names of `GET /jobs`.

use clap::Args;
use serde::Serialize;

/// The flags of a filter, and the filter as the server reads it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Args, Serialize)]
pub(crate) struct BulkFilter {
    /// Only jobs in this state.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) state: Option<String>,
    /// Only jobs of this queue, or of these queues.
    #[arg(long, value_name = "QUEUE[,QUEUE...]")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) queue: Option<String>,
    /// Only jobs of this kind.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kind: Option<String>,
    /// Only jobs of this error group, by its id.
    #[arg(long, value_name = "ID")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) group: Option<String>,
    /// Only jobs enqueued with this idempotency key.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
    /// Only jobs that this worker is running; for `cancel`.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) worker: Option<String>,
    /// Only jobs that entered the state at this time or later.
    #[arg(long, value_name = "TIME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) from: Option<String>,
    /// Only jobs that entered the state before this time.
    #[arg(long, value_name = "TIME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) to: Option<String>,
    /// Only jobs whose last error contains this text.
    #[arg(long, value_name = "TEXT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error_contains: Option<String>,
    /// Only jobs whose payload contains this text.
    #[arg(long, value_name = "TEXT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) payload_contains: Option<String>,
    /// Place in the payload to compare, as a JSON pointer like /user/id.
    #[arg(long, value_name = "POINTER", requires = "payload_is")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) payload_at: Option<String>,
    /// Only jobs with this value at that place.
    #[arg(long, value_name = "VALUE", requires = "payload_at")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) payload_is: Option<String>,
    /// Only jobs with this number of attempts, or more.
    #[arg(long, value_name = "COUNT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) attempts_min: Option<u32>,
    /// Only jobs of this priority, or a higher one.
    #[arg(long, value_name = "PRIORITY", allow_negative_numbers = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) priority_min: Option<i16>,
}

impl BulkFilter {
    /// Whether it names no more than a state.
    pub(crate) fn is_all(&self) -> bool {
        let rest = Self { state: None, ..self.clone() };
        rest == Self::default()
    }
}
