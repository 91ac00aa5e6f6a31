//! The tables: rows, and the key tables for the views by which they are found. A row and its keys
//! change together, in [`Tables::write`] and nowhere else.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, RangeBounds};
use std::sync::{Arc, RwLock};

use windlass_core::store::{
    BulkRow, Changes, CountDelta, Cursor, Doc, FigureKey, FigureRow, JobDetail, Marker, Moved,
    Worker, WorkerRow, is_seal,
};
use windlass_core::{
    Attempt, BulkId, Counts, Epoch, Excerpt, GroupId, GroupRow, IdempotencyKey, IndexKey, Job,
    JobId, KeyRecord, Kind, Payload, ProcessId, Queue, QueueName, QueueRow, Rank, SettingKey,
    SettingValue, Span, Tats, View, Wall, WorkerId,
};

/// The rows of the store, with their indexes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tables {
    /// Grows with every write: how another handle notices.
    pub(crate) version: u64,
    /// Job rows that transactions have read.
    pub(crate) rows_read: u64,
    /// Rounds of questions that transactions have asked.
    pub(crate) rounds: u64,
    pub(crate) last_id: u64,
    pub(crate) jobs: BTreeMap<JobId, Job>,
    pub(crate) docs: BTreeMap<(JobId, Doc), Payload>,
    pub(crate) errors: BTreeMap<JobId, Excerpt>,
    pub(crate) attempts: BTreeMap<(JobId, Epoch), Attempt>,
    pub(crate) queues: BTreeMap<QueueName, QueueTable>,
    /// The queues and kinds that have ready jobs, by the best rank of each, so that a claim looks
    /// at no others.
    pub(crate) heads: BTreeMap<Rank, (QueueName, Kind)>,
    /// The queues with a limit, which a claim holds.
    pub(crate) limited: BTreeSet<QueueName>,
    /// Queued, not yet due: by (`run_at`, id).
    pub(crate) scheduled: BTreeSet<Cursor>,
    /// Leased: by (`lease_until`, id).
    pub(crate) leased: BTreeSet<Cursor>,
    /// Finished: by (`finished_at`, id).
    pub(crate) done: BTreeSet<Cursor>,
    pub(crate) failed: BTreeSet<Cursor>,
    pub(crate) cancelled: BTreeSet<Cursor>,
    pub(crate) keys: BTreeMap<IdempotencyKey, KeyRecord>,
    /// Keys whose job is gone: by the end of their window.
    pub(crate) orphans: BTreeSet<(Wall, IdempotencyKey)>,
    pub(crate) workers: BTreeMap<WorkerId, Seen>,
    pub(crate) settings: BTreeMap<SettingKey, SettingValue>,
    pub(crate) markers: BTreeMap<ProcessId, Marker>,
    pub(crate) figures: BTreeMap<FigureKey, Vec<u8>>,
    pub(crate) groups: BTreeMap<GroupId, GroupRow>,
    /// Dead letters by error group, then by (`finished_at`, id).
    pub(crate) grouped: BTreeSet<(GroupId, Cursor)>,
    pub(crate) bulk: BTreeMap<BulkId, Vec<u8>>,
}

/// A queue, its counters, and its ready jobs.
#[derive(Debug, Clone)]
pub(crate) struct QueueTable {
    pub(crate) queue: Queue,
    pub(crate) kinds: BTreeMap<Kind, KindTable>,
    /// Ready jobs of all kinds: by the instant of their view, then by id.
    pub(crate) waiting: BTreeSet<Cursor>,
    /// The state of its rates.
    pub(crate) tats: Tats,
}

/// The counters and the ready jobs of one kind in a queue.
#[derive(Debug, Clone, Default)]
pub(crate) struct KindTable {
    pub(crate) counts: [i64; View::ALL.len()],
    pub(crate) retrying: i64,
    pub(crate) ready: BTreeSet<Rank>,
}

/// A worker that was seen.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) worker: Worker,
    pub(crate) first: Wall,
    pub(crate) last: Wall,
    pub(crate) stopping: bool,
}

impl Tables {
    pub(crate) fn next_id(&self) -> JobId {
        JobId::new(self.last_id.saturating_add(1)).unwrap_or(JobId::LAST)
    }

    /// The mark of a store that takes no batches.
    pub(crate) fn seal(&self) -> Option<&SettingValue> {
        self.settings.iter().find(|(key, _)| is_seal(key)).map(|(_, value)| value)
    }

    /// Keeps everything a batch changed.
    pub(crate) fn write(&mut self, changes: Changes, now: Wall) {
        self.version += 1;
        self.write_groups(&changes);
        for queue in changes.queues {
            self.put_queue(queue);
        }

        self.write_jobs(changes.inserts, changes.updates, changes.removes);
        for doc in changes.docs {
            self.docs.insert((doc.job, doc.doc), doc.text);
        }
        self.errors.extend(changes.errors);
        for (job, epoch) in changes.dropped_attempts {
            self.drop_attempts(job, epoch);
        }
        for attempt in changes.attempts {
            self.attempts.insert((attempt.job, attempt.epoch), attempt);
        }
        for record in changes.keys {
            self.put_key(record.key.clone(), Some(record));
        }
        for key in changes.dropped_keys {
            self.put_key(key, None);
        }
        for delta in changes.counts {
            self.add_counts(&delta);
        }
        self.put_tats(changes.tats);
        for name in &changes.dropped_queues {
            self.queues.remove(name);
            self.limited.remove(name);
        }
        for (key, value) in changes.settings {
            match value {
                Some(value) => self.settings.insert(key, value),
                None => self.settings.remove(&key),
            };
        }
        for id in &changes.touched_workers {
            if let Some(seen) = self.workers.get_mut(id) {
                seen.last = now;
            }
        }
        self.write_workers(changes.workers, &changes.removed_workers, now);
        for id in &changes.stopped_workers {
            if let Some(seen) = self.workers.get_mut(id) {
                seen.stopping = true;
            }
        }
        if let Some(before) = changes.drop_silent {
            self.markers.retain(|_, marker| marker.at >= before);
            self.workers.retain(|_, seen| seen.last >= before);
        }
        for FigureRow { key, data } in changes.figures {
            self.figures.insert(key, data);
        }
        for key in changes.dropped_figures {
            self.figures.remove(&key);
        }
        self.bulk.extend(changes.bulk.into_iter().map(|row| (row.id, row.data)));
        for id in &changes.dropped_bulk {
            self.bulk.remove(id);
        }
        if let Some(next) = changes.next_id {
            self.last_id = self.last_id.max(next.get() - 1);
        }
        if let Some(marker) = changes.marker {
            self.markers.insert(marker.batch.process, marker);
        }
    }

    /// Before jobs are written: the rows still tell which groups dead letters leave.
    fn write_groups(&mut self, changes: &Changes) {
        for (id, _) in changes.no_longer_dead() {
            let place = self.jobs.get(&id).and_then(grouped);
            place.map(|place| self.grouped.remove(&place));
        }
        let dead = changes.newly_dead();
        self.grouped.extend(dead.map(|(id, group, at)| (group, Cursor { at, id })));
        for group in &changes.groups {
            self.groups.insert(group.id, group.clone());
        }
        for id in &changes.dropped_groups {
            self.groups.remove(id);
        }
    }

    fn write_jobs(&mut self, inserts: Vec<Job>, updates: Vec<Moved>, removes: Vec<Moved>) {
        for job in inserts {
            self.last_id = self.last_id.max(job.id.get());
            self.index(&job, job.index_key(), true);
            self.jobs.insert(job.id, job);
        }
        for Moved { from, job } in updates {
            self.index(&job, from, false);
            self.index(&job, job.index_key(), true);
            self.jobs.insert(job.id, job);
        }
        for Moved { from, job } in removes {
            self.index(&job, from, false);
            self.jobs.remove(&job.id);
            for doc in [Doc::Payload, Doc::Result, Doc::Progress] {
                self.docs.remove(&(job.id, doc));
            }
            self.errors.remove(&job.id);
            self.drop_attempts(job.id, Epoch::new(u64::MAX));
        }
    }

    /// Adds or removes the keys by which a job is found.
    fn index(&mut self, job: &Job, key: IndexKey, add: bool) {
        let IndexKey { view, at, rank, .. } = key;
        let id = job.id;
        let table = match view {
            View::Queued => return self.index_ready(job, Cursor { at, id }, rank, add),
            View::Processing => &mut self.leased,
            View::Scheduled => &mut self.scheduled,
            View::Done => &mut self.done,
            View::Failed => &mut self.failed,
            View::Cancelled => &mut self.cancelled,
        };
        put(table, Cursor { at, id }, add);
    }

    fn index_ready(&mut self, job: &Job, place: Cursor, rank: Rank, add: bool) {
        let queue = self.queue_table(&job.queue);
        put(&mut queue.waiting, place, add);
        let ready = &mut queue.kind_table(&job.kind).ready;
        let before = ready.first().copied();
        put(ready, rank, add);
        let after = ready.first().copied();
        if before == after {
            return;
        }
        if let Some(before) = before {
            self.heads.remove(&before);
        }
        if let Some(after) = after {
            self.heads.insert(after, (job.queue.clone(), job.kind.clone()));
        }
    }

    fn put_queue(&mut self, queue: Queue) {
        let name = queue.name.clone();
        if queue.is_limited() {
            self.limited.insert(name.clone());
        } else {
            self.limited.remove(&name);
        }
        self.queue_table(&name).queue = queue;
    }

    /// Core has written the texts: they can be read.
    fn put_tats(&mut self, tats: Vec<(QueueName, Option<String>)>) {
        for (name, text) in tats {
            self.queue_table(&name).tats = Tats::parse(text.as_deref()).unwrap_or_default();
        }
    }

    fn queue_table(&mut self, name: &QueueName) -> &mut QueueTable {
        self.queues.entry(name.clone()).or_insert_with(|| QueueTable {
            queue: Queue::new(name.clone()),
            kinds: BTreeMap::new(),
            waiting: BTreeSet::new(),
            tats: Tats::default(),
        })
    }

    fn add_counts(&mut self, delta: &CountDelta) {
        let table = self.queue_table(&delta.queue);
        let kind = table.kind_table(&delta.kind);
        for (count, by) in kind.counts.iter_mut().zip(delta.by) {
            *count += by;
        }
        kind.retrying += delta.retrying;
        if kind.counts == [0; View::ALL.len()] {
            table.kinds.remove(&delta.kind);
        }
    }

    fn drop_attempts(&mut self, job: JobId, to: Epoch) {
        let old = self.attempts.range((job, Epoch::NEVER)..=(job, to));
        let old: Vec<(JobId, Epoch)> = old.map(|(key, _)| *key).collect();
        for key in old {
            self.attempts.remove(&key);
        }
    }

    fn put_key(&mut self, key: IdempotencyKey, record: Option<KeyRecord>) {
        let until = record.as_ref().and_then(|record| record.orphan_until);
        let left = match record {
            Some(record) => self.keys.insert(key.clone(), record),
            None => self.keys.remove(&key),
        };
        if let Some(at) = left.and_then(|record| record.orphan_until) {
            self.orphans.remove(&(at, key.clone()));
        }
        if let Some(at) = until {
            self.orphans.insert((at, key));
        }
    }

    fn write_workers(&mut self, seen: Vec<Worker>, removed: &[WorkerId], now: Wall) {
        for id in removed {
            self.workers.remove(id);
        }
        for worker in seen {
            let id = worker.id.clone();
            let known = self.workers.get(&id);
            let first = known.map_or(now, |known| known.first);
            let stopping = known.is_some_and(|known| known.stopping);
            self.workers.insert(id, Seen { worker, first, last: now, stopping });
        }
    }

    // Reading.

    pub(crate) fn bulk_rows(&self) -> Vec<BulkRow> {
        self.bulk.iter().map(|(id, data)| BulkRow { id: *id, data: data.clone() }).collect()
    }

    pub(crate) fn payload(&self, id: JobId) -> Option<Payload> {
        self.docs.get(&(id, Doc::Payload)).cloned()
    }

    pub(crate) fn detail(&self, id: JobId) -> Option<JobDetail> {
        Some(JobDetail {
            job: self.jobs.get(&id)?.clone(),
            payload: self.payload(id)?,
            result: self.docs.get(&(id, Doc::Result)).cloned(),
            progress: self.docs.get(&(id, Doc::Progress)).cloned(),
            last_error: self.errors.get(&id).cloned(),
        })
    }

    /// The rows of figures of a span whose slot starts within these bounds, by key.
    pub(crate) fn figure_rows(
        &self,
        span: Span,
        from: Bound<Wall>,
        to: Bound<Wall>,
    ) -> impl Iterator<Item = FigureRow> {
        let key = |slot, process| FigureKey { span, slot, process: ProcessId(process) };
        let (first, last) = (key(Wall::new(i64::MIN), 0), key(Wall::MAX, u64::MAX));
        let rows = self.figures.range(first..=last);
        let within = move |key: &FigureKey| (from, to).contains(&key.slot);
        let rows = rows.filter(move |(key, _)| within(key));
        rows.map(|(key, data)| FigureRow { key: *key, data: data.clone() })
    }

    pub(crate) fn worker_rows(&self) -> Vec<WorkerRow> {
        let mut rows: BTreeMap<&WorkerId, WorkerRow> = BTreeMap::new();
        for (id, seen) in &self.workers {
            let Seen { worker, first: started_at, last: last_seen, stopping } = seen.clone();
            let running = Vec::new();
            rows.insert(id, WorkerRow { worker, started_at, last_seen, stopping, running });
        }
        for cursor in &self.leased {
            let lease = self.jobs.get(&cursor.id).and_then(Job::lease);
            if let Some(row) = lease.and_then(|lease| rows.get_mut(&lease.worker)) {
                row.running.push(cursor.id);
            }
        }
        for row in rows.values_mut() {
            row.running.sort_unstable();
        }
        rows.into_values().collect()
    }
}

/// Where a dead letter is in the index by error group.
pub(crate) fn grouped(job: &Job) -> Option<(GroupId, Cursor)> {
    let place = Cursor { at: job.index_key().at, id: job.id };
    job.state.group().map(|group| (group, place))
}

impl QueueTable {
    fn kind_table(&mut self, kind: &Kind) -> &mut KindTable {
        self.kinds.entry(kind.clone()).or_default()
    }

    pub(crate) fn row(&self) -> QueueRow {
        let kinds = self.kinds.iter().map(|(kind, table)| (kind.clone(), table.counts()));
        QueueRow { queue: self.queue.clone(), kinds: kinds.collect(), tats: self.tats.clone() }
    }
}

impl KindTable {
    fn counts(&self) -> Counts {
        let number = |count| u64::try_from(count).unwrap_or(0);
        Counts::new(self.counts.map(number)).with_retrying(number(self.retrying))
    }
}

fn put<K: Ord>(set: &mut BTreeSet<K>, key: K, add: bool) {
    let changed = if add { set.insert(key) } else { set.remove(&key) };
    debug_assert!(changed, "a key is added once and removed once");
}

/// Tables that several handles and readers share.
pub(crate) type Shared<T> = Arc<RwLock<T>>;
