//! Figures about a runtime, always on: counters, gauges and histograms with fixed buckets.
//!
//! The writer counts in plain numbers and publishes them once per turn; workers count in atomics.
//! Nothing here allocates while it counts.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use windlass_core::machine::{Answer, Refused, Stats};
use windlass_core::{EnqueueRefused, Job, Receipt};

/// How many buckets a histogram has: the last one also holds everything beyond.
pub const BUCKETS: usize = 40;

/// How often values of each size occurred. Bucket `i` holds values below `2^i` that fit no
/// earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Histogram {
    /// How many values fell into each bucket.
    pub buckets: [u64; BUCKETS],
    /// All values together.
    pub sum: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: [0; BUCKETS], sum: 0 }
    }
}

impl Histogram {
    /// The values of this bucket lie below this.
    pub fn bound(bucket: usize) -> u64 {
        1_u64.checked_shl(u32::try_from(bucket).unwrap_or(u32::MAX)).unwrap_or(u64::MAX)
    }

    /// How many values there are.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// A value that at least this part (0 to 1000 thousandths) of the values lie below: the bound
    /// of a bucket. Zero if there are no values.
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
    /// It was not known whether it was stored.
    pub unknown: u64,
    /// The queue held as many jobs as it may.
    pub queue_full: u64,
    /// An idempotency key had been used by another request.
    pub idempotency_conflict: u64,
    /// Any other reason for which a job is not enqueued.
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

/// Attempts of this process that have ended, by how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Attempts {
    /// Their handler completed the job.
    pub completed: u64,
    /// Their handler failed, undecodable payloads included.
    pub failed: u64,
    /// Their handler panicked.
    pub panicked: u64,
    /// Their handler put the job off.
    pub snoozed: u64,
    /// They were stopped without a verdict.
    pub stopped: u64,
}

/// A snapshot of the figures of a runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Metrics {
    /// What the dispatcher has done.
    pub dispatcher: Stats,
    /// Attempts that have ended.
    pub attempts: Attempts,
    /// Requests that were refused.
    pub refusals: Refusals,
    /// Handlers that run right now.
    pub running: usize,
    /// Jobs that may run at once.
    pub workers: usize,
    /// Whether the dispatcher has begun to stop.
    pub draining: bool,
    /// How long claimed jobs had waited since they were due, in microseconds.
    pub wait: Histogram,
    /// How long attempts ran, in microseconds.
    pub run: Histogram,
    /// How long commits took, in microseconds.
    pub commit: Histogram,
    /// How many commands a commit held.
    pub batch: Histogram,
}

/// What the writer counts, in plain numbers.
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
    /// A job was claimed, for a slot of this process or for a remote worker.
    pub(crate) fn claimed(&mut self, job: &Job) {
        let waited = job.started_at.map(|at| at.since(job.run_at).get());
        self.wait.record(waited.unwrap_or(0).saturating_mul(1_000));
    }
}

/// What tasks count, in atomics.
#[derive(Debug, Default)]
pub(crate) struct TaskFigures {
    buckets: [AtomicU64; 32],
    beyond: AtomicU64,
    sum: AtomicU64,
    ends: [AtomicU64; 5],
    /// Requests refused at the door.
    pub(crate) overloaded: AtomicU64,
    pub(crate) shut_out: AtomicU64,
    pub(crate) unavailable: AtomicU64,
}

/// How an attempt ended.
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
        refusals.shutting_down += tasks.shut_out.load(Ordering::Relaxed);
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

    /// The time by which this part of the commits (in thousandths) was done.
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
