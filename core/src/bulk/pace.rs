//! The pace of a bulk action: a bucket that fills with time and is emptied by jobs. Whole numbers
//! only, so that nothing is lost by rounding.

use crate::{JobsPerSecond, Millis, Wall};

/// Thousandths of a job.
const JOB: u64 = 1_000;

/// At most this many jobs per second; after a pause at most one second's worth at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// The rate, and the size of the bucket.
    pub per_s: JobsPerSecond,
    /// What is in the bucket, in thousandths of a job, as of `at`.
    pub(super) level: u64,
    /// When the bucket was last looked at.
    pub(super) at: Wall,
}

impl Pace {
    /// A pace that begins now, with what is taken at once.
    pub fn new(per_s: JobsPerSecond, now: Wall) -> Self {
        let mut pace = Self { per_s, level: 0, at: now };
        pace.level = pace.at_once() * JOB;
        pace
    }

    /// The least number of jobs taken together: what comes in a tenth of a second, at least one.
    fn at_once(self) -> u64 {
        u64::from(self.per_s.get() / 10).max(1)
    }

    fn level(self, now: Wall) -> u64 {
        let per_s = u64::from(self.per_s.get());
        let filled = now.since(self.at).get().saturating_mul(per_s);
        self.level.saturating_add(filled).min(per_s * JOB)
    }

    /// The number of jobs that may be taken now; 0 until enough can be taken together.
    pub fn room(self, now: Wall) -> u64 {
        let jobs = self.level(now) / JOB;
        if jobs < self.at_once() { 0 } else { jobs }
    }

    /// When the next jobs may be taken.
    pub fn next(self, now: Wall) -> Wall {
        let missing = (self.at_once() * JOB).saturating_sub(self.level(now));
        now.plus(Millis::new(missing.div_ceil(u64::from(self.per_s.get()))))
    }

    /// Takes in that jobs were taken.
    pub(super) fn take(&mut self, jobs: u64, now: Wall) {
        self.level = self.level(now).saturating_sub(jobs.saturating_mul(JOB));
        self.at = now;
    }

    /// Where the clock was set back, the bucket fills from now on. Returns whether it was.
    pub(super) fn note_clock(&mut self, now: Wall) -> bool {
        let back = now < self.at;
        if back {
            self.at = now;
        }
        back
    }
}
