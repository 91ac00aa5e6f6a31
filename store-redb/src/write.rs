//! Keeps what a batch changed: each row once, each table once, each in the order of its keys.

use redb::{ReadableTable, Table, WriteTransaction};
use windlass_core::limits::ATTEMPTS_KEPT;
use windlass_core::store::{Changes, CountDelta, Doc, Moved};
use windlass_core::{
    Attempt, Epoch, IdempotencyKey, Job, JobId, KeyRecord, Queue, Rank, Standing, View, Wall,
    WorkerId,
};

use crate::bytes::utf8;
use crate::names::Names;
use crate::rows::{self, Numbers, QueueBytes, Seen, bad};
use crate::sorted::{put_all, remove_all, replace_all};
use crate::tables::{
    ATTEMPTS, Access, CANCELLED, COUNTS, DONE, ERRORS, FAILED, Found, JOBS, KEYS, LAST_ID, LEASED,
    MARKERS, META, ORPHANS, PAYLOADS, PROGRESS, QUEUES, READY, RESULTS, SCHEDULED, SETTINGS,
    TimeTable, WAITING, WORKERS, attempt_key, instant_of, orphan_key, pair_key, ready_key,
    time_key, waiting_key,
};

/// Keeps everything a batch changed.
pub(crate) fn write(
    txn: &WriteTransaction,
    names: &mut Names,
    changes: &Changes,
    now: Wall,
) -> Found<()> {
    for queue in &changes.queues {
        put_queue(txn, names, queue)?;
    }
    write_jobs(txn, names, changes)?;
    put_docs(txn, changes)?;
    put_attempts(txn, &changes.attempts)?;
    put_keys(txn, &changes.keys, &changes.dropped_keys)?;
    add_counts(txn, names, &changes.counts)?;
    put_settings(txn, changes)?;
    put_workers(txn, changes, now)?;
    if let Some(marker) = &changes.marker {
        let row = written(|out| rows::put_marker(out, marker));
        txn.open(MARKERS)?.insert(marker.batch.process.0, row.as_slice())?;
    }
    Ok(())
}

fn put_queue(txn: &WriteTransaction, names: &mut Names, queue: &Queue) -> Found<()> {
    let number = names.queues.ensure(txn, &queue.name)?;
    let settings = &queue.settings;
    let row = QueueBytes {
        paused: queue.paused,
        max_queued: settings.max_queued,
        concurrency: settings.concurrency,
        visibility_timeout: settings.visibility_timeout,
        max_retries: settings.max_retries,
        timeout: settings.timeout,
        retry: settings.retry.map(|retry| names.retries.ensure(txn, &retry)).transpose()?,
    };
    let row = written(|out| rows::put_queue(out, &row));
    txn.open(QUEUES)?.insert(number, row.as_slice())?;
    Ok(())
}

// Jobs and the keys by which they are found.

fn write_jobs(txn: &WriteTransaction, names: &mut Names, changes: &Changes) -> Found<()> {
    let mut arena = Arena::default();
    let mut index = Index::default();
    let mut new = Vec::with_capacity(changes.inserts.len());
    for job in &changes.inserts {
        let numbers = names.ensure(txn, job)?;
        new.push((job.id.get(), arena.add(|out| rows::put_job(out, job, numbers))));
        index.add(job, numbers);
    }
    let mut updated = Vec::with_capacity(changes.updates.len());
    for Moved { from, job } in &changes.updates {
        let numbers = names.ensure(txn, job)?;
        updated.push((job.id.get(), arena.add(|out| rows::put_job(out, job, numbers))));
        index.change(from, job, numbers);
    }
    for Moved { from, job } in &changes.removes {
        let numbers = names.ensure(txn, job)?;
        index.remove(from, job, numbers);
    }
    let mut jobs = txn.open(JOBS)?;
    let updated: Vec<(u64, &[u8])> =
        updated.iter().map(|(id, row)| (*id, arena.slice(*row))).collect();
    replace_all(&mut jobs, &updated)?;
    let new: Vec<(u64, &[u8])> = new.iter().map(|(id, row)| (*id, arena.slice(*row))).collect();
    put_all(&mut jobs, &new)?;
    drop(jobs);
    if let Some((last, _)) = new.last() {
        txn.open(META)?.insert(LAST_ID, last)?;
    }
    index.write(txn)?;
    remove_jobs(txn, &changes.removes)
}

/// Removes the rows of jobs and everything kept beside them.
fn remove_jobs(txn: &WriteTransaction, jobs: &[Moved]) -> Found<()> {
    if jobs.is_empty() {
        return Ok(());
    }
    let mut ids: Vec<u64> = jobs.iter().map(|moved| moved.job.id.get()).collect();
    ids.sort_unstable();
    for table in [JOBS, PAYLOADS, RESULTS, PROGRESS, ERRORS] {
        remove_all(&mut txn.open(table)?, &ids)?;
    }
    let mut attempts = txn.open(ATTEMPTS)?;
    for Moved { job, .. } in jobs {
        forget_attempts(&mut attempts, job.id, Epoch::new(u64::MAX))?;
    }
    Ok(())
}

/// The keys by which jobs are found: those to put in place and those to remove.
#[derive(Debug, Default)]
pub(crate) struct Index<'j> {
    ready: Moves<[u8; 26]>,
    waiting: Moves<[u8; 20]>,
    /// By time, in the order of [`View::ALL`]; leases are put in place with their holder.
    times: [Moves<[u8; 16]>; View::ALL.len()],
    holders: Vec<([u8; 16], &'j Job)>,
}

impl<'j> Index<'j> {
    /// Adds the keys of a job.
    pub(crate) fn add(&mut self, job: &'j Job, numbers: Numbers) {
        let view = job.state.view();
        let key = time_key(instant_of(job), job.id.get());
        match view {
            View::Queued => {
                self.ready.put.push(ready_key(numbers.queue, numbers.kind, job.rank()));
                self.waiting.put.push(waiting_key(numbers.queue, job.run_at, job.id.get()));
            }
            View::Processing => self.holders.push((key, job)),
            _ => self.times[view.index()].put.push(key),
        }
    }

    /// Removes the keys that a job has where it stands.
    fn remove(&mut self, from: &Standing, job: &Job, numbers: Numbers) {
        let id = job.id;
        if from.view == View::Queued {
            let rank = Rank { priority: job.priority, run_at: from.run_at, id };
            self.ready.removed.push(ready_key(numbers.queue, numbers.kind, rank));
            self.waiting.removed.push(waiting_key(numbers.queue, from.run_at, id.get()));
        } else {
            self.times[from.view.index()].removed.push(time_key(from.at, id.get()));
        }
    }

    fn change(&mut self, from: &Standing, job: &'j Job, numbers: Numbers) {
        let to = job.standing();
        let stays = (from.view, from.at, from.run_at) == (to.view, to.at, to.run_at);
        // A lease may have another length, though it ends at the same instant.
        if !stays || to.view == View::Processing {
            self.remove(from, job, numbers);
            self.add(job, numbers);
        }
    }

    /// Moves all keys, in their order.
    pub(crate) fn write(mut self, txn: &WriteTransaction) -> Found<()> {
        if !self.ready.is_empty() {
            self.ready.write(&mut txn.open(READY)?)?;
            self.waiting.write(&mut txn.open(WAITING)?)?;
        }
        let tables: [(View, TimeTable); 4] = [
            (View::Scheduled, SCHEDULED),
            (View::Done, DONE),
            (View::Failed, FAILED),
            (View::Cancelled, CANCELLED),
        ];
        for (view, table) in tables {
            let moves = &mut self.times[view.index()];
            if !moves.is_empty() {
                moves.write(&mut txn.open(table)?)?;
            }
        }
        self.write_leases(txn)
    }

    fn write_leases(&mut self, txn: &WriteTransaction) -> Found<()> {
        let removed = &mut self.times[View::Processing.index()].removed;
        if removed.is_empty() && self.holders.is_empty() {
            return Ok(());
        }
        let mut leased = txn.open(LEASED)?;
        removed.sort_unstable();
        remove_all(&mut leased, removed)?;
        self.holders.sort_unstable_by_key(|(key, _)| *key);
        let mut arena = Arena::default();
        let mut places = Vec::with_capacity(self.holders.len());
        for (key, job) in &self.holders {
            let Some(lease) = job.lease() else { continue };
            let row = arena.add(|out| rows::put_holder(out, &lease.worker, lease.length));
            places.push((*key, row));
        }
        let put: Vec<([u8; 16], &[u8])> =
            places.iter().map(|(key, row)| (*key, arena.slice(*row))).collect();
        put_all(&mut leased, &put)
    }
}

/// Keys of one table: those to put in place and those to remove.
#[derive(Debug)]
struct Moves<K> {
    put: Vec<K>,
    removed: Vec<K>,
}

impl<K> Default for Moves<K> {
    fn default() -> Self {
        Self { put: Vec::new(), removed: Vec::new() }
    }
}

impl<const N: usize> Moves<[u8; N]> {
    fn is_empty(&self) -> bool {
        self.put.is_empty() && self.removed.is_empty()
    }

    fn write(&mut self, table: &mut Table<'_, &'static [u8; N], ()>) -> Found<()> {
        self.removed.sort_unstable();
        self.put.sort_unstable();
        remove_all(table, &self.removed)?;
        let put: Vec<([u8; N], ())> = self.put.iter().map(|key| (*key, ())).collect();
        put_all(table, &put)
    }
}

// What is kept beside jobs.

fn put_docs(txn: &WriteTransaction, changes: &Changes) -> Found<()> {
    for (doc, table) in
        [(Doc::Payload, PAYLOADS), (Doc::Result, RESULTS), (Doc::Progress, PROGRESS)]
    {
        let writes = changes.docs.iter().filter(|write| write.doc == doc);
        let mut texts: Vec<(u64, &[u8])> =
            writes.map(|write| (write.job.get(), write.text.as_str().as_bytes())).collect();
        if !texts.is_empty() {
            texts.sort_by_key(|(job, _)| *job);
            put_latest(&mut txn.open(table)?, texts)?;
        }
    }
    if !changes.errors.is_empty() {
        let mut arena = Arena::default();
        let mut errors: Vec<(u64, Place)> = Vec::with_capacity(changes.errors.len());
        for (job, error) in &changes.errors {
            errors.push((job.get(), arena.add(|out| rows::put_error(out, error))));
        }
        errors.sort_by_key(|(job, _)| *job);
        let errors = errors.into_iter().map(|(job, row)| (job, arena.slice(row))).collect();
        put_latest(&mut txn.open(ERRORS)?, errors)?;
    }
    Ok(())
}

/// Puts texts in place, sorted by job; of several for one job the last counts.
fn put_latest(
    table: &mut Table<'_, u64, &'static [u8]>,
    mut texts: Vec<(u64, &[u8])>,
) -> Found<()> {
    texts.reverse();
    texts.dedup_by_key(|(job, _)| *job);
    texts.reverse();
    put_all(table, &texts)
}

fn put_attempts(txn: &WriteTransaction, attempts: &[Attempt]) -> Found<()> {
    if attempts.is_empty() {
        return Ok(());
    }
    let mut table = txn.open(ATTEMPTS)?;
    for attempt in attempts {
        let forgotten = attempt.epoch.get().saturating_sub(ATTEMPTS_KEPT);
        if forgotten > 0 {
            forget_attempts(&mut table, attempt.job, Epoch::new(forgotten))?;
        }
        let row = written(|out| rows::put_attempt(out, attempt));
        table.insert(&attempt_key(attempt.job, attempt.epoch), row.as_slice())?;
    }
    Ok(())
}

fn forget_attempts(
    table: &mut Table<'_, &'static [u8; 16], &'static [u8]>,
    job: JobId,
    to: Epoch,
) -> Found<()> {
    let (first, last) = (attempt_key(job, Epoch::NEVER), attempt_key(job, to));
    table.retain_in::<&[u8; 16], _>(&first..=&last, |_, _| false)?;
    Ok(())
}

/// Puts keys in place, and removes others.
pub(crate) fn put_keys(
    txn: &WriteTransaction,
    put: &[KeyRecord],
    dropped: &[IdempotencyKey],
) -> Found<()> {
    if put.is_empty() && dropped.is_empty() {
        return Ok(());
    }
    let (mut keys, mut orphans) = (txn.open(KEYS)?, txn.open(ORPHANS)?);
    let kept = put.iter().map(|record| (&record.key, Some(record)));
    for (key, record) in kept.chain(dropped.iter().map(|key| (key, None))) {
        let name = key.as_str().as_bytes();
        let left = if let Some(record) = record {
            keys.insert(name, written(|out| rows::put_key(out, record)).as_slice())?
        } else {
            keys.remove(name)?
        };
        let left = left.map(|row| rows::key_record(key.clone(), row.value())).transpose()?;
        if let Some(until) = left.and_then(|left| left.orphan_until) {
            orphans.remove(orphan_key(until, name).as_slice())?;
        }
        if let Some(until) = record.and_then(|record| record.orphan_until) {
            orphans.insert(orphan_key(until, name).as_slice(), ())?;
        }
    }
    Ok(())
}

fn add_counts(txn: &WriteTransaction, names: &mut Names, deltas: &[CountDelta]) -> Found<()> {
    if deltas.is_empty() {
        return Ok(());
    }
    let mut table = txn.open(COUNTS)?;
    for CountDelta { queue, kind, by } in deltas {
        let queue = names.queues.ensure(txn, queue)?;
        let key = pair_key(queue, names.kinds.ensure(txn, kind)?);
        let left = table.get(&key)?.map(|row| rows::counts(row.value())).transpose()?;
        let left = left.unwrap_or_default();
        let counts = View::ALL.map(|view| {
            let count = left.get(view).cast_signed().saturating_add(by[view.index()]);
            u64::try_from(count).unwrap_or(0)
        });
        // A row of zeros is as good as none: kinds that have gone leave nothing behind.
        if counts == [0; View::ALL.len()] {
            table.remove(&key)?;
        } else {
            table.insert(&key, written(|out| rows::put_counts(out, &counts)).as_slice())?;
        }
    }
    Ok(())
}

fn put_settings(txn: &WriteTransaction, changes: &Changes) -> Found<()> {
    for (key, value) in &changes.settings {
        let mut table = txn.open(SETTINGS)?;
        let key = key.as_str().as_bytes();
        match value {
            Some(value) => table.insert(key, value.as_str().as_bytes())?,
            None => table.remove(key)?,
        };
    }
    Ok(())
}

fn put_workers(txn: &WriteTransaction, changes: &Changes, now: Wall) -> Found<()> {
    let Changes { removed_workers, workers, stopped_workers, heard, .. } = changes;
    let named = removed_workers.len() + workers.len() + stopped_workers.len() + heard.len();
    if named == 0 && changes.forget_silent.is_none() {
        return Ok(());
    }
    let mut table = txn.open(WORKERS)?;
    for id in removed_workers {
        table.remove(id.as_str().as_bytes())?;
    }
    for worker in workers {
        let known = known(&table, &worker.id)?;
        let (first, stopping) = known.map_or((now, false), |known| (known.first, known.stopping));
        put_worker(&mut table, &Seen { worker: worker.clone(), first, last: now, stopping })?;
    }
    for id in stopped_workers {
        if let Some(known) = known(&table, id)? {
            put_worker(&mut table, &Seen { stopping: true, ..known })?;
        }
    }
    for id in heard {
        if let Some(known) = known(&table, id)? {
            put_worker(&mut table, &Seen { last: now, ..known })?;
        }
    }
    if let Some(before) = changes.forget_silent {
        forget_silent(txn, &mut table, before)?;
    }
    Ok(())
}

type WorkerTable<'t> = Table<'t, &'static [u8], &'static [u8]>;

fn known(table: &WorkerTable<'_>, id: &WorkerId) -> Found<Option<Seen>> {
    let row = table.get(id.as_str().as_bytes())?;
    row.map(|row| rows::worker(id.clone(), row.value())).transpose()
}

fn put_worker(table: &mut WorkerTable<'_>, seen: &Seen) -> Found<()> {
    let row = written(|out| rows::put_worker(out, seen));
    table.insert(seen.worker.id.as_str().as_bytes(), row.as_slice())?;
    Ok(())
}

fn forget_silent(txn: &WriteTransaction, workers: &mut WorkerTable<'_>, before: Wall) -> Found<()> {
    let mut silent = Vec::new();
    for row in workers.iter()? {
        let (id, row) = row?;
        let id = WorkerId::new(utf8(id.value())?).map_err(bad)?;
        if rows::worker(id.clone(), row.value())?.last < before {
            silent.push(id);
        }
    }
    for id in silent {
        workers.remove(id.as_str().as_bytes())?;
    }
    let mut markers = txn.open(MARKERS)?;
    let mut silent = Vec::new();
    for row in markers.iter()? {
        let (process, row) = row?;
        if rows::marker(process.value(), row.value())?.at < before {
            silent.push(process.value());
        }
    }
    for process in silent {
        markers.remove(process)?;
    }
    Ok(())
}

/// A row by itself.
pub(crate) fn written(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut row = Vec::new();
    write(&mut row);
    row
}

/// Rows one behind the other, so that a batch of them costs no allocation each.
#[derive(Debug, Default)]
pub(crate) struct Arena(Vec<u8>);

/// Where a row starts and ends.
type Place = (usize, usize);

impl Arena {
    pub(crate) fn add(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Place {
        let start = self.0.len();
        write(&mut self.0);
        (start, self.0.len())
    }

    pub(crate) fn slice(&self, (start, end): Place) -> &[u8] {
        &self.0[start..end]
    }
}
