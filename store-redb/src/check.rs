//! For operators: verify, repair and copy a store.

use std::fs::{self, File};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use redb::{
    Database, Key, ReadOnlyTable, ReadTransaction, ReadableDatabase, ReadableTable,
    ReadableTableMetadata, TableDefinition, Value, WriteTransaction,
};
use windlass_core::store::{Audit, Disagreement, StoreError};
use windlass_core::{IdempotencyKey, Job, JobId, View};
use windlass_store_file::{directory_of, no_room_for, short_of_space, sync_directory};

use crate::bulk;
use crate::bytes::utf8;
use crate::error::{OpenError, TxError};
use crate::figures;
use crate::find::Rows;
use crate::groups;
use crate::names::Names;
use crate::open::{any_schema, caught, copy_target, read_only};
use crate::repair::repair;
use crate::rows::{self, bad};
use crate::slot::Slot;
use crate::store::RedbStore;
use crate::tables::{
    ATTEMPTS, Access, DEAD_LETTERS, ERRORS, Found, GROUPED, JOBS, KEYED, KEYS, LEASED, ORPHANS,
    PAIRS, PAYLOADS, PROGRESS, READY, RESULTS, SETTLED, attempt_place, each_table, grouped_key,
    job_id, job_key, keyed_key, orphan_key, ready_key, settled_key, time_key, time_table,
};

/// Tables whose rows belong to a job.
pub(crate) const OF_JOBS: [(&str, TableDefinition<'_, u64, &[u8]>); 4] =
    [("payload", PAYLOADS), ("result", RESULTS), ("progress", PROGRESS), ("error", ERRORS)];

/// Checks and copies a store, from any thread: see [`RedbStore::maintenance`].
#[derive(Debug, Clone)]
pub struct RedbMaintenance {
    path: PathBuf,
    /// The database of a store in use, which does not stay open once the store is gone; `None` for
    /// a file that no process writes.
    slot: Option<Weak<Slot>>,
}

impl RedbStore {
    /// A handle that checks and copies the store while it is in use.
    pub fn maintenance(&self) -> RedbMaintenance {
        let slot = Some(Arc::downgrade(&self.slot));
        RedbMaintenance { path: self.source.path.clone(), slot }
    }

    /// See [`RedbMaintenance::backup`].
    pub fn backup(&self, to: &Path) -> Result<(), OpenError> {
        self.maintenance().backup(to)
    }

    /// Checks every page, recomputes counters, keys and indexes from the rows, and lists everything
    /// that disagrees. An empty list means that all is well. It reads the whole store; other
    /// readers wait.
    pub fn verify(&self) -> Result<Vec<Disagreement>, StoreError> {
        let mut opened = self.slot.exclusive();
        opened.db().map_err(StoreError::Fatal)?;
        let looked = opened.db.as_mut().map_or(Ok(Vec::new()), inspect);
        self.source.note_size();
        looked.map_err(|error| error.of_read(opened.note(&error)))
    }

    /// Makes derived data agree with the rows again: counters are recounted, indexes
    /// rebuilt, ranks and lengths of payloads set again, and what belongs to no job is removed.
    pub fn repair(&mut self) -> Result<(), StoreError> {
        self.cache.clear();
        let opened = self.slot.exclusive();
        let db = opened.db().map_err(StoreError::Fatal)?;
        let repaired = || -> Found<()> {
            let mut txn = db.begin_write()?;
            txn.set_two_phase_commit(true);
            repair(&txn)?;
            Ok(txn.commit()?)
        };
        let result = repaired().map_err(|error| error.of_read(opened.note(&error)));
        self.source.note_size();
        result
    }
}

impl RedbMaintenance {
    /// Checks and copies a store that no process has open. The file is not written.
    pub fn of(path: &Path) -> Self {
        Self { path: path.into(), slot: None }
    }

    /// Recomputes counters, keys and indexes from the rows, and lists everything that disagrees.
    /// An empty list means that all is well. It reads the whole store, while others may write.
    /// Pages are checked only if no process has the file open: a store in use would have to stop
    /// for it.
    pub fn verify(&self) -> Result<Vec<Disagreement>, StoreError> {
        let fatal = |error: TxError| error.of_read(error.cause());
        if let Some(slot) = &self.slot {
            return upgrade(slot).map_err(fatal)?.read(|txn, _| disagreements(txn));
        }
        let mut db = read_only(&self.path).map_err(|error| error.of_reopen())?;
        caught(|| inspect(&mut db)).map_err(fatal)
    }

    /// Like [`verify`](Self::verify), of a copy that no process has open. One of an older schema is
    /// checked for broken pages only; one of a newer schema, or of another program, is refused.
    pub fn verify_copy(&self) -> Result<Vec<Disagreement>, OpenError> {
        let failed = |error: TxError| OpenError::new(&self.path, error);
        match read_only(&self.path) {
            Ok(mut db) => caught(|| inspect(&mut db)).map_err(failed),
            Err(OpenError::Older { .. }) => {
                let (mut db, _) = any_schema(&self.path)?;
                let found = caught(|| check_pages(&mut db)).map_err(failed)?;
                Ok(found.into_iter().collect())
            }
            Err(error) => Err(error),
        }
    }

    /// Whether [`verify`](Self::verify) checks pages too.
    pub fn checks_pages(&self) -> bool {
        self.slot.is_none()
    }

    /// Copies the store, as it is at one instant, to a file that does not exist yet; the store may
    /// go on writing.
    pub fn backup(&self, to: &Path) -> Result<(), OpenError> {
        let bytes = fs::metadata(&self.path).map_or(0, |file| file.len());
        if let Some(why) = no_room_for(to, bytes) {
            return Err(OpenError::NoRoom { path: to.into(), why: why.to_string() });
        }
        let target = copy_target(to)?;
        let copied = self.copy_to(target, to);
        if copied.is_err() {
            // An incomplete copy must not stay.
            let _ = fs::remove_file(to);
        }
        copied
    }

    fn copy_to(&self, target: Database, to: &Path) -> Result<(), OpenError> {
        let failed = |source| OpenError::creating(to, source);
        let copied = |from: ReadTransaction| -> Found<()> {
            let mut txn = target.begin_write()?;
            txn.set_two_phase_commit(true);
            copy_tables(&from, &txn, to)?;
            Ok(txn.commit()?)
        };
        let copied = if let Some(slot) = &self.slot {
            upgrade(slot).and_then(|slot| {
                let opened = slot.shared();
                copied(opened.db().map_err(bad)?.begin_read()?)
            })
        } else {
            let db = read_only(&self.path)?;
            db.begin_read().map_err(Into::into).and_then(copied)
        };
        copied.map_err(|error| OpenError::new(to, error))?;
        drop(target);
        File::open(to).and_then(|file| file.sync_all()).map_err(failed)?;
        sync_directory(directory_of(to)).map_err(failed)
    }
}

/// The store of a handle, if it is still open.
fn upgrade(slot: &Weak<Slot>) -> Found<Arc<Slot>> {
    slot.upgrade().ok_or_else(|| bad("the store is closed"))
}

fn copy_tables(from: &ReadTransaction, to: &WriteTransaction, path: &Path) -> Found<()> {
    macro_rules! copy {
        ($table:expr) => {
            copy_table(from, to, $table, path)?;
        };
    }
    each_table!(copy);
    Ok(())
}

/// How many rows are copied between two looks at the space on the disk: each may be large.
const ROWS: usize = 8;

fn copy_table<K: Key + 'static, V: Value + 'static>(
    from: &ReadTransaction,
    to: &WriteTransaction,
    table: TableDefinition<'_, K, V>,
    path: &Path,
) -> Found<()> {
    let from = from.open(table)?;
    let mut to = to.open(table)?;
    let mut end = to.upper_bound_mut(Bound::<K::SelfType<'_>>::Unbounded)?;
    for (copied, row) in from.iter()?.enumerate() {
        // Others may fill the disk meanwhile.
        if copied % ROWS == 0 {
            short_of_space(path).map_or(Ok(()), |why| Err(TxError::NoRoom(why)))?;
        }
        let (key, value) = row?;
        end.insert_before(key.value(), value.value())?;
    }
    Ok(end.close()?)
}

// Looking for disagreements.

fn inspect(db: &mut Database) -> Found<Vec<Disagreement>> {
    let mut found: Vec<Disagreement> = check_pages(db)?.into_iter().collect();
    found.extend(disagreements(&db.begin_read()?)?);
    Ok(found)
}

fn check_pages(db: &mut Database) -> Found<Option<Disagreement>> {
    let found = "redb found pages out of order, and put them right";
    Ok((!db.check_integrity()?).then(|| Disagreement(found.into())))
}

/// Everything that disagrees in one snapshot. Rows are looked at one by one, so that the memory it
/// takes does not grow with the number of jobs.
fn disagreements(txn: &ReadTransaction) -> Found<Vec<Disagreement>> {
    let mut names = Names::default();
    let mut rows = Rows { access: txn, names: &mut names };
    let mut audit = Audit::new(rows.next_id()?);
    let mut indexes = Indexes::new(txn)?;
    check_jobs(&mut rows, &mut audit, &mut indexes)?;
    check_keys(&mut rows, &mut audit, &mut indexes)?;
    indexes.finish(&mut audit)?;
    check_attempts(txn, &mut audit)?;
    strays(txn, &mut audit)?;
    figures::all(txn)?.iter().for_each(|row| audit.figures(row));
    groups::all(txn)?.iter().for_each(|row| audit.group(row));
    bulk::all(txn)?.iter().for_each(|row| audit.bulk(row));
    Ok(audit.finish(&rows.all_queues()?))
}

/// Jobs read together.
const CHUNK: usize = 256;

fn check_jobs(
    rows: &mut Rows<'_, &ReadTransaction>,
    audit: &mut Audit,
    indexes: &mut Indexes,
) -> Found<()> {
    let (jobs, keys) = (rows.access.open(JOBS)?, rows.access.open(KEYS)?);
    let mut ids = jobs.iter()?.map(|row| job_id(row?.0.value()));
    loop {
        let chunk: Vec<JobId> = ids.by_ref().take(CHUNK).collect::<Found<_>>()?;
        if chunk.is_empty() {
            return Ok(());
        }
        for job in rows.indexed(&chunk)? {
            let named = match &job.idempotency_key {
                Some(key) => keys
                    .get(key.as_str().as_bytes())?
                    .map(|row| rows::key_record(key.clone(), row.value()).map(|record| record.job)),
                None => None,
            };
            let named = named.transpose()?;
            let queue = rows.names.queues.number(rows.access, &job.queue)?.unwrap_or(0);
            let kind = rows.names.kinds.number(rows.access, &job.kind)?.unwrap_or(0);
            indexes.check(&job, queue, kind)?;
            audit.job(&rows.detail(job)?, named);
        }
    }
}

fn check_keys(
    rows: &mut Rows<'_, &ReadTransaction>,
    audit: &mut Audit,
    indexes: &mut Indexes,
) -> Found<()> {
    for row in rows.access.open(KEYS)?.iter()? {
        let (key, row) = row?;
        let key = IdempotencyKey::new(utf8(key.value())?).map_err(bad)?;
        let record = rows::key_record(key, row.value())?;
        let job = rows.jobs(&[record.job])?.pop().flatten();
        audit.key(&record, job.as_ref());
        if let Some(until) = record.orphan_until {
            let key = orphan_key(until, record.key.as_str().as_bytes());
            indexes.orphans.expect_raw(&key)?;
        }
    }
    Ok(())
}

fn check_attempts(txn: &ReadTransaction, audit: &mut Audit) -> Found<()> {
    let jobs = txn.open(JOBS)?;
    for row in txn.open(ATTEMPTS)?.iter()? {
        let (key, row) = row?;
        let (job, epoch) = attempt_place(key.value())?;
        rows::attempt(job, epoch, row.value())?;
        audit.attempt(job, jobs.get(job.get())?.is_some());
    }
    Ok(())
}

/// Texts that belong to no job: both tables are in the order of jobs, and walked side by side.
fn strays(txn: &ReadTransaction, audit: &mut Audit) -> Found<()> {
    for (name, table) in OF_JOBS {
        let jobs = txn.open(JOBS)?;
        let mut ids = jobs.iter()?.map(|row| Found::Ok(row?.0.value()));
        let mut id = ids.next().transpose()?;
        for row in txn.open(table)?.iter()? {
            let job = row?.0.value();
            while id.is_some_and(|id| id < job) {
                id = ids.next().transpose()?;
            }
            if id != Some(job) {
                audit.say(format!("a {name} of job {job}, which does not exist"));
            }
        }
    }
    Ok(())
}

/// The keys by which jobs are found: each that the rows ask for is looked up, and what is left over
/// in the tables is counted.
struct Indexes {
    ready: Expected<&'static [u8; 34], ()>,
    pairs: Expected<&'static [u8; 16], ()>,
    settled: Expected<&'static [u8; 25], ()>,
    keyed: Expected<&'static [u8], ()>,
    dead: Expected<u64, &'static [u8; 16]>,
    grouped: Expected<&'static [u8; 32], ()>,
    orphans: Expected<&'static [u8], ()>,
    leased: Expected<&'static [u8; 16], &'static [u8]>,
    /// By time, in the order of [`View::ALL`].
    times: [Option<Expected<&'static [u8; 16], ()>>; View::ALL.len()],
}

impl Indexes {
    fn new(txn: &ReadTransaction) -> Found<Self> {
        let mut times = [const { None }; View::ALL.len()];
        for view in View::ALL {
            times[view.index()] = time_table(view)
                .map(|table| Expected::new(txn, view.as_str(), table))
                .transpose()?;
        }
        Ok(Self {
            ready: Expected::new(txn, "ready", READY)?,
            pairs: Expected::new(txn, "pair", PAIRS)?,
            settled: Expected::new(txn, "settled", SETTLED)?,
            keyed: Expected::new(txn, "keyed", KEYED)?,
            dead: Expected::new(txn, "dead letter", DEAD_LETTERS)?,
            grouped: Expected::new(txn, "error group", GROUPED)?,
            orphans: Expected::new(txn, "orphan", ORPHANS)?,
            leased: Expected::new(txn, "leased", LEASED)?,
            times,
        })
    }

    /// Looks up the keys of a job.
    fn check(&mut self, job: &Job, queue: u32, kind: u32) -> Found<()> {
        let view = job.state.view();
        let (id, place) = (job.id.get(), time_key(job.index_key().at, job.id.get()));
        self.pairs.expect(&job_key(queue, kind, id))?;
        if let Some(key) = &job.idempotency_key {
            self.keyed.expect_raw(&keyed_key(key.as_str(), id))?;
        }
        match view {
            View::Queued => self.ready.expect(&ready_key(queue, kind, job.rank))?,
            View::Processing => self.leased.expect(&place)?,
            _ => self.settled.expect(&settled_key(queue, kind, view, place))?,
        }
        if let Some(group) = job.state.group() {
            let is_there = self.dead.table.get(id)?.is_some();
            self.dead.count(is_there);
            self.grouped.expect(&grouped_key(group, place))?;
        }
        if let Some(times) = &mut self.times[view.index()] {
            times.expect(&place)?;
        }
        Ok(())
    }

    fn finish(self, audit: &mut Audit) -> Found<()> {
        self.ready.finish(audit)?;
        self.pairs.finish(audit)?;
        self.settled.finish(audit)?;
        self.keyed.finish(audit)?;
        self.dead.finish(audit)?;
        self.grouped.finish(audit)?;
        self.orphans.finish(audit)?;
        self.leased.finish(audit)?;
        self.times.into_iter().flatten().try_for_each(|times| times.finish(audit))
    }
}

/// A table of keys, with how many of those that it must have were found and missed. No two rows ask
/// for the same key.
struct Expected<K: Key + 'static, V: Value + 'static> {
    name: &'static str,
    table: ReadOnlyTable<K, V>,
    found: u64,
    missing: u64,
}

impl<K: Key + 'static, V: Value + 'static> Expected<K, V> {
    fn new(
        txn: &ReadTransaction,
        name: &'static str,
        table: TableDefinition<'_, K, V>,
    ) -> Found<Self> {
        Ok(Self { name, table: txn.open(table)?, found: 0, missing: 0 })
    }

    fn count(&mut self, is_there: bool) {
        let count = if is_there { &mut self.found } else { &mut self.missing };
        *count += 1;
    }

    fn finish(self, audit: &mut Audit) -> Found<()> {
        let Self { name, table, found, missing } = self;
        let strays = table.len()?.saturating_sub(found);
        if missing > 0 || strays > 0 {
            audit.say(format!(
                "the {name} keys do not match the rows: {missing} missing, {strays} strays"
            ));
        }
        Ok(())
    }
}

impl<const N: usize, V: Value + 'static> Expected<&'static [u8; N], V> {
    fn expect(&mut self, key: &[u8; N]) -> Found<()> {
        let is_there = self.table.get(key)?.is_some();
        self.count(is_there);
        Ok(())
    }
}

impl Expected<&'static [u8], ()> {
    fn expect_raw(&mut self, key: &[u8]) -> Found<()> {
        let is_there = self.table.get(key)?.is_some();
        self.count(is_there);
        Ok(())
    }
}
