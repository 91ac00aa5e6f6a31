//! The next page of each bulk action, found beside the writer.

use alloc::vec::Vec;

use super::{Action, Bulk, Target};
use crate::limits::{BULK_BYTES, BULK_DOCUMENTS, BULK_PAGES, PAGE_ROWS};
use crate::search::{Looked, Search, Spent};
use crate::store::{Cursor, Reader, StoreError};
use crate::{BulkId, Job, JobId, Wall};

/// A page of a bulk action: the jobs that it is to take next. It does nothing if the action has
/// changed since, and it takes no more jobs than the action may take when it is applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The action that takes the page.
    pub bulk: BulkId,
    /// The command for each job.
    pub action: Action,
    /// The revision of the action for which this was planned.
    pub revision: u64,
    /// The jobs, by their places in the list; or all those of the canary that have not ended: one
    /// that is left out counts as gone.
    pub jobs: Vec<Cursor>,
    /// The place behind which the list goes on after these jobs; `None` if it ends with them.
    pub next: Option<Cursor>,
}

/// The next step of each bulk action that is live. Whether it is due is seen when it is applied.
pub fn plan(reader: &mut (impl Reader + ?Sized)) -> Result<Vec<Step>, StoreError> {
    let mut steps = Vec::new();
    for row in reader.bulk()? {
        let bulk = row.decode()?;
        if bulk.is_live() {
            steps.push(step(reader, &bulk)?);
        }
    }
    Ok(steps)
}

/// At least this many rows are read, for those that are not part of the action.
const FEW: usize = 100;

fn unordered(id: JobId) -> Cursor {
    Cursor { at: Wall::new(0), id }
}

fn step(reader: &mut (impl Reader + ?Sized), bulk: &Bulk) -> Result<Step, StoreError> {
    let mut step = Step {
        bulk: bulk.id,
        action: bulk.terms.action,
        revision: bulk.revision,
        jobs: Vec::new(),
        next: None,
    };
    if bulk.awaits_verdicts() {
        step.jobs = bulk.verdicts.waiting.iter().copied().map(unordered).collect();
        return Ok(step);
    }
    let limit = match bulk.terms.pace {
        None => PAGE_ROWS,
        Some(pace) => usize::try_from(pace.per_s.get()).map_or(PAGE_ROWS, |n| n.min(PAGE_ROWS)),
    };
    match bulk.terms.target.search() {
        Some(search) => add_listed(reader, bulk, &search, limit, &mut step)?,
        None => add_named(bulk, limit, &mut step),
    }
    Ok(step)
}

/// The next of the jobs that are named by id.
fn add_named(bulk: &Bulk, limit: usize, step: &mut Step) {
    let Target::Jobs(ids) = &bulk.terms.target else { return };
    let rest = ids.iter().copied().filter(|id| bulk.cursor.is_none_or(|last| last.id < *id));
    step.jobs = rest.clone().take(limit).map(unordered).collect();
    step.next = step.jobs.last().copied().filter(|_| rest.count() > limit);
}

/// Whether a step has read as many documents as it may: the writer waits for it.
fn is_enough(spent: &Spent) -> bool {
    spent.documents >= BULK_DOCUMENTS || spent.bytes >= BULK_BYTES
}

/// The next jobs that match, unless a step has read enough before it found any.
fn add_listed(
    reader: &mut (impl Reader + ?Sized),
    bulk: &Bulk,
    search: &Search,
    limit: usize,
    step: &mut Step,
) -> Result<(), StoreError> {
    let mut spent = Spent::default();
    step.next = bulk.cursor;
    for _ in 0..BULK_PAGES {
        let page = search.list(reader, step.next, limit.max(FEW))?;
        let mut rest = page.jobs.as_slice();
        while !rest.is_empty() {
            let wanted = |job: &Job| bulk.wants(job);
            let Looked { rows, found, over } =
                search.look_at_rows(reader, rest, &mut spent, wanted)?;
            let room = limit - step.jobs.len();
            step.jobs.extend(found.iter().take(room).map(|job| search.filter.place(job)));
            if found.len() > room {
                step.next = step.jobs.last().copied();
                return Ok(());
            }
            if over {
                step.next = None;
                return Ok(());
            }
            let (looked_at, left) = rest.split_at(rows);
            rest = left;
            if let Some(last) = looked_at.last().filter(|_| is_enough(&spent) && !rest.is_empty()) {
                step.next = Some(search.filter.place(last));
                return Ok(());
            }
        }
        step.next = page.next;
        if step.next.is_none() || !step.jobs.is_empty() || is_enough(&spent) {
            break;
        }
    }
    Ok(())
}
