//! For operators: does the store agree with itself, can it be mended, can it be copied.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::ops::Bound;
use std::path::Path;
use std::sync::{Arc, Weak};

use redb::{
    Database, Key, ReadTransaction, ReadableDatabase, ReadableTable, TableDefinition, Value,
    WriteTransaction,
};
use windlass_core::store::{Cause, Disagreement, Dump, StoreError, audit};
use windlass_core::{
    Counts, Excerpt, Fingerprint, IdempotencyKey, Job, JobId, KeyRecord, Rank, View, WorkerId,
};
use windlass_store_file::{directory_of, sync_directory};

use crate::bytes::utf8;
use crate::error::OpenError;
use crate::find::Rows;
use crate::names::Names;
use crate::open::copy_target;
use crate::rows::{self, JobRow, bad};
use crate::slot::Slot;
use crate::store::RedbStore;
use crate::tables::{
    ATTEMPTS, Access, CANCELLED, COUNTS, DONE, ERRORS, FAILED, Found, JOBS, KEYS, LAST_ID, LEASED,
    META, ORPHANS, PAYLOADS, PROGRESS, READY, RESULTS, SCHEDULED, WAITING, attempt_place,
    each_table, job_id, orphan_key, pair_key, ready_key, time_key, time_place, time_table,
    waiting_key,
};
use crate::write::{Index, put_keys, written};

/// What a keeper says that has outlived its store.
const CLOSED: &str = "the store is closed";

/// Tables whose rows belong to a job.
const OF_JOBS: [(&str, TableDefinition<'_, u64, &[u8]>); 4] =
    [("payload", PAYLOADS), ("result", RESULTS), ("progress", PROGRESS), ("error", ERRORS)];

/// Checks and copies a store that is in use, from any thread: see [`RedbStore::maintenance`].
/// It does not keep the file open once the store is gone.
#[derive(Debug, Clone)]
pub struct RedbMaintenance(Weak<Slot>);

impl RedbStore {
    /// A handle that checks and copies the store while it is in use.
    pub fn maintenance(&self) -> RedbMaintenance {
        RedbMaintenance(Arc::downgrade(&self.slot))
    }

    /// See [`RedbMaintenance::backup`].
    pub fn backup(&self, to: &Path) -> Result<(), OpenError> {
        self.maintenance().backup(to)
    }

    /// Checks every page, recomputes counters, keys and indexes from the rows, and lists everything
    /// that disagrees. Empty is good. It reads the whole store, and nobody else reads meanwhile.
    pub fn verify(&self) -> Result<Vec<Disagreement>, StoreError> {
        let mut opened = self.slot.alone();
        opened.db().map_err(StoreError::Fatal)?;
        let looked = opened.db.as_mut().map_or(Ok(Vec::new()), inspect);
        self.source.note_size();
        looked.map_err(|error| error.of_read(opened.note(&error)))
    }

    /// Makes derived data agree with the rows again: counters are counted anew, indexes built
    /// anew, ranks and lengths of payloads set again, and what belongs to no job is removed.
    pub fn repair(&mut self) -> Result<(), StoreError> {
        self.cache.forget();
        let opened = self.slot.alone();
        let db = opened.db().map_err(StoreError::Fatal)?;
        let mended = || -> Found<()> {
            let mut txn = db.begin_write()?;
            txn.set_two_phase_commit(true);
            mend(&txn)?;
            Ok(txn.commit()?)
        };
        let result = mended().map_err(|error| error.of_read(opened.note(&error)));
        self.source.note_size();
        result
    }
}

impl RedbMaintenance {
    /// Recomputes counters, keys and indexes from the rows, and lists everything that disagrees.
    /// Empty is good. It reads the whole store, beside those who write; pages are not checked, for
    /// which the store would have to stand still: [`RedbStore::verify`] does that.
    pub fn verify(&self) -> Result<Vec<Disagreement>, StoreError> {
        let slot = self.0.upgrade().ok_or_else(|| StoreError::Fatal(Cause::new(CLOSED)))?;
        slot.read(|txn, _| look(txn))
    }

    /// Copies the store, as it is at one instant, to a file that does not exist yet; the store may
    /// go on writing.
    pub fn backup(&self, to: &Path) -> Result<(), OpenError> {
        let target = copy_target(to)?;
        let copied = self.copy_to(target, to);
        if copied.is_err() {
            // Half a copy is worse than none.
            let _ = fs::remove_file(to);
        }
        copied
    }

    fn copy_to(&self, target: Database, to: &Path) -> Result<(), OpenError> {
        let failed = |source| OpenError::creating(to, source);
        let slot = self.0.upgrade().ok_or_else(|| OpenError::new(to, bad(CLOSED)))?;
        let opened = slot.shared();
        let copied = || -> Found<()> {
            let from = opened.db().map_err(bad)?.begin_read()?;
            let mut txn = target.begin_write()?;
            txn.set_two_phase_commit(true);
            copy_tables(&from, &txn)?;
            Ok(txn.commit()?)
        };
        copied().map_err(|error| OpenError::new(to, error))?;
        drop(target);
        File::open(to).and_then(|file| file.sync_all()).map_err(failed)?;
        sync_directory(directory_of(to)).map_err(failed)
    }
}

fn copy_tables(from: &ReadTransaction, to: &WriteTransaction) -> Found<()> {
    macro_rules! copy {
        ($table:expr) => {
            copy_table(from, to, $table)?;
        };
    }
    each_table!(copy);
    Ok(())
}

fn copy_table<K: Key + 'static, V: Value + 'static>(
    from: &ReadTransaction,
    to: &WriteTransaction,
    table: TableDefinition<'_, K, V>,
) -> Found<()> {
    let from = from.open(table)?;
    let mut to = to.open(table)?;
    let mut end = to.upper_bound_mut(Bound::<K::SelfType<'_>>::Unbounded)?;
    for row in from.iter()? {
        let (key, value) = row?;
        end.insert_before(key.value(), value.value())?;
    }
    Ok(end.close()?)
}

// Looking for disagreements.

fn inspect(db: &mut Database) -> Found<Vec<Disagreement>> {
    let mut found = Vec::new();
    if !db.check_integrity()? {
        found.push(Disagreement("redb found pages out of order, and put them right".into()));
    }
    found.extend(look(&db.begin_read()?)?);
    Ok(found)
}

fn look(txn: &ReadTransaction) -> Found<Vec<Disagreement>> {
    let mut names = Names::default();
    let mut rows = Rows { access: txn, names: &mut names };
    let dump = rows.dump()?;
    let mut found = audit(&dump);
    found.extend(strays(txn, &dump)?);
    found.extend(indexes(&mut rows, &dump)?);
    Ok(found)
}

/// Texts and attempts that belong to no job.
fn strays(txn: &ReadTransaction, dump: &Dump) -> Found<Vec<Disagreement>> {
    let jobs: BTreeSet<u64> = dump.jobs.iter().map(|row| row.job.id.get()).collect();
    let mut found = Vec::new();
    for (name, table) in OF_JOBS {
        for row in txn.open(table)?.iter()? {
            let job = row?.0.value();
            if !jobs.contains(&job) {
                found.push(Disagreement(format!("a {name} of job {job}, which does not exist")));
            }
        }
    }
    Ok(found)
}

/// The keys by which jobs are found, as the rows say, against those that are there.
fn indexes(rows: &mut Rows<'_, &ReadTransaction>, dump: &Dump) -> Found<Vec<Disagreement>> {
    let mut ready = BTreeSet::new();
    let mut waiting = BTreeSet::new();
    let mut times: BTreeMap<View, BTreeSet<[u8; 16]>> = BTreeMap::new();
    for row in &dump.jobs {
        let job = &row.job;
        let queue = rows.names.queues.number(rows.access, &job.queue)?.unwrap_or(0);
        let kind = rows.names.kinds.number(rows.access, &job.kind)?.unwrap_or(0);
        let view = job.state.view();
        if view == View::Queued {
            ready.insert(ready_key(queue, kind, job.rank));
            waiting.insert(waiting_key(queue, job.run_at, job.id.get()));
        } else {
            times.entry(view).or_default().insert(time_key(job.index_key().at, job.id.get()));
        }
    }
    let access = rows.access;
    let mut found = Vec::new();
    found.extend(differ("ready", &ready, &keys_of(access, READY)?));
    found.extend(differ("waiting", &waiting, &keys_of(access, WAITING)?));
    for view in View::ALL {
        let expected = times.remove(&view).unwrap_or_default();
        if let Some(table) = time_table(view) {
            found.extend(differ(view.as_str(), &expected, &keys_of(access, table)?));
        } else if view == View::Processing {
            found.extend(differ("leased", &expected, &keys_of(access, LEASED)?));
        }
    }
    let orphan =
        |record: &KeyRecord| Some(orphan_key(record.orphan_until?, record.key.as_str().as_bytes()));
    let expected: BTreeSet<Vec<u8>> = dump.keys.iter().filter_map(orphan).collect();
    let mut stored = BTreeSet::new();
    for row in access.open(ORPHANS)?.iter()? {
        stored.insert(row?.0.value().to_vec());
    }
    found.extend(differ("orphan", &expected, &stored));
    Ok(found)
}

fn keys_of<const N: usize, V: Value + 'static>(
    txn: &ReadTransaction,
    table: TableDefinition<'_, &'static [u8; N], V>,
) -> Found<BTreeSet<[u8; N]>> {
    let mut keys = BTreeSet::new();
    for row in txn.open(table)?.iter()? {
        keys.insert(*row?.0.value());
    }
    Ok(keys)
}

fn differ<K: Ord + std::fmt::Debug>(
    name: &str,
    expected: &BTreeSet<K>,
    stored: &BTreeSet<K>,
) -> Option<Disagreement> {
    if expected == stored {
        return None;
    }
    let missing = expected.difference(stored).count();
    let strays = stored.difference(expected).count();
    let text = format!("the {name} keys do not match the rows: {missing} missing, {strays} strays");
    Some(Disagreement(text))
}

// Mending.

fn mend(txn: &WriteTransaction) -> Found<()> {
    let stored = stored_rows(txn)?;
    remove_strays(txn, &stored)?;
    mend_leases(txn, &stored)?;
    let mut names = Names::default();
    let mut rows = Rows { access: txn, names: &mut names };
    let mut jobs: Vec<(Job, rows::Numbers)> = Vec::with_capacity(stored.len());
    let mut leases = rows.leases(stored.iter().map(|(id, row)| (*id, row)))?.into_iter();
    for (id, row) in stored {
        let numbers = row.numbers;
        let lease = if row.view == View::Processing { leases.next() } else { None };
        jobs.push((rows.job(id, &row, lease)?, numbers));
    }
    mend_derived(txn, &mut jobs)?;
    build_indexes(txn, &jobs)?;
    count_anew(txn, &jobs)?;
    mend_keys(txn, &jobs)?;
    let no_error =
        written(|out| rows::put_error(out, &Excerpt::stored("the error was lost", false)));
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
    Ok(())
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

/// Leases of no job go; a leased job whose holder is not known any more gets one that nobody is, so
/// that its lease runs out.
fn mend_leases(txn: &WriteTransaction, jobs: &BTreeMap<JobId, JobRow>) -> Found<()> {
    let mut leased = txn.open(LEASED)?;
    let held = |key: &[u8; 16]| {
        let row = time_place(key).ok().and_then(|place| Some((place.at, jobs.get(&place.id)?)));
        row.is_some_and(|(at, row)| row.view == View::Processing && row.at == at)
    };
    leased.retain(|key, _| held(key))?;
    let nobody = WorkerId::new("nobody").map_err(bad)?;
    for (id, row) in jobs.iter().filter(|(_, row)| row.view == View::Processing) {
        let key = time_key(row.at, id.get());
        if leased.get(&key)?.is_none() {
            let holder = written(|out| rows::put_holder(out, &nobody, row.visibility_timeout));
            leased.insert(&key, holder.as_slice())?;
        }
    }
    Ok(())
}

/// What rows keep although it follows from something else: their rank, the length of their payload.
fn mend_derived(txn: &WriteTransaction, jobs: &mut [(Job, rows::Numbers)]) -> Found<()> {
    let (payloads, mut table) = (txn.open(PAYLOADS)?, txn.open(JOBS)?);
    for (job, numbers) in jobs {
        let payload = payloads.get(job.id.get())?;
        let bytes = payload.map(|payload| u32::try_from(payload.value().len())).transpose();
        let bytes = bytes.map_err(bad)?.unwrap_or(job.payload_bytes);
        let derived = (Rank::of(job), bytes);
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
    txn.open(WAITING)?.retain(|_, ()| false)?;
    for table in [SCHEDULED, DONE, FAILED, CANCELLED] {
        txn.open(table)?.retain(|_, ()| false)?;
    }
    let mut index = Index::default();
    for (job, numbers) in jobs {
        index.add(job, *numbers);
    }
    index.write(txn)
}

fn count_anew(txn: &WriteTransaction, jobs: &[(Job, rows::Numbers)]) -> Found<()> {
    let mut counted: BTreeMap<(u32, u32), Counts> = BTreeMap::new();
    for (job, numbers) in jobs {
        counted.entry((numbers.queue, numbers.kind)).or_default().add(job.state.view());
    }
    let mut counts = txn.open(COUNTS)?;
    counts.retain(|_, _| false)?;
    for ((queue, kind), count) in counted {
        let row = View::ALL.map(|view| count.get(view));
        let row = written(|out| rows::put_counts(out, &row));
        counts.insert(&pair_key(queue, kind), row.as_slice())?;
    }
    Ok(())
}

/// Keys name jobs that exist and carry them, or are orphans; unfinished jobs have their keys.
fn mend_keys(txn: &WriteTransaction, jobs: &[(Job, rows::Numbers)]) -> Found<()> {
    let by_id: BTreeMap<JobId, &Job> = jobs.iter().map(|(job, _)| (job.id, job)).collect();
    let mut kept: BTreeMap<IdempotencyKey, KeyRecord> = BTreeMap::new();
    for row in txn.open(KEYS)?.iter()? {
        let (key, row) = row?;
        let key = IdempotencyKey::new(utf8(key.value())?).map_err(bad)?;
        let record = rows::key_record(key.clone(), row.value())?;
        match by_id.get(&record.job) {
            Some(job) if job.idempotency_key.as_ref() == Some(&key) => {
                kept.insert(key, KeyRecord { orphan_until: None, ..record });
            }
            None if record.orphan_until.is_some() => {
                kept.insert(key, record);
            }
            _ => {}
        }
    }
    for job in by_id.values().filter(|job| !job.state.name().is_finished()) {
        let Some(key) = &job.idempotency_key else { continue };
        kept.entry(key.clone()).or_insert_with(|| KeyRecord {
            key: key.clone(),
            job: job.id,
            request: Fingerprint(0),
            created_at: job.created_at,
            orphan_until: None,
        });
    }
    txn.open(KEYS)?.retain(|_, _| false)?;
    txn.open(ORPHANS)?.retain(|_, ()| false)?;
    let kept: Vec<KeyRecord> = kept.into_values().collect();
    put_keys(txn, &kept, &[])
}
