//! Searching jobs: conditions that no list seeks are checked row by row, and then by the documents
//! of the rows that are left. What a search may cost is up to its caller.

mod conditions;
mod pointer;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::limits::{SEARCH_DOCUMENTS, SEARCH_STEP_BYTES};
use crate::store::{Cursor, Filter, JobDetail, Page, Reader, StoreError};
use crate::{Job, JobId, QueueName, State, View, Wall};

pub use conditions::Conditions;
pub use pointer::{BadPointer, Pointer};

/// A filter whose conditions are partly sought and partly looked for. All must match.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Search {
    /// Conditions that a list seeks. The order of the list is that of the search.
    pub filter: Filter,
    /// Only jobs of these queues, sorted, each once; empty to leave it to the filter.
    pub queues: Vec<QueueName>,
    /// Conditions that each row is checked for.
    pub conditions: Conditions,
}

/// The documents that a search has read so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Spent {
    /// Number of documents.
    pub documents: usize,
    /// Their bytes.
    pub bytes: usize,
}

/// Rows that were looked at.
#[derive(Debug)]
pub struct Looked<T> {
    /// Number of rows that were looked at, from the first on.
    pub rows: usize,
    /// The matching ones among them, in their order.
    pub found: Vec<T>,
    /// No row behind them can match.
    pub over: bool,
}

impl From<Filter> for Search {
    fn from(filter: Filter) -> Self {
        Self { filter, ..Self::default() }
    }
}

impl Search {
    /// Whether the row of a job matches. Conditions on documents are not checked.
    pub fn includes(&self, job: &Job) -> bool {
        self.filter.includes(job)
            && (self.queues.is_empty() || self.queues.binary_search(&job.queue).is_ok())
            && self.conditions.include(job, self.instant(job))
    }

    /// When a job entered its view; in a list ordered by id, when it was created.
    pub fn instant(&self, job: &Job) -> Wall {
        match job.state {
            _ if !self.filter.is_timed() => job.created_at,
            State::Queued { .. } => job.run_at,
            _ => job.index_key().at,
        }
    }

    /// Whether the list is ordered by that instant: ready jobs are by their rank, which counts more
    /// than it where their queue has aging.
    fn is_ordered(&self) -> bool {
        self.filter.is_timed() && self.filter.view != Some(View::Queued)
    }

    /// A page of rows for a search that has come to `after`.
    pub fn list(
        &self,
        reader: &mut (impl Reader + ?Sized),
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        let after = self.start(after);
        if self.queues.is_empty() {
            return reader.list(&self.filter, after, limit);
        }
        let (mut jobs, mut more) = (Vec::new(), false);
        for queue in &self.queues {
            let filter = Filter { queue: Some(queue.clone()), ..self.filter.clone() };
            let page = reader.list(&filter, after, limit)?;
            more |= page.next.is_some();
            jobs.extend(page.jobs);
        }
        jobs.sort_unstable_by_key(|job| Reverse(self.filter.place(job)));
        more |= jobs.len() > limit;
        jobs.truncate(limit);
        let next = jobs.last().filter(|_| more).map(|job| self.filter.place(job));
        Ok(Page { jobs, next })
    }

    /// Reads the documents of the first of these rows, no more than fit into memory together, and
    /// checks them. Rows that `wanted` refuses do not match.
    pub fn look(
        &self,
        reader: &mut (impl Reader + ?Sized),
        rows: &[Job],
        spent: &mut Spent,
        wanted: impl Fn(&Job) -> bool,
    ) -> Result<Looked<JobDetail>, StoreError> {
        let (rows, over) = self.within(&rows[..spent.step().min(rows.len())]);
        let left = rows.iter().filter(|job| self.includes(job) && wanted(job));
        let ids: Vec<JobId> = left.map(|job| job.id).collect();
        let details = if ids.is_empty() { Vec::new() } else { reader.jobs(&ids)? };
        spent.add(&details);
        // One that was deleted since is left out.
        let found = details.into_iter().flatten();
        let found = found.filter(|detail| self.conditions.documents_match(detail)).collect();
        Ok(Looked { rows: rows.len(), found, over })
    }

    /// The same without the documents, which are read only if a condition needs them.
    pub fn look_at_rows(
        &self,
        reader: &mut (impl Reader + ?Sized),
        rows: &[Job],
        spent: &mut Spent,
        wanted: impl Fn(&Job) -> bool,
    ) -> Result<Looked<Job>, StoreError> {
        if self.conditions.need_documents() {
            let Looked { rows, found, over } = self.look(reader, rows, spent, wanted)?;
            let found = found.into_iter().map(|detail| detail.job).collect();
            return Ok(Looked { rows, found, over });
        }
        let (rows, over) = self.within(rows);
        let found = rows.iter().filter(|job| self.includes(job) && wanted(job)).cloned().collect();
        Ok(Looked { rows: rows.len(), found, over })
    }

    /// Where the list begins: behind the cursor, and before `to` if it is ordered by it.
    fn start(&self, after: Option<Cursor>) -> Option<Cursor> {
        let to = self.conditions.to.filter(|_| self.is_ordered());
        match (after, to.map(|at| Cursor { at, id: JobId::FIRST })) {
            (Some(after), Some(to)) => Some(after.min(to)),
            (after, to) => after.or(to),
        }
    }

    /// The rows before the first behind which none can match, and whether there is one.
    fn within<'j>(&self, rows: &'j [Job]) -> (&'j [Job], bool) {
        let from = self.conditions.from.filter(|_| self.is_ordered());
        let too_old = |job: &Job| from.is_some_and(|from| self.instant(job) < from);
        match rows.iter().position(too_old) {
            Some(end) => (&rows[..end], true),
            None => (rows, false),
        }
    }
}

impl Spent {
    fn add(&mut self, details: &[Option<JobDetail>]) {
        self.documents += details.len();
        self.bytes += details.iter().flatten().map(JobDetail::document_bytes).sum::<usize>();
    }

    /// How many rows to read together, by the size of those before: few until it is known.
    fn step(&self) -> usize {
        let (few, many) = SEARCH_DOCUMENTS;
        let each = self.bytes.checked_div(self.documents);
        let each = each.map_or(SEARCH_STEP_BYTES / few, |bytes| bytes.max(1));
        (SEARCH_STEP_BYTES / each).clamp(1, many)
    }
}
