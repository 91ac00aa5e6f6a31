//! What [`Apply`](crate::Apply) has decided: everything a store is to write for a batch.

use alloc::string::String;
use alloc::vec::Vec;

use super::{BulkRow, FigureKey, FigureRow, Worker};
use crate::{
    Attempt, BatchId, BulkId, Epoch, Excerpt, GroupId, GroupRow, IdempotencyKey, IndexKey, Job,
    JobId, KeyRecord, Kind, Payload, Queue, QueueName, SettingKey, SettingValue, State, View, Wall,
    WorkerId,
};

/// Everything a batch changed, each row once. A job appears in one of `inserts`, `updates` and
/// `removes`.
///
/// A store writes all of it or nothing. Where a row is not as [`Moved::from`] says, another
/// transaction has changed it: nothing is written, and the batch is applied again from the start.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changes {
    /// New jobs, by id.
    pub inserts: Vec<Job>,
    /// Changed jobs, by id.
    pub updates: Vec<Moved>,
    /// Jobs to remove, with their documents and attempts, by id.
    pub removes: Vec<Moved>,
    /// Documents to put in place.
    pub docs: Vec<DocWrite>,
    /// Last errors to put in place.
    pub errors: Vec<(JobId, Excerpt)>,
    /// Attempts to drop: those of the job up to this epoch.
    pub dropped_attempts: Vec<(JobId, Epoch)>,
    /// Attempts to keep.
    pub attempts: Vec<Attempt>,
    /// Keys to put in place.
    pub keys: Vec<KeyRecord>,
    /// Keys to remove.
    pub dropped_keys: Vec<IdempotencyKey>,
    /// Changes of counters, by queue and kind. A counter row of zeros is as good as none.
    pub counts: Vec<CountDelta>,
    /// Queues to put in place.
    pub queues: Vec<Queue>,
    /// The states of the rates of these queues, as [text](crate::Tats::to_text), to put in place;
    /// `None` removes them.
    pub tats: Vec<(QueueName, Option<String>)>,
    /// Queues to remove, by name, after everything above is written, with the states of their
    /// rates. They have no jobs left, and none of them is in `queues`.
    pub dropped_queues: Vec<QueueName>,
    /// Settings to put in place, or to remove.
    pub settings: Vec<(SettingKey, Option<SettingValue>)>,
    /// Workers to remove, before those below are put in place: the row of one that is both is new.
    pub removed_workers: Vec<WorkerId>,
    /// Workers to put in place with `last_seen` as of now. One that exists keeps its `started_at`
    /// and its stop mark.
    pub workers: Vec<Worker>,
    /// Workers to mark as asked to stop. Each exists, or is in `workers`.
    pub stopped_workers: Vec<WorkerId>,
    /// Workers whose `last_seen` is set to now, where they exist.
    pub touched_workers: Vec<WorkerId>,
    /// Remove markers of processes, and rows of workers, last written before this instant.
    pub drop_silent: Option<Wall>,
    /// Error groups to put in place, by id.
    pub groups: Vec<GroupRow>,
    /// Error groups to remove, by id. None of them is in `groups`.
    pub dropped_groups: Vec<GroupId>,
    /// Rows of figures to put in place, by key.
    pub figures: Vec<FigureRow>,
    /// Rows of figures to remove, by key. None of them is in `figures`.
    pub dropped_figures: Vec<FigureKey>,
    /// Bulk actions to put in place.
    pub bulk: Vec<BulkRow>,
    /// Bulk actions to remove. None of them is in `bulk`.
    pub dropped_bulk: Vec<BulkId>,
    /// New jobs get this id or a later one, though no stored job has the one before it.
    pub next_id: Option<JobId>,
    /// The commit marker of this batch.
    pub marker: Option<Marker>,
}

impl Changes {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Panics if core has decided something that cannot be written: a bug that must not reach a
    /// store.
    pub(crate) fn assert_valid(&self) {
        let moved = |moved: &[Moved]| moved.is_sorted_by(|a, b| a.job.id < b.job.id);
        assert!(self.inserts.is_sorted_by(|a, b| a.id < b.id), "new jobs are written by id");
        assert!(moved(&self.updates), "changed jobs are written by id, each once");
        assert!(moved(&self.removes), "jobs are removed by id, each once");
        let grows = |moved: &Moved| moved.from.epoch <= moved.job.epoch;
        assert!(self.updates.iter().all(grows), "an epoch never shrinks");
        let dropped = |name: &QueueName| self.inserts.iter().any(|job| job.queue.same(name));
        assert!(!self.dropped_queues.iter().any(dropped), "a queue with jobs is not removed");
    }
}

impl Changes {
    /// The dead letters that this makes, each with its group and the instant at which it failed.
    /// An index by group gets these; it loses those of [`no_longer_dead`](Self::no_longer_dead).
    pub fn newly_dead(&self) -> impl Iterator<Item = (JobId, GroupId, Wall)> {
        let moved = self.updates.iter().filter(|moved| moved.from.view != View::Failed);
        // A copy of a store inserts jobs that failed there.
        let jobs = self.inserts.iter().chain(moved.map(|moved| &moved.job));
        jobs.filter_map(|job| match job.state {
            State::Failed { finished_at, group, .. } => Some((job.id, group, finished_at)),
            _ => None,
        })
    }

    /// The jobs that this takes from the dead letters, replayed or removed, each with the instant
    /// at which it had failed.
    pub fn no_longer_dead(&self) -> impl Iterator<Item = (JobId, Wall)> {
        let left = self.updates.iter().filter(|moved| moved.job.state.view() != View::Failed);
        let moved = left.chain(&self.removes).filter(|moved| moved.from.view == View::Failed);
        moved.map(|moved| (moved.job.id, moved.from.at))
    }
}

/// A job that was changed or removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moved {
    /// Where the store has it: the precondition of this write.
    pub from: IndexKey,
    /// The row to put in place; of a job to remove, the row as it was last.
    pub job: Job,
}

/// The texts kept beside a job's row, and never rewritten with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Doc {
    /// The input of the job.
    Payload,
    /// The output of a completed job.
    Result,
    /// The latest progress note of a holder.
    Progress,
}

/// A document to put in place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocWrite {
    /// The job it belongs to.
    pub job: JobId,
    /// Payload, result or progress.
    pub doc: Doc,
    /// JSON.
    pub text: Payload,
}

/// A change of the counters of a kind in a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountDelta {
    /// A queue that exists, or is made by the same changes.
    pub queue: QueueName,
    /// A kind of that queue, perhaps a new one.
    pub kind: Kind,
    /// The change, per view in the order of [`View::ALL`].
    pub by: [i64; View::ALL.len()],
    /// The change of the number of retrying jobs.
    pub retrying: i64,
}

/// Proof that a batch was committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marker {
    /// The batch. Of each process the latest is kept.
    pub batch: BatchId,
    /// When the batch was applied, by the store's clock.
    pub at: Wall,
}

impl Marker {
    /// Whether this proves that `batch` was committed. A process makes one batch at a time and
    /// numbers them, so a later batch proves an earlier one.
    pub fn covers(&self, batch: BatchId) -> bool {
        self.batch.process == batch.process && self.batch.seq >= batch.seq
    }
}

/// Counts payload bytes against a limit. The first payload always fits; after one that did not
/// fit, none does.
#[derive(Debug, Clone, Copy)]
pub struct ByteBudget {
    left: Option<usize>,
    first: bool,
}

impl ByteBudget {
    /// A budget of this many bytes.
    pub fn new(bytes: usize) -> Self {
        Self { left: Some(bytes), first: true }
    }

    /// Takes this many bytes, if they fit.
    pub fn takes(&mut self, bytes: usize) -> bool {
        let after = self.left.and_then(|left| left.checked_sub(bytes));
        self.left = if self.first { Some(after.unwrap_or(0)) } else { after };
        self.first = false;
        self.left.is_some()
    }

    /// Whether this many bytes would fit.
    pub fn fits(&self, bytes: usize) -> bool {
        self.first || self.left.is_some_and(|left| bytes <= left)
    }

    /// The rest of the budget, in bytes.
    pub fn left(&self) -> usize {
        self.left.unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_takes_the_first_in_any_case_and_nothing_after_one_that_did_not_fit() {
        let takes = |bytes: usize, sizes: &[usize]| -> Vec<bool> {
            let mut budget = ByteBudget::new(bytes);
            sizes
                .iter()
                .map(|size| {
                    let fits = budget.fits(*size);
                    assert_eq!(budget.takes(*size), fits);
                    fits
                })
                .collect()
        };
        assert_eq!(takes(5, &[2, 3, 0, 1, 0]), [true, true, true, false, false]);
        assert_eq!(takes(5, &[9, 0, 1, 0]), [true, true, false, false]);
        assert_eq!(takes(0, &[0, 0, 1]), [true, true, false]);
    }

    #[test]
    fn a_marker_proves_its_own_batch_and_earlier_ones_of_the_same_process() {
        let batch = |process, seq| BatchId { process: crate::ProcessId(process), seq };
        let marker = Marker { batch: batch(1, 5), at: Wall::new(0) };
        assert!(marker.covers(batch(1, 5)) && marker.covers(batch(1, 4)));
        assert!(!marker.covers(batch(1, 6)) && !marker.covers(batch(2, 5)));
    }
}
