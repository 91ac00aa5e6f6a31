//! Error groups: counted where jobs become dead letters and where they no longer are.
//!
//! It comes last, when the new state of each job is known, so a batch without dead letters asks
//! for nothing.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::mem;

use super::work::{GroupMove, Work};
use crate::store::{Answers, Batch, Changes, Questions, sorted};
use crate::{ErrorGroup, GroupId, GroupRow, JobId, QueueName};

/// The error groups that a batch has touched.
#[derive(Debug)]
pub(super) struct GroupWork {
    max_groups: usize,
    rows: BTreeMap<GroupId, Row>,
    /// The number of groups in the store, before the batch.
    count: usize,
    /// Those that may be removed.
    idle: Vec<GroupId>,
}

/// A group as it is now; nothing if it does not exist.
#[derive(Debug, Default)]
struct Row {
    group: Option<GroupRow>,
    changed: bool,
}

impl GroupWork {
    pub(super) fn new(batch: &Batch) -> Self {
        let max_groups = batch.policy.max_error_groups;
        Self { max_groups, rows: BTreeMap::new(), count: 0, idle: Vec::new() }
    }

    /// Takes in what the store answered.
    pub(super) fn take_in(&mut self, asked: &Questions, answers: &mut Answers) {
        self.count = self.count.max(answers.group_count);
        self.idle.append(&mut answers.idle_groups);
        for (id, group) in asked.groups.iter().zip(mem::take(&mut answers.groups)) {
            self.rows.entry(*id).or_insert(Row { group, changed: false });
        }
    }

    /// The groups that are needed and not known yet. It is asked until there are none.
    pub(super) fn to_load(&self, work: &Work) -> Option<Questions> {
        let moves = work.group_moves();
        let own = moves.iter().flat_map(|moved| [moved.from, moved.to]).flatten();
        let mut groups = self.unknown(own.chain(self.idle.iter().copied()));
        if groups.is_empty() {
            // Only now it is known which jobs find no room for a group of their own.
            groups = self.unknown(self.assigned(work, &moves).into_values().map(|other| other.id));
        }
        (!groups.is_empty()).then(|| Questions { groups, ..Questions::default() })
    }

    /// Counts the jobs that became dead letters or no longer are, and removes groups that were idle
    /// for long.
    pub(super) fn decide(&mut self, work: &mut Work) {
        let moves = work.group_moves();
        let mut assigned = self.assigned(work, &moves);
        let last: BTreeMap<JobId, usize> = if moves.is_empty() {
            BTreeMap::new()
        } else {
            let attempts = work.changes.attempts.iter().enumerate();
            attempts.map(|(at, attempt)| (attempt.job, at)).collect()
        };
        for GroupMove { slot, queue, from, to } in moves {
            if let Some(row) = from.and_then(|from| self.rows.get_mut(&from)) {
                row.remove(&queue);
            }
            let Some(job) = work.job_at(slot).filter(|_| to.is_some()) else { continue };
            let attempt = last.get(&job.id).map(|at| &work.changes.attempts[*at]);
            let own = attempt.map(|attempt| ErrorGroup::of_attempt(&job.kind, attempt));
            let own = own.unwrap_or_else(|| ErrorGroup::other(&job.kind));
            let sample = own.sample.clone();
            let group = assigned.remove(&job.id).unwrap_or(own);
            let (id, kind) = (group.id, job.kind.clone());
            let row = self.rows.entry(id).or_default();
            let counted = row.group.get_or_insert_with(|| GroupRow::new(kind, group, work.now));
            counted.add(&queue, work.now);
            (counted.sample, row.changed) = (sample, true);
            work.regroup(slot, id);
        }
        for id in mem::take(&mut self.idle) {
            if let Some(row) = self.rows.get_mut(&id)
                && row.group.as_ref().is_some_and(|group| group.is_removable(work.now))
            {
                *row = Row { group: None, changed: true };
            }
        }
    }

    /// Adds the changed and the dropped groups to the changes.
    pub(super) fn gather(&mut self, changes: &mut Changes) {
        for (id, row) in mem::take(&mut self.rows) {
            match row {
                Row { changed: true, group: Some(group) } => changes.groups.push(group),
                Row { changed: true, group: None } => changes.dropped_groups.push(id),
                Row { changed: false, .. } => {}
            }
        }
    }

    /// The new dead letters that get another group than their own, for want of room, with that
    /// group. Whether there is room is decided in the order of the ids.
    fn assigned(&self, work: &Work, moves: &[GroupMove]) -> BTreeMap<JobId, ErrorGroup> {
        let mut made = BTreeSet::new();
        let mut assigned = BTreeMap::new();
        for GroupMove { slot, to, .. } in moves {
            let (Some(job), Some(own)) = (work.job_at(*slot), to) else { continue };
            let exists = self.rows.get(own).is_some_and(|row| row.group.is_some());
            if exists || made.contains(own) {
                continue;
            }
            if self.count + made.len() < self.max_groups {
                made.insert(*own);
            } else {
                assigned.insert(job.id, ErrorGroup::other(&job.kind));
            }
        }
        assigned
    }

    fn unknown(&self, groups: impl Iterator<Item = GroupId>) -> Vec<GroupId> {
        sorted(groups.filter(|id| !self.rows.contains_key(id)).collect())
    }
}

impl Row {
    fn remove(&mut self, queue: &QueueName) {
        if let Some(group) = &mut self.group {
            group.remove(queue);
            self.changed = true;
        }
    }
}
