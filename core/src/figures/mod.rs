//! What happened to jobs, as numbers: counters and times that are added up.
//!
//! Figures are plain data. They say nothing about jobs that are stored now; those are counted by
//! [`Counts`](crate::Counts).

mod bytes;
mod gauge;
mod set;
mod span;

use crate::{Job, LastVerdict, Millis, Queue, State};

pub use bytes::BadFigures;
pub use gauge::{Gauge, Gauges};
pub use set::FigureSet;
pub use span::Span;
pub(crate) use span::slot;

/// What happened to the jobs of one queue over some time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Figures {
    /// Jobs stored.
    pub enqueued: u64,
    /// Enqueues that were answered with the job of an earlier request.
    pub deduplicated: u64,
    /// Attempts claimed.
    pub started: u64,
    /// Attempts that completed their job.
    pub done: u64,
    /// Jobs that went to the dead-letter queue, after an attempt failed or its lease expired.
    pub failed: u64,
    /// Jobs cancelled, queued or running.
    pub cancelled: u64,
    /// Attempts that failed, or whose lease expired, with another attempt to follow.
    pub retried: u64,
    /// Attempts given back by their holder, uncharged.
    pub released: u64,
    /// Attempts put off by their handler, uncharged.
    pub snoozed: u64,
    /// Attempts whose lease expired; they are in `retried` or `failed` as well.
    pub expired: u64,
    /// Pauses of the queue that was not paused before.
    pub paused: u64,
    /// Resumptions of the queue that was paused before.
    pub resumed: u64,
    /// Replacements of the queue's settings with other ones.
    pub settings: u64,
    /// Starts of processes that run or serve jobs; counted in no queue, but in
    /// [`FigureSet::other`].
    pub starts: u64,
    /// Times from due to claimed.
    pub wait: Times,
    /// How long attempts ran that completed or failed. Those given back, put off, cancelled or
    /// expired are left out: their end says nothing about the work.
    pub run: Times,
}

/// The number of counters in [`Figures`].
const COUNTERS: usize = 14;

impl Figures {
    /// Adds up.
    pub fn add(&mut self, other: &Self) {
        for (to, from) in self.counters_mut().into_iter().zip(other.counters()) {
            *to = to.saturating_add(from);
        }
        self.wait.add(&other.wait);
        self.run.add(&other.run);
    }

    /// Whether nothing happened.
    pub fn is_empty(&self) -> bool {
        self.counters() == [0; COUNTERS] && self.wait.is_empty() && self.run.is_empty()
    }

    /// Counts a change of a queue by an operator.
    pub(crate) fn note_queue(&mut self, before: &Queue, after: &Queue) {
        self.paused += u64::from(after.is_paused() && !before.is_paused());
        self.resumed += u64::from(before.is_paused() && !after.is_paused());
        self.settings += u64::from(before.settings != after.settings);
    }

    /// Counts a change of a job: the row before a transition, if it had one, and after it.
    pub(crate) fn note(&mut self, before: Option<&Job>, after: &Job) {
        let Some(before) = before else {
            self.enqueued += 1;
            return;
        };
        let held = before.lease().is_some();
        match &after.state {
            State::Processing(_) if !held => {
                self.started += 1;
                let started = after.started_at.unwrap_or(after.updated_at);
                self.wait.record(started.since(before.run_at));
            }
            State::Done { .. } => {
                self.done += 1;
                self.ran(before, after);
            }
            State::Failed { last_verdict, .. } if held => {
                self.failed += 1;
                self.reported(before, after, last_verdict.is_some());
            }
            State::Cancelled { .. } => self.cancelled += 1,
            State::Queued { last_verdict, .. } if held => match last_verdict {
                Some(LastVerdict::Released) => self.released += 1,
                Some(LastVerdict::Snoozed) => self.snoozed += 1,
                last_verdict => {
                    self.retried += 1;
                    self.reported(before, after, last_verdict.is_some());
                }
            },
            // A heartbeat, a job that fell due, a replay.
            State::Processing(_) | State::Failed { .. } | State::Queued { .. } => {}
        }
    }

    /// An attempt ended in failure: its holder said so, or its lease expired.
    fn reported(&mut self, before: &Job, after: &Job, by_holder: bool) {
        if by_holder {
            self.ran(before, after);
        } else {
            self.expired += 1;
        }
    }

    fn ran(&mut self, before: &Job, after: &Job) {
        let started = before.started_at.unwrap_or(after.updated_at);
        self.run.record(after.updated_at.since(started));
    }

    /// The counters, in the order in which they are written.
    fn counters(&self) -> [u64; COUNTERS] {
        [
            self.enqueued,
            self.deduplicated,
            self.started,
            self.done,
            self.failed,
            self.cancelled,
            self.retried,
            self.released,
            self.snoozed,
            self.expired,
            self.paused,
            self.resumed,
            self.settings,
            self.starts,
        ]
    }

    fn counters_mut(&mut self) -> [&mut u64; COUNTERS] {
        [
            &mut self.enqueued,
            &mut self.deduplicated,
            &mut self.started,
            &mut self.done,
            &mut self.failed,
            &mut self.cancelled,
            &mut self.retried,
            &mut self.released,
            &mut self.snoozed,
            &mut self.expired,
            &mut self.paused,
            &mut self.resumed,
            &mut self.settings,
            &mut self.starts,
        ]
    }
}

/// A histogram of lengths of time. Each bucket ends at twice the length of the one before, from a
/// millisecond to more than four hours.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Times {
    buckets: [u64; Self::BUCKETS],
    sum_ms: u64,
}

impl Times {
    /// The number of buckets. The last one holds everything that is longer than the bound of
    /// the one before.
    pub const BUCKETS: usize = 26;

    /// The number of lengths in each bucket, the shortest first.
    pub fn buckets(&self) -> &[u64; Self::BUCKETS] {
        &self.buckets
    }

    /// The longest length that falls into a bucket; `None` for the last one, which has no bound.
    pub fn bound(bucket: usize) -> Option<Millis> {
        (bucket + 1 < Self::BUCKETS).then(|| Millis::new(1 << bucket))
    }

    /// The number of lengths recorded.
    pub fn count(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// All lengths together.
    pub fn sum(&self) -> Millis {
        Millis::new(self.sum_ms)
    }

    fn is_empty(&self) -> bool {
        self.buckets == [0; Self::BUCKETS] && self.sum_ms == 0
    }

    /// Records a length.
    pub fn record(&mut self, length: Millis) {
        let above = length.get().saturating_sub(1).checked_ilog2();
        let bucket = above.map_or(0, |log| log as usize + 1).min(Self::BUCKETS - 1);
        self.buckets[bucket] = self.buckets[bucket].saturating_add(1);
        self.sum_ms = self.sum_ms.saturating_add(length.get());
    }

    fn add(&mut self, other: &Self) {
        for (to, from) in self.buckets.iter_mut().zip(other.buckets) {
            *to = to.saturating_add(from);
        }
        self.sum_ms = self.sum_ms.saturating_add(other.sum_ms);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_falls_into_the_first_bucket_whose_bound_it_does_not_exceed() {
        for millis in [0, 1, 2, 3, 4, 5, 1_000, 1 << 24, (1 << 24) + 1, u64::MAX] {
            let mut times = Times::default();
            times.record(Millis::new(millis));
            let bucket = times.buckets().iter().position(|count| *count == 1).unwrap();
            let bound = |bucket| Times::bound(bucket).map_or(u64::MAX, Millis::get);
            assert!(millis <= bound(bucket), "{millis}");
            assert!(bucket == 0 || millis > bound(bucket - 1), "{millis}");
            assert_eq!((times.count(), times.sum()), (1, Millis::new(millis)));
        }
    }

    #[test]
    fn sums_do_not_overflow() {
        let mut times = Times::default();
        times.record(Millis::new(u64::MAX));
        let figures = Figures { done: u64::MAX, wait: times.clone(), ..Figures::default() };
        let mut sum = figures.clone();
        sum.add(&figures);
        assert_eq!((sum.done, sum.wait.sum()), (u64::MAX, Millis::new(u64::MAX)));
        assert_eq!(sum.wait.count(), 2);
    }
}
