//! Dead letters by the reason of their failure: what groups there are follows from the jobs, what
//! was is kept as a list of instants.

use std::collections::{BTreeMap, BTreeSet};

use windlass_core::store::Batch;
use windlass_core::{ErrorGroup, GroupId, GroupRow, Kind, QueueName, StateName, Wall};

use super::Model;
use super::job::ModelJob;

const HOUR_MS: i64 = 60 * 60 * 1_000;
const HOURS: i64 = 24;
/// A group without dead letters is kept for a week from its last failure.
const KEPT_MS: u64 = 7 * 24 * 60 * 60 * 1_000;

/// A group, and every failure that was ever counted in it.
#[derive(Debug, Clone)]
pub(super) struct ModelGroup {
    id: GroupId,
    kind: Kind,
    title: String,
    sample: String,
    failures: Vec<Wall>,
}

impl Model {
    /// Puts the jobs that the batch made dead letters into their groups, and removes groups that
    /// were idle before it, and are, for a week.
    pub(super) fn group(&mut self, now: Wall, batch: &Batch) {
        let idle: BTreeSet<GroupId> = self.groups.iter().map(|group| group.id).collect();
        let idle: BTreeSet<GroupId> =
            idle.into_iter().filter(|id| !self.before.iter().any(|job| job.is_in(*id))).collect();
        let room = batch.policy.max_error_groups.saturating_sub(self.groups.len());
        let mut made = 0;
        let left = |was: &&ModelJob| {
            let is = self.jobs.iter().find(|job| job.id == was.id);
            was.state == StateName::Failed && is.is_none_or(|is| is.state != StateName::Failed)
        };
        if self.before.iter().any(|was| left(&was)) {
            self.note("a dead letter leaves its error group");
        }
        for at in 0..self.jobs.len() {
            let (id, kind) = (self.jobs[at].id, self.jobs[at].kind.clone());
            let was_dead = self.before.iter().any(|was| was.id == id && was.is_dead());
            if !self.jobs[at].is_dead() || was_dead {
                continue;
            }
            let attempts = self.attempts.iter().filter(|attempt| attempt.job == id);
            let last = attempts.max_by_key(|attempt| attempt.epoch);
            let own = ErrorGroup::of_attempt(&kind, last.expect("it failed"));
            let sample = own.sample.clone();
            let group = if self.groups.iter().any(|group| group.id == own.id) {
                own
            } else if made < room {
                made += 1;
                own
            } else {
                self.note("an error group without room joins that of its kind");
                ErrorGroup::other(&kind)
            };
            self.note("a dead letter joins an error group");
            self.jobs[at].group = group.id;
            self.join(&group, kind, sample, now);
        }
        if batch.purge.is_some() {
            self.remove_groups(now, &idle);
        }
    }

    fn join(&mut self, group: &ErrorGroup, kind: Kind, sample: String, now: Wall) {
        if !self.groups.iter().any(|known| known.id == group.id) {
            let (id, title) = (group.id, group.title.as_stored().to_owned());
            let failures = Vec::new();
            self.groups.push(ModelGroup { id, kind, title, sample: String::new(), failures });
        }
        let known = self.groups.iter_mut().find(|known| known.id == group.id);
        let known = known.expect("it was made above");
        known.sample = sample;
        known.failures.push(now);
    }

    fn remove_groups(&mut self, now: Wall, idle: &BTreeSet<GroupId>) {
        let jobs = &self.jobs;
        let before = self.groups.len();
        self.groups.retain(|group| {
            let last = group.failures.iter().max().expect("a group has failures");
            let old = last.get() <= now.get().saturating_sub_unsigned(KEPT_MS);
            !old || !idle.contains(&group.id) || jobs.iter().any(|job| job.is_in(group.id))
        });
        if self.groups.len() < before {
            self.note("an error group long without dead letters is removed");
        }
    }

    pub(super) fn group_rows(&self) -> Vec<GroupRow> {
        let mut rows: Vec<GroupRow> =
            self.groups.iter().map(|group| group.row(&self.jobs)).collect();
        rows.sort_by_key(|row| row.id);
        rows
    }
}

impl ModelGroup {
    /// The row by way of its text, whose form is written down here a second time.
    fn row(&self, jobs: &[ModelJob]) -> GroupRow {
        let mut queues: BTreeMap<&QueueName, u64> = BTreeMap::new();
        for job in jobs.iter().filter(|job| job.is_in(self.id)) {
            *queues.entry(&job.queue).or_default() += 1;
        }
        let hour = |at: &Wall| at.get().div_euclid(HOUR_MS);
        let newest = self.failures.iter().map(hour).max().expect("a group has failures");
        let counts = (0..HOURS).map(|age| {
            self.failures.iter().filter(|at| hour(at) == newest - age).count().to_string()
        });
        let counts: Vec<String> = counts.collect();
        let named: Vec<String> =
            queues.iter().map(|(name, count)| format!("{name}={count}")).collect();
        let first = self.failures.iter().min().expect("a group has failures").get();
        let last = self.failures.iter().max().expect("a group has failures").get();
        let live: u64 = queues.values().sum();
        let (kind, title, sample) = (&self.kind, &self.title, &self.sample);
        let (counts, named) = (counts.join(","), named.join(","));
        let text = format!(
            "1\n{kind}\n{title}\n{first}\n{last}\n{live}\n{newest}\n{counts}\n0\n{named}\n{sample}"
        );
        GroupRow::from_text(self.id, &text).expect("it is a row")
    }
}

impl ModelJob {
    fn is_dead(&self) -> bool {
        self.state == StateName::Failed
    }

    fn is_in(&self, group: GroupId) -> bool {
        self.is_dead() && self.group == group
    }
}
