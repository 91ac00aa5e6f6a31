//! What operators ask: of jobs, of the dead-letter queue, of queues, settings and workers.

use alloc::boxed::Box;

use super::bulk::BulkWork;
use super::sweep::{self, Dead};
use super::work::Work;
use crate::store::{Admin, AdminDone, AdminRefused, ExpectedSetting, JobRefused};
use crate::text::without_nul;
use crate::{
    Event, EventName, JobId, Pause, Queue, QueueName, QueueSettings, Rejected, StateName, Step,
    WorkerId, transition,
};

type Answer = Result<AdminDone, AdminRefused>;

/// Runs one command. `dead` holds the pages of dead letters that the commands ask for.
pub(super) fn admin(
    work: &mut Work,
    bulk: &mut BulkWork,
    command: &Admin,
    dead: &mut impl Iterator<Item = Dead>,
) -> Answer {
    match command {
        Admin::Cancel(id) => change(work, *id, Event::Cancel),
        Admin::Replay(id) => change(work, *id, Event::Replay),
        Admin::Delete(id) => delete(work, *id),
        Admin::ReplayDead { .. } => Ok(replay_dead(work, dead.next().unwrap_or_default())),
        Admin::DiscardDead { .. } => Ok(discard_dead(work, dead.next().unwrap_or_default())),
        Admin::StartBulk(terms) => bulk.start(terms, work.now),
        Admin::ContinueBulk(id) => bulk.order(*id, |bulk| bulk.resume(work.now)),
        Admin::StopBulk(id) => bulk.order(*id, |bulk| bulk.stop(work.now)),
        Admin::Pause { name, by } => {
            let pause = Pause { at: Some(work.now), by: by.as_deref().map(without_nul) };
            set_queue(work, name, |queue| queue.paused = queue.paused.take().or(Some(pause)))
        }
        Admin::Resume(name) => set_queue(work, name, |queue| queue.paused = None),
        Admin::SetQueue { name, settings, expected } => {
            unchanged(work, name, expected.as_deref())?;
            let flow = settings.flow.kept()?;
            let settings = QueueSettings { flow, ..settings.clone() };
            set_queue(work, name, |queue| queue.settings = settings)
        }
        Admin::DeleteQueue(name) => delete_queue(work, name),
        Admin::SetSetting { key, value, expected } => {
            let present = work.setting(key);
            match expected {
                ExpectedSetting::Exactly(expected) if expected.as_ref() != present => {
                    let (key, value) = (key.clone(), present.cloned());
                    return Err(AdminRefused::SettingChanged { key, value });
                }
                _ => work.put_setting(key.clone(), value.clone()),
            }
            Ok(AdminDone::Noted)
        }
        Admin::SeeWorker(worker) => {
            work.see_worker(worker.kept());
            stop_mark(work, &worker.id)
        }
        Admin::RemoveWorker(id) | Admin::EndWorker(id) => {
            work.remove_worker(id);
            Ok(AdminDone::Noted)
        }
        Admin::StopWorker(id) => {
            work.stop_worker(id);
            stop_mark(work, id)
        }
        Admin::LookAtWorker(id) => stop_mark(work, id),
    }
}

fn stop_mark(work: &Work, id: &WorkerId) -> Answer {
    let stopping = work.stop_mark(id).ok_or_else(|| AdminRefused::NoWorker(id.clone()))?;
    Ok(AdminDone::Worker { id: id.clone(), stopping })
}

fn change(work: &mut Work, id: JobId, event: Event<'_>) -> Answer {
    let slot = work.find(id)?;
    let job = work.job(id)?;
    let step = transition(job, event, work.now).map_err(JobRefused::from)?;
    Ok(AdminDone::Job(Box::new(match step {
        Step::Moved(job) => work.put_at(slot, job).clone(),
        Step::Repeated(_) => job.clone(),
    })))
}

fn delete(work: &mut Work, id: JobId) -> Answer {
    let slot = work.find(id)?;
    let state = work.job(id)?.state.name();
    if !state.is_finished() {
        let rejected = Rejected::Illegal { event: EventName::Delete, state };
        return Err(JobRefused::from(rejected).into());
    }
    sweep::remove(work, slot);
    Ok(AdminDone::Deleted)
}

fn set_queue(work: &mut Work, name: &QueueName, change: impl FnOnce(&mut Queue)) -> Answer {
    work.ensure_queue(name)?;
    work.change_queue(name, change);
    let queue = work.queue(name).map(|work| work.queue.clone());
    Ok(AdminDone::Queue(queue.unwrap_or_else(|| Queue::new(name.clone()))))
}

/// Refuses if the settings of a queue are others than expected.
fn unchanged(
    work: &Work,
    name: &QueueName,
    expected: Option<&QueueSettings>,
) -> Result<(), AdminRefused> {
    let settings = work.queue(name).map(|work| work.queue.settings.clone()).unwrap_or_default();
    match expected {
        Some(expected) if *expected != settings => {
            Err(AdminRefused::SettingsChanged(Box::new(settings)))
        }
        _ => Ok(()),
    }
}

fn delete_queue(work: &mut Work, name: &QueueName) -> Answer {
    let queue = work.queue(name).ok_or_else(|| AdminRefused::NoQueue(name.clone()))?;
    if !queue.counts.is_empty() {
        return Err(AdminRefused::QueueHasJobs { jobs: queue.counts.all() });
    }
    work.remove_queue(name);
    Ok(AdminDone::QueueDeleted)
}

/// Replays a page of the dead-letter queue.
fn replay_dead(work: &mut Work, page: Dead) -> AdminDone {
    let mut count = 0;
    for slot in page.slots {
        // One that was replayed earlier in this batch is no dead letter any more.
        let dead = work.job_at(slot).filter(|job| job.state.name() == StateName::Failed);
        let step = dead.map(|job| transition(job, Event::Replay, work.now));
        if let Some(Ok(Step::Moved(job))) = step {
            work.put_at(slot, job);
            count += 1;
        }
    }
    AdminDone::Replayed { count, next: page.next }
}

/// Deletes a page of the dead-letter queue.
fn discard_dead(work: &mut Work, page: Dead) -> AdminDone {
    let mut count = 0;
    for slot in page.slots {
        if work.job_at(slot).is_some_and(|job| job.state.name() == StateName::Failed) {
            sweep::remove(work, slot);
            count += 1;
        }
    }
    AdminDone::Discarded { count, next: page.next }
}
