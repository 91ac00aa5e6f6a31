//! The working set of a batch: every job, key and queue it has touched, as it stands right now.
//!
//! The store answers from before the batch; what lies here covers it. Each changed row is written
//! once, at the end, however often it changed on the way.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::mem;

use crate::store::{
    AdminRefused, Change, Changes, CountDelta, Doc, DocWrite, JobRefused, Marker, Outcomes, Tx,
    Worker,
};
use crate::{
    BatchId, Counts, IdempotencyKey, Job, JobId, KeyRecord, Kind, Millis, Payload, Policy, Queue,
    QueueName, QueueRow, Queues, SettingKey, SettingValue, View, Wall, WorkerId, limits,
};

/// Everything a batch has touched so far.
pub(super) struct Work<'t, T: Tx> {
    pub(super) tx: &'t mut T,
    pub(super) now: Wall,
    pub(super) idempotency_window: Millis,
    /// What will be written beside jobs, keys, counters and queues.
    pub(super) changes: Changes,
    jobs: Vec<Entry>,
    by_id: BTreeMap<JobId, usize>,
    keys: BTreeMap<IdempotencyKey, KeyEntry>,
    queues: Vec<QueueWork>,
    by_name: BTreeMap<QueueName, usize>,
    asked_queues: BTreeSet<QueueName>,
    all_queues: bool,
    made_queues: usize,
    next_id: Option<JobId>,
    /// What is said last in a batch counts.
    progress: BTreeMap<JobId, Payload>,
    settings: BTreeMap<SettingKey, Option<SettingValue>>,
    workers: BTreeMap<WorkerId, Sighting>,
}

/// What a batch says of a worker.
enum Sighting {
    Heard,
    Seen(Worker),
    Gone,
    /// Gone, then seen again: it starts anew.
    Back(Worker),
}

/// A job of the working set.
struct Entry {
    id: JobId,
    /// The row as stored, once it was changed or removed.
    before: Option<Job>,
    /// The row as it is now, unless it was removed.
    after: Option<Job>,
    /// What it is run with, if it is new with this batch.
    payload: Option<Payload>,
    place: Place,
}

/// Where the counters of a job's queue and kind stand.
#[derive(Clone, Copy)]
struct Place {
    queue: usize,
    kind: usize,
}

struct KeyEntry {
    record: Option<KeyRecord>,
    dirty: bool,
}

/// A queue of the working set, with its counters as they are now.
pub(super) struct QueueWork {
    pub(super) queue: Queue,
    pub(super) kinds: Vec<KindWork>,
    by_kind: BTreeMap<Kind, usize>,
    pub(super) total: Counts,
    dirty: bool,
    stirred: bool,
}

/// A kind of a queue.
pub(super) struct KindWork {
    pub(super) kind: Kind,
    pub(super) counts: Counts,
    by: [i64; View::ALL.len()],
}

impl<'t, T: Tx> Work<'t, T> {
    pub(super) fn new(tx: &'t mut T, policy: &Policy) -> Self {
        Self {
            now: tx.now(),
            idempotency_window: policy.idempotency_window,
            tx,
            changes: Changes::default(),
            jobs: Vec::new(),
            by_id: BTreeMap::new(),
            keys: BTreeMap::new(),
            queues: Vec::new(),
            by_name: BTreeMap::new(),
            asked_queues: BTreeSet::new(),
            all_queues: false,
            made_queues: 0,
            next_id: None,
            progress: BTreeMap::new(),
            settings: BTreeMap::new(),
            workers: BTreeMap::new(),
        }
    }

    // Loading.

    /// Makes room for so many jobs at once.
    pub(super) fn reserve(&mut self, jobs: usize) {
        self.jobs.reserve(jobs);
    }

    /// Loads these keys, and adds the jobs they name to `ids`.
    pub(super) fn load_keys(
        &mut self,
        mut keys: Vec<IdempotencyKey>,
        ids: &mut Vec<JobId>,
    ) -> Result<(), T::Error> {
        keys.sort();
        keys.dedup();
        keys.retain(|key| !self.keys.contains_key(key));
        if keys.is_empty() {
            return Ok(());
        }
        let records = self.tx.keys(&keys)?;
        for (key, record) in keys.into_iter().zip(records) {
            ids.extend(record.as_ref().map(|record| record.job));
            self.keys.insert(key, KeyEntry { record, dirty: false });
        }
        Ok(())
    }

    /// Loads these queues.
    pub(super) fn load_queues(&mut self, queues: &Queues) -> Result<(), T::Error> {
        if self.all_queues || matches!(queues, Queues::Only(names) if names.is_empty()) {
            return Ok(());
        }
        if let Queues::Only(names) = queues {
            self.asked_queues.extend(names.iter().cloned());
        } else {
            self.all_queues = true;
        }
        for row in self.tx.queues(queues)? {
            if !self.by_name.contains_key(&row.queue.name) {
                self.add_queue(QueueWork::loaded(row));
            }
        }
        Ok(())
    }

    /// Loads these jobs.
    pub(super) fn load_jobs(&mut self, mut ids: Vec<JobId>) -> Result<(), T::Error> {
        ids.sort_unstable();
        ids.dedup();
        ids.retain(|id| !self.by_id.contains_key(id));
        if ids.is_empty() {
            return Ok(());
        }
        let jobs = self.tx.jobs(&ids)?;
        self.adopt(jobs.into_iter().flatten().collect())
    }

    /// Takes jobs the store has found into the working set. One that is there already stays as it
    /// is: the working set covers the store.
    pub(super) fn adopt(&mut self, jobs: Vec<Job>) -> Result<(), T::Error> {
        self.load_queues_of(&jobs)?;
        for job in jobs {
            if !self.by_id.contains_key(&job.id) {
                self.add_entry(job, None);
            }
        }
        Ok(())
    }

    fn load_queues_of(&mut self, jobs: &[Job]) -> Result<(), T::Error> {
        let mut names: Vec<QueueName> = Vec::new();
        for job in jobs {
            if names.last().is_some_and(|last| last.same(&job.queue)) {
                continue;
            }
            if !self.by_name.contains_key(&job.queue) && !self.asked_queues.contains(&job.queue) {
                names.push(job.queue.clone());
            }
        }
        self.load_queues(&Queues::only(names))
    }

    // Jobs.

    /// A job as it is now.
    pub(super) fn job(&self, id: JobId) -> Result<&Job, JobRefused> {
        let entry = self.by_id.get(&id).map(|at| &self.jobs[*at]);
        entry.and_then(|entry| entry.after.as_ref()).ok_or(JobRefused::NotFound(id))
    }

    /// Puts a job in its new state.
    pub(super) fn put(&mut self, job: Job) -> &Job {
        let at = self.by_id[&job.id];
        let entry = &mut self.jobs[at];
        let (from, to) = (entry.view(), job.state.view());
        let left = entry.after.replace(job);
        if entry.before.is_none() && entry.payload.is_none() {
            entry.before = left;
        }
        let place = entry.place;
        self.count(place, from, Some(to));
        self.queues[place.queue].note_move(from, to);
        self.jobs[at].after.as_ref().expect("it was put there above")
    }

    /// Adds a new job.
    pub(super) fn insert(&mut self, job: Job, payload: Payload) {
        debug_assert_eq!(self.next_id, Some(job.id), "ids are given out one by one");
        self.next_id = Some(job.id.plus(1));
        self.changes.docs.push(DocWrite { job: job.id, doc: Doc::Payload, text: payload.clone() });
        let to = job.state.view();
        let place = self.add_entry(job, Some(payload));
        self.count(place, None, Some(to));
    }

    /// Removes a job.
    pub(super) fn remove(&mut self, id: JobId) {
        let Some(at) = self.by_id.get(&id).copied() else { return };
        let entry = &mut self.jobs[at];
        let from = entry.view();
        let left = entry.after.take();
        if entry.before.is_none() && entry.payload.is_none() {
            entry.before = left;
        }
        let place = entry.place;
        self.count(place, from, None);
    }

    /// The id the next new job gets.
    pub(super) fn next_id(&mut self) -> Result<JobId, T::Error> {
        let id = match self.next_id {
            Some(id) => id,
            None => self.tx.next_id()?,
        };
        self.next_id = Some(id);
        Ok(id)
    }

    /// Jobs of this batch that are ready and were not before, or stand elsewhere now: the store's
    /// index of ready jobs does not show them yet.
    pub(super) fn newly_ready(&self) -> impl Iterator<Item = &Job> {
        self.jobs.iter().filter_map(|entry| {
            let job = entry.after.as_ref()?;
            (entry.is_touched() && job.state.view() == View::Queued).then_some(job)
        })
    }

    /// The payloads of these jobs, in this order.
    pub(super) fn payloads(&mut self, ids: &[JobId]) -> Result<Vec<Payload>, T::Error> {
        let new = |work: &Self, id: &JobId| {
            let at = work.by_id.get(id)?;
            work.jobs[*at].payload.clone()
        };
        let old: Vec<JobId> = ids.iter().copied().filter(|id| new(self, id).is_none()).collect();
        let found = if old.is_empty() { Vec::new() } else { self.tx.payloads(&old)? };
        if old.len() == ids.len() {
            return Ok(found);
        }
        let mut found = found.into_iter();
        Ok(ids.iter().filter_map(|id| new(self, id).or_else(|| found.next())).collect())
    }

    fn add_entry(&mut self, job: Job, payload: Option<Payload>) -> Place {
        let place = self.place(&job.queue, &job.kind);
        let id = job.id;
        self.by_id.insert(id, self.jobs.len());
        self.jobs.push(Entry { id, before: None, after: Some(job), payload, place });
        place
    }

    // Keys.

    /// The record of a key that was loaded.
    pub(super) fn key(&self, key: &IdempotencyKey) -> Option<&KeyRecord> {
        self.keys.get(key)?.record.as_ref()
    }

    /// Puts a key in place, or removes it.
    pub(super) fn put_key(&mut self, key: IdempotencyKey, record: Option<KeyRecord>) {
        self.keys.insert(key, KeyEntry { record, dirty: true });
    }

    // What is only kept.

    /// Keeps how far a holder says it is.
    pub(super) fn note_progress(&mut self, job: JobId, text: Payload) {
        self.progress.insert(job, text);
    }

    /// Keeps a setting, or forgets it.
    pub(super) fn put_setting(&mut self, key: SettingKey, value: Option<SettingValue>) {
        self.settings.insert(key, value);
    }

    /// Notes that a worker was seen.
    pub(super) fn see_worker(&mut self, worker: Worker) {
        let gone = matches!(self.workers.get(&worker.id), Some(Sighting::Gone | Sighting::Back(_)));
        let id = worker.id.clone();
        let seen = if gone { Sighting::Back(worker) } else { Sighting::Seen(worker) };
        self.workers.insert(id, seen);
    }

    /// Notes that a worker was heard from.
    pub(super) fn hear_worker(&mut self, id: &WorkerId) {
        if !self.workers.contains_key(id) {
            self.workers.insert(id.clone(), Sighting::Heard);
        }
    }

    /// Notes that a worker is gone.
    pub(super) fn remove_worker(&mut self, id: &WorkerId) {
        self.workers.insert(id.clone(), Sighting::Gone);
    }

    // Queues.

    /// A queue, if it exists.
    pub(super) fn queue(&self, name: &QueueName) -> Option<&QueueWork> {
        self.by_name.get(name).map(|at| &self.queues[*at])
    }

    /// Every queue that was loaded.
    pub(super) fn queues(&self) -> &[QueueWork] {
        &self.queues
    }

    /// A queue by its place in [`Self::queues`].
    pub(super) fn queue_at(&self, at: usize) -> &QueueWork {
        &self.queues[at]
    }

    /// The place of a queue in [`Self::queues`], if it exists.
    pub(super) fn queue_place(&self, name: &QueueName) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// Makes a queue if it does not exist, unless there are too many.
    pub(super) fn ensure_queue(
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
    pub(super) fn change_queue(&mut self, name: &QueueName, change: impl FnOnce(&mut Queue)) {
        if let Some(at) = self.by_name.get(name) {
            let work = &mut self.queues[*at];
            change(&mut work.queue);
            work.dirty = true;
            work.stirred |= !work.queue.paused;
        }
    }

    fn add_queue(&mut self, queue: QueueWork) {
        self.by_name.insert(queue.queue.name.clone(), self.queues.len());
        self.queues.push(queue);
    }

    fn place(&mut self, queue: &QueueName, kind: &Kind) -> Place {
        if let Some(last) = self.jobs.last().and_then(|entry| entry.after.as_ref())
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

    fn count(&mut self, place: Place, from: Option<View>, to: Option<View>) {
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

    // Writing.

    /// Writes everything that changed, and says when something is next due.
    pub(super) fn write(&mut self, batch: BatchId, out: &mut Outcomes) -> Result<(), T::Error> {
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
            match (entry.before.take(), entry.after.take()) {
                (None, Some(after)) if entry.payload.is_some() => changes.inserts.push(after),
                (Some(before), Some(after)) => changes.updates.push((before, after)),
                (Some(before), None) => changes.removes.push(before),
                (None, _) => {}
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
        for (id, sighting) in mem::take(&mut self.workers) {
            match sighting {
                Sighting::Heard => changes.heard.push(id),
                Sighting::Seen(worker) => changes.workers.push(worker),
                Sighting::Gone => changes.removed_workers.push(id),
                Sighting::Back(worker) => {
                    changes.removed_workers.push(id);
                    changes.workers.push(worker);
                }
            }
        }
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

/// A job may be reported on and removed in one batch: then nothing of the report is kept.
fn forget_words_on_removed(changes: &mut Changes) {
    let removed: BTreeSet<JobId> = changes.removes.iter().map(|job| job.id).collect();
    changes.docs.retain(|write| !removed.contains(&write.job));
    changes.errors.retain(|(job, _)| !removed.contains(job));
    changes.attempts.retain(|attempt| !removed.contains(&attempt.job));
}

impl Entry {
    /// Whether this batch has changed it, or made it.
    fn is_touched(&self) -> bool {
        self.before.is_some() || self.payload.is_some()
    }

    fn view(&self) -> Option<View> {
        self.after.as_ref().map(|job| job.state.view())
    }

    fn change(&self) -> Option<Change> {
        let place = |job: &Job| (job.state.name(), job.epoch);
        let (from, to) = (self.before.as_ref().map(place), self.after.as_ref().map(place));
        if !self.is_touched() || from == to {
            return None;
        }
        let job = self.after.as_ref().or(self.before.as_ref())?;
        Some(Change {
            id: self.id,
            queue: job.queue.clone(),
            kind: job.kind.clone(),
            from: from.map(|(state, _)| state),
            to: to.map(|(state, _)| state),
            run_at: job.run_at,
            started_at: job.started_at,
        })
    }
}

impl QueueWork {
    fn loaded(row: QueueRow) -> Self {
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

    /// Whether a job of this kind would be one kind too many.
    pub(super) fn has_room_for(&self, kind: &Kind) -> bool {
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
    fn note_move(&mut self, from: Option<View>, to: View) {
        let ready = to == View::Queued && from != Some(View::Queued);
        let room = from == Some(View::Processing) && to != View::Processing;
        self.stirred |= ready || room && self.queue.settings.concurrency.is_some();
    }
}
