//! The error groups of snapshots: counted again only after dead letters changed, and less often
//! with more groups.

use windlass_core::store::{Reader, StoreError};
use windlass_core::{FigureSet, GroupId, GroupRow, Millis, QueueName, QueueRow, View, Wall};

use crate::api::wire::ErrorCounts;

/// How long an error group counts as new.
const NEW: Millis = Millis::days(1);
/// Reading N groups delays the next read by N / 1000 s.
const GROUPS_PER_SECOND: u64 = 1_000;

/// Counters that change whenever an error group does; `failed` lags up to 1 s.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct DeadLetters {
    /// Jobs that became dead letters since the store was made.
    failed: u64,
    /// Dead letters in the store, by queue.
    now: Vec<(QueueName, u64)>,
}

impl DeadLetters {
    fn of<'r>(rows: impl Iterator<Item = &'r QueueRow>, totals: &FigureSet) -> Self {
        let now = rows.map(|row| (row.queue.name.clone(), row.total().get(View::Failed)));
        Self { failed: totals.sum().failed, now: now.filter(|(_, count)| *count > 0).collect() }
    }
}

/// What was known before a read.
#[derive(Debug)]
pub(crate) struct Known {
    dead: Option<DeadLetters>,
    read_at: Wall,
    /// How long after `read_at` a change has to wait.
    wait: Millis,
}

/// Groups, with the counters at the time of the read.
#[derive(Debug)]
pub(crate) struct GroupsRead {
    dead: DeadLetters,
    rows: Vec<GroupRow>,
}

impl Known {
    /// Reads the groups, unless they are those that are known.
    pub(crate) fn read<'r>(
        &self,
        reader: &mut dyn Reader,
        queues: impl Iterator<Item = &'r QueueRow>,
        totals: &FigureSet,
        now: Wall,
    ) -> Result<Option<GroupsRead>, StoreError> {
        if self.is_recent(now) {
            return Ok(None);
        }
        let dead = DeadLetters::of(queues, totals);
        if self.dead.as_ref() == Some(&dead) {
            return Ok(None);
        }
        Ok(Some(GroupsRead { dead, rows: reader.error_groups()? }))
    }

    fn is_recent(&self, now: Wall) -> bool {
        self.dead.is_some() && self.read_at.distance(now) < self.wait
    }
}

/// The groups with dead letters, as far as snapshots show them.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    dead: Option<DeadLetters>,
    read_at: Wall,
    /// The dead letters and the latest failure of each group.
    seen: Vec<(GroupId, u64, Wall)>,
    /// When the first dead letter of each failed, earliest first.
    firsts: Vec<Wall>,
    jobs: u64,
    rev: u64,
}

impl Groups {
    pub(crate) fn known(&self) -> Known {
        let wait = Millis::new(self.firsts.len() as u64 * 1_000 / GROUPS_PER_SECOND);
        Known { dead: self.dead.clone(), read_at: self.read_at, wait }
    }

    /// Counts what was read, if anything was; else what is known.
    pub(crate) fn count(&mut self, read: Option<&GroupsRead>, now: Wall) -> ErrorCounts {
        if let Some(GroupsRead { dead, rows }) = read {
            (self.dead, self.read_at) = (Some(dead.clone()), now);
            let live = || rows.iter().filter(|group| group.live > 0);
            let seen = live().map(|group| (group.id, group.live, group.last_at)).collect();
            if self.seen != seen {
                self.seen = seen;
                self.rev += 1;
            }
            self.firsts = live().map(|group| group.first_at).collect();
            self.firsts.sort_unstable();
            self.jobs = live().map(|group| group.live).sum();
        }
        let old = self.firsts.partition_point(|first| now.since(*first) >= NEW);
        let (groups, jobs, rev) = (self.firsts.len(), self.jobs, self.rev);
        ErrorCounts { groups, new: groups - old, jobs, rev }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::{Counts, ErrorGroup, Figures, Kind, Queue};

    fn queue(failed: u64) -> QueueRow {
        let mut counts = [0; View::ALL.len()];
        counts[View::Failed.index()] = failed;
        let kinds = vec![(Kind::default(), Counts::new(counts))];
        QueueRow { kinds, ..QueueRow::empty(Queue::new(QueueName::default())) }
    }

    fn dead(now: u64, ever: u64) -> DeadLetters {
        let mut totals = FigureSet::default();
        totals.count(&QueueName::default(), &Figures { failed: ever, ..Figures::default() });
        DeadLetters::of([&queue(now)].into_iter(), &totals)
    }

    fn group(error: usize, first_at: i64, live: u64) -> GroupRow {
        let kind = Kind::new(&format!("kind{error}")).unwrap();
        let group = ErrorGroup::other(&kind);
        GroupRow { live, ..GroupRow::new(kind, group, Wall::new(first_at)) }
    }

    #[test]
    fn dead_letters_that_came_and_went_are_noticed_also_if_there_are_as_many_as_before() {
        assert_eq!(dead(3, 3), dead(3, 3));
        assert_ne!(dead(3, 3), dead(2, 3), "one was replayed");
        assert_ne!(dead(3, 3), dead(3, 4), "one was replayed, another one failed");
    }

    #[test]
    fn groups_are_counted_from_what_is_known_until_they_are_read_again() {
        let mut groups = Groups::default();
        assert!(groups.known().dead.is_none());
        let rows = vec![group(1, 0, 2), group(2, 5_000, 3), group(3, 0, 0)];
        let read = GroupsRead { dead: dead(5, 5), rows };
        let counts = groups.count(Some(&read), Wall::new(10_000));
        assert_eq!((counts.groups, counts.new, counts.jobs, counts.rev), (2, 2, 5, 1));
        let day = Wall::new(0).plus(NEW);
        let later = groups.count(None, day);
        assert_eq!((later.groups, later.new, later.jobs, later.rev), (2, 1, 5, 1));
        let again = groups.count(Some(&read), day);
        assert_eq!(again.rev, 1, "nothing has changed");
    }

    #[test]
    fn many_groups_are_read_more_rarely() {
        let mut groups = Groups::default();
        let rows = (0..3_000).map(|n| group(n, 0, 1)).collect();
        groups.count(Some(&GroupsRead { dead: dead(1, 1), rows }), Wall::new(0));
        assert!(groups.known().is_recent(Wall::new(2_999)));
        assert!(!groups.known().is_recent(Wall::new(3_000)));
    }
}
