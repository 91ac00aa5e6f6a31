//! The workers of the working set: what a batch says of each, and whether it was asked to stop.

use core::mem;

use super::Work;
use crate::WorkerId;
use crate::store::{Changes, Worker};

/// What a batch says of a worker. What is said last counts.
#[derive(Debug, Default)]
pub(super) struct WorkerWork {
    /// The row that is stored goes.
    removed: bool,
    seen: Option<Worker>,
    /// Whether a heartbeat of it was written.
    touched: bool,
    /// Whether it is asked to stop, if there is such a worker.
    mark: Option<bool>,
    marked: bool,
}

impl Work {
    /// Notes whether a worker was asked to stop; `None` if there is no such worker.
    pub(super) fn load_worker(&mut self, id: &WorkerId, mark: Option<bool>) {
        self.worker(id).mark = mark;
    }

    /// Whether a worker that was loaded is asked to stop; `None` if there is no such worker.
    pub(in crate::apply) fn stop_mark(&self, id: &WorkerId) -> Option<bool> {
        self.workers.get(id)?.mark
    }

    /// Updates `last_seen` of a worker. One whose row is gone is added again.
    pub(in crate::apply) fn see_worker(&mut self, worker: Worker) {
        let work = self.worker(&worker.id);
        work.mark = Some(work.mark.unwrap_or(false));
        work.seen = Some(worker);
    }

    /// Notes a heartbeat of a worker.
    pub(in crate::apply) fn touch_worker(&mut self, id: &WorkerId) {
        self.worker(id).touched = true;
    }

    /// Notes that a worker is gone, and with it what was asked of it.
    pub(in crate::apply) fn remove_worker(&mut self, id: &WorkerId) {
        *self.worker(id) = WorkerWork { removed: true, ..WorkerWork::default() };
    }

    /// Asks a worker to stop, if there is such a worker.
    pub(in crate::apply) fn stop_worker(&mut self, id: &WorkerId) {
        let work = self.worker(id);
        if work.mark == Some(false) {
            (work.mark, work.marked) = (Some(true), true);
        }
    }

    fn worker(&mut self, id: &WorkerId) -> &mut WorkerWork {
        if !self.workers.contains_key(id) {
            self.workers.insert(id.clone(), WorkerWork::default());
        }
        self.workers.get_mut(id).expect("it was put there above")
    }

    pub(super) fn gather_workers(&mut self, changes: &mut Changes) {
        for (id, work) in mem::take(&mut self.workers) {
            if work.marked {
                changes.stopped_workers.push(id.clone());
            }
            if work.touched && work.seen.is_none() {
                changes.touched_workers.push(id.clone());
            }
            changes.workers.extend(work.seen);
            if work.removed {
                changes.removed_workers.push(id);
            }
        }
    }
}
