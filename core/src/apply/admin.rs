//! What operators ask: of jobs, of the dead-letter queue, of queues, settings and workers.

use alloc::vec::Vec;

use super::sweep;
use super::work::Work;
use crate::limits::PAGE_ROWS;
use crate::store::{Admin, AdminDone, AdminRefused, Cursor, DeadFilter, DeadJob, JobRefused, Tx};
use crate::{
    Event, EventName, Job, JobId, Queue, QueueName, Rejected, StateName, Step, WorkerId, transition,
};

type Answer = Result<AdminDone, AdminRefused>;

/// Runs one command.
pub(super) fn admin<T: Tx>(work: &mut Work<'_, T>, command: &Admin) -> Result<Answer, T::Error> {
    Ok(match command {
        Admin::Cancel(id) => change(work, *id, Event::Cancel),
        Admin::Replay(id) => change(work, *id, Event::Replay),
        Admin::Delete(id) => return delete(work, *id),
        Admin::ReplayDead { filter, after, limit } => {
            return replay_dead(work, filter, *after, *limit).map(Ok);
        }
        Admin::DiscardDead { filter, after, limit } => {
            return discard_dead(work, filter, *after, *limit).map(Ok);
        }
        Admin::Pause(name) => return set_queue(work, name, |queue| queue.paused = true),
        Admin::Resume(name) => return set_queue(work, name, |queue| queue.paused = false),
        Admin::SetQueue(name, settings) => {
            return set_queue(work, name, |queue| queue.settings = *settings);
        }
        Admin::SetSetting(key, value) => {
            work.put_setting(key.clone(), value.clone());
            Ok(AdminDone::Noted)
        }
        Admin::SeeWorker(worker) => {
            work.see_worker(worker.kept());
            told(work, &worker.id)
        }
        Admin::RemoveWorker(id) => {
            work.remove_worker(id);
            Ok(AdminDone::Noted)
        }
        Admin::StopWorker(id) => {
            work.stop_worker(id);
            told(work, id)
        }
        Admin::LookAtWorker(id) => told(work, id),
    })
}

/// What a worker is told of itself.
fn told<T: Tx>(work: &Work<'_, T>, id: &WorkerId) -> Answer {
    let stopping = work.stop_mark(id).ok_or(AdminRefused::NoWorker)?;
    Ok(AdminDone::Worker { id: id.clone(), stopping })
}

fn change<T: Tx>(work: &mut Work<'_, T>, id: JobId, event: Event<'_>) -> Answer {
    let job = work.job(id)?;
    let step = transition(job, event, work.now).map_err(JobRefused::from)?;
    Ok(AdminDone::Job(match step {
        Step::Moved(job) => work.put(job).clone(),
        Step::Repeated(_) => job.clone(),
    }))
}

fn delete<T: Tx>(work: &mut Work<'_, T>, id: JobId) -> Result<Answer, T::Error> {
    let state = match work.job(id) {
        Ok(job) => job.state.name(),
        Err(refused) => return Ok(Err(refused.into())),
    };
    if !state.is_finished() {
        let rejected = Rejected::Illegal { event: EventName::Delete, state };
        return Ok(Err(JobRefused::from(rejected).into()));
    }
    sweep::remove(work, &[id])?;
    Ok(Ok(AdminDone::Deleted))
}

fn set_queue<T: Tx>(
    work: &mut Work<'_, T>,
    name: &QueueName,
    change: impl FnOnce(&mut Queue),
) -> Result<Answer, T::Error> {
    if let Err(refused) = work.ensure_queue(name)? {
        return Ok(Err(refused));
    }
    work.change_queue(name, change);
    let queue = work.queue(name).map(|work| work.queue.clone());
    Ok(Ok(AdminDone::Queue(queue.unwrap_or_else(|| Queue::new(name.clone())))))
}

/// Replays a page of the dead-letter queue.
fn replay_dead<T: Tx>(
    work: &mut Work<'_, T>,
    filter: &DeadFilter,
    after: Option<Cursor>,
    limit: usize,
) -> Result<AdminDone, T::Error> {
    let (ids, next) = dead_page(work, filter, after, limit)?;
    let mut count = 0;
    for id in ids {
        let Ok(job) = work.job(id) else { continue };
        // Replayed earlier in this batch: it is no dead letter any more.
        if job.state.name() != StateName::Failed {
            continue;
        }
        if let Ok(Step::Moved(job)) = transition(job, Event::Replay, work.now) {
            work.put(job);
            count += 1;
        }
    }
    Ok(AdminDone::Replayed { count, next })
}

/// Forgets a page of the dead-letter queue.
fn discard_dead<T: Tx>(
    work: &mut Work<'_, T>,
    filter: &DeadFilter,
    after: Option<Cursor>,
    limit: usize,
) -> Result<AdminDone, T::Error> {
    let (mut ids, next) = dead_page(work, filter, after, limit)?;
    // One that was replayed earlier in this batch is no dead letter any more.
    let is_dead = |id: &JobId| work.job(*id).is_ok_and(|job| job.state.name() == StateName::Failed);
    ids.retain(is_dead);
    sweep::remove(work, &ids)?;
    Ok(AdminDone::Discarded { count: ids.len(), next })
}

/// Up to so many of the dead letters that are wanted, and where to go on. It looks at one page of
/// rows, whatever it finds.
fn dead_page<T: Tx>(
    work: &mut Work<'_, T>,
    filter: &DeadFilter,
    after: Option<Cursor>,
    limit: usize,
) -> Result<(Vec<JobId>, Option<Cursor>), T::Error> {
    let limit = limit.min(PAGE_ROWS);
    let (queue, kind) = (filter.queue.as_ref(), filter.kind.as_ref());
    let (found, mut next) = work.tx.dead(queue, kind, after, PAGE_ROWS)?;
    let mut wanted: Vec<Job> =
        found.into_iter().filter_map(|dead| matching(dead, filter)).collect();
    if wanted.len() > limit {
        wanted.truncate(limit);
        next = wanted.last().map(dead_place).or(after);
    }
    let ids: Vec<JobId> = wanted.iter().map(|job| job.id).collect();
    work.adopt(wanted)?;
    Ok((ids, next))
}

fn matching(dead: DeadJob, filter: &DeadFilter) -> Option<Job> {
    let text = filter.error_contains.as_deref().unwrap_or("");
    let error = dead.error.as_ref().map_or("", |error| error.as_str());
    error.contains(text).then_some(dead.job)
}

fn dead_place(job: &Job) -> Cursor {
    Cursor { at: job.finished_at().unwrap_or(job.updated_at), id: job.id }
}
