//! The queues of the working set: their settings, their limits, and how their counters change.

use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;

use super::Work;
use super::by_name::ByName;
use crate::limits::KINDS_PER_QUEUE;
use crate::store::{BadAnswer, QueueFound, TooManyQueues, sorted};
use crate::{
    Counted, Counts, Demand, Figures, Gate, InUse, Job, Kind, KindLimits, Queue, QueueName, Tats,
    Usage, View, Wall,
};

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
    limits: Limits,
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

/// What the limits of a queue are compared with.
#[derive(Debug)]
struct Limits {
    /// What counted against them before the batch, and the states of rates as they are now. `None`
    /// if nothing depends on it.
    usage: Option<Box<Usage>>,
    /// Whether the state of a rate has changed.
    rates_used: bool,
    /// Whether jobs could start before the batch, but for the limits of kinds.
    was_open: bool,
    /// The kinds that could not start before the batch because of their own limits.
    closed_kinds_before: Vec<Kind>,
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

    /// Whether jobs of the queue and kind at a place may start.
    pub(in crate::apply) fn gate(&self, place: Place) -> Gate {
        let work = &self.queues[place.queue];
        if !work.queue.settings.limits_starts() {
            return work.queue.gate(&InUse::default(), self.rates_at());
        }
        let PairDelta { kind, .. } = &self.pairs[place.pair];
        work.queue.gate_of(kind, &self.in_use(work, kind, Some(place.pair)), self.rates_at())
    }

    /// Notes that a job at a place started: it counts against the rates.
    pub(in crate::apply) fn note_start(&mut self, place: Place) {
        let at = self.rates_at();
        let work = &mut self.queues[place.queue];
        if !work.queue.settings.flow.limits_starts() {
            return;
        }
        let kind = &self.pairs[place.pair].kind;
        let usage = work.limits.usage.get_or_insert_default();
        for of in [None, Some(kind)] {
            if let Some(rate) = work.queue.settings.flow.rate_of(of) {
                let tat = rate.take(usage.tats.get(of), at);
                usage.tats.put(of, tat);
                work.limits.rates_used = true;
            }
        }
    }

    /// Puts the states of the rates of a queue in place.
    pub(in crate::apply) fn put_tats(&mut self, name: &QueueName, tats: &Tats) {
        if let Some(at) = self.by_name.get(name) {
            let work = &mut self.queues[at];
            work.limits.usage.get_or_insert_default().tats = tats.clone();
            work.limits.rates_used = true;
        }
    }

    /// What counts against the limits of a kind now.
    fn in_use(&self, work: &QueueWork, kind: &Kind, pair: Option<usize>) -> InUse {
        let before = work.limits.usage.as_ref().map(|usage| usage.of(kind)).unwrap_or_default();
        let by = pair.map_or(0, |pair| self.pairs[pair].by[View::Processing.index()]);
        let running = work.counts.get(View::Processing);
        InUse { running, of_kind: before.of_kind.saturating_add_signed(by), ..before }
    }

    /// The kinds of a queue that have limits of their own, each with its gate now.
    fn kind_gates<'w>(&'w self, work: &'w QueueWork) -> impl Iterator<Item = (&'w Kind, Gate)> {
        work.queue.settings.flow.kinds.iter().map(|(kind, _)| {
            let in_use = self.in_use(work, kind, work.pair_of(kind, &self.pairs));
            (kind, work.queue.gate_of(kind, &in_use, self.rates_at()))
        })
    }

    /// Whether jobs of a queue may start, but for the limits of kinds.
    fn is_open(&self, work: &QueueWork) -> bool {
        work.is_open(self.rates_at())
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
            // Its rates went with it.
            self.put_tats(name, &Tats::default());
            return Ok(());
        }
        let queue = QueueFound { queue: Queue::new(name.clone()), usage: None };
        self.add_queue(QueueWork { dirty: true, ..QueueWork::loaded(queue, self.rates_at()) });
        Ok(())
    }

    /// Takes in a queue that had no jobs before the batch.
    pub(in crate::apply) fn load_empty_queue(&mut self, queue: Queue) {
        if self.by_name.get(&queue.name).is_none() {
            let usage = Some(Box::default());
            self.add_queue(QueueWork::loaded(QueueFound { queue, usage }, self.rates_at()));
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
            work.drop_old_rates();
            work.dirty = true;
            work.made_ready |= !work.queue.is_paused();
        }
    }

    /// The queues of a demand that were closed before the batch, or had kinds that were, and are
    /// open now, by name.
    pub(in crate::apply) fn reopened(&self, demand: &Demand) -> Vec<QueueName> {
        let kind_opened = |work: &QueueWork| {
            let before = &work.limits.closed_kinds_before;
            before.iter().any(|kind| {
                let in_use = self.in_use(work, kind, work.pair_of(kind, &self.pairs));
                work.queue.gate_of(kind, &in_use, self.rates_at()) == Gate::Open
            })
        };
        let opened =
            |work: &&QueueWork| self.is_open(work) && (!work.limits.was_open || kind_opened(work));
        self.names_of(demand, opened)
    }

    /// The queues of a demand that are closed now, by name.
    pub(in crate::apply) fn closed(&self, demand: &Demand) -> Vec<QueueName> {
        self.names_of(demand, |work| !self.is_open(work))
    }

    /// The kinds of a demand that are closed now because of their own limits, with their queues.
    pub(in crate::apply) fn closed_kinds(&self, demand: &Demand) -> Vec<(QueueName, Kind)> {
        let limited = self.queues.iter().filter(|work| !work.queue.settings.flow.kinds.is_empty());
        let closed = limited.filter(|work| self.is_open(work)).flat_map(|work| {
            let closed = self.kind_gates(work).filter(|(_, gate)| *gate != Gate::Open);
            closed.map(|(kind, _)| (work.queue.name.clone(), kind.clone()))
        });
        sorted(closed.filter(|(queue, kind)| demand.wants(queue, kind)).collect())
    }

    /// When to claim again because a rate that is used up, of a queue that is wanted, has room by
    /// then.
    pub(in crate::apply) fn next_open(&self, wanted: impl Fn(&QueueName) -> bool) -> Option<Wall> {
        let limited = |work: &&QueueWork| work.queue.settings.flow.limits_starts();
        let rated = self.queues.iter().filter(limited).filter(|work| wanted(&work.queue.name));
        let again = rated.flat_map(|work| {
            let later = |kind: &Kind, gate: Gate| {
                let in_use = self.in_use(work, kind, work.pair_of(kind, &self.pairs));
                gate.until().map(|_| work.queue.look_again_at(kind, &in_use, self.rates_at()))
            };
            let of_kinds = self.kind_gates(work).filter_map(move |(kind, gate)| later(kind, gate));
            let in_use = self.in_use(work, &Kind::default(), None);
            let of_queue = work.queue.gate(&in_use, self.rates_at()).until();
            let of_queue = of_queue.and(work.queue.settings.flow.rate.as_ref());
            of_kinds.chain(of_queue.map(|rate| rate.look_again_at(in_use.tat, self.rates_at())))
        });
        again.min()
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
    pub(super) fn loaded(found: QueueFound, now: Wall) -> Self {
        let QueueFound { queue, usage } = found;
        let none = Usage::default();
        let known = usage.as_deref().unwrap_or(&none);
        let closed = |(kind, _): &&(Kind, KindLimits)| {
            queue.gate_of(kind, &known.of(kind), now) != Gate::Open
        };
        let closed = queue.settings.flow.kinds.iter().filter(closed).map(|(kind, _)| kind.clone());
        let (closed_kinds_before, counts) = (closed.collect(), known.counts);
        let limits = Limits { usage, rates_used: false, was_open: true, closed_kinds_before };
        let mut work = Self {
            limits,
            queue,
            counts,
            made_kinds: 0,
            first_pair: None,
            by_kind: ByName::default(),
            dirty: false,
            removed: false,
            figures: None,
            made_ready: false,
        };
        work.limits.was_open = work.is_open(now);
        work
    }

    /// Whether jobs of it may start, but for the limits of kinds.
    fn is_open(&self, now: Wall) -> bool {
        let tat = self.limits.usage.as_ref().map(|usage| usage.tats.get(None)).unwrap_or_default();
        let running = self.counts.get(View::Processing);
        let in_use = InUse { running, tat, ..InUse::default() };
        self.queue.gate(&in_use, now) == Gate::Open
    }

    /// The position of a kind among the pairs of the working set.
    fn pair_of(&self, kind: &Kind, pairs: &[PairDelta]) -> Option<usize> {
        let first = self.first_pair.filter(|first| pairs[*first].kind == *kind);
        first.or_else(|| self.by_kind.get(kind))
    }

    /// The states of its rates, if they have changed.
    pub(super) fn changed_tats(&self) -> Option<&Tats> {
        let Limits { usage, rates_used, .. } = &self.limits;
        usage.as_ref().map(|usage| &usage.tats).filter(|_| *rates_used)
    }

    /// Drops the states of rates that it no longer has.
    fn drop_old_rates(&mut self) {
        if let Some(usage) = &mut self.limits.usage {
            self.limits.rates_used |= usage.tats.retain_rates_of(&self.queue);
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

    /// Notes whether a job's move may let something else be claimed: it became ready itself, or
    /// it made room under a concurrency limit.
    pub(super) fn note_move(&mut self, from: Option<View>, to: View) {
        let ready = to == View::Queued && from != Some(View::Queued);
        let room = from == Some(View::Processing) && to != View::Processing;
        self.made_ready |= ready || room && self.queue.settings.limits_starts();
    }
}
