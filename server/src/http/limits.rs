//! Every limit of the server, named once. Over a limit a client gets a refusal that names it.

use std::time::Duration;

/// Longest address of a request, in bytes. The head as a whole is limited too.
pub(crate) const URI_BYTES: usize = 8 * 1024;
/// Longest head of a request, in bytes.
pub(crate) const HEAD_BYTES: usize = 16 * 1024;
/// Most headers of a request.
pub(crate) const HEADERS: usize = 64;
/// Deepest nesting of a payload or a result.
pub(crate) const JSON_DEPTH: usize = 128;
/// Jobs on a page of a list, by default and at most.
pub(crate) const PAGE: (usize, usize) = (50, 1_000);
/// Bytes of payloads and results after which a page of a list ends early.
pub(crate) const PAGE_BYTES: usize = 8 * 1024 * 1024;
/// Rows that one search looks at.
pub(crate) const SEARCH_ROWS: usize = 20_000;
/// How long one search looks.
pub(crate) const SEARCH_TIME: Duration = Duration::from_millis(200);
/// Bytes of documents that one search reads.
pub(crate) const SEARCH_BYTES: usize = 64 * 1024 * 1024;
/// Characters of a text that is searched for.
pub(crate) const SEARCH_TEXT: usize = 200;
/// Jobs that one poll may claim.
pub(crate) const POLL_JOBS: i64 = 1_000;
/// Longest that a poll waits, in milliseconds.
pub(crate) const POLL_WAIT_MS: u64 = 30_000;
/// Queues that one poll may name, and kinds.
pub(crate) const POLL_NAMES: usize = 100;
/// Reports in one request.
pub(crate) const REPORTS: usize = 10_000;
/// Dead letters that one request replays at most.
pub(crate) const REPLAYS: usize = 1_000;
/// Queues with metrics of their own; those that come later are counted together.
pub(crate) const METRIC_QUEUES: usize = 1_000;
/// Series of waiting and running times; those that come later are counted together.
pub(crate) const METRIC_TIMINGS: usize = 200;
/// Events that can be replayed to a client that comes back.
pub(crate) const EVENT_WINDOW: usize = 10_000;
/// Connections answered 503 at once, beyond the limit; further ones are just closed.
pub(crate) const REFUSALS: usize = 64;
/// Bodies that are being served, all together, in KiB; a single one is always taken.
pub(crate) const BODIES_KIB: usize = 256 * 1024;

/// Answers that wait for their readers, all together, in KiB; a single one is always sent.
pub(crate) const ANSWERS_KIB: usize = 256 * 1024;
/// Answers up to this size are not counted: the number of connections bounds them.
pub(crate) const SMALL_ANSWER_KIB: usize = 64;

/// Limits that can be set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Bytes of a body.
    pub(crate) body: usize,
    /// Maximum size of a batch of jobs or reports, in bytes.
    pub(crate) batch_body: usize,
    /// Maximum number of connections.
    pub(crate) connections: usize,
    /// For the head of a request, from its first byte.
    pub(crate) head_read: Duration,
    /// For the body of a request.
    pub(crate) body_read: Duration,
    /// For a connection without a request.
    pub(crate) idle: Duration,
    /// For a client that does not read its answer.
    pub(crate) write_stall: Duration,
    /// Between two signs of life in a stream of events.
    pub(crate) heartbeat: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body: 1024 * 1024,
            batch_body: 32 * 1024 * 1024,
            connections: 1_024,
            head_read: Duration::from_secs(5),
            body_read: Duration::from_secs(15),
            idle: Duration::from_mins(1),
            write_stall: Duration::from_secs(30),
            heartbeat: Duration::from_secs(15),
        }
    }
}
