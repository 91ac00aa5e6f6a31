//! The end of a batch: what has changed is gathered, and written once.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::mem;

use super::queues::KindWork;
use super::{Entry, KeyEntry, Work};
use crate::store::{Change, Changes, CountDelta, Doc, DocWrite, Marker, Moved, Outcomes, Tx};
use crate::{BatchId, JobId, QueueName, View};

impl<T: Tx> Work<'_, T> {
    /// Writes everything that changed, and says when something is next due.
    pub(in crate::apply) fn write(
        &mut self,
        batch: BatchId,
        out: &mut Outcomes,
    ) -> Result<(), T::Error> {
        let mut changes = mem::take(&mut self.changes);
        self.gather_words(&mut changes);
        self.gather_jobs(&mut changes, &mut out.changes);
        self.gather_keys(&mut changes);
        self.gather_queues(&mut changes, &mut out.stirred);
        out.wrote = !changes.is_empty();
        if out.wrote {
            changes.marker = Some(Marker { batch, at: self.now });
            self.tx.write(changes)?;
        }
        out.next_due = self.tx.next_due()?;
        out.next_expiry = self.tx.next_expiry()?;
        Ok(())
    }

    fn gather_jobs(&mut self, changes: &mut Changes, moved: &mut Vec<Change>) {
        let mut entries = mem::take(&mut self.jobs);
        let new = entries.iter().filter(|entry| entry.payload.is_some()).count();
        let touched = entries.iter().filter(|entry| entry.is_touched()).count();
        changes.inserts.reserve(new);
        changes.updates.reserve(touched - new);
        moved.reserve(touched);
        for at in self.by_id.values() {
            let entry = &mut entries[*at];
            moved.extend(entry.change());
            match (entry.from, entry.job.take(), entry.removed.take()) {
                (Some(from), Some(job), _) => changes.updates.push(Moved { from, job }),
                (Some(from), None, Some(job)) => changes.removes.push(Moved { from, job: *job }),
                (None, Some(job), _) if entry.payload.is_some() => changes.inserts.push(job),
                _ => {}
            }
        }
        if !changes.removes.is_empty() {
            forget_words_on_removed(changes);
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

    fn gather_words(&mut self, changes: &mut Changes) {
        for (job, text) in mem::take(&mut self.progress) {
            changes.docs.push(DocWrite { job, doc: Doc::Progress, text });
        }
        changes.settings.extend(mem::take(&mut self.settings));
        self.gather_workers(changes);
    }

    fn gather_queues(&mut self, changes: &mut Changes, stirred: &mut Vec<QueueName>) {
        for work in mem::take(&mut self.queues) {
            if work.stirred {
                stirred.push(work.queue.name.clone());
            }
            for KindWork { kind, by, .. } in work.kinds {
                if by != [0; View::ALL.len()] {
                    let queue = work.queue.name.clone();
                    changes.counts.push(CountDelta { queue, kind, by });
                }
            }
            if work.dirty {
                changes.queues.push(work.queue);
            }
        }
    }
}

impl Entry {
    /// What became of it, for those who watch.
    fn change(&self) -> Option<Change> {
        let from = self.from.map(|from| (from.view.state(), from.epoch));
        let to = self.job.as_ref().map(|job| (job.state.name(), job.epoch));
        if !self.is_touched() || from == to {
            return None;
        }
        let job = self.job.as_ref().or(self.removed.as_deref())?;
        // Of a removed job it is told where it stood, whatever happened to it on the way.
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
        })
    }
}

/// A job may be reported on and removed in one batch: then nothing of the report is kept.
fn forget_words_on_removed(changes: &mut Changes) {
    let removed: BTreeSet<JobId> = changes.removes.iter().map(|moved| moved.job.id).collect();
    changes.docs.retain(|write| !removed.contains(&write.job));
    changes.errors.retain(|(job, _)| !removed.contains(job));
    changes.attempts.retain(|attempt| !removed.contains(&attempt.job));
}
