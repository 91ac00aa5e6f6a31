//! Reads beside the writer: committed states only, and no read that grows with the number of jobs.

use alloc::vec::Vec;

use super::{
    BulkRow, CopyPlace, CopyRows, Dump, FigureRange, FigureRow, PageSize, StoreError, Worker,
};
use crate::limits::{MISSED_PRESENCES, SHORTEST_SILENCE};
use crate::{
    Attempt, Demand, Excerpt, GroupId, GroupRow, IdempotencyKey, Job, JobId, Kind, Payload,
    QueueName, QueueRow, SettingKey, SettingValue, View, Wall,
};

/// Reads committed states.
pub trait Reader {
    /// What time it is by the clock that instants of the store are taken from. `own` is the wall
    /// clock of this process, which is the answer of every store without a clock of its own.
    fn now(&mut self, own: Wall) -> Result<Wall, StoreError> {
        Ok(own)
    }

    /// These jobs with their documents, in this order.
    fn jobs(&mut self, ids: &[JobId]) -> Result<Vec<Option<JobDetail>>, StoreError>;

    /// A page of jobs, newest first by the filter's own order, behind `after`.
    ///
    /// A page holds `limit` jobs unless there are fewer, and has a `next` only if there are more.
    /// Every filter seeks: what a page costs does not grow with the jobs that it leaves out.
    /// Running jobs, no more than the workers have slots, may all be looked at.
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

    /// Since when the ready job of this queue has been due that is first by the instant of its
    /// view: without [aging](crate::Flow::aging) the one that has waited longest.
    fn oldest_ready(&mut self, queue: &QueueName) -> Result<Option<Wall>, StoreError>;

    /// When the next scheduled job falls due.
    fn next_due(&mut self) -> Result<Option<Wall>, StoreError>;

    /// The remembered attempts of a job, oldest first.
    fn attempts(&mut self, id: JobId) -> Result<Vec<Attempt>, StoreError>;

    /// Every known worker, by id, with what it runs.
    fn workers(&mut self) -> Result<Vec<WorkerRow>, StoreError>;

    /// Every error group, by id: no more than there may be. No job is looked at.
    fn error_groups(&mut self) -> Result<Vec<GroupRow>, StoreError>;

    /// The group with this id; `None` if there is none.
    fn error_group(&mut self, id: GroupId) -> Result<Option<GroupRow>, StoreError>;

    /// Every setting kept in the store, by name.
    fn settings(&mut self) -> Result<Vec<(SettingKey, SettingValue)>, StoreError>;

    /// Rows of figures, from one state: the ranges in this order, each by slot and process. No job
    /// is looked at.
    fn figures(&mut self, ranges: &[FigureRange]) -> Result<Vec<FigureRow>, StoreError>;

    /// Every bulk action, by id.
    fn bulk(&mut self) -> Result<Vec<BulkRow>, StoreError>;
    /// Rows for a copy: those of a section behind a place, which are figures, jobs, attempts or
    /// keys. Jobs are in the order of their ids, others in an order of the store. None are left if
    /// the page is empty. At [`Settings`](CopyPlace::Settings) it holds the next id alone.
    fn copy_page(&mut self, after: &CopyPlace, size: PageSize) -> Result<CopyRows, StoreError>;

    /// Everything, in one canonical form. The one read that looks at all rows; for tests and for
    /// checks by an operator.
    fn dump(&mut self) -> Result<Dump, StoreError>;
}

/// A job with everything kept beside its row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobDetail {
    /// The row.
    pub job: Job,
    /// The input of the handler.
    pub payload: Payload,
    /// The result; `None` if the job is not done or returned none.
    pub result: Option<Payload>,
    /// The latest progress note of a holder.
    pub progress: Option<Payload>,
    /// The error of the latest failed attempt.
    pub last_error: Option<Excerpt>,
}

impl JobDetail {
    /// Bytes of what is kept beside the row.
    pub fn document_bytes(&self) -> usize {
        let Self { job: _, payload, result, progress, last_error } = self;
        let of = |document: &Option<Payload>| document.as_ref().map_or(0, |it| it.as_str().len());
        let error = last_error.as_ref().map_or(0, |error| error.as_str().len());
        payload.as_str().len() + of(result) + of(progress) + error
    }
}

/// A condition for listed jobs; all of its fields must match.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filter {
    /// Only jobs in this view.
    pub view: Option<View>,
    /// Only jobs of this queue.
    pub queue: Option<QueueName>,
    /// Only jobs of this kind.
    pub kind: Option<Kind>,
    /// Only jobs enqueued with this idempotency key.
    pub key: Option<IdempotencyKey>,
    /// Only the job with this id.
    pub id: Option<JobId>,
    /// The dead letters of this error group, in the order of the failed. A group is of one kind; of
    /// several queues, those of others are walked where `queue` names one.
    pub group: Option<GroupId>,
}

impl Filter {
    /// Whether this job is to be listed.
    pub fn includes(&self, job: &Job) -> bool {
        self.view.is_none_or(|view| job.state.view() == view)
            && self.queue.as_ref().is_none_or(|queue| *queue == job.queue)
            && self.kind.as_ref().is_none_or(|kind| *kind == job.kind)
            && (self.key.is_none() || self.key == job.idempotency_key)
            && self.id.is_none_or(|id| id == job.id)
            && (self.group.is_none() || self.group == job.state.group())
    }

    /// Whether the list is ordered by the instant of its view, not by id.
    pub(crate) fn is_timed(&self) -> bool {
        self.view.is_some() || self.group.is_some()
    }

    /// The place of a job in this filter's order, which runs from the greatest down: by the instant
    /// of its view; all views together by id.
    pub fn place(&self, job: &Job) -> Cursor {
        let at = if self.is_timed() { job.index_key().at } else { Wall::new(0) };
        Cursor { at, id: job.id }
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

/// Makes a page out of rows that a store finds in chunks, by the filter's own order.
///
/// While [`wanted`](Self::wanted) asks for rows, find them and [`add`](Self::add) them.
#[derive(Debug)]
pub struct Listing<'f> {
    filter: &'f Filter,
    limit: usize,
    page: Page,
    place: Option<Cursor>,
    over: bool,
}

impl<'f> Listing<'f> {
    /// A page of at most `limit` jobs behind `after`.
    pub fn new(filter: &'f Filter, after: Option<Cursor>, limit: usize) -> Self {
        let page = Page::default();
        Self { filter, limit, page, place: after, over: false }
    }

    /// The place behind which to look next, and how many rows to look at; `None` once the page is
    /// complete.
    pub fn wanted(&self) -> Option<(Option<Cursor>, usize)> {
        let room = self.limit.saturating_add(1) - self.page.jobs.len();
        (!self.over).then(|| (self.place, room.clamp(16, 1_000)))
    }

    /// Takes in the rows behind the place that was [`wanted`](Self::wanted). Fewer than were wanted
    /// are the last.
    pub fn add(&mut self, jobs: Vec<Job>) {
        let wanted = self.wanted().map_or(0, |(_, rows)| rows);
        self.over |= jobs.len() < wanted;
        for job in jobs {
            let place = self.filter.place(&job);
            if self.filter.includes(&job) {
                if self.page.jobs.len() == self.limit {
                    (self.page.next, self.over) = (self.place, true);
                    return;
                }
                self.page.jobs.push(job);
            }
            self.place = Some(place);
        }
    }

    /// Ends the page, full or not.
    pub fn page(self) -> Page {
        self.page
    }
}

/// A worker as the store knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerRow {
    /// The worker as it last described itself.
    pub worker: Worker,
    /// When it was first seen.
    pub started_at: Wall,
    /// When it was last seen.
    pub last_seen: Wall,
    /// Whether it was asked to stop.
    pub stopping: bool,
    /// The jobs it holds, by id.
    pub running: Vec<JobId>,
}

impl WorkerRow {
    /// Whether it was seen lately: it counts as gone when it has missed several of the moments
    /// at which it was to say that it is there.
    pub fn is_alive(&self, now: Wall) -> bool {
        let silence = self.worker.presence.times(MISSED_PRESENCES).max(SHORTEST_SILENCE);
        now.since(self.last_seen) <= silence
    }

    /// What it would run next: nothing if it is gone, has no slots, or was asked to stop.
    pub fn demand(&self, now: Wall) -> Option<&Demand> {
        let takes_jobs = self.is_alive(now) && self.worker.slots > 0 && !self.stopping;
        takes_jobs.then_some(&self.worker.demand)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::WorkerKind;
    use crate::{Millis, WorkerId};

    fn row(presence: Millis) -> WorkerRow {
        let id = WorkerId::new("w").expect("it is a name");
        let worker = Worker { presence, ..Worker::new(id, "host", WorkerKind::Process) };
        let (started_at, last_seen) = (Wall::new(0), Wall::new(1_000));
        WorkerRow { worker, started_at, last_seen, stopping: false, running: Vec::new() }
    }

    #[test]
    fn a_worker_is_gone_once_it_was_silent_for_longer_than_three_presences() {
        let row = row(Millis::seconds(10));
        let after = |silence| row.last_seen.plus(silence);
        assert!(row.is_alive(after(Millis::seconds(30))));
        assert!(!row.is_alive(after(Millis::new(30_001))));
        assert!(row.is_alive(Wall::new(0)), "a clock that was set back leaves every worker alive");
    }

    #[test]
    fn a_worker_that_would_speak_very_often_is_given_a_moment_all_the_same() {
        for presence in [Millis::ZERO, Millis::new(1)] {
            let row = row(presence);
            assert!(row.is_alive(row.last_seen.plus(SHORTEST_SILENCE)));
            assert!(!row.is_alive(row.last_seen.plus(SHORTEST_SILENCE).plus(Millis::new(1))));
        }
        assert!(row(Millis::new(u64::MAX)).is_alive(Wall::MAX), "no length overflows");
    }

    #[test]
    fn a_worker_that_is_gone_or_has_no_slots_or_was_asked_to_stop_takes_no_jobs() {
        let there = row(Millis::seconds(10));
        let now = there.last_seen;
        assert_eq!(there.demand(now), Some(&Demand::ALL));
        assert_eq!(there.demand(now.plus(Millis::minutes(1))), None);
        let mut without = there.clone();
        without.worker.slots = 0;
        assert_eq!(without.demand(now), None);
        assert_eq!(WorkerRow { stopping: true, ..there }.demand(now), None);
    }
}
