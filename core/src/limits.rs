//! Every limit of the core, named once. Over a limit the caller gets a refusal that names it.

use crate::Millis;

/// Longest queue, kind, worker or setting name, in bytes (they are ASCII).
pub const NAME_BYTES: usize = 128;
/// Longest idempotency key, in bytes (they are visible ASCII).
pub const IDEMPOTENCY_KEY_BYTES: usize = 255;
/// Longest version of the program of a worker, in bytes (they are printable ASCII).
pub const VERSION_BYTES: usize = 64;
/// Longest value of a setting kept in the store, in bytes.
pub const SETTING_VALUE_BYTES: usize = 4 * 1024;
/// Largest payload or result of a job, in bytes. A server may allow less.
pub const PAYLOAD_BYTES: usize = 16 * 1024 * 1024;
/// Maximum bytes of payloads that one claim returns; a single job is returned whatever its size.
/// Jobs that do not fit stay ready and are claimed by the next batch.
pub const CLAIM_BYTES: usize = 2 * PAYLOAD_BYTES;
/// Longest error message kept of a failed attempt, in bytes; longer ones are cut and marked.
pub const ERROR_BYTES: usize = 4 * 1024;
/// Longest tail of standard output or standard error kept of an attempt, in bytes, each.
pub const OUTPUT_BYTES: usize = 16 * 1024;
/// Attempts of one job that are kept: those with its newest epochs.
pub const ATTEMPTS_KEPT: u64 = 32;
/// Maximum number of queues of a store, unless [`Policy`](crate::Policy) sets another.
pub const QUEUES: usize = 10_000;
/// Maximum number of kinds with jobs in one queue.
pub const KINDS_PER_QUEUE: usize = 1_000;
/// Maximum number of kinds with limits of their own in one queue.
pub const KIND_LIMITS: usize = 100;
/// Maximum number of jobs that one request enqueues.
pub const JOBS_PER_REQUEST: usize = 10_000;
/// Maximum number of rows of one page of a list, a reap, a purge or a bulk replay.
pub const PAGE_ROWS: usize = 1_000;
/// Farthest a job may be scheduled ahead: ten years.
pub const MAX_AHEAD: Millis = Millis::days(3_653);
/// Longest time between two attempts: a year.
pub const MAX_BACKOFF: Millis = Millis::days(365);
/// A wall clock that disagrees with the monotonic one by more than this has been stepped.
pub const CLOCK_STEP: Millis = Millis::new(1_000);
/// How long an attempt that its own process stops keeps its lease while it ends: also beyond its
/// timeout. One that never ends does not hold its job for ever.
pub const STOP_GRACE: Millis = Millis::seconds(30);
/// Age at which commit markers of silent processes, and rows of silent workers, are removed.
pub const SILENT_KEPT: Millis = Millis::days(1);
/// Maximum number of queues with figures of their own in one row; others are counted together.
pub const FIGURE_QUEUES: usize = 1_000;
/// Maximum number of rows of figures that one batch folds or removes, of each span.
pub const FIGURE_PAGE: usize = 60;
/// Maximum number of slots of figures that a process holds while it cannot write them.
pub const FIGURE_SLOTS: usize = 60;
/// Maximum number of steps that one read of past figures returns.
pub const FIGURE_STEPS: usize = 4_000;
/// Longest title of an error group, in bytes.
pub const GROUP_TITLE_BYTES: usize = 200;
/// Maximum number of error groups of a store. Beyond it, errors of a kind that have no group yet
/// share one. Processes that commit at the same moment may exceed it by as many as they add.
pub const ERROR_GROUPS: usize = 10_000;
/// Maximum number of queues that are counted by name in the row of an error group.
pub const GROUP_QUEUES: usize = 32;
/// Time from the last failure of an error group without dead letters to its removal.
pub const GROUP_KEPT: Millis = Millis::days(7);
/// Names of queues, and of kinds, that are stored of a worker's demand; with more, the worker is
/// stored as running all.
pub const DEMAND_NAMES: usize = 100;
/// Maximum number of jobs that one process runs at the same time.
pub const SLOTS: usize = 10_000;
/// Consecutive updates of `last_seen` that a worker may miss before it counts as gone.
pub const MISSED_PRESENCES: u64 = 3;
/// The shortest silence after which a worker counts as gone.
pub const SHORTEST_SILENCE: Millis = Millis::seconds(5);
/// Maximum number of queues that one search names.
pub const SEARCH_QUEUES: usize = 20;
/// Jobs whose documents a search reads together: while their size is not known, and at most.
pub const SEARCH_DOCUMENTS: (usize, usize) = (16, 256);
/// Bytes of documents that a search aims to read together.
pub const SEARCH_STEP_BYTES: usize = 1024 * 1024;
/// Maximum number of bulk actions of a store that have not ended.
pub const BULK_LIVE: usize = 16;
/// Number of bulk actions that have ended and are kept: those with the greatest ids.
pub const BULK_KEPT: usize = 50;
/// Maximum number of jobs that a bulk action names one by one, or releases as its canary.
pub const BULK_NAMED: usize = PAGE_ROWS;
/// Maximum number of pages of a list that one step of a bulk action reads.
pub const BULK_PAGES: usize = 8;
/// Number of jobs whose documents one step of a bulk action reads, unless they are large.
pub const BULK_DOCUMENTS: usize = PAGE_ROWS;
/// Bytes of documents after which a step of a bulk action reads no more of them.
pub const BULK_BYTES: usize = 4 * 1024 * 1024;
/// Time between two looks at the canary of a bulk action.
pub const CANARY_CHECK: Millis = Millis::new(500);
