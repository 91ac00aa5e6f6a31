//! The transaction port: how [`apply`](crate::apply()) finds and keeps rows, a batch at a time.
//!
//! Until [`Tx::write`], every question is answered from the state before the batch; `apply` lays
//! what it has changed over the answers. It writes once, each row once. After that, questions are
//! answered from the state as written.

use alloc::vec::Vec;

use super::Worker;
use crate::{
    Attempt, BatchId, Excerpt, IdempotencyKey, Job, JobId, KeyRecord, Kind, Payload, Queue,
    QueueName, QueueRow, Queues, Rank, SettingKey, SettingValue, Standing, View, Wall, WorkerId,
};

/// An open transaction of a store.
///
/// Transactions that write are as if they ran one after the other: what a question was answered
/// still holds at [`write`](Tx::write), or the commit fails with
/// [`NotCommitted`](super::CommitError::NotCommitted). A store that leaves out rows which another
/// transaction holds must afterwards answer [`changed`](super::Store::changed) with true, so that
/// they are looked for again.
pub trait Tx {
    /// What can go wrong; it ends the transaction.
    type Error;

    /// The instant of this transaction, the same at every call.
    fn now(&self) -> Wall;

    /// These jobs, in this order; `None` for one that does not exist.
    fn jobs(&mut self, ids: &[JobId]) -> Result<Vec<Option<Job>>, Self::Error>;

    /// The records of these keys, in this order.
    fn keys(&mut self, keys: &[IdempotencyKey]) -> Result<Vec<Option<KeyRecord>>, Self::Error>;

    /// These queues with their counters, in any order; queues that do not exist are left out.
    fn queues(&mut self, queues: &Queues) -> Result<Vec<QueueRow>, Self::Error>;

    /// How many queues exist.
    fn queue_count(&mut self) -> Result<usize, Self::Error>;

    /// The first `limit` ready jobs of each of these queues and kinds, by rank.
    fn heads(
        &mut self,
        of: &[(QueueName, Kind)],
        limit: usize,
    ) -> Result<Vec<Vec<Job>>, Self::Error>;

    /// The next `limit` ready jobs of this queue and kind behind `after`, by rank.
    fn ready(
        &mut self,
        queue: &QueueName,
        kind: &Kind,
        after: Rank,
        limit: usize,
    ) -> Result<Vec<Job>, Self::Error>;

    /// The first `limit` scheduled jobs due by `now`, by (`run_at`, id).
    fn due(&mut self, now: Wall, limit: usize) -> Result<Vec<Job>, Self::Error>;

    /// The first `limit` leased jobs whose lease ran out by `now`, by (`lease_until`, id).
    fn expired(
        &mut self,
        now: Wall,
        after: Option<LeaseCursor>,
        limit: usize,
    ) -> Result<Vec<Job>, Self::Error>;

    /// The first `limit` jobs finished in this view by `before`, by (`finished_at`, id).
    fn finished(&mut self, view: View, before: Wall, limit: usize)
    -> Result<Vec<Job>, Self::Error>;

    /// Dead-lettered jobs with their last error, newest failure first, behind `after`. It looks at
    /// `limit` rows, and returns those of this queue and kind with the place where it stopped, if
    /// there may be more.
    fn dead(
        &mut self,
        queue: Option<&QueueName>,
        kind: Option<&Kind>,
        after: Option<super::Cursor>,
        limit: usize,
    ) -> Result<(Vec<DeadJob>, Option<super::Cursor>), Self::Error>;

    /// The payloads of these jobs, in this order: the first, and then as many as fit into so many
    /// bytes together with it. All of them exist; those that do not fit are not read.
    fn payloads(&mut self, ids: &[JobId], bytes: usize) -> Result<Vec<Payload>, Self::Error>;

    /// The first `limit` keys whose job is gone and whose window ended by `now`, by the end of the
    /// window, then by key.
    fn orphan_keys(&mut self, now: Wall, limit: usize) -> Result<Vec<IdempotencyKey>, Self::Error>;

    /// When the next scheduled job falls due.
    fn next_due(&mut self) -> Result<Option<Wall>, Self::Error>;

    /// When the next lease runs out.
    fn next_expiry(&mut self) -> Result<Option<Wall>, Self::Error>;

    /// Whether there are markers of processes, or rows of workers, silent since before this
    /// instant.
    fn has_silent(&mut self, before: Wall) -> Result<bool, Self::Error>;

    /// Of these workers, in this order: whether each was asked to stop; `None` for one that is not
    /// known.
    fn stop_marks(&mut self, ids: &[WorkerId]) -> Result<Vec<Option<bool>>, Self::Error>;

    /// The id the next new job gets, greater than any given out before; those behind it follow
    /// without a gap. What was given out is known from [`Changes::inserts`].
    fn next_id(&mut self) -> Result<JobId, Self::Error>;

    /// Keeps everything the batch changed. Called at most once, and last but for the questions
    /// when something is next due.
    fn write(&mut self, changes: Changes) -> Result<(), Self::Error>;
}

/// Room for so many bytes of payloads; for the first one in any case.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    left: Option<usize>,
    first: bool,
}

impl Room {
    /// Room for so many bytes.
    pub fn new(bytes: usize) -> Self {
        Self { left: Some(bytes), first: true }
    }

    /// Whether a payload of this length still fits. After one that did not, none does.
    pub fn takes(&mut self, bytes: usize) -> bool {
        let after = self.left.and_then(|left| left.checked_sub(bytes));
        self.left = if self.first { Some(after.unwrap_or(0)) } else { after };
        self.first = false;
        self.left.is_some()
    }
}

/// A place in the order of leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeaseCursor {
    /// When the lease runs out.
    pub until: Wall,
    /// Then by id.
    pub id: JobId,
}

/// A dead-lettered job with its last error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadJob {
    /// The job.
    pub job: Job,
    /// Its last error.
    pub error: Option<Excerpt>,
}

/// Everything a batch changed, each row once. A job appears in one of `inserts`, `updates` and
/// `removes`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changes {
    /// New jobs, by id.
    pub inserts: Vec<Job>,
    /// Changed jobs, by id.
    pub updates: Vec<Moved>,
    /// Jobs to remove, with their documents and attempts.
    pub removes: Vec<Moved>,
    /// Documents to put in place.
    pub docs: Vec<DocWrite>,
    /// The last errors to put in place.
    pub errors: Vec<(JobId, Excerpt)>,
    /// Attempts to remember. Of each job, those at least
    /// [`ATTEMPTS_KEPT`](crate::limits::ATTEMPTS_KEPT) epochs older are dropped.
    pub attempts: Vec<Attempt>,
    /// Keys to put in place.
    pub keys: Vec<KeyRecord>,
    /// Keys to remove.
    pub dropped_keys: Vec<IdempotencyKey>,
    /// What to add to counters; a counter row of zeros is as good as none.
    pub counts: Vec<CountDelta>,
    /// Queues to put in place.
    pub queues: Vec<Queue>,
    /// Settings to put in place, or to remove.
    pub settings: Vec<(SettingKey, Option<SettingValue>)>,
    /// Workers to remove, before those seen are put in place: one that is both starts anew.
    pub removed_workers: Vec<WorkerId>,
    /// Workers seen now: first seen, or seen again. One seen again keeps its mark.
    pub workers: Vec<Worker>,
    /// Workers to mark as asked to stop. All of them are known, or are among those seen now.
    pub stopped_workers: Vec<WorkerId>,
    /// Workers heard from: they were seen now, if they are known at all.
    pub heard: Vec<WorkerId>,
    /// Remove markers of processes, and rows of workers, silent since before this instant.
    pub forget_silent: Option<Wall>,
    /// The commit marker of this batch.
    pub marker: Option<Marker>,
}

impl Changes {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A job that was changed or removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moved {
    /// Where it stands in the store.
    pub from: Standing,
    /// The row to put in place; of a job to remove, the row as it was last.
    pub job: Job,
}

/// The text kinds kept beside a job's row, and never rewritten with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Doc {
    /// What it is run with.
    Payload,
    /// What came of it.
    Result,
    /// How far it is.
    Progress,
}

/// A document to put in place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocWrite {
    /// Of which job.
    pub job: JobId,
    /// Which document.
    pub doc: Doc,
    /// Its text.
    pub text: Payload,
}

/// What to add to the counters of a kind in a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountDelta {
    /// The queue.
    pub queue: QueueName,
    /// The kind.
    pub kind: Kind,
    /// Per view, in the order of [`View::ALL`].
    pub by: [i64; View::ALL.len()],
}

/// Proof that a batch was committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marker {
    /// The batch: of each process the latest is kept.
    pub batch: BatchId,
    /// When it was applied.
    pub at: Wall,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_takes_the_first_in_any_case_and_nothing_after_one_that_did_not_fit() {
        let takes = |bytes: usize, sizes: &[usize]| -> Vec<bool> {
            let mut room = Room::new(bytes);
            sizes.iter().map(|size| room.takes(*size)).collect()
        };
        assert_eq!(takes(5, &[2, 3, 0, 1, 0]), [true, true, true, false, false]);
        assert_eq!(takes(5, &[9, 0, 1, 0]), [true, true, false, false]);
        assert_eq!(takes(0, &[0, 0, 1]), [true, true, false]);
    }
}
