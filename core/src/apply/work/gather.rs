//! The end of a batch: what has changed, each row once.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use core::mem;

use super::queues::PairDelta;
use super::{Entry, KeyEntry, Work};
use crate::store::{Change, Changes, CountDelta, Doc, DocWrite, Marker, Moved, Outcomes};
use crate::{BatchId, Figures, Job, JobId, State, Tats, View};

impl Work {
    /// Everything that is to be written. Nothing may be decided after this.
    pub(in crate::apply) fn gather(&mut self, batch: BatchId, out: &mut Outcomes) -> Changes {
        let mut changes = mem::take(&mut self.changes);
        self.gather_notes(&mut changes);
        self.gather_jobs(&mut changes, out);
        self.gather_keys(&mut changes);
        self.gather_queues(&mut changes, out);
        self.gather_duplicates(out);
        out.wrote = !changes.is_empty();
        if out.wrote {
            changes.marker = Some(Marker { batch, at: self.now });
        }
        changes
    }

    fn gather_jobs(&mut self, changes: &mut Changes, out: &mut Outcomes) {
        let mut entries = mem::take(&mut self.jobs);
        let new = entries.iter().filter(|entry| entry.new).count();
        let touched = entries.iter().filter(|entry| entry.is_touched()).count();
        changes.inserts.reserve(new);
        changes.updates.reserve(touched - new);
        out.changes.reserve(touched);
        for at in self.by_id.positions() {
            let entry = &mut entries[at];
            if !entry.is_touched() {
                continue;
            }
            out.changes.extend(entry.change());
            match (entry.from, entry.job.take(), entry.removed.take()) {
                (Some(from), Some(job), _) => {
                    note_horizon(&job, out);
                    changes.updates.push(Moved { from, job });
                }
                (Some(from), None, Some(job)) => changes.removes.push(Moved { from, job: *job }),
                (None, Some(job), _) => {
                    note_horizon(&job, out);
                    changes.inserts.push(job);
                }
                _ => {}
            }
        }
        if !changes.removes.is_empty() {
            drop_notes_on_removed(changes);
        }
    }

    fn gather_keys(&mut self, changes: &mut Changes) {
        for (key, entry) in mem::take(&mut self.keys) {
            match entry {
                KeyEntry { dirty: false, .. } => {}
                KeyEntry { record: Some(record), .. } => changes.keys.push(record),
                KeyEntry { record: None, .. } => changes.dropped_keys.push(key),
            }
        }
    }

    fn gather_notes(&mut self, changes: &mut Changes) {
        for (job, text) in mem::take(&mut self.progress) {
            changes.docs.push(DocWrite { job, doc: Doc::Progress, text });
        }
        let settings = mem::take(&mut self.settings).into_iter().filter(|(_, work)| work.dirty);
        changes.settings.extend(settings.map(|(key, work)| (key, work.value)));
        self.gather_workers(changes);
    }

    fn gather_queues(&mut self, changes: &mut Changes, out: &mut Outcomes) {
        changes.counts.reserve(self.pairs.len());
        for PairDelta { queue, kind, by, retrying } in mem::take(&mut self.pairs) {
            if by != [0; View::ALL.len()] || retrying != 0 {
                let queue = self.queues[queue].queue.name.clone();
                changes.counts.push(CountDelta { queue, kind, by, retrying });
            }
        }
        for mut work in mem::take(&mut self.queues) {
            if work.made_ready {
                out.ready_queues.push(work.queue.name.clone());
            }
            let figures = work.figures.take().filter(|figures| !figures.is_empty());
            out.figures.extend(figures.map(|figures| (work.queue.name.clone(), figures)));
            let tats = work.changed_tats().map(Tats::to_text).filter(|_| !work.removed);
            changes.tats.extend(tats.map(|text| (work.queue.name.clone(), text)));
            if work.removed {
                changes.dropped_queues.push(work.queue.name);
            } else if work.dirty {
                changes.queues.push(work.queue);
            }
        }
    }

    fn gather_duplicates(&mut self, out: &mut Outcomes) {
        for (queue, deduplicated) in mem::take(&mut self.duplicates) {
            let figures = Figures { deduplicated, ..Figures::default() };
            out.figures.push((queue, Box::new(figures)));
        }
    }
}

impl Entry {
    /// How its state changed, for those who watch.
    fn change(&self) -> Option<Change> {
        let from = self.from.map(|from| (from.view.state(), from.epoch));
        let to = self.job.as_ref().map(|job| (job.state.name(), job.epoch));
        if from == to {
            return None;
        }
        let job = self.job.as_ref().or(self.removed.as_deref())?;
        // A removed job is shown as the store had it, whatever this batch did to it before.
        let run_at =
            self.from.filter(|_| self.job.is_none()).map_or(job.run_at, |from| from.run_at);
        Some(Change {
            id: self.id,
            queue: job.queue.clone(),
            kind: job.kind.clone(),
            from: from.map(|(state, _)| state),
            to: to.map(|(state, _)| state),
            run_at,
            started_at: job.started_at,
            given_back: self.is_given_back(),
        })
    }

    /// Whether an attempt of it was given back: each claim charges one, and it has fewer.
    fn is_given_back(&self) -> bool {
        let (Some(from), Some(job)) = (self.from, &self.job) else { return false };
        let claims = job.epoch.get().saturating_sub(from.epoch.get());
        from.view == View::Processing
            && u64::from(job.attempts) < u64::from(self.attempts).saturating_add(claims)
    }
}

/// Notes when the machine has to look at this job again.
fn note_horizon(job: &Job, out: &mut Outcomes) {
    match &job.state {
        State::Queued { ready: false, .. } => out.next_due.bring_forward(job.run_at),
        State::Processing(lease) => out.next_expiry.bring_forward(lease.until),
        _ => {}
    }
}

/// A job may be reported on and removed in one batch: then nothing of the report is kept.
fn drop_notes_on_removed(changes: &mut Changes) {
    let removed: BTreeSet<JobId> = changes.removes.iter().map(|moved| moved.job.id).collect();
    changes.docs.retain(|write| !removed.contains(&write.job));
    changes.errors.retain(|(job, _)| !removed.contains(job));
    changes.attempts.retain(|attempt| !removed.contains(&attempt.job));
    changes.dropped_attempts.retain(|(job, _)| !removed.contains(job));
}
