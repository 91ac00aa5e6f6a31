//! For operators: verify, repair and copy a store.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::path::Path;

use rusqlite::{Connection, ErrorCode, OptionalExtension, TransactionBehavior, params};
use windlass_core::store::{
    Audit, Cause, Changes, Disagreement, StoreError, lost_error, repaired_key, restored_key,
};
use windlass_core::{IdempotencyKey, Job, KeyRecord, Rank};
use windlass_store_file::{
    directory_of, hold, make_file, no_room_for, short_of_space, sync_directory,
};

use crate::bulk;
use crate::error::{OpenError, TxError};
use crate::figures;
use crate::find::{Found, Rows, key_record};
use crate::groups;
use crate::names::Names;
use crate::open::{self, Place};
use crate::quiet::{self, Quiet};
use crate::reader::{attempt, attempt_columns, detail};
use crate::rows::{bad, job, job_id, rank_code, select_jobs, text};
use crate::stale_wal;
use crate::store::SqliteStore;
use crate::write::put_keys;

/// Checks and copies a store that is in use, from any thread: see [`SqliteStore::maintenance`].
#[derive(Debug, Clone)]
pub struct SqliteMaintenance {
    /// Connections are opened for each call: one kept here would outlive the store, and the last to
    /// close a database leaves its WAL behind unless it can write.
    place: Place,
    /// Whether a store of this process has it open. Then every connection takes locks: closing one
    /// without them would drop those of the store.
    in_use: bool,
}

impl SqliteStore {
    /// A handle that checks and copies the store while it is in use.
    pub fn maintenance(&self) -> SqliteMaintenance {
        SqliteMaintenance { place: self.place.clone(), in_use: true }
    }

    /// See [`SqliteMaintenance::verify`].
    pub fn verify(&self) -> Result<Vec<Disagreement>, StoreError> {
        self.maintenance().verify()
    }

    /// See [`SqliteMaintenance::backup`].
    pub fn backup(&self, to: &Path) -> Result<(), OpenError> {
        self.maintenance().backup(to)
    }

    /// Makes derived data agree with the rows again: counters are recounted, indexes rebuilt,
    /// and what belongs to no job is removed. No job is touched.
    pub fn repair(&mut self) -> Result<(), StoreError> {
        let mut conn = open::writer(&self.place).map_err(unopened)?;
        repair(&mut conn).map_err(|error| error.of_read())
    }
}

impl SqliteMaintenance {
    /// Checks and copies a store that this process does not write.
    pub fn of(path: &Path) -> Self {
        Self { place: Place { path: path.into(), vfs: None }, in_use: false }
    }

    /// Recomputes counters, keys and indexes from the rows, and lists everything that disagrees.
    /// An empty list means that all is well. It reads the whole store, while others may write.
    pub fn verify(&self) -> Result<Vec<Disagreement>, StoreError> {
        loop {
            let (conn, quiet) = self.open().map_err(unopened)?;
            let found = inspect(&conn);
            // Otherwise a process opened the store meanwhile: that is seen now.
            if quiet.is_none_or(|quiet| quiet.holds()) {
                return found.map_err(|error| error.of_read());
            }
        }
    }

    /// Like [`verify`](Self::verify), of a copy that no process writes. One of an older schema is
    /// checked for broken pages only; one of a newer schema, or of another program, is refused.
    pub fn verify_copy(&self) -> Result<Vec<Disagreement>, OpenError> {
        let sqlite = |source| OpenError::sqlite(&self.place.path, source);
        stale_wal::refuse(&self.place.path)?;
        match self.open() {
            Ok((conn, _)) => inspect(&conn).map_err(|error| OpenError::Damaged {
                path: self.place.path.clone(),
                what: error.cause().to_string(),
            }),
            Err(OpenError::Older { .. }) => {
                integrity(&open::any_schema(&self.place, true)?).map_err(sqlite)
            }
            Err(error) => Err(error),
        }
    }

    /// Copies the store, as it is at one instant, to a file that does not exist yet; others may go
    /// on writing.
    pub fn backup(&self, to: &Path) -> Result<(), OpenError> {
        let created = |source| OpenError::Create { path: to.into(), source };
        let held = make_file(to).map_err(created)?;
        hold(&held);
        let copied = self.copy_to(to);
        if copied.is_err() {
            // An incomplete copy must not stay.
            let _ = fs::remove_file(to);
        }
        copied
    }

    fn open(&self) -> Result<(Connection, Option<Quiet>), OpenError> {
        if self.in_use {
            return Ok((open::read_only(&self.place, false)?, None));
        }
        quiet::open(&self.place)
    }

    fn copy_to(&self, to: &Path) -> Result<(), OpenError> {
        let created = |source| OpenError::Create { path: to.into(), source };
        loop {
            let (conn, quiet) = self.open()?;
            copy(&conn, to)?;
            if quiet.is_none_or(|quiet| quiet.holds()) {
                break;
            }
            // A process opened the store meanwhile: that is seen now, and it is copied with locks.
            OpenOptions::new().write(true).truncate(true).open(to).map_err(created)?;
        }
        File::open(to).and_then(|file| file.sync_all()).map_err(created)?;
        sync_directory(directory_of(to)).map_err(created)
    }
}

/// How many steps of a statement pass between two looks at the space on the disk: about ten rows,
/// of which each may be large.
const STEPS: i32 = 50;
/// The memory for pages of the store, and of the copy, as `PRAGMA cache_size` has it: 2 MiB.
const CACHE: i32 = -2_048;

/// Copies what this connection sees to a file that is empty.
fn copy(conn: &Connection, to: &Path) -> Result<(), OpenError> {
    let sqlite = |source| OpenError::Sqlite { path: to.into(), source };
    let no_room = |why: Cause| OpenError::NoRoom { path: to.into(), why: why.to_string() };
    let name = to.to_str().ok_or_else(|| OpenError::Foreign {
        path: to.into(),
        what: "its name is no UTF-8".into(),
    })?;
    let number = |pragma: &str| {
        let number = conn.query_row(&format!("PRAGMA {pragma}"), [], |row| row.get::<_, i64>(0));
        number.map(i64::cast_unsigned).map_err(sqlite)
    };
    let pages = number("page_count")?.saturating_sub(number("freelist_count")?);
    let bytes = pages.saturating_mul(number("page_size")?);
    no_room_for(to, bytes).map_or(Ok(()), |why| Err(no_room(why)))?;
    // Others may fill the disk meanwhile. What is kept in memory is written at the end, unseen.
    conn.pragma_update(None, "cache_size", CACHE).map_err(sqlite)?;
    let target = to.to_path_buf();
    conn.progress_handler(STEPS, Some(move || short_of_space(&target).is_some()))
        .map_err(sqlite)?;
    match conn.execute("VACUUM INTO ?1", [name]) {
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) => {
            let why = "the disk filled up meanwhile; free some space, or copy to another disk";
            Err(no_room(Cause::new(why)))
        }
        copied => copied.map(drop).map_err(sqlite),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is mapped over errors")]
fn unopened(error: OpenError) -> StoreError {
    StoreError::Busy(Cause::new(&error.to_string()))
}

/// What SQLite itself finds: broken pages, indexes that do not match their table.
fn integrity(conn: &Connection) -> rusqlite::Result<Vec<Disagreement>> {
    let mut statement = conn.prepare("PRAGMA integrity_check")?;
    let lines = statement.query_map([], |row| row.get::<_, String>(0))?;
    let lines: rusqlite::Result<Vec<String>> = lines.collect();
    Ok(lines?.into_iter().filter(|line| line != "ok").map(Disagreement).collect())
}

/// Everything that disagrees in one snapshot. Rows are looked at one by one, so that the memory it
/// takes does not grow with the number of jobs.
fn inspect(conn: &Connection) -> Result<Vec<Disagreement>, TxError> {
    let found = integrity(conn)?;
    if !found.is_empty() {
        return Ok(found);
    }
    let snapshot = conn.unchecked_transaction()?;
    let mut names = Names::default();
    let mut tx = Rows { conn, names: &mut names };
    let mut audit = Audit::new(tx.next_id()?);
    strays(conn, &mut audit)?;
    check_jobs(&mut tx, &mut audit)?;
    check_keys(&mut tx, &mut audit)?;
    check_attempts(conn, &mut audit)?;
    figures::all(conn)?.iter().for_each(|row| audit.figures(row));
    groups::all(conn)?.iter().for_each(|row| audit.group(row));
    bulk::all(conn)?.iter().for_each(|row| audit.bulk(row));
    let found = audit.finish(&tx.all_queues()?);
    snapshot.finish()?;
    Ok(found)
}

fn check_jobs(tx: &mut Rows<'_>, audit: &mut Audit) -> Found<()> {
    let mut statement = tx.conn.prepare(concat!(select_jobs!(), "ORDER BY id"))?;
    let mut key = tx.conn.prepare("SELECT job FROM keys WHERE key = ?1")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let job = job(tx.conn, tx.names, row)?;
        let named = match &job.idempotency_key {
            Some(text) => key.query_row([text.as_str()], |row| row.get(0)).optional()?,
            None => None,
        };
        let named = named.map(job_id).transpose()?;
        audit.job(&detail(tx, job)?, named);
    }
    Ok(())
}

fn check_keys(tx: &mut Rows<'_>, audit: &mut Audit) -> Found<()> {
    each_key(tx, |record, job| audit.key(&record, job))
}

/// Shows each key, and the job that it names if that exists.
fn each_key(tx: &mut Rows<'_>, mut show: impl FnMut(KeyRecord, Option<&Job>)) -> Found<()> {
    let sql = "SELECT key, job, request, created_at, orphan_until FROM keys ORDER BY key";
    let mut statement = tx.conn.prepare(sql)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let key = IdempotencyKey::new(text(row, 0)?.unwrap_or_default()).map_err(bad)?;
        let record = key_record(key, row, 1)?;
        let job = tx.jobs(&[record.job])?.pop().flatten();
        show(record, job.as_ref());
    }
    Ok(())
}

fn check_attempts(conn: &Connection, audit: &mut Audit) -> Found<()> {
    let sql = concat!(
        "SELECT ",
        attempt_columns!(),
        ", EXISTS (SELECT 1 FROM jobs WHERE id = job) FROM attempts ORDER BY job, epoch"
    );
    let mut statement = conn.prepare(sql)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        audit.attempt(attempt(row)?.job, row.get(13)?);
    }
    Ok(())
}

/// The tables of texts, whose rows belong to a job.
const TEXTS: [&str; 4] = ["bodies", "results", "progress", "errors"];

/// The order of dead letters by error group, as the rows of jobs have it; and texts that belong to
/// no job.
fn strays(conn: &Connection, audit: &mut Audit) -> rusqlite::Result<()> {
    for table in TEXTS {
        let sql = format!("SELECT job FROM {table} WHERE job NOT IN (SELECT id FROM jobs)");
        let mut statement = conn.prepare(&sql)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let job: i64 = row.get(0)?;
            audit.say(format!("{table} of job {job}, which does not exist"));
        }
    }
    let sql = "SELECT dead_letters.job FROM dead_letters LEFT JOIN jobs ON id = dead_letters.job \
               WHERE id IS NULL OR view <> 4 OR jobs.at <> dead_letters.at";
    let mut statement = conn.prepare(sql)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let job: i64 = row.get(0)?;
        audit.say(format!("job {job} is listed in an error group, but did not fail then"));
    }
    Ok(())
}

fn repair(conn: &mut Connection) -> Result<(), TxError> {
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    rebuild_ranks(&tx)?;
    for table in TEXTS.into_iter().chain(["attempts"]) {
        let sql = format!("DELETE FROM {table} WHERE job NOT IN (SELECT id FROM jobs)");
        tx.execute(&sql, [])?;
    }
    tx.execute_batch(
        "DELETE FROM counts;
         INSERT INTO counts (pair, queued, scheduled, processing, done, failed, cancelled,
                             retrying)
             SELECT queue << 32 | kind, sum(view = 0), sum(view = 1), sum(view = 2), sum(view = 3),
                    sum(view = 4), sum(view = 5), sum(view IN (0, 1) AND attempts > 0)
             FROM jobs GROUP BY queue, kind;
         UPDATE jobs SET payload_bytes = bytes FROM
             (SELECT job, octet_length(text) AS bytes FROM bodies)
             WHERE job = id AND payload_bytes <> bytes;
         UPDATE meta SET value = max(value, (SELECT ifnull(max(id), 0) FROM jobs))
             WHERE key = 'last_id';
         REINDEX;",
    )?;
    repair_keys(&tx)?;
    let error = lost_error();
    tx.execute(
        "INSERT INTO errors (job, text, cut) SELECT id, ?1, ?2 FROM jobs
             WHERE view = 4 AND id NOT IN (SELECT job FROM errors)",
        params![error.as_str(), error.is_cut()],
    )?;
    groups::regroup(&tx)?;
    Ok(tx.commit()?)
}

/// Puts keys as core says they should be. Only the keys that change are held in memory.
fn repair_keys(conn: &Connection) -> Result<(), TxError> {
    let mut names = Names::default();
    let mut tx = Rows { conn, names: &mut names };
    let mut changes = Changes::default();
    each_key(&mut tx, |record, job| match repaired_key(record.clone(), job) {
        None => changes.dropped_keys.push(record.key),
        Some(kept) if kept != record => changes.keys.push(kept),
        Some(_) => {}
    })?;
    put_keys(conn, &changes)?;
    let mut restored: BTreeMap<IdempotencyKey, KeyRecord> = BTreeMap::new();
    let sql = concat!(select_jobs!(), "WHERE idempotency_key IS NOT NULL AND view < 3");
    let mut statement = conn.prepare(sql)?;
    let mut key =
        conn.prepare("SELECT job, request, created_at, orphan_until FROM keys WHERE key = ?1")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let job = job(conn, tx.names, row)?;
        let Some(name) = &job.idempotency_key else { continue };
        let mut stored = key.query([name.as_str()])?;
        let stored = stored.next()?.map(|row| key_record(name.clone(), row, 0)).transpose()?;
        let record = restored_key(&job, restored.get(name).or(stored.as_ref()));
        restored.extend(record.map(|record| (name.clone(), record)));
    }
    put_keys(conn, &Changes { keys: restored.into_values().collect(), ..Changes::default() })
}

/// Gives jobs the rank that core computes, where the row says otherwise.
fn rebuild_ranks(conn: &Connection) -> Result<(), TxError> {
    let sql = select_jobs!();
    let mut names = Names::default();
    let mut statement = conn.prepare(sql)?;
    let mut rows = statement.query([])?;
    let sql = "UPDATE jobs SET class = ?2, turn = ?3, due = ?4, \
               at = CASE view WHEN 0 THEN ?4 ELSE at END WHERE id = ?1";
    let mut update = conn.prepare(sql)?;
    while let Some(row) = rows.next()? {
        let job = job(conn, &mut names, row)?;
        let rank = Rank::of(&job);
        if !job.rank.fits(&job) {
            let (class, turn, due, id) = rank_code(rank);
            update.execute([id, class, turn, due])?;
        }
    }
    Ok(())
}
