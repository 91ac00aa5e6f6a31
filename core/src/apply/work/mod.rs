//! The working set of a batch: every job, key and queue it has touched, as it stands right now.
//!
//! The store answers from before the batch; what lies here covers it. Each changed row is written
//! once, at the end, however often it changed on the way.

mod gather;
mod queues;
mod workers;

use alloc::boxed::Box;
use alloc::collections::btree_map::Entry as MapEntry;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use self::queues::{Place, QueueWork};
use self::workers::WorkerWork;
use crate::store::{Changes, Doc, DocWrite, JobRefused, Room, Tx};
use crate::{
    Gate, IdempotencyKey, Job, JobId, KeyRecord, Millis, Payload, Policy, QueueName, Queues,
    SettingKey, SettingValue, Standing, View, Wall, WorkerId,
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
    workers: BTreeMap<WorkerId, WorkerWork>,
}

/// A job of the working set.
struct Entry {
    id: JobId,
    /// Where it stands in the store, once it was changed or removed here.
    from: Option<Standing>,
    /// The row as it is now, unless it was removed.
    job: Option<Job>,
    /// The row as it was when it was removed.
    removed: Option<Box<Job>>,
    /// What it is run with, if it is new with this batch.
    payload: Option<Payload>,
    place: Place,
}

/// Where a job lies in the working set, so that it need not be looked for again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Spot(usize);

/// A row as it was before it was replaced.
pub(super) struct Before {
    job: Job,
    touched: bool,
}

struct KeyEntry {
    record: Option<KeyRecord>,
    dirty: bool,
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
        if !self.by_id.is_empty() {
            ids.retain(|id| !self.by_id.contains_key(id));
        }
        if ids.is_empty() {
            return Ok(());
        }
        let jobs = self.tx.jobs(&ids)?;
        self.load_queues_of(jobs.iter().flatten())?;
        for job in jobs.into_iter().flatten() {
            self.add(job);
        }
        Ok(())
    }

    /// Takes jobs the store has found into the working set, and says where each lies. One that is
    /// there already stays as it is: the working set covers the store.
    pub(super) fn adopt(&mut self, jobs: Vec<Job>) -> Result<Vec<Spot>, T::Error> {
        self.load_queues_of(jobs.iter())?;
        Ok(jobs.into_iter().map(|job| self.add(job)).collect())
    }

    fn load_queues_of<'j>(&mut self, jobs: impl Iterator<Item = &'j Job>) -> Result<(), T::Error> {
        let mut names: Vec<QueueName> = Vec::new();
        let mut latest: Option<&QueueName> = None;
        for job in jobs {
            if latest.is_some_and(|latest| latest.same(&job.queue)) {
                continue;
            }
            latest = Some(&job.queue);
            if !self.by_name.contains_key(&job.queue) && !self.asked_queues.contains(&job.queue) {
                names.push(job.queue.clone());
            }
        }
        self.load_queues(&Queues::only(names))
    }

    // Jobs.

    /// Where a job lies, if it exists.
    pub(super) fn find(&self, id: JobId) -> Result<Spot, JobRefused> {
        let at = self.by_id.get(&id).filter(|at| self.jobs[**at].job.is_some());
        at.map(|at| Spot(*at)).ok_or(JobRefused::NotFound(id))
    }

    /// A job as it is now, unless it was removed.
    pub(super) fn job_at(&self, spot: Spot) -> Option<&Job> {
        self.jobs[spot.0].job.as_ref()
    }

    /// A job as it is now.
    pub(super) fn job(&self, id: JobId) -> Result<&Job, JobRefused> {
        let at = self.by_id.get(&id);
        at.and_then(|at| self.job_at(Spot(*at))).ok_or(JobRefused::NotFound(id))
    }

    /// Whether jobs of this one's queue may start.
    pub(super) fn gate_at(&self, spot: Spot) -> Gate {
        self.queues[self.jobs[spot.0].place.queue].gate()
    }

    /// Puts a job in its new state.
    pub(super) fn put(&mut self, job: Job) -> &Job {
        let spot = Spot(self.by_id[&job.id]);
        self.put_at(spot, job)
    }

    /// Puts the job that lies here in its new state.
    pub(super) fn put_at(&mut self, spot: Spot, job: Job) -> &Job {
        self.replace(spot, job);
        self.jobs[spot.0].job.as_ref().expect("it was put there above")
    }

    /// The same; returns what [`put_back`](Self::put_back) needs to take it back.
    pub(super) fn replace(&mut self, spot: Spot, job: Job) -> Option<Before> {
        let entry = &mut self.jobs[spot.0];
        debug_assert_eq!(entry.id, job.id, "a job keeps its spot");
        let (from, to, touched) = (entry.view(), job.state.view(), entry.is_touched());
        entry.note_standing();
        let place = entry.place;
        let before = entry.job.replace(job);
        self.count(place, from, Some(to));
        self.queues[place.queue].note_move(from, to);
        before.map(|job| Before { job, touched })
    }

    /// Puts the row back that lay here before, as if it had never been replaced.
    pub(super) fn put_back(&mut self, spot: Spot, before: Before) {
        let entry = &mut self.jobs[spot.0];
        let (from, to) = (entry.view(), before.job.state.view());
        entry.from = entry.from.filter(|_| before.touched);
        entry.job = Some(before.job);
        let place = entry.place;
        self.count(place, from, Some(to));
    }

    /// Adds a new job.
    pub(super) fn insert(&mut self, job: Job, payload: Payload) {
        debug_assert_eq!(self.next_id, Some(job.id), "ids are given out one by one");
        self.next_id = Some(job.id.plus(1));
        self.changes.docs.push(DocWrite { job: job.id, doc: Doc::Payload, text: payload.clone() });
        let to = job.state.view();
        let spot = self.add(job);
        let entry = &mut self.jobs[spot.0];
        entry.payload = Some(payload);
        let place = entry.place;
        self.count(place, None, Some(to));
    }

    /// Removes a job.
    pub(super) fn remove(&mut self, id: JobId) {
        let Some(at) = self.by_id.get(&id).copied() else { return };
        let entry = &mut self.jobs[at];
        let from = entry.view();
        entry.note_standing();
        entry.removed = entry.job.take().map(Box::new).or(entry.removed.take());
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
    pub(super) fn newly_ready(&self) -> impl Iterator<Item = (Spot, &Job)> {
        self.jobs.iter().enumerate().filter_map(|(at, entry)| {
            let job = entry.job.as_ref()?;
            (entry.is_touched() && job.state.view() == View::Queued).then_some((Spot(at), job))
        })
    }

    /// The payloads of these jobs, in this order: the first, and then as many as fit into so many
    /// bytes together with it.
    pub(super) fn payloads(
        &mut self,
        spots: &[Spot],
        bytes: usize,
    ) -> Result<Vec<Payload>, T::Error> {
        let entries = spots.iter().map(|spot| &self.jobs[spot.0]);
        let old: Vec<JobId> =
            entries.filter(|one| one.payload.is_none()).map(|one| one.id).collect();
        let found = if old.is_empty() { Vec::new() } else { self.tx.payloads(&old, bytes)? };
        if old.len() == spots.len() {
            return Ok(found);
        }
        let (mut found, mut room) = (found.into_iter(), Room::new(bytes));
        let entries = spots.iter().map(|spot| &self.jobs[spot.0]);
        let payloads = entries.map_while(|one| one.payload.clone().or_else(|| found.next()));
        Ok(payloads.take_while(|payload| room.takes(payload.as_str().len())).collect())
    }

    /// Adds a job as it is stored, unless it is there already.
    fn add(&mut self, job: Job) -> Spot {
        let at = self.jobs.len();
        match self.by_id.entry(job.id) {
            MapEntry::Occupied(known) => return Spot(*known.get()),
            MapEntry::Vacant(vacant) => vacant.insert(at),
        };
        let place = self.place(&job.queue, &job.kind);
        let id = job.id;
        let job = Some(job);
        self.jobs.push(Entry { id, from: None, job, removed: None, payload: None, place });
        Spot(at)
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
}

impl Entry {
    /// Whether this batch has changed it, or made it.
    fn is_touched(&self) -> bool {
        self.from.is_some() || self.payload.is_some()
    }

    /// Remembers where the store has it, before the first change.
    fn note_standing(&mut self) {
        if !self.is_touched() {
            self.from = self.job.as_ref().map(Job::standing);
        }
    }

    fn view(&self) -> Option<View> {
        self.job.as_ref().map(|job| job.state.view())
    }
}
