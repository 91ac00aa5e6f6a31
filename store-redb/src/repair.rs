//! Repair: makes what follows from something else again, and puts what is lost in order.

use std::collections::BTreeMap;

use redb::{ReadableTable, WriteTransaction};
use windlass_core::store::{lost_error, repaired_key, restored_key};
use windlass_core::{Counts, IdempotencyKey, Job, JobId, KeyRecord, Rank, View, WorkerId};

use crate::bytes::utf8;
use crate::check::OF_JOBS;
use crate::find::Rows;
use crate::groups;
use crate::index::Index;
use crate::names::Names;
use crate::rows::{self, JobRow, bad};
use crate::tables::{
    ATTEMPTS, Access, CANCELLED, COUNTS, DONE, ERRORS, FAILED, Found, JOBS, KEYED, KEYS, LAST_ID,
    LEASED, META, ORPHANS, PAIRS, PAYLOADS, READY, SCHEDULED, SETTLED, attempt_place, job_id,
    pair_key, time_key, time_place,
};
use crate::write::{put_keys, written};

pub(crate) fn repair(txn: &WriteTransaction) -> Found<()> {
    let stored = stored_rows(txn)?;
    remove_strays(txn, &stored)?;
    repair_leases(txn, &stored)?;
    let mut names = Names::default();
    let mut rows = Rows { access: txn, names: &mut names };
    let mut jobs: Vec<(Job, rows::Numbers)> = Vec::with_capacity(stored.len());
    let mut leases = rows.leases(stored.iter().map(|(id, row)| (*id, row)))?.into_iter();
    for (id, row) in stored {
        let numbers = row.numbers;
        let lease = if row.view == View::Processing { leases.next() } else { None };
        jobs.push((rows.job(id, &row, lease)?, numbers));
    }
    repair_derived(txn, &mut jobs)?;
    build_indexes(txn, &jobs)?;
    recount(txn, &jobs)?;
    repair_keys(txn, &jobs)?;
    let no_error = written(|out| rows::put_error(out, &lost_error()));
    let mut errors = txn.open(ERRORS)?;
    for (job, _) in jobs.iter().filter(|(job, _)| job.state.view() == View::Failed) {
        if errors.get(job.id.get())?.is_none() {
            errors.insert(job.id.get(), no_error.as_slice())?;
        }
    }
    let mut meta = txn.open(META)?;
    let last = meta.get(LAST_ID)?.map_or(0, |last| last.value());
    let most = jobs.last().map_or(0, |(job, _)| job.id.get());
    meta.insert(LAST_ID, last.max(most))?;
    drop(errors);
    groups::regroup(txn)
}

fn stored_rows(txn: &WriteTransaction) -> Found<BTreeMap<JobId, JobRow>> {
    let mut found = BTreeMap::new();
    for row in txn.open(JOBS)?.iter()? {
        let (id, row) = row?;
        found.insert(job_id(id.value())?, rows::job_row(row.value())?);
    }
    Ok(found)
}

fn remove_strays(txn: &WriteTransaction, jobs: &BTreeMap<JobId, JobRow>) -> Found<()> {
    let there = |id: u64| JobId::new(id).is_some_and(|id| jobs.contains_key(&id));
    for (_, table) in OF_JOBS {
        txn.open(table)?.retain(|job, _| there(job))?;
    }
    let known = |key: &[u8; 16]| attempt_place(key).is_ok_and(|(job, _)| jobs.contains_key(&job));
    txn.open(ATTEMPTS)?.retain(|key, _| known(key))?;
    Ok(())
}

/// Removes leases of no job. A leased job whose holder is unknown gets a holder that does not
/// exist, so that its lease expires.
fn repair_leases(txn: &WriteTransaction, jobs: &BTreeMap<JobId, JobRow>) -> Found<()> {
    let mut leased = txn.open(LEASED)?;
    let held = |key: &[u8; 16]| {
        let row = time_place(key).ok().and_then(|place| Some((place.at, jobs.get(&place.id)?)));
        row.is_some_and(|(at, row)| row.view == View::Processing && row.at == at)
    };
    leased.retain(|key, _| held(key))?;
    let unknown = WorkerId::new("unknown").map_err(bad)?;
    for (id, row) in jobs.iter().filter(|(_, row)| row.view == View::Processing) {
        let key = time_key(row.at, id.get());
        if leased.get(&key)?.is_none() {
            let holder = written(|out| rows::put_holder(out, &unknown, row.visibility_timeout));
            leased.insert(&key, holder.as_slice())?;
        }
    }
    Ok(())
}

/// What rows keep although it follows from something else: their rank, the length of their payload.
fn repair_derived(txn: &WriteTransaction, jobs: &mut [(Job, rows::Numbers)]) -> Found<()> {
    let (payloads, mut table) = (txn.open(PAYLOADS)?, txn.open(JOBS)?);
    for (job, numbers) in jobs {
        let payload = payloads.get(job.id.get())?;
        let bytes = payload.map(|payload| u32::try_from(payload.value().len())).transpose();
        let bytes = bytes.map_err(bad)?.unwrap_or(job.payload_bytes);
        let rank = if job.rank.fits(job) { job.rank } else { Rank::of(job) };
        let derived = (rank, bytes);
        if (job.rank, job.payload_bytes) != derived {
            (job.rank, job.payload_bytes) = derived;
            let row = written(|out| rows::put_job(out, job, *numbers));
            table.insert(job.id.get(), row.as_slice())?;
        }
    }
    Ok(())
}

fn build_indexes(txn: &WriteTransaction, jobs: &[(Job, rows::Numbers)]) -> Found<()> {
    txn.open(READY)?.retain(|_, ()| false)?;
    txn.open(PAIRS)?.retain(|_, ()| false)?;
    txn.open(SETTLED)?.retain(|_, ()| false)?;
    txn.open(KEYED)?.retain(|_, ()| false)?;
    for table in [SCHEDULED, DONE, FAILED, CANCELLED] {
        txn.open(table)?.retain(|_, ()| false)?;
    }
    let mut index = Index::default();
    for (job, numbers) in jobs {
        index.add(job, *numbers);
    }
    index.write(txn)
}

fn recount(txn: &WriteTransaction, jobs: &[(Job, rows::Numbers)]) -> Found<()> {
    let mut counted: BTreeMap<(u32, u32), Counts> = BTreeMap::new();
    for (job, numbers) in jobs {
        counted.entry((numbers.queue, numbers.kind)).or_default().add(job.into());
    }
    let mut counts = txn.open(COUNTS)?;
    counts.retain(|_, _| false)?;
    for ((queue, kind), count) in counted {
        let row = written(|out| rows::put_counts(out, &count));
        counts.insert(&pair_key(queue, kind), row.as_slice())?;
    }
    Ok(())
}

/// Puts keys as core says they should be.
fn repair_keys(txn: &WriteTransaction, jobs: &[(Job, rows::Numbers)]) -> Found<()> {
    let by_id: BTreeMap<JobId, &Job> = jobs.iter().map(|(job, _)| (job.id, job)).collect();
    let mut kept: BTreeMap<IdempotencyKey, KeyRecord> = BTreeMap::new();
    for row in txn.open(KEYS)?.iter()? {
        let (key, row) = row?;
        let key = IdempotencyKey::new(utf8(key.value())?).map_err(bad)?;
        let record = rows::key_record(key.clone(), row.value())?;
        let named = by_id.get(&record.job).copied();
        kept.extend(repaired_key(record, named).map(|record| (key, record)));
    }
    for job in by_id.values() {
        let Some(key) = &job.idempotency_key else { continue };
        let restored = restored_key(job, kept.get(key));
        kept.extend(restored.map(|record| (key.clone(), record)));
    }
    txn.open(KEYS)?.retain(|_, _| false)?;
    txn.open(ORPHANS)?.retain(|_, ()| false)?;
    let kept: Vec<KeyRecord> = kept.into_values().collect();
    put_keys(txn, &kept, &[])
}
