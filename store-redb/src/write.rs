//! Writes what a batch changed: each row once, each table once, each in the order of its keys.
//!
//! A row that is not where [`Moved::from`] says is an error. It is detected by counting the rows
//! and keys that were replaced and removed, without another read.

use std::fmt::Display;

use redb::{ReadableTable, Table, WriteTransaction};
use windlass_core::store::{Changes, CountDelta, Doc, Moved};
use windlass_core::{
    Counts, Epoch, IdempotencyKey, JobId, KeyRecord, Queue, QueueName, View, Wall, WorkerId,
};

use crate::bulk;
use crate::bytes::utf8;
use crate::figures;
use crate::groups;
use crate::index::Index;
use crate::names::Names;
use crate::rows::{self, QueueBytes, Seen, bad};
use crate::settings;
use crate::sorted::{put_all, remove_all, replace_all};
use crate::tables::{
    ATTEMPTS, Access, COUNTS, ERRORS, Found, JOBS, KEYS, LAST_ID, MARKERS, META, ORPHANS, PAYLOADS,
    PROGRESS, QUEUES, RATES, RESULTS, WORKERS, attempt_key, orphan_key, pair_key,
};

/// Writes everything a batch changed.
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
    put_attempts(txn, changes)?;
    put_keys(txn, &changes.keys, &changes.dropped_keys)?;
    add_counts(txn, names, &changes.counts)?;
    put_tats(txn, names, changes)?;
    settings::write(txn, changes)?;
    put_workers(txn, changes, now)?;
    figures::write(txn, changes)?;
    groups::write(txn, changes)?;
    bulk::write(txn, changes)?;
    if let Some(next) = changes.next_id {
        let mut meta = txn.open(META)?;
        let last = meta.get(LAST_ID)?.map_or(0, |last| last.value());
        meta.insert(LAST_ID, last.max(next.get() - 1))?;
    }
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
        paused: queue.paused.clone(),
        max_queued: settings.max_queued,
        concurrency: settings.concurrency,
        visibility_timeout: settings.visibility_timeout,
        max_retries: settings.max_retries,
        timeout: settings.timeout,
        retry: settings.retry.map(|retry| names.retries.ensure(txn, &retry)).transpose()?,
        flow: settings.flow.clone(),
    };
    let row = written(|out| rows::put_queue(out, &row));
    txn.open(QUEUES)?.insert(number, row.as_slice())?;
    Ok(())
}

fn put_tats(txn: &WriteTransaction, names: &mut Names, changes: &Changes) -> Found<()> {
    for (queue, tats) in &changes.tats {
        let number = names.queues.ensure(txn, queue)?;
        let mut rates = txn.open(RATES)?;
        match tats {
            Some(tats) => rates.insert(number, tats.as_bytes())?,
            None => rates.remove(number)?,
        };
    }
    Ok(())
}

/// Deletes a queue, which has no jobs.
pub(crate) fn drop_queue(txn: &WriteTransaction, names: &mut Names, name: &QueueName) -> Found<()> {
    if let Some(number) = names.drop_queue(txn, name)? {
        txn.open(QUEUES)?.remove(number)?;
        txn.open(RATES)?.remove(number)?;
    }
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
    expect("jobs to change", updated.len(), replace_all(&mut jobs, &updated)?)?;
    let new: Vec<(u64, &[u8])> = new.iter().map(|(id, row)| (*id, arena.slice(*row))).collect();
    expect("jobs with the ids of new ones", 0, put_all(&mut jobs, &new)?)?;
    drop(jobs);
    if let Some((last, _)) = new.last() {
        txn.open(META)?.insert(LAST_ID, last)?;
    }
    index.write(txn)?;
    remove_jobs(txn, &changes.removes)
}

/// Fails if the batch was decided on another number of rows. Only this process writes to the file,
/// so the file is damaged.
pub(crate) fn expect(what: impl Display, expected: usize, found: usize) -> Found<()> {
    if expected == found {
        return Ok(());
    }
    Err(bad(format!("found {found} {what}, expected {expected}")))
}

/// Removes the rows of jobs and everything kept beside them.
fn remove_jobs(txn: &WriteTransaction, jobs: &[Moved]) -> Found<()> {
    if jobs.is_empty() {
        return Ok(());
    }
    let ids: Vec<u64> = jobs.iter().map(|moved| moved.job.id.get()).collect();
    expect("jobs to remove", ids.len(), remove_all(&mut txn.open(JOBS)?, &ids)?)?;
    for table in [PAYLOADS, RESULTS, PROGRESS, ERRORS] {
        remove_all(&mut txn.open(table)?, &ids)?;
    }
    let mut attempts = txn.open(ATTEMPTS)?;
    for Moved { job, .. } in jobs {
        drop_attempts(&mut attempts, job.id, Epoch::new(u64::MAX))?;
    }
    Ok(())
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
    put_all(table, &texts)?;
    Ok(())
}

fn put_attempts(txn: &WriteTransaction, changes: &Changes) -> Found<()> {
    if changes.attempts.is_empty() && changes.dropped_attempts.is_empty() {
        return Ok(());
    }
    let mut table = txn.open(ATTEMPTS)?;
    for (job, epoch) in &changes.dropped_attempts {
        drop_attempts(&mut table, *job, *epoch)?;
    }
    for attempt in &changes.attempts {
        let row = written(|out| rows::put_attempt(out, attempt));
        table.insert(&attempt_key(attempt.job, attempt.epoch), row.as_slice())?;
    }
    Ok(())
}

/// Drops the attempts of a job up to this epoch.
fn drop_attempts(
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
    let mut changes = Vec::with_capacity(deltas.len());
    for CountDelta { queue, kind, by, retrying } in deltas {
        let queue = names.queues.ensure(txn, queue)?;
        changes.push((pair_key(queue, names.kinds.ensure(txn, kind)?), by, *retrying));
    }
    changes.sort_unstable_by_key(|(key, ..)| *key);
    let mut table = txn.open(COUNTS)?;
    let mut row = Vec::new();
    for (key, by, retrying) in changes {
        // Most are there and stay: these are read and replaced with one descent.
        let mut stored = table.get_mut(&key)?;
        let before = stored.as_ref().map(|row| rows::counts(row.value())).transpose()?;
        let after = sum(&before.unwrap_or_default(), by, retrying);
        row.clear();
        rows::put_counts(&mut row, &after);
        match &mut stored {
            // A row of zeros means the same as none: kinds without jobs leave nothing behind.
            _ if after.all() == 0 => {
                drop(stored);
                table.remove(&key)?;
            }
            Some(stored) => stored.insert(row.as_slice())?,
            None => {
                drop(stored);
                table.insert(&key, row.as_slice())?;
            }
        }
    }
    Ok(())
}

/// Counters as they are after a change.
fn sum(before: &Counts, by: &[i64; View::ALL.len()], retrying: i64) -> Counts {
    let sum =
        |count: u64, by: i64| u64::try_from(count.cast_signed().saturating_add(by)).unwrap_or(0);
    let views = View::ALL.map(|view| sum(before.get(view), by[view.index()]));
    Counts::new(views).with_retrying(sum(before.retrying(), retrying))
}

fn put_workers(txn: &WriteTransaction, changes: &Changes, now: Wall) -> Found<()> {
    let Changes { removed_workers, workers, stopped_workers, touched_workers, .. } = changes;
    let named =
        [removed_workers, stopped_workers, touched_workers].iter().any(|ids| !ids.is_empty());
    if !named && workers.is_empty() && changes.drop_silent.is_none() {
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
    for id in touched_workers {
        if let Some(known) = known(&table, id)? {
            put_worker(&mut table, &Seen { last: now, ..known })?;
        }
    }
    if let Some(before) = changes.drop_silent {
        drop_silent(txn, &mut table, before)?;
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

fn drop_silent(txn: &WriteTransaction, workers: &mut WorkerTable<'_>, before: Wall) -> Found<()> {
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
