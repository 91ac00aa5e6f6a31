//! Every limit of the core, named once. Over a limit the caller gets a refusal that names it.

use crate::Millis;

/// Longest queue, kind, worker or setting name, in bytes (they are ASCII).
pub const NAME_BYTES: usize = 128;
/// Longest idempotency key, in bytes (they are visible ASCII).
pub const IDEMPOTENCY_KEY_BYTES: usize = 255;
/// Longest value of a setting kept in the store, in bytes.
pub const SETTING_VALUE_BYTES: usize = 4 * 1024;
/// Largest payload or result of a job, in bytes. A server may allow less.
pub const PAYLOAD_BYTES: usize = 16 * 1024 * 1024;
/// Payloads that one claim brings for everybody with the same demand, in bytes; a single job is
/// always brought. What does not fit stays where it is, and is claimed by the next batch.
pub const CLAIM_BYTES: usize = 2 * PAYLOAD_BYTES;
/// Longest error message kept of a failed attempt, in bytes; longer ones are cut and marked.
pub const ERROR_BYTES: usize = 4 * 1024;
/// Longest tail of standard output or standard error kept of an attempt, in bytes, each.
pub const OUTPUT_BYTES: usize = 16 * 1024;
/// How many recorded attempts of one job are kept: those of its newest epochs.
pub const ATTEMPTS_KEPT: u64 = 32;
/// How many queues a store holds.
pub const QUEUES: usize = 10_000;
/// How many kinds with jobs one queue holds.
pub const KINDS_PER_QUEUE: usize = 1_000;
/// How many jobs one request may enqueue.
pub const JOBS_PER_REQUEST: usize = 10_000;
/// How many rows one page of a list, a reap, a purge or a bulk replay touches.
pub const PAGE_ROWS: usize = 1_000;
/// How many rows one page of a filtered list looks at before it returns what it has.
pub const LIST_SCAN_ROWS: usize = 10_000;
/// Farthest a job may be scheduled ahead: ten years.
pub const MAX_AHEAD: Millis = Millis::days(3_653);
/// Longest time between two attempts: a year.
pub const MAX_BACKOFF: Millis = Millis::days(365);
/// A wall clock that disagrees with the monotonic one by more than this has been stepped.
pub const CLOCK_STEP: Millis = Millis::new(1_000);
/// How long commit markers of silent processes, and rows of silent workers, are kept.
pub const SILENT_KEPT: Millis = Millis::days(1);
/// How many names of queues, and of kinds, are kept of what a worker would run; one that names more
/// is taken to want all.
pub const DEMAND_NAMES: usize = 100;
/// How many jobs one process runs at once.
pub const SLOTS: usize = 10_000;
/// How many times in a row a worker may miss to say that it is there before it counts as gone.
pub const MISSED_PRESENCES: u64 = 3;
/// The shortest silence after which a worker counts as gone.
pub const SHORTEST_SILENCE: Millis = Millis::seconds(5);
