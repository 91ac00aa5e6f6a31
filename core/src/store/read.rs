//! Reads beside the writer: committed states only, and no read that grows with the number of jobs.

use alloc::vec::Vec;

use super::{Dump, StoreError, Worker};
use crate::{
    Attempt, Excerpt, Job, JobId, Kind, Payload, QueueName, QueueRow, SettingKey, SettingValue,
    View, Wall,
};

/// Reads committed states.
pub trait Reader {
    /// These jobs with their documents, in this order.
    fn jobs(&mut self, ids: &[JobId]) -> Result<Vec<Option<JobDetail>>, StoreError>;

    /// A page of jobs, newest first by the filter's own order, behind `after`.
    ///
    /// It looks at no more than [`LIST_SCAN_ROWS`](crate::limits::LIST_SCAN_ROWS) rows, so a page
    /// may hold fewer than `limit` jobs, or none, and still have a `next`.
    fn list(
        &mut self,
        filter: &Filter,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page, StoreError>;

    /// Every queue with its counters, by name. No job is looked at.
    fn queues(&mut self) -> Result<Vec<QueueRow>, StoreError>;

    /// One queue with its counters.
    fn queue(&mut self, name: &QueueName) -> Result<Option<QueueRow>, StoreError>;

    /// Since when the longest-waiting ready job of this queue has been due.
    fn oldest_ready(&mut self, queue: &QueueName) -> Result<Option<Wall>, StoreError>;

    /// When the next scheduled job falls due.
    fn next_due(&mut self) -> Result<Option<Wall>, StoreError>;

    /// The remembered attempts of a job, oldest first.
    fn attempts(&mut self, id: JobId) -> Result<Vec<Attempt>, StoreError>;

    /// Every known worker, by id, with what it runs.
    fn workers(&mut self) -> Result<Vec<WorkerRow>, StoreError>;

    /// Every setting kept in the store, by name.
    fn settings(&mut self) -> Result<Vec<(SettingKey, SettingValue)>, StoreError>;

    /// Everything, in one canonical form. The one read that looks at all rows; for tests and for
    /// checks by an operator.
    fn dump(&mut self) -> Result<Dump, StoreError>;
}

/// A job with everything kept beside its row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobDetail {
    /// The row.
    pub job: Job,
    /// What it is run with.
    pub payload: Payload,
    /// What came of it.
    pub result: Option<Payload>,
    /// How far a holder last said it is.
    pub progress: Option<Payload>,
    /// What last went wrong.
    pub last_error: Option<Excerpt>,
}

/// Which jobs to list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filter {
    /// Those in this view; all if not set.
    pub view: Option<View>,
    /// Those of this queue.
    pub queue: Option<QueueName>,
    /// Those of this kind.
    pub kind: Option<Kind>,
}

impl Filter {
    /// Whether this job is to be listed.
    pub fn includes(&self, job: &Job) -> bool {
        self.view.is_none_or(|view| job.state.view() == view)
            && self.queue.as_ref().is_none_or(|queue| *queue == job.queue)
            && self.kind.as_ref().is_none_or(|kind| *kind == job.kind)
    }

    /// The place of a job in this filter's order, which runs from the greatest down: waiting jobs
    /// by when they are due, running ones by when their lease ends, finished ones by when they
    /// finished; all views together by id.
    pub fn place(&self, job: &Job) -> Cursor {
        let at = match self.view {
            None => None,
            Some(View::Queued | View::Scheduled) => Some(job.run_at),
            Some(View::Processing) => job.lease().map(|lease| lease.until),
            Some(View::Done | View::Failed | View::Cancelled) => job.finished_at(),
        };
        Cursor { at: at.unwrap_or(Wall::new(0)), id: job.id }
    }
}

/// A place in a list: the next page starts behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor {
    /// The instant the list is ordered by; zero in a list ordered by id alone.
    pub at: Wall,
    /// Then by id.
    pub id: JobId,
}

/// A page of a list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Page {
    /// The jobs, newest first.
    pub jobs: Vec<Job>,
    /// Where the next page starts, if there may be one.
    pub next: Option<Cursor>,
}

/// A worker as the store knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerRow {
    /// Who.
    pub worker: Worker,
    /// When it was first seen.
    pub started_at: Wall,
    /// When it was last seen.
    pub last_seen: Wall,
    /// The jobs it holds, by id.
    pub running: Vec<JobId>,
}
