//! The figures of several queues over the same time: what one row of a store holds.

use alloc::collections::BTreeMap;

use super::{Figures, Gauges};
use crate::limits::FIGURE_QUEUES;
use crate::{QueueName, Wall};

/// Figures by queue. At most [`FIGURE_QUEUES`] have figures of their own; what happens in others is
/// counted together.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FigureSet {
    pub(super) queues: BTreeMap<QueueName, QueueFigures>,
    pub(super) other: Figures,
    pub(super) gauges: Gauges,
}

/// The figures of one queue.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct QueueFigures {
    pub(super) figures: Figures,
    /// The latest slot that was added; kept in the total alone, zero elsewhere.
    pub(super) latest: Wall,
}

impl FigureSet {
    /// Whether nothing happened.
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty() && self.other.is_empty() && self.gauges.is_empty()
    }

    /// What waited and ran, as it was counted last.
    pub fn gauges(&self) -> &Gauges {
        &self.gauges
    }

    /// Takes over gauges that are later than those known.
    pub fn gauge(&mut self, gauges: &Gauges) {
        self.gauges.merge(gauges);
    }

    /// Counts a start of this process.
    pub(crate) fn count_start(&mut self) {
        self.other.starts += 1;
    }

    /// The queues that have figures of their own, by name.
    pub fn queues(&self) -> impl Iterator<Item = (&QueueName, &Figures)> {
        self.queues.iter().map(|(name, queue)| (name, &queue.figures))
    }

    /// The figures of one queue, if it has its own.
    pub fn queue(&self, name: &QueueName) -> Option<&Figures> {
        self.queues.get(name).map(|queue| &queue.figures)
    }

    /// The figures of all other queues together.
    pub fn other(&self) -> &Figures {
        &self.other
    }

    /// The figures of all queues together.
    pub fn sum(&self) -> Figures {
        let mut sum = self.other.clone();
        self.queues().for_each(|(_, figures)| sum.add(figures));
        sum
    }

    /// Adds what happened in one queue.
    pub fn count(&mut self, queue: &QueueName, figures: &Figures) {
        self.entry(queue).add(figures);
    }

    /// Adds another set.
    pub fn add(&mut self, set: &Self) {
        self.gauges.merge(&set.gauges);
        self.add_counts(set);
    }

    fn add_counts(&mut self, set: &Self) {
        self.other.add(&set.other);
        for (name, queue) in &set.queues {
            self.count(name, &queue.figures);
        }
    }

    /// Adds the figures of a slot to a total, which has no gauges. When there are too many queues,
    /// the one that was idle for the longest time is dropped, so that names that are no longer used
    /// make room.
    pub(crate) fn add_slot(&mut self, slot: Wall, set: &Self) {
        for name in set.queues.keys() {
            if !self.queues.contains_key(name) && self.queues.len() >= FIGURE_QUEUES {
                self.drop_idle(slot);
            }
        }
        self.add_counts(set);
        for name in set.queues.keys() {
            if let Some(queue) = self.queues.get_mut(name) {
                queue.latest = queue.latest.max(slot);
            }
        }
    }

    fn drop_idle(&mut self, slot: Wall) {
        let idle = self.queues.iter().min_by_key(|(_, queue)| queue.latest);
        let idle = idle.filter(|(_, queue)| queue.latest < slot).map(|(name, _)| name.clone());
        if let Some(name) = idle {
            self.queues.remove(&name);
        }
    }

    fn entry(&mut self, queue: &QueueName) -> &mut Figures {
        if !self.queues.contains_key(queue) && self.queues.len() >= FIGURE_QUEUES {
            return &mut self.other;
        }
        &mut self.queues.entry(queue.clone()).or_default().figures
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Millis;
    use alloc::format;

    fn name(n: usize) -> QueueName {
        QueueName::new(&format!("q{n}")).unwrap()
    }

    fn done(done: u64) -> Figures {
        Figures { done, ..Figures::default() }
    }

    #[test]
    fn queues_beyond_the_limit_are_counted_together() {
        let mut set = FigureSet::default();
        (0..FIGURE_QUEUES + 3).for_each(|n| set.count(&name(n), &done(1)));
        set.count(&name(0), &done(1));
        assert_eq!(set.queues().count(), FIGURE_QUEUES);
        assert_eq!((set.queue(&name(0)), set.other().done), (Some(&done(2)), 3));
        assert_eq!(set.sum().done, FIGURE_QUEUES as u64 + 4);
    }

    #[test]
    fn a_total_that_is_full_drops_the_queue_that_was_idle_for_the_longest_time() {
        let nth = |n: usize| Wall::new(0).plus(Millis::seconds(10).times(n as u64));
        let mut total = FigureSet::default();
        for n in 0..FIGURE_QUEUES {
            let mut set = FigureSet::default();
            set.count(&name(n), &done(1));
            total.add_slot(nth(n), &set);
        }
        let (mut old, mut new) = (FigureSet::default(), FigureSet::default());
        old.count(&name(0), &done(1));
        new.count(&name(FIGURE_QUEUES), &done(1));
        let last = nth(FIGURE_QUEUES);
        total.add_slot(last, &old);
        total.add_slot(last, &new);
        assert_eq!(total.queues().count(), FIGURE_QUEUES);
        assert_eq!((total.queue(&name(0)), total.queue(&name(1))), (Some(&done(2)), None));
        assert_eq!(total.queue(&name(FIGURE_QUEUES)), Some(&done(1)));
        assert!(total.other().is_empty());
    }
}
