//! What time does to jobs: leases run out, scheduled jobs fall due, finished ones grow old.
//! Each works through a bounded page and says whether there is more.

use alloc::vec::Vec;

use super::settle::remember;
use super::work::Work;
use crate::limits::{CLOCK_STEP, SILENT_KEPT};
use crate::store::{LeaseCursor, Promoted, Purge, Purged, Reap, Reaped, Retention, Tx};
use crate::{
    Attempt, Event, IdempotencyKey, Job, JobId, KeyRecord, Millis, StateName, Step, View, Wall,
    transition,
};

/// Takes back leases that ran out.
pub(super) fn reap<T: Tx>(work: &mut Work<'_, T>, reap: &Reap) -> Result<Reaped, T::Error> {
    if reap.expected.is_some_and(|expected| expected.distance(work.now) > CLOCK_STEP) {
        return Ok(Reaped::ClockStepped);
    }
    let until = if reap.all { Wall::MAX } else { work.now };
    let page = work.tx.expired(until, reap.after, reap.limit)?;
    let full = page.len() >= reap.limit;
    let next = page.last().filter(|_| full).and_then(lease_place);
    let ids: Vec<JobId> = page.iter().map(|job| job.id).collect();
    work.adopt(page)?;
    let (mut requeued, mut failed) = (0, 0);
    for id in ids {
        // A job that was settled or heard from in this very batch is not expired any more.
        let Ok(held) = work.job(id) else { continue };
        let event = Event::Expire { trusted_since: reap.trusted_since };
        let Ok(Step::Moved(job)) = transition(held, event, work.now) else { continue };
        let attempt = Attempt::expired(held, work.now);
        match work.put(job).state.name() {
            StateName::Failed => failed += 1,
            StateName::Queued => requeued += 1,
            // Written by a clock that was set back since: it counts from now on.
            _ => continue,
        }
        remember(work, attempt);
    }
    Ok(Reaped::Page { requeued, failed, next })
}

fn lease_place(job: &Job) -> Option<LeaseCursor> {
    job.lease().map(|lease| LeaseCursor { until: lease.until, id: job.id })
}

/// Moves jobs that fell due to the ready ones.
pub(super) fn promote<T: Tx>(work: &mut Work<'_, T>, limit: usize) -> Result<Promoted, T::Error> {
    let page = work.tx.due(work.now, limit)?;
    let more = page.len() >= limit;
    let ids: Vec<JobId> = page.iter().map(|job| job.id).collect();
    work.adopt(page)?;
    let mut count = 0;
    for id in ids {
        let Ok(job) = work.job(id) else { continue };
        if let Ok(Step::Moved(job)) = transition(job, Event::FallDue, work.now) {
            work.put(job);
            count += 1;
        }
    }
    Ok(Promoted { count, more })
}

/// Removes finished jobs past their age, keys past their window, and rows of the long silent.
pub(super) fn purge<T: Tx>(work: &mut Work<'_, T>, purge: &Purge) -> Result<Purged, T::Error> {
    let (mut count, mut more) = (0, false);
    for (view, age) in ages(&purge.retention) {
        let before = work.now.minus(age);
        let page = work.tx.finished(view, before, purge.limit - count)?;
        more |= page.len() >= purge.limit - count;
        let ids: Vec<JobId> = page.iter().map(|job| job.id).collect();
        work.adopt(page)?;
        // A job replayed in this very batch is alive again, or has ended only now.
        let old = |job: &Job| job.finished_at().is_some_and(|at| at <= before);
        let still =
            |id: &JobId| work.job(*id).is_ok_and(|job| job.state.view() == view && old(job));
        let ids: Vec<JobId> = ids.into_iter().filter(still).collect();
        count += ids.len();
        remove(work, &ids)?;
    }
    let orphans = work.tx.orphan_keys(work.now, purge.limit)?;
    more |= orphans.len() >= purge.limit;
    for key in orphans {
        // One that a new job took over in this very batch is no orphan any more.
        if work.key(&key).is_none_or(|record| record.orphan_until.is_some()) {
            work.put_key(key, None);
        }
    }
    let silent = work.now.minus(SILENT_KEPT);
    if work.tx.has_silent(silent)? {
        work.changes.forget_silent = Some(silent);
    }
    Ok(Purged { count, more, next: None })
}

/// When the next finished job is past its age.
pub(super) fn next_purge<T: Tx>(
    work: &mut Work<'_, T>,
    retention: &Retention,
) -> Result<Option<Wall>, T::Error> {
    let mut next: Option<Wall> = None;
    for (view, age) in ages(retention) {
        let head = work.tx.finished(view, Wall::MAX, 1)?;
        let due = head.first().and_then(Job::finished_at).map(|at| at.plus(age));
        next = next.into_iter().chain(due).min();
    }
    Ok(next)
}

fn ages(retention: &Retention) -> impl Iterator<Item = (View, Millis)> {
    let all = [
        (View::Done, retention.done),
        (View::Failed, retention.failed),
        (View::Cancelled, retention.cancelled),
    ];
    all.into_iter().filter_map(|(view, age)| Some((view, age?)))
}

/// Removes these finished jobs. A key whose window still runs outlives its job.
pub(super) fn remove<T: Tx>(work: &mut Work<'_, T>, ids: &[JobId]) -> Result<(), T::Error> {
    let keyed = |id: &JobId| Some((*id, work.job(*id).ok()?.idempotency_key.clone()?));
    let keyed: Vec<(JobId, IdempotencyKey)> = ids.iter().filter_map(keyed).collect();
    work.load_keys(keyed.iter().map(|(_, key)| key.clone()).collect(), &mut Vec::new())?;
    for (id, key) in keyed {
        // A later job may have taken the key over; then it is that job's.
        let Some(record) = work.key(&key).filter(|record| record.job == id) else { continue };
        let end = record.window_end(work.idempotency_window);
        let orphan = KeyRecord { orphan_until: Some(end), ..record.clone() };
        work.put_key(key, (end > work.now).then_some(orphan));
    }
    for id in ids {
        work.remove(*id);
    }
    Ok(())
}
