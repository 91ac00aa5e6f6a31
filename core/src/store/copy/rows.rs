//! The rows of one page of a copy, as a reader gives them and as a batch brings them.

use alloc::vec::Vec;

use crate::store::{FigureRow, JobDetail};
use crate::{Attempt, GroupRow, JobId, KeyRecord, Queue, QueueName, Tats};

/// Rows of a store, as they are there: with their ids, epochs, generations and instants.
///
/// A batch that brings some ([`Batch::import`](crate::store::Batch::import)) puts them in place as
/// they are. Only what is derived from them is made again: counters and indexes. Nothing of it is
/// counted as having happened now.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CopyRows {
    /// Queues with their settings, by name.
    pub queues: Vec<Queue>,
    /// The states of rates of these queues, where some were used.
    pub tats: Vec<(QueueName, Tats)>,
    /// Rows of figures, by key.
    pub figures: Vec<FigureRow>,
    /// Jobs with their documents, by id.
    pub jobs: Vec<JobDetail>,
    /// Error groups with their counts, by id.
    pub groups: Vec<GroupRow>,
    /// Attempts, by job and epoch.
    pub attempts: Vec<Attempt>,
    /// Keys, by key.
    pub keys: Vec<KeyRecord>,
    /// New jobs get this id and those behind it.
    pub next_id: Option<JobId>,
}

impl CopyRows {
    /// The number of rows.
    pub fn len(&self) -> usize {
        let Self { queues, tats: _, figures, jobs, groups, attempts, keys, next_id: _ } = self;
        let small = queues.len() + figures.len() + groups.len();
        small + jobs.len() + attempts.len() + keys.len()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The size of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageSize {
    /// At most this many rows.
    pub rows: usize,
    /// As many jobs as have payloads and results of this many bytes together, but always the first.
    pub bytes: usize,
}

impl JobDetail {
    /// The bytes of its payload and its result.
    pub fn bytes(&self) -> usize {
        let result = self.result.as_ref().map_or(0, |result| result.as_str().len());
        self.payload.as_str().len().saturating_add(result)
    }
}
