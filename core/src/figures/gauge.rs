//! Gauges: how many jobs waited and ran at one instant. Unlike counters they are not added up: of
//! two gauges of the same queue the later one holds.

use alloc::collections::BTreeMap;

use crate::limits::FIGURE_QUEUES;
use crate::{QueueName, Wall};

/// What waited and ran at one instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Gauge {
    /// When the jobs were counted.
    pub at: Wall,
    /// Jobs that were due and not running.
    pub queued: u64,
    /// Jobs that were running.
    pub processing: u64,
    /// Milliseconds since the longest-waiting of the due jobs fell due.
    pub oldest_ms: u64,
}

/// A gauge of all queues together, and one of each of some queues.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Gauges {
    /// All queues together; `None` if they were not counted.
    pub all: Option<Gauge>,
    /// Some queues, at most [`FIGURE_QUEUES`].
    pub queues: BTreeMap<QueueName, Gauge>,
}

impl Gauges {
    /// Of one queue, or of all together.
    pub fn of(&self, queue: Option<&QueueName>) -> Option<Gauge> {
        queue.map_or(self.all, |name| self.queues.get(name).copied())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.all.is_none() && self.queues.is_empty()
    }

    /// Takes over what is later than what is known.
    pub fn merge(&mut self, other: &Self) {
        self.all = self.all.max(other.all);
        for (name, gauge) in &other.queues {
            if let Some(known) = self.queues.get_mut(name) {
                *known = (*known).max(*gauge);
            } else if self.queues.len() < FIGURE_QUEUES {
                self.queues.insert(name.clone(), *gauge);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gauges(at: i64, queued: u64) -> Gauges {
        let gauge = Gauge { at: Wall::new(at), queued, ..Gauge::default() };
        Gauges { all: Some(gauge), queues: BTreeMap::from([(QueueName::default(), gauge)]) }
    }

    #[test]
    fn the_later_gauge_holds_in_whatever_order_they_are_merged() {
        let (early, late) = (gauges(1, 9), gauges(2, 3));
        for (first, second) in [(&early, &late), (&late, &early)] {
            let mut merged = first.clone();
            merged.merge(second);
            assert_eq!(merged, late);
            merged.merge(second);
            assert_eq!(merged, late, "merging again changes nothing");
        }
        let mut none = Gauges::default();
        none.merge(&early);
        assert_eq!(none.of(Some(&QueueName::default())), early.all);
        assert_eq!(none.of(Some(&QueueName::new("other").unwrap())), None);
    }
}
