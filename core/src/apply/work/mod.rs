//! The working set of a batch: every job, key and queue it has touched, as it is right now.
//!
//! The store answers from before the batch; what is in here goes before its answers. Each changed
//! row is written once, however often it changed on the way.

mod by_id;
mod by_name;
mod gather;
mod queues;
mod workers;

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::mem;

use self::by_id::ById;
use self::by_name::ByName;
pub(super) use self::queues::Place;
use self::queues::{PairDelta, QueueWork};
use self::workers::WorkerWork;
use crate::store::{
    Answers, BadAnswer, Batch, Candidate, Changes, ClockView, Doc, DocWrite, JobRefused, KeyFound,
    KindFound, Questions,
};
use crate::{
    Counted, GroupId, IdempotencyKey, IndexKey, Job, JobId, KeyRecord, Kind, Millis, Payload,
    QueueName, SettingKey, SettingValue, State, StateName, View, Wall, WorkerId,
};

/// Everything a batch has touched so far.
#[derive(Debug)]
pub(super) struct Work {
    /// The latest instant the store's clock has read, so that it is never behind a row.
    pub(super) now: Wall,
    /// The first reading of that clock, by which rates are looked at. If they opened in the middle
    /// of a batch, jobs that became ready in it would go before those that the store left out.
    rates_at: Option<Wall>,
    /// Whether the store's clock was stepped, by any of its readings for this batch.
    pub(super) clock_stepped: bool,
    pub(super) idempotency_window: Millis,
    clock: ClockView,
    max_queues: usize,
    /// What will be written beside jobs, keys, counters and queues.
    pub(super) changes: Changes,
    jobs: Vec<Entry>,
    by_id: ById,
    keys: BTreeMap<IdempotencyKey, KeyEntry>,
    queues: Vec<QueueWork>,
    by_name: ByName<QueueName>,
    /// The kinds of all queues that jobs in here have, in the order in which they came.
    pairs: Vec<PairDelta>,
    /// The number of queues, those made by this batch included.
    queue_count: usize,
    /// The kinds that a queue has no jobs of yet, with the number of others it has.
    new_kinds: BTreeMap<(QueueName, Kind), usize>,
    /// By queue, the number of enqueues answered with the job of an earlier request.
    duplicates: BTreeMap<QueueName, u64>,
    /// New ids, the next one last.
    ids: Vec<JobId>,
    /// The last change in the batch wins; of the next two as well.
    progress: BTreeMap<JobId, Payload>,
    settings: BTreeMap<SettingKey, SettingWork>,
    workers: BTreeMap<WorkerId, WorkerWork>,
    /// Whether some job became a dead letter or is none any more.
    regrouped: bool,
}

/// A job of the working set.
#[derive(Debug)]
struct Entry {
    id: JobId,
    /// Where the store has it, once it was changed or removed here.
    from: Option<IndexKey>,
    /// The attempts charged to it in the store, once it was changed or removed here.
    attempts: u32,
    /// Its error group in the store, once it was changed or removed here.
    group: Option<GroupId>,
    /// The row as it is now, unless it was removed.
    job: Option<Job>,
    /// The row as it was when it was removed.
    removed: Option<Box<Job>>,
    /// Whether it is new with this batch.
    new: bool,
    /// Its payload, if it is new or a candidate.
    payload: Option<Payload>,
    place: Place,
}

/// The position of a job in the working set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Slot(usize);

/// A job that went from an error group to another, or to none.
#[derive(Debug)]
pub(super) struct GroupMove {
    pub(super) slot: Slot,
    pub(super) queue: QueueName,
    pub(super) from: Option<GroupId>,
    pub(super) to: Option<GroupId>,
}

#[derive(Debug)]
struct KeyEntry {
    record: Option<KeyRecord>,
    dirty: bool,
}

/// A setting of the working set.
#[derive(Debug)]
struct SettingWork {
    value: Option<SettingValue>,
    /// Whether this batch sets it.
    dirty: bool,
}

impl Work {
    pub(super) fn new(batch: &Batch) -> Self {
        Self {
            now: Wall::new(i64::MIN),
            rates_at: None,
            clock_stepped: false,
            idempotency_window: batch.policy.idempotency_window,
            clock: batch.clock,
            max_queues: batch.policy.max_queues,
            changes: Changes::default(),
            jobs: Vec::with_capacity(batch.settles.len() + batch.enqueues.len()),
            by_id: ById::default(),
            keys: BTreeMap::new(),
            queues: Vec::new(),
            by_name: ByName::default(),
            pairs: Vec::new(),
            queue_count: 0,
            new_kinds: BTreeMap::new(),
            duplicates: BTreeMap::new(),
            ids: Vec::new(),
            progress: BTreeMap::new(),
            settings: BTreeMap::new(),
            workers: BTreeMap::new(),
            regrouped: false,
        }
    }

    /// Takes in the answers about everything that was named.
    pub(super) fn take_in(
        &mut self,
        asked: &Questions,
        answers: &mut Answers,
    ) -> Result<(), BadAnswer> {
        self.now = self.now.max(answers.now);
        self.rates_at.get_or_insert(answers.now);
        self.clock_stepped |= self.clock.is_stepped(answers.now);
        self.queue_count = self.queue_count.max(answers.queue_count);
        self.ids.extend(answers.ids.iter().rev());
        self.queues.reserve(answers.queues.len());
        for found in mem::take(&mut answers.queues) {
            if self.by_name.insert(&found.queue.name, self.queues.len()) {
                self.queues.push(QueueWork::loaded(found, self.rates_at()));
            }
        }
        for job in mem::take(&mut answers.jobs).into_iter().flatten() {
            self.add(job)?;
        }
        for (key, found) in asked.keys.iter().zip(mem::take(&mut answers.keys)) {
            let record = found.map(|KeyFound { record, job }| (record, job));
            let (record, job) = record.unzip();
            if let Some(job) = job.flatten() {
                self.add(job)?;
            }
            self.keys.entry(key.clone()).or_insert(KeyEntry { record, dirty: false });
        }
        for (id, payload) in asked.payloads.iter().zip(mem::take(&mut answers.payloads)) {
            if let Ok(slot) = self.find(*id) {
                self.jobs[slot.0].payload = Some(payload);
            }
        }
        for (of, found) in asked.kinds.iter().zip(&answers.kinds) {
            if let KindFound::New { others } = found {
                self.new_kinds.insert(of.clone(), *others);
            }
        }
        for (id, mark) in asked.workers.iter().zip(&answers.workers) {
            self.load_worker(id, *mark);
        }
        for (key, value) in asked.settings.iter().zip(mem::take(&mut answers.settings)) {
            self.settings.insert(key.clone(), SettingWork { value, dirty: false });
        }
        Ok(())
    }

    /// The instant by which rates are looked at.
    fn rates_at(&self) -> Wall {
        self.rates_at.unwrap_or(self.now)
    }

    /// Takes jobs the store has found into the working set, and says where each is. One that is
    /// there already stays as it is.
    pub(super) fn adopt(&mut self, jobs: Vec<Job>) -> Result<Vec<Slot>, BadAnswer> {
        jobs.into_iter().map(|job| self.add(job)).collect()
    }

    /// Takes a job that the store has found into the working set.
    pub(super) fn add(&mut self, job: Job) -> Result<Slot, BadAnswer> {
        if let Some(at) = self.by_id.get(job.id) {
            return if self.jobs[at].new { Err(not_new(job.id)) } else { Ok(Slot(at)) };
        }
        if self.is_id_of_new_job(job.id) {
            return Err(not_new(job.id));
        }
        let place = self.place(&job)?;
        let at = self.jobs.len();
        self.by_id.insert(job.id, at);
        let (id, job) = (job.id, Some(job));
        let (from, removed, payload) = (None, None, None);
        let (attempts, group, new) = (0, None, false);
        self.jobs.push(Entry { id, from, attempts, group, job, removed, new, payload, place });
        Ok(Slot(at))
    }

    // Jobs.

    /// The position of a job, if it exists.
    pub(super) fn find(&self, id: JobId) -> Result<Slot, JobRefused> {
        let at = self.by_id.get(id).filter(|at| self.jobs[*at].job.is_some());
        at.map(Slot).ok_or(JobRefused::NotFound(id))
    }

    /// A job as it is now, unless it was removed.
    pub(super) fn job_at(&self, slot: Slot) -> Option<&Job> {
        self.jobs[slot.0].job.as_ref()
    }

    /// A job as it is now.
    pub(super) fn job(&self, id: JobId) -> Result<&Job, JobRefused> {
        let at = self.by_id.get(id);
        at.and_then(|at| self.job_at(Slot(at))).ok_or(JobRefused::NotFound(id))
    }

    /// The queue and kind of a job, as positions.
    pub(super) fn place_at(&self, slot: Slot) -> Place {
        self.jobs[slot.0].place
    }

    /// Takes a candidate into the working set.
    pub(super) fn add_candidate(&mut self, candidate: Candidate) -> Result<Slot, BadAnswer> {
        let slot = self.add(candidate.job)?;
        self.jobs[slot.0].payload = Some(candidate.payload);
        Ok(slot)
    }

    /// The payload of a candidate, or of a job that is new with this batch.
    pub(super) fn payload_at(&self, slot: Slot) -> Option<&Payload> {
        self.jobs[slot.0].payload.as_ref()
    }

    /// Puts a job in its new state.
    pub(super) fn put_at(&mut self, slot: Slot, mut job: Job) -> &Job {
        let entry = &mut self.jobs[slot.0];
        debug_assert_eq!(entry.id, job.id, "a job keeps its slot");
        let (from, to) = (entry.counted(), Counted::from(&job));
        let before = from.map(|from| from.view);
        self.regrouped |= before == Some(View::Failed) || to.view == View::Failed;
        entry.note_key();
        let place = entry.place;
        let queue = &mut self.queues[place.queue];
        if before != Some(to.view) && to.view.state() == StateName::Queued {
            job.rank = queue.queue.settings.rank(&job);
        }
        queue.note_figures(entry.job.as_ref(), &job);
        queue.note_move(before, to.view);
        self.count(place, from, Some(to));
        self.jobs[slot.0].job.insert(job)
    }

    /// Adds a new job.
    pub(super) fn insert(&mut self, mut job: Job, payload: Payload) {
        if let Some(at) = self.by_name.get(&job.queue) {
            job.rank = self.queues[at].queue.settings.rank(&job);
        }
        let Some(slot) = self.put_imported(job, payload) else { return };
        let Entry { job, place, .. } = &self.jobs[slot.0];
        if let Some(job) = job {
            self.queues[place.queue].note_figures(None, job);
        }
    }

    /// Adds a job whose past is counted elsewhere.
    pub(super) fn put_imported(&mut self, job: Job, payload: Payload) -> Option<Slot> {
        let doc = DocWrite { job: job.id, doc: Doc::Payload, text: payload.clone() };
        let to = Counted::from(&job);
        let slot = self.add(job).ok()?;
        self.changes.docs.push(doc);
        let entry = &mut self.jobs[slot.0];
        (entry.new, entry.payload) = (true, Some(payload));
        let place = entry.place;
        self.count(place, None, Some(to));
        Some(slot)
    }

    /// Removes a job.
    pub(super) fn remove(&mut self, slot: Slot) {
        let entry = &mut self.jobs[slot.0];
        let from = entry.counted();
        self.regrouped |= from.is_some_and(|from| from.view == View::Failed);
        entry.note_key();
        entry.removed = entry.job.take().map(Box::new).or(entry.removed.take());
        self.count(self.jobs[slot.0].place, from, None);
    }

    /// Whether a job that this batch may still make would get this id.
    fn is_id_of_new_job(&self, id: JobId) -> bool {
        // Nearly every stored job is older than all of them.
        self.ids.last().is_some_and(|next| *next <= id)
            && self.ids.binary_search_by(|other| id.cmp(other)).is_ok()
    }

    /// The id of the next new job. As many were asked for as jobs may be made.
    pub(super) fn next_id(&mut self) -> JobId {
        self.ids.pop().expect("the answer was checked to hold an id for every new job")
    }

    /// Jobs that this batch has made ready: the store's index does not show them yet.
    pub(super) fn newly_ready(&self) -> impl Iterator<Item = (Slot, &Job)> {
        self.jobs.iter().enumerate().filter_map(|(at, entry)| {
            let job = entry.job.as_ref()?;
            (entry.is_touched() && job.state.view() == View::Queued).then_some((Slot(at), job))
        })
    }

    /// Counts an enqueue that was answered with the job of an earlier request.
    pub(super) fn note_duplicate(&mut self, queue: &QueueName) {
        *self.duplicates.entry(queue.clone()).or_default() += 1;
    }

    // Error groups.

    /// The jobs that became dead letters, or are none any more, by id.
    pub(super) fn group_moves(&self) -> Vec<GroupMove> {
        let slots = self.by_id.positions().filter(|_| self.regrouped);
        let moves = slots.map(|at| (Slot(at), &self.jobs[at])).filter_map(|(slot, entry)| {
            let to = entry.job.as_ref().and_then(|job| job.state.group());
            (entry.is_touched() && entry.group != to).then(|| {
                let job = entry.job.as_ref().or(entry.removed.as_deref());
                let queue = job.map(|job| job.queue.clone()).unwrap_or_default();
                GroupMove { slot, queue, from: entry.group, to }
            })
        });
        moves.collect()
    }

    /// Gives a dead letter another group than its own.
    pub(super) fn regroup(&mut self, slot: Slot, to: GroupId) {
        if let Some(State::Failed { group, .. }) =
            self.jobs[slot.0].job.as_mut().map(|job| &mut job.state)
        {
            *group = to;
        }
    }

    // Keys.

    /// The record of a key that was loaded.
    pub(super) fn key(&self, key: &IdempotencyKey) -> Option<&KeyRecord> {
        self.keys.get(key)?.record.as_ref()
    }

    /// Whether the store was asked for this key.
    pub(super) fn knows_key(&self, key: &IdempotencyKey) -> bool {
        self.keys.contains_key(key)
    }

    /// Puts a key in place, or removes it.
    pub(super) fn put_key(&mut self, key: IdempotencyKey, record: Option<KeyRecord>) {
        self.keys.insert(key, KeyEntry { record, dirty: true });
    }

    // Notes and settings.

    /// Keeps the progress note of a holder.
    pub(super) fn note_progress(&mut self, job: JobId, text: Payload) {
        self.progress.insert(job, text);
    }

    /// The value of a setting that was loaded.
    pub(super) fn setting(&self, key: &SettingKey) -> Option<&SettingValue> {
        self.settings.get(key)?.value.as_ref()
    }

    /// Keeps a setting, or removes it.
    pub(super) fn put_setting(&mut self, key: SettingKey, value: Option<SettingValue>) {
        self.settings.insert(key, SettingWork { value, dirty: true });
    }
}

fn not_new(id: JobId) -> BadAnswer {
    BadAnswer(alloc::format!("job {id} exists, but its id was given for a new one"))
}

impl Entry {
    /// Whether this batch has changed it, or made it.
    fn is_touched(&self) -> bool {
        self.from.is_some() || self.new
    }

    /// Notes where the store has it, before the first change.
    fn note_key(&mut self) {
        if !self.is_touched() {
            self.from = self.job.as_ref().map(Job::index_key);
            self.attempts = self.job.as_ref().map_or(0, |job| job.attempts);
            self.group = self.job.as_ref().and_then(|job| job.state.group());
        }
    }

    fn counted(&self) -> Option<Counted> {
        self.job.as_ref().map(Counted::from)
    }
}
