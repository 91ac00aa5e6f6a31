//! What time does to jobs: leases run out, scheduled jobs fall due, finished ones grow old.
//! Each works through a bounded page and says whether there is more.

use alloc::vec::Vec;

use super::settle::keep;
use super::work::{Slot, Work};
use crate::bulk::Action;
use crate::limits::{PAGE_ROWS, SILENT_KEPT};
use crate::store::{
    Admin, Answers, BadAnswer, Batch, Cursor, DeadFilter, DeadFound, DeadJob, EmptyQueues, JobPage,
    Next, Promoted, Purge, Purged, QueuesSwept, Reap, Reaped, sorted,
};
use crate::{Attempt, Event, IdempotencyKey, Job, KeyRecord, StateName, Step, Wall, transition};

/// Everything the store has found for a batch, taken into the working set.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) expired: Sweep,
    pub(super) due: Sweep,
    /// In the order of [`Retention::ages`](crate::store::Retention::ages).
    pub(super) finished: Vec<Sweep>,
    /// In the order of the commands that ask for dead letters.
    pub(super) dead: Vec<Dead>,
    pub(super) orphans: Vec<IdempotencyKey>,
    pub(super) silent: bool,
    pub(super) empty_queues: EmptyQueues,
}

/// A page of jobs in the working set.
#[derive(Debug)]
pub(super) struct Sweep {
    slots: Vec<Slot>,
    /// The place of the last one.
    last: Option<Cursor>,
    /// The instant of the first one behind the page.
    next: Option<Wall>,
}

/// A page of the dead-letter queue in the working set.
#[derive(Debug, Default)]
pub(super) struct Dead {
    pub(super) slots: Vec<Slot>,
    pub(super) next: Option<Cursor>,
}

impl Found {
    pub(super) fn new(
        work: &mut Work,
        batch: &Batch,
        answers: &mut Answers,
    ) -> Result<Self, BadAnswer> {
        let mut finished = Vec::with_capacity(answers.finished.len());
        for page in answers.finished.drain(..) {
            finished.push(Sweep::new(work, page)?);
        }
        let mut dead = Vec::with_capacity(answers.dead.len());
        let asked = batch.admin.iter().filter_map(dead_filter);
        for ((filter, after, limit), found) in asked.zip(answers.dead.drain(..)) {
            dead.push(Dead::new(work, filter, after, limit, found)?);
        }
        Ok(Self {
            expired: Sweep::new(work, core::mem::take(&mut answers.expired))?,
            due: Sweep::new(work, core::mem::take(&mut answers.due))?,
            finished,
            dead,
            orphans: core::mem::take(&mut answers.orphans),
            silent: answers.silent,
            empty_queues: core::mem::take(&mut answers.empty_queues),
        })
    }

    /// The keys of jobs that may be removed, as far as they are not known yet.
    pub(super) fn keys_to_load(&self, work: &Work, batch: &Batch) -> Vec<IdempotencyKey> {
        let deleted = batch.admin.iter().filter_map(|command| match command {
            Admin::Delete(id) => work.find(*id).ok(),
            _ => None,
        });
        let finished = self.finished.iter().flat_map(|page| &page.slots);
        let dead = self.dead.iter().flat_map(|page| &page.slots);
        let steps = batch.bulk.iter().filter(|step| step.action == Action::Delete);
        let bulk = steps.flat_map(|step| &step.jobs).filter_map(|place| work.find(place.id).ok());
        let removable = finished.chain(dead).copied().chain(deleted).chain(bulk);
        let keys = removable.filter_map(|slot| work.job_at(slot)?.idempotency_key.clone());
        sorted(keys.filter(|key| !work.knows_key(key)).collect())
    }
}

impl Sweep {
    fn new(work: &mut Work, page: JobPage) -> Result<Self, BadAnswer> {
        let last = page.jobs.last();
        let last = last.map(|job| Cursor { at: job.index_key().at, id: job.id });
        Ok(Self { slots: work.adopt(page.jobs)?, last, next: page.next })
    }
}

impl Dead {
    /// Takes up to `limit` of the dead letters that are wanted, and notes where to go on.
    fn new(
        work: &mut Work,
        filter: &DeadFilter,
        after: Option<Cursor>,
        limit: usize,
        found: DeadFound,
    ) -> Result<Self, BadAnswer> {
        let limit = limit.min(PAGE_ROWS);
        let text = filter.error_contains.as_deref().unwrap_or("");
        let matching = |dead: DeadJob| {
            let error = dead.error.as_ref().map_or("", |error| error.as_str());
            error.contains(text).then_some(dead.job)
        };
        let mut wanted: Vec<Job> = found.jobs.into_iter().filter_map(matching).collect();
        let mut next = found.next;
        if wanted.len() > limit {
            wanted.truncate(limit);
            let place = |job: &Job| Cursor { at: job.index_key().at, id: job.id };
            next = wanted.last().map(place).or(after);
        }
        Ok(Self { slots: work.adopt(wanted)?, next })
    }
}

fn dead_filter(command: &Admin) -> Option<(&DeadFilter, Option<Cursor>, usize)> {
    match command {
        Admin::ReplayDead { filter, after, limit }
        | Admin::DiscardDead { filter, after, limit } => Some((filter, *after, *limit)),
        _ => None,
    }
}

/// Takes back leases that ran out.
pub(super) fn reap(work: &mut Work, batch: &Batch, reap: Reap, page: Sweep) -> (Reaped, Next) {
    if work.clock_stepped {
        return (Reaped::ClockStepped, Next::default());
    }
    let next = page.last.filter(|_| page.slots.len() >= reap.limit);
    // Behind a full page the next one looks.
    let mut expiry = Next::Known(page.next.filter(|_| next.is_none()));
    let (mut requeued, mut failed) = (0, 0);
    for slot in page.slots {
        // A job that was settled or extended in this very batch is not expired any more.
        let Some(held) = work.job_at(slot) else { continue };
        let dead = held.lease().is_some_and(|lease| batch.dead.contains(&lease.worker));
        let event = Event::Expire { trusted_since: batch.clock.trusted_since, dead };
        if let Ok(Step::Moved(job)) = transition(held, event, work.now) {
            let attempt = Attempt::reaped(held, &job, dead, work.now);
            match work.put_at(slot, job).state.name() {
                StateName::Failed => failed += 1,
                StateName::Queued => requeued += 1,
                // Written by a clock that was set back since: its length counts from now on.
                _ => continue,
            }
            keep(work, attempt);
        } else if let Some(lease) = held.lease() {
            expiry.bring_forward(lease.until);
        }
    }
    (Reaped::Page { requeued, failed, next }, expiry)
}

/// Moves jobs that fell due to the ready ones.
pub(super) fn promote(work: &mut Work, limit: usize, page: Sweep, due: &mut Next) -> Promoted {
    *due = Next::Known(page.next);
    let more = page.slots.len() >= limit;
    let mut count = 0;
    for slot in page.slots {
        let Some(job) = work.job_at(slot) else { continue };
        if let Ok(Step::Moved(job)) = transition(job, Event::FallDue, work.now) {
            work.put_at(slot, job);
            count += 1;
        }
    }
    Promoted { count, more }
}

/// Removes finished jobs past their age, keys past their window, and rows of the long silent.
pub(super) fn purge(
    work: &mut Work,
    purge: &Purge,
    pages: Vec<Sweep>,
    orphans: Vec<IdempotencyKey>,
    silent: bool,
) -> Purged {
    let (mut count, mut more, mut next) = (0, false, None);
    for ((view, age), page) in purge.retention.ages().zip(pages) {
        let (removed, left) = page.slots.split_at(page.slots.len().min(purge.limit - count));
        more |= removed.len() == purge.limit - count;
        let left = left.iter().filter_map(|slot| work.job_at(*slot)?.finished_at());
        let due = left.chain(page.next).min().map(|at| at.plus(age));
        next = next.into_iter().chain(due).min();
        let before = work.now.minus(age);
        // A job replayed in this very batch is alive again, or has ended only now.
        let old = |job: &Job| job.finished_at().is_some_and(|at| at <= before);
        let still = |job: &Job| job.state.view() == view && old(job);
        for slot in removed {
            if work.job_at(*slot).is_some_and(still) {
                remove(work, *slot);
                count += 1;
            }
        }
    }
    more |= orphans.len() >= purge.limit;
    for key in orphans {
        // One that a new job took over in this very batch is no orphan any more.
        if work.key(&key).is_none_or(|record| record.orphan_until.is_some()) {
            work.put_key(key, None);
        }
    }
    if silent {
        work.changes.drop_silent = Some(work.now.minus(SILENT_KEPT));
    }
    Purged { count, more, next }
}

/// Removes queues that hold nothing: no jobs, no pause, no settings.
pub(super) fn queues(work: &mut Work, page: EmptyQueues) -> QueuesSwept {
    let mut deleted = Vec::new();
    for queue in page.queues {
        let name = queue.name.clone();
        work.load_empty_queue(queue);
        // It may have been changed, or been given a job, by this very batch.
        let idle = work.queue(&name).is_some_and(|w| w.queue.is_plain() && w.counts.is_empty());
        if idle {
            work.remove_queue(&name);
            deleted.push(name);
        }
    }
    QueuesSwept { deleted, next: page.next }
}

/// Removes a finished job. A key whose window still runs outlives its job.
pub(super) fn remove(work: &mut Work, slot: Slot) {
    let Some(job) = work.job_at(slot) else { return };
    // A later job may have taken the key over; then it is that job's.
    if let Some(key) = job.idempotency_key.clone()
        && let Some(record) = work.key(&key).filter(|record| record.job == job.id)
    {
        let end = record.window_end(work.idempotency_window);
        let orphan = KeyRecord { orphan_until: Some(end), ..record.clone() };
        work.put_key(key, (end > work.now).then_some(orphan));
    }
    work.remove(slot);
}
