//! The queues of the working set: their settings, their limits, and how their counters change.

use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;

use super::Work;
use super::by_name::ByName;
use crate::limits::KINDS_PER_QUEUE;
use crate::store::{BadAnswer, QueueFound, TooManyQueues, sorted};
use crate::{Counted, Counts, Demand, Figures, Gate, Job, Kind, Queue, QueueName, View};

/// The queue and kind of a job, as positions in the working set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::apply) struct Place {
    pub(super) queue: usize,
    /// The position among all queues' kinds.
    pair: usize,
}

/// A queue of the working set.
#[derive(Debug)]
pub(in crate::apply) struct QueueWork {
    pub(in crate::apply) queue: Queue,
    /// Its jobs as they are counted now; zeros if nothing depends on them.
    pub(in crate::apply) counts: Counts,
    /// Its gate before the batch.
    gate_before: Gate,
    /// The number of kinds that this batch has added to it.
    made_kinds: usize,
    /// The position of its first kind. Many queues have jobs of one kind alone.
    first_pair: Option<usize>,
    /// The positions of its kinds, if there are several.
    by_kind: ByName<Kind>,
    pub(super) dirty: bool,
    /// Whether this batch has removed it.
    pub(super) removed: bool,
    /// Figures of it and its jobs; `None` if nothing happened.
    pub(super) figures: Option<Box<Figures>>,
    /// Whether jobs of it may have become claimable.
    pub(super) made_ready: bool,
}

/// How the counters of a kind of a queue change.
#[derive(Debug)]
pub(super) struct PairDelta {
    /// The position of the queue.
    pub(super) queue: usize,
    pub(super) kind: Kind,
    pub(super) by: [i64; View::ALL.len()],
    pub(super) retrying: i64,
}

impl Work {
    /// A queue, if it exists.
    pub(in crate::apply) fn queue(&self, name: &QueueName) -> Option<&QueueWork> {
        self.by_name.get(name).map(|at| &self.queues[at]).filter(|work| !work.removed)
    }

    /// The name and kind at a place.
    pub(in crate::apply) fn names(&self, place: Place) -> (&QueueName, &Kind) {
        (&self.queues[place.queue].queue.name, &self.pairs[place.pair].kind)
    }

    /// Whether jobs of the queue at a place may start.
    pub(in crate::apply) fn gate(&self, place: Place) -> Gate {
        self.queues[place.queue].gate()
    }

    /// Makes a queue if it does not exist, unless there are too many.
    pub(in crate::apply) fn ensure_queue(&mut self, name: &QueueName) -> Result<(), TooManyQueues> {
        let known = self.by_name.get(name);
        if known.is_some_and(|at| !self.queues[at].removed) {
            return Ok(());
        }
        let limit = self.max_queues;
        if self.queue_count >= limit && !name.is_default() {
            return Err(TooManyQueues { limit });
        }
        self.queue_count = self.queue_count.saturating_add(1);
        if let Some(at) = known {
            let work = &mut self.queues[at];
            (work.removed, work.dirty, work.queue) = (false, true, Queue::new(name.clone()));
            return Ok(());
        }
        let queue = QueueFound { queue: Queue::new(name.clone()), counts: None };
        self.add_queue(QueueWork { dirty: true, ..QueueWork::loaded(queue) });
        Ok(())
    }

    /// Takes in a queue that had no jobs before the batch.
    pub(in crate::apply) fn load_empty_queue(&mut self, queue: Queue) {
        if self.by_name.get(&queue.name).is_none() {
            let counts = Some(Counts::default());
            self.add_queue(QueueWork::loaded(QueueFound { queue, counts }));
        }
    }

    /// Removes a queue, which exists and has no jobs.
    pub(in crate::apply) fn remove_queue(&mut self, name: &QueueName) {
        if let Some(at) = self.by_name.get(name) {
            self.queues[at].removed = true;
            self.queue_count = self.queue_count.saturating_sub(1);
        }
    }

    /// Notes that a queue gets a job of this kind; says whether it has room for the kind.
    pub(in crate::apply) fn ensure_kind(&mut self, name: &QueueName, kind: &Kind) -> bool {
        if self.new_kinds.is_empty() {
            return true;
        }
        let key = (name.clone(), kind.clone());
        let Some(others) = self.new_kinds.get(&key) else { return true };
        let Some(at) = self.by_name.get(name) else { return true };
        let queue = &mut self.queues[at];
        let room = others.saturating_add(queue.made_kinds) < KINDS_PER_QUEUE;
        if room {
            queue.made_kinds += 1;
            self.new_kinds.remove(&key);
        }
        room
    }

    /// Changes a queue that exists. Unless it is paused, its jobs may have become claimable.
    pub(in crate::apply) fn change_queue(
        &mut self,
        name: &QueueName,
        change: impl FnOnce(&mut Queue),
    ) {
        if let Some(at) = self.by_name.get(name) {
            let work = &mut self.queues[at];
            let before = work.queue.clone();
            change(&mut work.queue);
            work.figures.get_or_insert_default().note_queue(&before, &work.queue);
            work.dirty = true;
            work.made_ready |= !work.queue.is_paused();
        }
    }

    /// The queues of a demand that were closed before the batch and are open now, by name.
    pub(in crate::apply) fn reopened(&self, demand: &Demand) -> Vec<QueueName> {
        let opened =
            |work: &&QueueWork| work.gate_before != Gate::Open && work.gate() == Gate::Open;
        self.names_of(demand, opened)
    }

    /// The queues of a demand that are closed now, by name.
    pub(in crate::apply) fn closed(&self, demand: &Demand) -> Vec<QueueName> {
        self.names_of(demand, |work| work.gate() != Gate::Open)
    }

    fn names_of(&self, demand: &Demand, wanted: impl Fn(&&QueueWork) -> bool) -> Vec<QueueName> {
        let names = self.queues.iter().filter(wanted).map(|work| &work.queue.name);
        sorted(names.filter(|name| demand.queues.includes(name)).cloned().collect())
    }

    pub(super) fn add_queue(&mut self, queue: QueueWork) {
        if self.by_name.insert(&queue.queue.name, self.queues.len()) {
            self.queues.push(queue);
        }
    }

    pub(super) fn place(&mut self, job: &Job) -> Result<Place, BadAnswer> {
        let Job { queue, kind, .. } = job;
        if let Some(last) = self.jobs.last()
            && let Some(latest) = &last.job
            && latest.queue.same(queue)
            && latest.kind.same(kind)
        {
            return Ok(last.place);
        }
        let Some(at) = self.by_name.get(queue) else {
            return Err(BadAnswer(format!("job {} without its queue {queue}", job.id)));
        };
        Ok(Place { queue: at, pair: self.pair(at, kind) })
    }

    /// The position of a kind of the queue at a position.
    fn pair(&mut self, queue: usize, kind: &Kind) -> usize {
        let work = &mut self.queues[queue];
        let pair = self.pairs.len();
        if let Some(first) = work.first_pair {
            let known = &self.pairs[first].kind;
            if known.same(kind) {
                return first;
            }
            if let Some(pair) = work.by_kind.get(kind) {
                return pair;
            }
            work.by_kind.insert(known, first);
            work.by_kind.insert(kind, pair);
        } else {
            work.first_pair = Some(pair);
        }
        let by = [0; View::ALL.len()];
        self.pairs.push(PairDelta { queue, kind: kind.clone(), by, retrying: 0 });
        pair
    }

    pub(super) fn count(&mut self, place: Place, from: Option<Counted>, to: Option<Counted>) {
        let queue = &mut self.queues[place.queue];
        let pair = &mut self.pairs[place.pair];
        if let Some(job) = from {
            pair.by[job.view.index()] -= 1;
            pair.retrying -= i64::from(job.retrying);
            queue.counts.take(job);
        }
        if let Some(job) = to {
            pair.by[job.view.index()] += 1;
            pair.retrying += i64::from(job.retrying);
            queue.counts.add(job);
        }
    }
}

impl QueueWork {
    pub(super) fn loaded(found: QueueFound) -> Self {
        let QueueFound { queue, counts } = found;
        let counts = counts.unwrap_or_default();
        Self {
            gate_before: queue.gate(counts.get(View::Processing)),
            queue,
            counts,
            made_kinds: 0,
            first_pair: None,
            by_kind: ByName::default(),
            dirty: false,
            removed: false,
            figures: None,
            made_ready: false,
        }
    }

    /// Counts a change of a job: its row before, if it had one, and after.
    pub(super) fn note_figures(&mut self, before: Option<&Job>, after: &Job) {
        // A heartbeat, or a job that fell due.
        if before.is_some_and(|before| before.state.name() == after.state.name()) {
            return;
        }
        self.figures.get_or_insert_default().note(before, after);
    }

    /// Whether jobs of it may start.
    fn gate(&self) -> Gate {
        self.queue.gate(self.counts.get(View::Processing))
    }

    /// Notes whether a job's move may let something else be claimed: it became ready itself, or
    /// it made room under a concurrency limit.
    pub(super) fn note_move(&mut self, from: Option<View>, to: View) {
        let ready = to == View::Queued && from != Some(View::Queued);
        let room = from == Some(View::Processing) && to != View::Processing;
        self.made_ready |= ready || room && self.queue.settings.concurrency.is_some();
    }
}
