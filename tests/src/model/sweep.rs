//! What time does: leases run out, scheduled jobs fall due, finished ones grow old.
//!
//! Each page is made of what was there before the batch, in order, up to its limit; what the batch
//! itself has changed since is looked at again, one by one.

use windlass_core::store::{
    Batch, ClockView, Cursor, Promoted, Purge, Purged, QueueSweep, QueuesSwept, Reap, Reaped,
    Retention,
};
use windlass_core::{IdempotencyKey, JobId, Millis, Policy, Queue, QueueName, StateName, Wall};

use super::job::ModelJob;
use super::{Chosen, Model};

/// A clock that is off by more was stepped.
pub(super) const STEP_MS: u64 = 1_000;
/// Processes and workers that are silent for longer are removed.
const SILENT_MS: u64 = 24 * 60 * 60 * 1_000;

impl Model {
    pub(super) fn reap(
        &mut self,
        now: Wall,
        reap: &Reap,
        batch: &Batch,
        chosen: Chosen<'_>,
    ) -> Reaped {
        let ClockView { expected, trusted_since } = batch.clock;
        let off = expected.map_or(0, |expected| expected.get().abs_diff(now.get()));
        if off > STEP_MS {
            self.note("a stepped clock reaps nothing");
            return Reaped::ClockStepped;
        }
        let mut leases: Vec<Cursor> = Vec::new();
        for job in &self.before {
            leases.extend(job.lease_until.map(|until| Cursor { at: until, id: job.id }));
        }
        leases.retain(|lease| reap.all || lease.at <= now);
        leases.retain(|lease| reap.after.is_none_or(|after| *lease > after));
        leases.sort();
        leases.truncate(reap.limit);
        let next = if leases.len() == reap.limit { leases.last().copied() } else { None };
        if next.is_some() {
            self.note("a full reap page says where to go on");
        }
        let (mut requeued, mut failed) = (0, 0);
        for lease in leases {
            let Ok(at) = self.at(lease.id) else { continue };
            let holder = self.jobs[at].worker.as_ref().filter(|_| self.jobs[at].is_leased());
            let dead = holder.is_some_and(|holder| batch.dead.contains(holder));
            let alive = |model: &mut Self| {
                model.is_of_the_future(now, at) || !model.has_run_out(now, at, trusted_since)
            };
            if dead {
                self.note("a lease of a dead worker is taken back at once");
            } else if alive(self) {
                continue;
            }
            let end = self.jobs[at].times_out_at(now, trusted_since);
            self.expire(now, at, end.is_some_and(|end| end <= now), chosen);
            match self.jobs[at].state {
                StateName::Failed => failed += 1,
                _ => requeued += 1,
            }
        }
        Reaped::Page { requeued, failed, next }
    }

    /// A lease written by a clock that was set back since counts its full length from now on.
    fn is_of_the_future(&mut self, now: Wall, at: usize) -> bool {
        let job = &mut self.jobs[at];
        let Some(length) = job.lease_length.filter(|_| job.lease_until.is_some()) else {
            return false;
        };
        if job.updated_at.get() - now.get() <= STEP_MS.cast_signed() {
            return false;
        }
        job.lease_until = Some(now.plus(length.millis()));
        job.updated_at = now;
        self.note("a lease written by a clock that was set back counts from now on");
        true
    }

    /// A lease given before the clock was stepped counts its full length from the step on.
    fn has_run_out(&mut self, now: Wall, at: usize, trusted_since: Option<Wall>) -> bool {
        let job = &self.jobs[at];
        let (Some(until), Some(length)) = (job.lease_until, job.lease_length) else {
            self.note("a job that was settled in the batch is not reaped");
            return false;
        };
        if until > now {
            self.note("a job whose lease runs is not reaped");
            return false;
        }
        if trusted_since.is_some_and(|since| since.plus(length.millis()) > now) {
            self.note("a lease is held for its length after a clock step");
            return false;
        }
        true
    }

    pub(super) fn promote(&mut self, now: Wall, limit: usize) -> Promoted {
        let due = self.before.iter().filter(|job| job.is_scheduled() && job.run_at <= now);
        let mut due: Vec<(Wall, JobId)> = due.map(|job| (job.run_at, job.id)).collect();
        due.sort();
        due.truncate(limit);
        let more = due.len() == limit;
        let mut count = 0;
        for (_, id) in due {
            let Ok(at) = self.at(id) else { continue };
            if !self.jobs[at].is_scheduled() || self.jobs[at].run_at > now {
                continue;
            }
            let was = self.jobs[at].clone();
            self.note("fall due");
            self.jobs[at].due = true;
            self.jobs[at].updated_at = now;
            self.stir(&was, at);
            count += 1;
        }
        if more {
            self.note("a full page of due jobs says there may be more");
        }
        Promoted { count, more }
    }

    pub(super) fn purge(&mut self, now: Wall, purge: &Purge, policy: &Policy) -> Purged {
        let (mut count, mut more) = (0, false);
        for (state, age) in ages(&purge.retention) {
            let room = purge.limit - count;
            let before = Wall::new(now.get().saturating_sub_unsigned(age.get()));
            let old = self.before.iter().filter(|job| job.state == state);
            let mut old: Vec<(Wall, JobId)> =
                old.filter_map(|job| Some((job.finished_at?, job.id))).collect();
            old.retain(|(finished_at, _)| *finished_at <= before);
            old.sort();
            old.truncate(room);
            more |= old.len() == room;
            for (_, id) in old {
                let Ok(at) = self.at(id) else { continue };
                let job = &self.jobs[at];
                if job.state != state || job.finished_at.is_none_or(|at| at > before) {
                    self.note("a job that came alive in the batch is not purged");
                    continue;
                }
                self.note("purge");
                self.remove_key_of(now, at, policy);
                count += 1;
            }
        }
        more |= self.remove_orphans(now, purge.limit);
        let silent = Wall::new(now.get().saturating_sub_unsigned(SILENT_MS));
        self.markers.retain(|marker| marker.at >= silent);
        self.workers.retain(|known| known.last >= silent);
        Purged { count, more, next: None }
    }

    /// Deletes queues of a page that had no jobs before the batch, have none now, are not paused
    /// and have no settings.
    pub(super) fn sweep_queues(&mut self, sweep: &QueueSweep) -> QueuesSwept {
        let mut page: Vec<QueueName> = self.queues_before.clone();
        page.sort();
        page.retain(|name| sweep.after.as_ref().is_none_or(|after| name > after));
        page.truncate(sweep.limit);
        let next = page.last().filter(|_| page.len() == sweep.limit).cloned();
        let mut deleted = Vec::new();
        for name in page {
            let has_jobs = |jobs: &[ModelJob]| jobs.iter().any(|job| job.queue == name);
            let plain = |queue: &&Queue| **queue == Queue::new(name.clone());
            if has_jobs(&self.before) || has_jobs(&self.jobs) {
                continue;
            }
            if self.queues.iter().find(|queue| queue.name == name).is_some_and(|q| plain(&q)) {
                self.note("a queue that holds nothing vanishes");
                self.queues.retain(|queue| queue.name != name);
                self.drop_rates(&name);
                deleted.push(name);
            } else {
                self.note("an empty queue with settings stays");
            }
        }
        QueuesSwept { deleted, next }
    }

    /// Removes keys whose job was gone before the batch and whose window is over. Answers whether
    /// there may be more.
    fn remove_orphans(&mut self, now: Wall, limit: usize) -> bool {
        let mut over: Vec<(Wall, IdempotencyKey)> = Vec::new();
        for key in &self.keys_before {
            over.extend(key.orphan_until.filter(|end| *end <= now).map(|at| (at, key.key.clone())));
        }
        over.sort();
        over.truncate(limit);
        let full = over.len() == limit;
        for (_, key) in over {
            let known = self.keys.len();
            self.keys.retain(|one| one.key != key || one.orphan_until.is_none());
            if self.keys.len() < known {
                self.note("remove the key of a job purged long ago");
            }
        }
        full
    }

    /// When the next of the jobs that were finished before this batch is past its age.
    pub(super) fn next_purge(&self, retention: &Retention) -> Option<Wall> {
        let due = ages(retention).into_iter().flat_map(|(state, age)| {
            let finished = self.jobs.iter().filter(move |job| job.state == state);
            let same = |job: &&ModelJob| {
                let before = self.before.iter().find(|before| before.id == job.id);
                before.is_some_and(|before| {
                    let ended = |job: &ModelJob| (job.finished_at, job.generation);
                    ended(before) == ended(job)
                })
            };
            finished.filter(same).filter_map(move |job| Some(job.finished_at?.plus(age)))
        });
        due.min()
    }
}

fn ages(retention: &Retention) -> Vec<(StateName, Millis)> {
    let all = [
        (StateName::Done, retention.done),
        (StateName::Failed, retention.failed),
        (StateName::Cancelled, retention.cancelled),
    ];
    all.into_iter().filter_map(|(state, age)| Some((state, age?))).collect()
}
