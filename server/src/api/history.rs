//! What this server remembers of the past: how many jobs waited and ran, in rings of fixed size;
//! and marks of what was done. Counters and times of the past are the store's, and not kept here.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use windlass_core::{Millis, QueueName, Wall};

use crate::api::wire::{HistoryMark, Time};

/// Queues with a past of their own, the busiest.
pub(crate) const QUEUES: usize = 128;
/// The longest time between two samples.
pub(crate) const SAMPLED: Millis = Millis::seconds(10);
/// Marks that are remembered.
const MARKS: usize = 200;
/// Pauses that are remembered: no more queues than most stores have.
const PAUSES: usize = 10_000;

/// How far back, and in which steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) name: &'static str,
    pub(crate) step: Millis,
    pub(crate) steps: usize,
}

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

/// What waited and ran at one instant, and what had happened until then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Sample {
    pub(crate) queued: u64,
    pub(crate) processing: u64,
    pub(crate) oldest_ms: u64,
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

    /// What happened since an earlier instant.
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
}

/// What happened that explains a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    Started,
    Paused,
    Resumed,
    Settings,
}

impl What {
    fn as_str(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Paused => "paused",
            Self::Resumed => "resumed",
            Self::Settings => "settings",
        }
    }
}

/// Since when a queue is paused, and by whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pause {
    pub(crate) at: Wall,
    /// The name of a token.
    pub(crate) by: Option<String>,
}

/// The past, as far as this server has seen it.
#[derive(Debug)]
pub(crate) struct Past(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// A ring for each range: the latest sample of each step, by its start.
    rings: [VecDeque<(Wall, Samples)>; RANGES.len()],
    marks: VecDeque<HistoryMark>,
    pauses: BTreeMap<String, Pause>,
}

impl Past {
    pub(crate) fn new(started_at: Wall) -> Self {
        let past = Self(Mutex::new(Inner::default()));
        past.inner().mark(What::Started, None, started_at);
        past
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers an instant in every ring.
    pub(crate) fn add(&self, now: Wall, samples: &Samples) {
        let mut inner = self.inner();
        for (range, ring) in RANGES.iter().zip(&mut inner.rings) {
            let slot = range.slot(now);
            // A clock that was set back: what came later is not the past.
            while ring.back().is_some_and(|(last, _)| *last >= slot) {
                ring.pop_back();
            }
            ring.push_back((slot, samples.clone()));
            let from = range.from(now);
            while ring.front().is_some_and(|(first, _)| *first < from) {
                ring.pop_front();
            }
        }
    }

    /// The samples of a range, one place for each step that begins at or after `from`.
    pub(crate) fn samples(
        &self,
        range: Range,
        from: Wall,
        queue: Option<&QueueName>,
    ) -> Vec<Option<Sample>> {
        let mut found = vec![None; range.steps];
        let at = RANGES.iter().position(|known| *known == range);
        let inner = self.inner();
        let Some(ring) = at.and_then(|at| inner.rings.get(at)) else { return found };
        for (slot, samples) in ring.iter().filter(|(slot, _)| *slot >= from) {
            let place = usize::try_from(slot.since(from).get() / range.step.get());
            if let Some(place) = place.ok().and_then(|place| found.get_mut(place)) {
                *place = samples.of(queue);
            }
        }
        found
    }

    /// The same, where a sample holds until the next one, for as long as there is none at most.
    pub(crate) fn held(range: Range, samples: &[Option<Sample>]) -> Vec<Option<Sample>> {
        let most = SAMPLED.get() / range.step.get();
        let mut held = Vec::with_capacity(samples.len());
        let mut last: Option<(Sample, u64)> = None;
        for sample in samples {
            last = match (sample, last) {
                (Some(sample), _) => Some((*sample, 0)),
                (None, Some((sample, age))) if age < most => Some((sample, age + 1)),
                (None, _) => None,
            };
            held.push(last.map(|(sample, _)| sample));
        }
        held
    }

    /// Remembers what was done to a queue.
    pub(crate) fn mark(&self, what: What, queue: &str, at: Wall) {
        let mut inner = self.inner();
        inner.mark(what, Some(queue), at);
        if what == What::Resumed {
            inner.pauses.remove(queue);
        }
    }

    /// Remembers that a queue was paused, unless it was already.
    pub(crate) fn paused(&self, queue: &str, at: Wall, by: Option<&str>) {
        let mut inner = self.inner();
        if inner.pauses.len() < PAUSES && !inner.pauses.contains_key(queue) {
            inner.mark(What::Paused, Some(queue), at);
            inner.pauses.insert(queue.into(), Pause { at, by: by.map(Into::into) });
        }
    }

    /// Since when a queue is paused, if this server has seen it.
    pub(crate) fn pause_of(&self, queue: &str) -> Option<Pause> {
        self.inner().pauses.get(queue).cloned()
    }

    /// Marks since an instant, of one queue and of the server, or all.
    pub(crate) fn marks(&self, from: Wall, queue: Option<&QueueName>) -> Vec<HistoryMark> {
        let concerns = |mark: &&HistoryMark| {
            let named = mark.queue.as_deref();
            mark.at.0 >= from && queue.is_none_or(|name| named.is_none_or(|q| q == name.as_str()))
        };
        self.inner().marks.iter().filter(concerns).cloned().collect()
    }
}

impl Inner {
    fn mark(&mut self, what: What, queue: Option<&str>, at: Wall) {
        if self.marks.len() == MARKS {
            self.marks.pop_front();
        }
        let (at, what, queue) = (Time(at), what.as_str(), queue.map(Into::into));
        self.marks.push_back(HistoryMark { at, what, queue });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(waiting: u64) -> Samples {
        let sum = Sample { queued: waiting, ..Sample::default() };
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
        let past = Past::new(Wall::new(0));
        let now = Wall::new(600_000);
        past.add(now, &samples(1));
        past.add(now.plus(Millis::seconds(1)), &samples(2));
        past.add(now.plus(Millis::seconds(4)), &samples(3));
        let last = now.plus(Millis::seconds(4));
        let from = RANGES[0].from(last);
        let found = past.samples(RANGES[0], from, None);
        let queued: Vec<Option<u64>> =
            found.iter().rev().take(4).map(|sample| sample.map(|s| s.queued)).collect();
        assert_eq!(queued, [Some(3), None, Some(2), None]);
        let held = Past::held(RANGES[0], &found);
        assert_eq!(held.iter().flatten().count(), 3, "a gap of a step is filled");
        let other = QueueName::new("other").unwrap();
        assert!(past.samples(RANGES[0], from, Some(&other)).iter().all(Option::is_none));
        let own = past.samples(RANGES[0], from, Some(&QueueName::default()));
        assert_eq!(own.iter().flatten().count(), 2);
    }

    #[test]
    fn a_ring_holds_no_more_than_its_range_also_when_the_clock_is_set_back() {
        let past = Past::new(Wall::new(0));
        for second in 0..2_000 {
            past.add(Wall::new(second * 1_000), &samples(1));
        }
        assert!(past.inner().rings[0].len() <= RANGES[0].steps);
        past.add(Wall::new(1_000_000), &samples(2));
        assert_eq!(past.inner().rings[0].back().map(|(slot, _)| *slot), Some(Wall::new(1_000_000)));
        let found = past.samples(RANGES[0], RANGES[0].from(Wall::new(1_000_000)), None);
        assert_eq!(found.last().unwrap().unwrap().queued, 2);
    }

    #[test]
    fn a_pause_is_known_until_the_queue_is_resumed_and_the_first_one_counts() {
        let past = Past::new(Wall::new(0));
        past.paused("mail", Wall::new(1), Some("ops"));
        past.paused("mail", Wall::new(2), None);
        let pause = Pause { at: Wall::new(1), by: Some("ops".into()) };
        assert_eq!(past.pause_of("mail"), Some(pause));
        past.mark(What::Resumed, "mail", Wall::new(3));
        assert_eq!(past.pause_of("mail"), None);
        let name = QueueName::new("mail").unwrap();
        let marks: Vec<&str> =
            past.marks(Wall::new(0), Some(&name)).iter().map(|mark| mark.what).collect();
        assert_eq!(marks, ["started", "paused", "resumed"]);
        let other = QueueName::new("other").unwrap();
        assert_eq!(past.marks(Wall::new(0), Some(&other)).len(), 1);
    }
}
