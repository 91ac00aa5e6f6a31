//! Samples of the last ten minutes, every two seconds while there are viewers. The rest of the
//! history is in the store: counters, times, gauges and marks.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use windlass_core::{Gauge, Gauges, Millis, QueueName, Wall};

/// Maximum number of queues with samples of their own: the busiest.
pub(crate) const QUEUES: usize = 128;
/// The longest time between two samples.
pub(crate) const SAMPLED: Millis = Millis::seconds(10);

/// How far back, and in which steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) name: &'static str,
    pub(crate) step: Millis,
    pub(crate) steps: usize,
}

/// The range of the samples in memory, in steps shorter than those of the store.
pub(crate) const RECENT: Range = RANGES[0];
/// Every range. Each is a whole number of steps, and each step a whole number of those before.
pub(crate) const RANGES: [Range; 4] = [
    Range { name: "10m", step: Millis::seconds(2), steps: 300 },
    Range { name: "1h", step: Millis::seconds(10), steps: 360 },
    Range { name: "24h", step: Millis::minutes(5), steps: 288 },
    Range { name: "7d", step: Millis::minutes(30), steps: 336 },
];

impl Range {
    /// The start of the step that an instant falls into.
    pub(crate) fn slot(self, at: Wall) -> Wall {
        let step = i64::try_from(self.step.get()).unwrap_or(i64::MAX);
        Wall::new(at.get() - at.get().rem_euclid(step))
    }

    /// The start of the first step, if the last one is that of this instant.
    pub(crate) fn from(self, now: Wall) -> Wall {
        self.slot(now).minus(self.step.times(self.steps as u64 - 1))
    }
}

/// Queued and running jobs at one instant, and the counters until then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Sample {
    pub(crate) gauge: Gauge,
    pub(crate) totals: Totals,
}

/// Counters since the store was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Totals {
    pub(crate) enqueued: u64,
    pub(crate) done: u64,
    pub(crate) failed: u64,
    pub(crate) retried: u64,
}

impl Totals {
    pub(crate) fn of(figures: &windlass_core::Figures) -> Self {
        Self {
            enqueued: figures.enqueued,
            done: figures.done,
            failed: figures.failed,
            retried: figures.retried,
        }
    }

    /// The difference to the counters of an earlier instant.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        Self {
            enqueued: self.enqueued.saturating_sub(earlier.enqueued),
            done: self.done.saturating_sub(earlier.done),
            failed: self.failed.saturating_sub(earlier.failed),
            retried: self.retried.saturating_sub(earlier.retried),
        }
    }
}

/// One instant: everything, and the busiest queues.
#[derive(Debug, Clone, Default)]
pub(crate) struct Samples {
    pub(crate) sum: Sample,
    pub(crate) queues: BTreeMap<QueueName, Sample>,
}

impl Samples {
    /// Of one queue, or of all.
    pub(crate) fn of(&self, queue: Option<&QueueName>) -> Option<Sample> {
        queue.map_or(Some(self.sum), |name| self.queues.get(name).copied())
    }

    /// The gauges of queued and running jobs, for the store.
    pub(crate) fn gauges(&self) -> Gauges {
        let queues = self.queues.iter().map(|(name, sample)| (name.clone(), sample.gauge));
        Gauges { all: Some(self.sum.gauge), queues: queues.collect() }
    }
}

/// The samples of this server.
#[derive(Debug, Default)]
pub(crate) struct Past(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// The latest sample of each step of [`RECENT`], by its start.
    ring: VecDeque<(Wall, Samples)>,
}

impl Past {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores a sample.
    pub(crate) fn add(&self, now: Wall, samples: Samples) {
        let ring = &mut self.inner().ring;
        let slot = RECENT.slot(now);
        // Clock set back: drop samples that are now in the future.
        while ring.back().is_some_and(|(last, _)| *last >= slot) {
            ring.pop_back();
        }
        ring.push_back((slot, samples));
        let from = RECENT.from(now);
        while ring.front().is_some_and(|(first, _)| *first < from) {
            ring.pop_front();
        }
    }

    /// The samples of a range, one place for each step that begins at or after `from`. Only the
    /// steps of [`RECENT`] are kept.
    pub(crate) fn samples(
        &self,
        range: Range,
        from: Wall,
        queue: Option<&QueueName>,
    ) -> Vec<Option<Sample>> {
        let mut found = vec![None; range.steps];
        if range != RECENT {
            return found;
        }
        for (slot, samples) in self.inner().ring.iter().filter(|(slot, _)| *slot >= from) {
            let place = usize::try_from(slot.since(from).get() / range.step.get());
            if let Some(place) = place.ok().and_then(|place| found.get_mut(place)) {
                *place = samples.of(queue);
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(waiting: u64) -> Samples {
        let gauge = Gauge { queued: waiting, ..Gauge::default() };
        let sum = Sample { gauge, ..Sample::default() };
        let queues = [(QueueName::default(), sum)].into_iter().collect();
        Samples { sum, queues }
    }

    #[test]
    fn steps_divide_each_other_so_that_slots_do_not_overlap() {
        for pair in RANGES.windows(2) {
            assert_eq!(pair[1].step.get() % pair[0].step.get(), 0);
        }
    }

    #[test]
    fn the_latest_sample_of_a_step_counts_and_what_was_not_seen_is_not_known() {
        let past = Past::default();
        let now = Wall::new(600_000);
        past.add(now, samples(1));
        past.add(now.plus(Millis::seconds(1)), samples(2));
        past.add(now.plus(Millis::seconds(4)), samples(3));
        let last = now.plus(Millis::seconds(4));
        let from = RECENT.from(last);
        let found = past.samples(RECENT, from, None);
        let queued: Vec<Option<u64>> =
            found.iter().rev().take(4).map(|sample| sample.map(|s| s.gauge.queued)).collect();
        assert_eq!(queued, [Some(3), None, Some(2), None]);
        let other = QueueName::new("other").unwrap();
        assert!(past.samples(RECENT, from, Some(&other)).iter().all(Option::is_none));
        let own = past.samples(RECENT, from, Some(&QueueName::default()));
        assert_eq!(own.iter().flatten().count(), 2);
        assert_eq!(past.samples(RANGES[1], from, None).iter().flatten().count(), 0);
    }

    #[test]
    fn the_ring_holds_no_more_than_its_range_also_when_the_clock_is_set_back() {
        let past = Past::default();
        for second in 0..2_000 {
            past.add(Wall::new(second * 1_000), samples(1));
        }
        assert!(past.inner().ring.len() <= RECENT.steps);
        past.add(Wall::new(1_000_000), samples(2));
        assert_eq!(past.inner().ring.back().map(|(slot, _)| *slot), Some(Wall::new(1_000_000)));
        let found = past.samples(RECENT, RECENT.from(Wall::new(1_000_000)), None);
        assert_eq!(found.last().unwrap().unwrap().gauge.queued, 2);
    }
}
