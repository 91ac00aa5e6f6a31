//! Groups counted from the dead letters themselves: for a store that has not counted them yet, and
//! for a repair.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::row::{Hours, QueueShare};
use super::{ErrorGroup, ErrorText, GroupId, GroupRow};
use crate::limits::ERROR_GROUPS;
use crate::{Kind, QueueName, Wall};

/// Counts dead letters into groups. They are shown one by one, by id.
#[derive(Debug, Default)]
pub struct GroupTally {
    rows: BTreeMap<GroupId, GroupRow>,
    /// What was known of groups before, which the jobs do not show.
    known: BTreeMap<GroupId, (Wall, Wall, Hours)>,
}

impl GroupTally {
    /// Begins with groups whose counts are not to be trusted. The hours and the times of failures,
    /// of dead letters that are gone too, are kept.
    pub fn recount(groups: Vec<GroupRow>) -> Self {
        let mut tally = Self::default();
        for mut row in groups {
            tally.known.insert(row.id, (row.first_at, row.last_at, row.hours));
            (row.live, row.queues) = (0, QueueShare::default());
            tally.rows.insert(row.id, row);
        }
        tally
    }

    /// Counts a job that failed at this instant, and says its group.
    pub fn add(
        &mut self,
        queue: &QueueName,
        kind: &Kind,
        failed_at: Wall,
        text: &ErrorText<'_>,
    ) -> GroupId {
        let mut group = ErrorGroup::of(kind, text);
        let sample = group.sample.clone();
        if self.rows.len() >= ERROR_GROUPS && !self.rows.contains_key(&group.id) {
            group = ErrorGroup::other(kind);
        }
        let id = group.id;
        let new = || GroupRow::new(kind.clone(), group, failed_at);
        let row = self.rows.entry(id).or_insert_with(new);
        row.add(queue, failed_at);
        row.sample = sample;
        id
    }

    /// The groups, by id.
    pub fn finish(mut self) -> Vec<GroupRow> {
        for (id, (first_at, last_at, hours)) in self.known {
            if let Some(row) = self.rows.get_mut(&id) {
                row.first_at = row.first_at.min(first_at);
                row.last_at = row.last_at.max(last_at);
                row.hours = hours;
            }
        }
        self.rows.into_values().collect()
    }
}
