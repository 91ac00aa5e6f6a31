//! What operators ask, one command after the other.

use windlass_core::store::{
    Admin, AdminDone, AdminRefused, Cursor, DeadFilter, ExpectedSetting, JobRefused, Worker,
};
use windlass_core::{
    EventName, JobId, Pause, Policy, Queue, QueueName, Rejected, SettingKey, SettingValue,
    StateName, Wall, WorkerId,
};

use super::job::ModelJob;
use super::{Model, ModelWorker};

type Answer = Result<AdminDone, AdminRefused>;

impl Model {
    pub(super) fn admin(&mut self, now: Wall, command: &Admin, policy: &Policy) -> Answer {
        match command {
            Admin::Cancel(id) => self.cancel(now, *id),
            Admin::Replay(id) => self.replay(now, *id),
            Admin::Delete(id) => self.delete(now, *id, policy),
            Admin::ReplayDead { filter, after, limit } => {
                Ok(self.replay_dead(now, filter, *after, *limit))
            }
            Admin::DiscardDead { filter, after, limit } => {
                Ok(self.discard_dead(now, filter, *after, *limit, policy))
            }
            Admin::StartBulk(terms) => self.start_bulk(now, terms),
            Admin::ContinueBulk(id) => self.order_bulk(now, *id, true),
            Admin::StopBulk(id) => self.order_bulk(now, *id, false),
            Admin::Pause { name, by } => {
                self.room_for_queue(name, policy)?;
                self.did(name).paused += u64::from(!self.queue(name).is_paused());
                let by = by.as_ref().map(|by| by.replace('\0', "\u{1a}").into());
                let pause = Pause { at: Some(now), by };
                Ok(self.change_queue(name, |queue| {
                    queue.paused = queue.paused.take().or(Some(pause));
                }))
            }
            Admin::Resume(name) => {
                self.room_for_queue(name, policy)?;
                self.must_stir.insert(name.clone());
                self.did(name).resumed += u64::from(self.queue(name).is_paused());
                Ok(self.change_queue(name, |queue| queue.paused = None))
            }
            Admin::SetQueue { name, settings, expected } => {
                let stored = self.queues.iter().find(|queue| queue.name == *name);
                let stored = stored.map(|queue| queue.settings.clone()).unwrap_or_default();
                if expected.as_ref().is_some_and(|expected| **expected != stored) {
                    self.note("settings changed since they were read");
                    return Err(AdminRefused::SettingsChanged(Box::new(stored)));
                }
                self.room_for_queue(name, policy)?;
                if !self.queue(name).is_paused() {
                    self.must_stir.insert(name.clone());
                }
                let changed = self.queue(name).settings != *settings;
                self.did(name).settings += u64::from(changed);
                let done = self.change_queue(name, |queue| queue.settings = settings.clone());
                self.drop_rates(name);
                Ok(done)
            }
            Admin::DeleteQueue(name) => self.delete_queue(name),
            Admin::SetSetting { key, value, expected } => {
                let present = self.settings.iter().find(|(known, _)| known == key);
                let present = present.map(|(_, value)| value.clone());
                match expected {
                    ExpectedSetting::Exactly(expected) if *expected != present => {
                        self.note("setting changed since it was read");
                        Err(AdminRefused::SettingChanged { key: key.clone(), value: present })
                    }
                    _ => Ok(self.set(key, value.as_ref())),
                }
            }
            Admin::SeeWorker(worker) => {
                self.see(now, worker);
                self.worker_answer(&worker.id)
            }
            Admin::RemoveWorker(id) | Admin::EndWorker(id) => Ok(self.remove_worker(id)),
            Admin::StopWorker(id) => self.stop_worker(id),
            Admin::LookAtWorker(id) => self.worker_answer(id),
        }
    }

    pub(super) fn cancel(&mut self, now: Wall, id: JobId) -> Answer {
        let at = self.at(id)?;
        let was = self.jobs[at].clone();
        match was.state {
            StateName::Queued => self.note("cancel a waiting job"),
            StateName::Processing => self.note("cancel a running job"),
            StateName::Cancelled => {
                self.note("cancel a cancelled job again");
                return Ok(AdminDone::Job(Box::new(was.job())));
            }
            StateName::Done | StateName::Failed => return self.illegal(EventName::Cancel, &was),
        }
        self.did(&was.queue).cancelled += 1;
        self.jobs[at].finish(now, StateName::Cancelled);
        self.stir(&was, at);
        Ok(AdminDone::Job(Box::new(self.jobs[at].job())))
    }

    pub(super) fn replay(&mut self, now: Wall, id: JobId) -> Answer {
        let at = self.at(id)?;
        let was = self.jobs[at].clone();
        match was.state {
            StateName::Failed => self.note("replay a failed job"),
            StateName::Cancelled => self.note("replay a cancelled job"),
            _ => return self.illegal(EventName::Replay, &was),
        }
        self.restart(now, at);
        Ok(AdminDone::Job(Box::new(self.jobs[at].job())))
    }

    fn restart(&mut self, now: Wall, at: usize) {
        let was = self.jobs[at].clone();
        let job = &mut self.jobs[at];
        job.requeue(now, now);
        job.attempts = 0;
        job.generation += 1;
        self.stir(&was, at);
    }

    pub(super) fn delete(&mut self, now: Wall, id: JobId, policy: &Policy) -> Answer {
        let at = self.at(id)?;
        if !self.jobs[at].is_finished() {
            let job = self.jobs[at].clone();
            return self.illegal(EventName::Delete, &job);
        }
        self.note("delete a finished job");
        self.remove_key_of(now, at, policy);
        Ok(AdminDone::Deleted)
    }

    /// Removes a job and what belongs to it. Its key stays for as long as its window runs.
    pub(super) fn remove_key_of(&mut self, now: Wall, at: usize, policy: &Policy) {
        let job = self.jobs.remove(at);
        self.may_stir.insert(job.queue.clone());
        self.attempts.retain(|attempt| attempt.job != job.id);
        let window = policy.idempotency_window;
        for key in self.keys.iter_mut().filter(|key| key.job == job.id) {
            key.orphan_until = Some(key.created_at.plus(window));
        }
        self.keys.retain(|key| key.job != job.id || key.created_at.plus(window) > now);
    }

    /// Replays those that were dead before this batch and still are, newest failure first.
    fn replay_dead(
        &mut self,
        now: Wall,
        filter: &DeadFilter,
        after: Option<Cursor>,
        limit: usize,
    ) -> AdminDone {
        let (page, next) = self.dead_page(filter, after, limit);
        if next.is_some() {
            self.note("a bulk replay stops at its limit");
        }
        let mut count = 0;
        for job in page {
            let Ok(at) = self.at(job.id) else { continue };
            if self.jobs[at].state == StateName::Failed {
                self.note("bulk replay");
                self.restart(now, at);
                count += 1;
            }
        }
        AdminDone::Replayed { count, next }
    }

    /// Removes those that were dead before this batch and still are, newest failure first.
    fn discard_dead(
        &mut self,
        now: Wall,
        filter: &DeadFilter,
        after: Option<Cursor>,
        limit: usize,
        policy: &Policy,
    ) -> AdminDone {
        let (page, next) = self.dead_page(filter, after, limit);
        let mut count = 0;
        for job in page {
            let Ok(at) = self.at(job.id) else { continue };
            if self.jobs[at].state == StateName::Failed {
                self.note("bulk discard");
                self.remove_key_of(now, at, policy);
                count += 1;
            }
        }
        AdminDone::Discarded { count, next }
    }

    fn dead_page(
        &self,
        filter: &DeadFilter,
        after: Option<Cursor>,
        limit: usize,
    ) -> (Vec<ModelJob>, Option<Cursor>) {
        let mut dead: Vec<ModelJob> = self.before.clone();
        dead.retain(|job| job.state == StateName::Failed && wanted(job, filter));
        dead.sort_by_key(|job| std::cmp::Reverse(place(job)));
        dead.retain(|job| after.is_none_or(|after| place(job) < after));
        let page: Vec<ModelJob> = dead.iter().take(limit).cloned().collect();
        let next = if dead.len() > page.len() { page.last().map(place) } else { None };
        (page, next)
    }

    fn change_queue(&mut self, name: &QueueName, change: impl FnOnce(&mut Queue)) -> AdminDone {
        self.may_stir.insert(name.clone());
        let queue = self.queue(name);
        change(queue);
        AdminDone::Queue(queue.clone())
    }

    fn delete_queue(&mut self, name: &QueueName) -> Answer {
        if !self.has_queue(name) {
            return Err(AdminRefused::NoQueue(name.clone()));
        }
        let jobs = self.jobs.iter().filter(|job| job.queue == *name).count() as u64;
        if jobs > 0 {
            self.note("a queue with jobs is not deleted");
            return Err(AdminRefused::QueueHasJobs { jobs });
        }
        self.note("delete an empty queue");
        self.queues.retain(|queue| queue.name != *name);
        self.drop_rates(name);
        self.may_stir.insert(name.clone());
        Ok(AdminDone::QueueDeleted)
    }

    fn set(&mut self, key: &SettingKey, value: Option<&SettingValue>) -> AdminDone {
        self.settings.retain(|(known, _)| known != key);
        self.settings.extend(value.map(|value| (key.clone(), value.clone())));
        AdminDone::Noted
    }

    fn see(&mut self, now: Wall, worker: &Worker) {
        if let Some(known) = self.workers.iter_mut().find(|known| known.worker.id == worker.id) {
            (known.worker, known.last) = (worker.clone(), now);
            return;
        }
        let worker = worker.clone();
        self.workers.push(ModelWorker { worker, first: now, last: now, stopping: false });
    }

    fn remove_worker(&mut self, id: &WorkerId) -> AdminDone {
        self.workers.retain(|known| known.worker.id != *id);
        AdminDone::Noted
    }

    fn stop_worker(&mut self, id: &WorkerId) -> Answer {
        for known in self.workers.iter_mut().filter(|known| known.worker.id == *id) {
            known.stopping = true;
        }
        let answer = self.worker_answer(id);
        self.note(match answer {
            Ok(_) => "a worker is asked to stop",
            Err(_) => "a worker that is not there is not asked to stop",
        });
        answer
    }

    fn worker_answer(&self, id: &WorkerId) -> Answer {
        let known = self.workers.iter().find(|known| known.worker.id == *id);
        let stopping = known.ok_or_else(|| AdminRefused::NoWorker(id.clone()))?.stopping;
        Ok(AdminDone::Worker { id: id.clone(), stopping })
    }

    fn illegal(&mut self, event: EventName, job: &ModelJob) -> Answer {
        self.note(match event {
            EventName::Cancel => "a finished job is not cancelled",
            EventName::Replay => "only a failed or cancelled job is replayed",
            _ => "only a finished job is deleted",
        });
        let rejected = Rejected::Illegal { event, state: job.state };
        Err(AdminRefused::Job(JobRefused::Rejected(rejected)))
    }
}

fn wanted(job: &ModelJob, filter: &DeadFilter) -> bool {
    let error = job.last_error.as_ref().map_or("", |error| error.as_str());
    filter.queue.as_ref().is_none_or(|queue| job.queue == *queue)
        && filter.kind.as_ref().is_none_or(|kind| job.kind == *kind)
        && filter.group.is_none_or(|group| job.group == group)
        && filter.error_contains.as_ref().is_none_or(|text| error.contains(text.as_str()))
}

fn place(job: &ModelJob) -> Cursor {
    Cursor { at: job.finished_at.expect("a dead job is finished"), id: job.id }
}
