//! Metrics of a runtime, always on: counters, gauges and histograms with fixed buckets.
//!
//! The writer counts in plain integers and publishes them once per turn; workers count in atomics.
//! Counting does not allocate.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use windlass_core::machine::{Answer, Refused, Stats};
use windlass_core::{EnqueueRefused, Job, Receipt};

/// Number of buckets of a histogram. The last one also counts all greater values.
pub const BUCKETS: usize = 40;

/// A histogram by powers of two. Bucket `i` counts values in `2^(i-1) .. 2^i`, bucket 0 zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Histogram {
    /// Number of values per bucket, not cumulative.
    pub buckets: [u64; BUCKETS],
    /// Sum of all values; saturates.
    pub sum: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: [0; BUCKETS], sum: 0 }
    }
}

impl Histogram {
    /// The exclusive upper bound of a bucket.
    pub fn bound(bucket: usize) -> u64 {
        1_u64.checked_shl(u32::try_from(bucket).unwrap_or(u32::MAX)).unwrap_or(u64::MAX)
    }

    /// Number of recorded values.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// A quantile, in thousandths (500 is the median), rounded up to the bound of its bucket. Zero
    /// if there are no values.
    pub fn quantile(&self, thousandths: u64) -> u64 {
        let target = (self.count() * thousandths.min(1_000)).div_ceil(1_000);
        let mut seen = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen += count;
            if *count > 0 && seen >= target {
                return Self::bound(bucket);
            }
        }
        0
    }

    pub(crate) fn record(&mut self, value: u64) {
        self.buckets[bucket(value)] += 1;
        self.sum = self.sum.saturating_add(value);
    }
}

fn bucket(value: u64) -> usize {
    let bits = u64::BITS - value.leading_zeros();
    usize::try_from(bits).unwrap_or(BUCKETS).min(BUCKETS - 1)
}

/// Requests that were refused, by reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Refusals {
    /// A limit of this process was reached.
    pub overloaded: u64,
    /// This process was shutting down.
    pub shutting_down: u64,
    /// One request asked for too much.
    pub too_many: u64,
    /// The store had no space.
    pub store_full: u64,
    /// The store could not be written.
    pub unavailable: u64,
    /// The result of the commit was unknown.
    pub unknown: u64,
    /// The queue was at its limit of jobs.
    pub queue_full: u64,
    /// An idempotency key had been used by another request.
    pub idempotency_conflict: u64,
    /// Enqueues refused for any other reason.
    pub other: u64,
}

impl Refusals {
    pub(crate) fn note(&mut self, answer: &Answer) {
        match answer {
            Answer::Refused(refused) => *self.of(refused) += 1,
            Answer::Enqueued(result) => self.note_enqueue(result),
            Answer::EnqueuedMany(results) => results.iter().for_each(|r| self.note_enqueue(r)),
            _ => {}
        }
    }

    fn of(&mut self, refused: &Refused) -> &mut u64 {
        match refused {
            Refused::Overloaded { .. } => &mut self.overloaded,
            Refused::ShuttingDown => &mut self.shutting_down,
            Refused::TooMany { .. } => &mut self.too_many,
            Refused::StoreFull(_) => &mut self.store_full,
            Refused::Unavailable(_) => &mut self.unavailable,
            Refused::Unknown(_) => &mut self.unknown,
        }
    }

    fn note_enqueue(&mut self, result: &Result<Receipt, EnqueueRefused>) {
        match result {
            Ok(_) => {}
            Err(EnqueueRefused::QueueFull { .. }) => self.queue_full += 1,
            Err(EnqueueRefused::IdempotencyConflict { .. }) => self.idempotency_conflict += 1,
            Err(_) => self.other += 1,
        }
    }
}

/// Attempts of this process that have ended, by outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Attempts {
    /// The handler returned a result.
    pub completed: u64,
    /// The handler returned an error, or the payload could not be decoded.
    pub failed: u64,
    /// The handler panicked.
    pub panicked: u64,
    /// The handler returned [`JobError::snooze`](crate::JobError::snooze).
    pub snoozed: u64,
    /// The handler was stopped without a verdict.
    pub stopped: u64,
}

/// A snapshot of the metrics of a runtime, counted since it started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Metrics {
    /// Counters of the dispatcher.
    pub dispatcher: Stats,
    /// Attempts that have ended.
    pub attempts: Attempts,
    /// Requests that were refused.
    pub refusals: Refusals,
    /// Jobs leased by this process's workers now.
    pub running: usize,
    /// Maximum number of jobs that run at the same time.
    pub workers: usize,
    /// Whether the dispatcher has begun to stop.
    pub draining: bool,
    /// Microseconds from due to claimed, per claim.
    pub wait: Histogram,
    /// Microseconds per attempt.
    pub run: Histogram,
    /// Microseconds per commit.
    pub commit: Histogram,
    /// Commands per commit.
    pub batch: Histogram,
}

/// The counters of the writer thread.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct WriterFigures {
    pub(crate) dispatcher: Stats,
    pub(crate) refusals: Refusals,
    pub(crate) running: usize,
    pub(crate) workers: usize,
    pub(crate) draining: bool,
    pub(crate) wait: Histogram,
    pub(crate) commit: Histogram,
    pub(crate) batch: Histogram,
}

impl WriterFigures {
    /// Records the wait of a job claimed for this process or for a remote worker.
    pub(crate) fn claimed(&mut self, job: &Job) {
        let waited = job.started_at.map(|at| at.since(job.run_at).get());
        self.wait.record(waited.unwrap_or(0).saturating_mul(1_000));
    }
}

/// The counters of tasks.
#[derive(Debug, Default)]
pub(crate) struct TaskFigures {
    buckets: [AtomicU64; 32],
    beyond: AtomicU64,
    sum: AtomicU64,
    ends: [AtomicU64; 5],
    // Requests refused before they reached the writer.
    pub(crate) overloaded: AtomicU64,
    pub(crate) closed: AtomicU64,
    pub(crate) unavailable: AtomicU64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Completed,
    Failed,
    Panicked,
    Snoozed,
    Stopped,
}

impl TaskFigures {
    pub(crate) fn ended(&self, end: End, micros: u64) {
        self.ends[end as usize].fetch_add(1, Ordering::Relaxed);
        let counter = self.buckets.get(bucket(micros)).unwrap_or(&self.beyond);
        counter.fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(micros, Ordering::Relaxed);
    }

    fn run(&self) -> Histogram {
        let mut run = Histogram { sum: self.sum.load(Ordering::Relaxed), ..Histogram::default() };
        for (to, from) in run.buckets.iter_mut().zip(&self.buckets) {
            *to = from.load(Ordering::Relaxed);
        }
        run.buckets[BUCKETS - 1] = self.beyond.load(Ordering::Relaxed);
        run
    }

    fn attempts(&self) -> Attempts {
        let of = |end: End| self.ends[end as usize].load(Ordering::Relaxed);
        Attempts {
            completed: of(End::Completed),
            failed: of(End::Failed),
            panicked: of(End::Panicked),
            snoozed: of(End::Snoozed),
            stopped: of(End::Stopped),
        }
    }
}

impl Metrics {
    pub(crate) fn of(writer: &WriterFigures, tasks: &TaskFigures) -> Self {
        let mut refusals = writer.refusals;
        refusals.overloaded += tasks.overloaded.load(Ordering::Relaxed);
        refusals.shutting_down += tasks.closed.load(Ordering::Relaxed);
        refusals.unavailable += tasks.unavailable.load(Ordering::Relaxed);
        Self {
            dispatcher: writer.dispatcher,
            attempts: tasks.attempts(),
            refusals,
            running: writer.running,
            workers: writer.workers,
            draining: writer.draining,
            wait: writer.wait,
            run: tasks.run(),
            commit: writer.commit,
            batch: writer.batch,
        }
    }

    /// A quantile of the commit times, in thousandths (990 is p99).
    pub fn commit_time(&self, thousandths: u64) -> Duration {
        Duration::from_micros(self.commit.quantile(thousandths))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_lies_below_the_bound_of_its_bucket_and_not_below_the_one_before() {
        for value in [0, 1, 2, 3, 4, 1_000, 1 << 38] {
            let bucket = bucket(value);
            assert!(value < Histogram::bound(bucket), "{value}");
            assert!(bucket == 0 || value >= Histogram::bound(bucket - 1), "{value}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn a_quantile_is_the_bound_below_which_that_part_lies() {
        let mut histogram = Histogram::default();
        (0..99).for_each(|_| histogram.record(3));
        histogram.record(1_000);
        assert_eq!(histogram.quantile(500), 4);
        assert_eq!(histogram.quantile(990), 4);
        assert_eq!(histogram.quantile(1_000), 1_024);
        assert_eq!(Histogram::default().quantile(500), 0);
    }
}
