//! A job without its documents: a row of a list, or the head of one job.

use schemars::JsonSchema;
use serde::Serialize;
use windlass_core::store::JobDetail;
use windlass_core::{self as core};

use super::job::{Raw, Retry};
use super::time::Time;

/// Characters of a payload that a row shows.
const PAYLOAD_HEAD: usize = 200;
/// Characters of an error that a row shows.
const ERROR_HEAD: usize = 300;

/// A job without payload and result. A row of a list has the heads of its texts instead.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct JobRow {
    id: u64,
    queue: String,
    kind: String,
    /// `queued`, `scheduled`, `processing`, `done`, `failed` or `cancelled`.
    view: &'static str,
    /// `queued`, `processing`, `done`, `failed` or `cancelled`.
    state: &'static str,
    priority: i16,
    /// Claims charged in this generation.
    attempts: u32,
    max_retries: u32,
    generation: u32,
    run_at: Time,
    timeout_ms: Option<u64>,
    visibility_timeout_ms: u64,
    /// Only of one job.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry: Option<Retry>,
    idempotency_key: Option<String>,
    worker: Option<String>,
    lease_until: Option<Time>,
    created_at: Time,
    updated_at: Time,
    started_at: Option<Time>,
    finished_at: Option<Time>,
    /// In a row, its first 300 characters.
    last_error: Option<String>,
    /// The error group of a dead letter.
    error_group: Option<String>,
    progress: Option<Raw>,
    /// The first 200 characters of the payload; only in a row.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_head: Option<String>,
    payload_bytes: usize,
    /// `null` without a result.
    result_bytes: Option<usize>,
}

impl JobRow {
    /// A row of a list.
    pub(crate) fn of(detail: &JobDetail) -> Self {
        let error = detail.last_error.as_ref().map(|error| head(error.as_str(), ERROR_HEAD));
        let payload_head = Some(head(detail.payload.as_str(), PAYLOAD_HEAD));
        Self { last_error: error, payload_head, retry: None, ..Self::head_of(detail) }
    }

    /// A single job.
    pub(crate) fn head_of(detail: &JobDetail) -> Self {
        let (job, lease) = (&detail.job, detail.job.lease());
        Self {
            id: job.id.get(),
            queue: job.queue.as_str().into(),
            kind: job.kind.as_str().into(),
            view: job.state.view().as_str(),
            state: job.state.name().as_str(),
            priority: job.priority.get(),
            attempts: job.attempts,
            max_retries: job.max_retries.get(),
            generation: job.generation,
            run_at: Time(job.run_at),
            timeout_ms: job.timeout.map(core::JobTimeout::get),
            visibility_timeout_ms: job.visibility_timeout.get(),
            retry: Some(Retry::of(&job.retry)),
            idempotency_key: job.idempotency_key.as_ref().map(|key| key.as_str().into()),
            worker: lease.map(|lease| lease.worker.as_str().into()),
            lease_until: lease.map(|lease| Time(lease.until)),
            created_at: Time(job.created_at),
            updated_at: Time(job.updated_at),
            started_at: job.started_at.map(Time),
            finished_at: job.finished_at().map(Time),
            last_error: detail.last_error.as_ref().map(|error| error.as_str().into()),
            error_group: job.state.group().map(|group| group.to_string()),
            progress: detail.progress.clone().map(Raw),
            payload_head: None,
            payload_bytes: detail.payload.as_str().len(),
            result_bytes: detail.result.as_ref().map(|result| result.as_str().len()),
        }
    }
}

/// At most this number of characters from the start of a text.
fn head(text: &str, characters: usize) -> String {
    text.char_indices().nth(characters).map_or(text, |(end, _)| &text[..end]).into()
}

/// A page of rows.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct RowList {
    pub(crate) jobs: Vec<JobRow>,
    /// The cursor of the next page; `null` at the end.
    pub(crate) next: Option<String>,
    /// Only of a search: number of jobs that were read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) scanned: Option<usize>,
    /// Only of a search that ended because it would cost too much: the instant it got to. The next
    /// page goes on from there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reached: Option<Time>,
}

impl RowList {
    /// A page of a list that seeks all it is asked for.
    pub(crate) fn page(jobs: Vec<JobRow>, next: Option<String>) -> Self {
        Self { jobs, next, scanned: None, reached: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_of_a_text_ends_between_two_characters() {
        assert_eq!(head("", 3), "");
        assert_eq!(head("abc", 3), "abc");
        assert_eq!(head("äöüß", 3), "äöü");
    }
}
