//! The queues of the working set, with their counters as they are now.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::Work;
use crate::store::{AdminRefused, Tx};
use crate::{Counts, Gate, Kind, Queue, QueueName, QueueRow, View, limits};

/// Where the counters of a job's queue and kind stand.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) queue: usize,
    kind: usize,
}

/// A queue of the working set, with its counters as they are now.
pub(in crate::apply) struct QueueWork {
    pub(in crate::apply) queue: Queue,
    pub(in crate::apply) kinds: Vec<KindWork>,
    by_kind: BTreeMap<Kind, usize>,
    pub(in crate::apply) total: Counts,
    pub(super) dirty: bool,
    pub(super) stirred: bool,
}

/// A kind of a queue.
pub(in crate::apply) struct KindWork {
    pub(in crate::apply) kind: Kind,
    pub(in crate::apply) counts: Counts,
    /// What to add to the stored counters.
    pub(super) by: [i64; View::ALL.len()],
}

impl<T: Tx> Work<'_, T> {
    /// A queue, if it exists.
    pub(in crate::apply) fn queue(&self, name: &QueueName) -> Option<&QueueWork> {
        self.by_name.get(name).map(|at| &self.queues[*at])
    }

    /// Every queue that was loaded.
    pub(in crate::apply) fn queues(&self) -> &[QueueWork] {
        &self.queues
    }

    /// A queue by its place in [`Self::queues`].
    pub(in crate::apply) fn queue_at(&self, at: usize) -> &QueueWork {
        &self.queues[at]
    }

    /// The place of a queue in [`Self::queues`], if it exists.
    pub(in crate::apply) fn queue_place(&self, name: &QueueName) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// Makes a queue if it does not exist, unless there are too many.
    pub(in crate::apply) fn ensure_queue(
        &mut self,
        name: &QueueName,
    ) -> Result<Result<(), AdminRefused>, T::Error> {
        if self.by_name.contains_key(name) {
            return Ok(Ok(()));
        }
        if self.tx.queue_count()? + self.made_queues >= limits::QUEUES {
            return Ok(Err(AdminRefused::TooManyQueues));
        }
        self.made_queues += 1;
        let mut queue = QueueWork::loaded(QueueRow::empty(Queue::new(name.clone())));
        queue.dirty = true;
        self.add_queue(queue);
        Ok(Ok(()))
    }

    /// Changes a queue that exists. Unless it is paused, its jobs may have become claimable.
    pub(in crate::apply) fn change_queue(
        &mut self,
        name: &QueueName,
        change: impl FnOnce(&mut Queue),
    ) {
        if let Some(at) = self.by_name.get(name) {
            let work = &mut self.queues[*at];
            change(&mut work.queue);
            work.dirty = true;
            work.stirred |= !work.queue.paused;
        }
    }

    pub(super) fn add_queue(&mut self, queue: QueueWork) {
        self.by_name.insert(queue.queue.name.clone(), self.queues.len());
        self.queues.push(queue);
    }

    pub(super) fn place(&mut self, queue: &QueueName, kind: &Kind) -> Place {
        if let Some(last) = self.jobs.last().and_then(|entry| entry.job.as_ref())
            && last.queue.same(queue)
            && last.kind.same(kind)
        {
            return self.jobs[self.jobs.len() - 1].place;
        }
        let at = self.by_name.get(queue).copied().unwrap_or_else(|| {
            // A row whose queue has no row of its own: the queue is written with it.
            let row = QueueRow::empty(Queue::new(queue.clone()));
            self.add_queue(QueueWork { dirty: true, ..QueueWork::loaded(row) });
            self.queues.len() - 1
        });
        Place { queue: at, kind: self.queues[at].kind_place(kind) }
    }

    pub(super) fn count(&mut self, place: Place, from: Option<View>, to: Option<View>) {
        let queue = &mut self.queues[place.queue];
        let kind = &mut queue.kinds[place.kind];
        if let Some(view) = from {
            kind.by[view.index()] -= 1;
            kind.counts.take(view);
            queue.total.take(view);
        }
        if let Some(view) = to {
            kind.by[view.index()] += 1;
            kind.counts.add(view);
            queue.total.add(view);
        }
    }
}

impl QueueWork {
    pub(super) fn loaded(row: QueueRow) -> Self {
        let mut work = Self {
            total: row.total(),
            queue: row.queue,
            kinds: Vec::with_capacity(row.kinds.len()),
            by_kind: BTreeMap::new(),
            dirty: false,
            stirred: false,
        };
        for (kind, counts) in row.kinds.into_iter().filter(|(_, counts)| !counts.is_empty()) {
            let at = work.kind_place(&kind);
            work.kinds[at].counts = counts;
        }
        work
    }

    /// Whether jobs of it may start.
    pub(in crate::apply) fn gate(&self) -> Gate {
        self.queue.gate(self.total.get(View::Processing))
    }

    /// Whether a job of this kind would be one kind too many.
    pub(in crate::apply) fn has_room_for(&self, kind: &Kind) -> bool {
        self.kinds.len() < limits::KINDS_PER_QUEUE || self.by_kind.contains_key(kind)
    }

    fn kind_place(&mut self, kind: &Kind) -> usize {
        if let Some(at) = self.by_kind.get(kind) {
            return *at;
        }
        self.by_kind.insert(kind.clone(), self.kinds.len());
        let counts = Counts::default();
        self.kinds.push(KindWork { kind: kind.clone(), counts, by: [0; View::ALL.len()] });
        self.kinds.len() - 1
    }

    /// Notes whether a job's move may let something else be claimed: it became ready itself, or
    /// it made room under a concurrency limit.
    pub(super) fn note_move(&mut self, from: Option<View>, to: View) {
        let ready = to == View::Queued && from != Some(View::Queued);
        let room = from == Some(View::Processing) && to != View::Processing;
        self.stirred |= ready || room && self.queue.settings.concurrency.is_some();
    }
}
