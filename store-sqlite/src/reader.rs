//! Reads of committed states, on connections that cannot write. Each call sees one state.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::{Connection, params};
use windlass_core::store::{
    BulkRow, Cause, CopyPlace, CopyRows, Cursor, Dump, FigureRange, FigureRow, Filter, Instance,
    JobDetail, Marker, Page, PageSize, Reader, StoreError, Worker, WorkerKind, WorkerRow,
};
use windlass_core::{
    Attempt, AttemptOutcome, Demand, GroupId, GroupRow, IdempotencyKey, Job, JobId, Millis,
    Payload, QueueName, QueueRow, SettingKey, SettingValue, View, Wall, WorkerId, WorkerVersion,
};

use crate::bulk;
use crate::copy;
use crate::error::OpenError;
use crate::figures;
use crate::find::{Found, Rows, key_record};
use crate::groups;
use crate::list::list;
use crate::names::Names;
use crate::open::{self, Place};
use crate::quiet::{self, Quiet};
use crate::rows::{bad, code_of, epoch, excerpt, holder, id_code, job_id, select_jobs, text};
use crate::stale_wal;
use crate::store::marker;

/// Maximum number of idle connections.
const POOLED: usize = 4;

/// Maximum number of reads without locks, before it is an error.
const QUIET_TRIES: u32 = 8;

/// Idle connections for readers of one file.
#[derive(Debug)]
pub(crate) struct Pool {
    place: Place,
    idle: Mutex<Vec<(Connection, Names)>>,
}

impl Pool {
    pub(crate) fn new(place: Place) -> Arc<Self> {
        Arc::new(Self { place, idle: Mutex::new(Vec::new()) })
    }

    pub(crate) fn reader(self: &Arc<Self>) -> Result<SqliteReader, StoreError> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let opened = || open::reader(&self.place).map(|conn| (conn, Names::default()));
        let (conn, names) = match idle {
            Some(idle) => idle,
            None => opened().map_err(|error| StoreError::Busy(Cause::new(&error.to_string())))?,
        };
        Ok(SqliteReader { pool: Arc::clone(self), conn: Some(conn), names, quiet: None })
    }

    /// Drops idle connections: the file is about to be reopened.
    pub(crate) fn clear(&self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// A reader of a [`SqliteStore`](crate::SqliteStore), for any thread.
#[derive(Debug)]
pub struct SqliteReader {
    pool: Arc<Pool>,
    /// `None` only while it is dropped.
    conn: Option<Connection>,
    names: Names,
    /// Set while it reads without locks.
    quiet: Option<Quiet>,
}

impl Drop for SqliteReader {
    fn drop(&mut self) {
        if self.quiet.is_some() {
            return;
        }
        let mut idle = self.pool.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(conn) = self.conn.take().filter(|_| idle.len() < POOLED) {
            idle.push((conn, std::mem::take(&mut self.names)));
        }
    }
}

impl SqliteReader {
    #[cfg(test)]
    pub(crate) fn connection(&mut self) -> &mut Connection {
        self.conn.as_mut().expect("it is open")
    }

    /// Opens a store for reading alone, also while other processes have it open. Nothing is
    /// written: no file is made, and an older schema is refused. Reads do not wait for writers.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        let place = Place { path: path.as_ref().into(), vfs: None };
        let (conn, quiet) = stale_wal::checked(&place, || quiet::open(&place))?;
        Ok(Self { pool: Pool::new(place), conn: Some(conn), names: Names::default(), quiet })
    }

    /// Runs reads in one snapshot. They are repeated if a process opened the database meanwhile,
    /// and this reader holds no lock.
    fn read<R>(
        &mut self,
        mut read: impl FnMut(&mut Rows<'_>) -> Found<R>,
    ) -> Result<R, StoreError> {
        for _ in 0..QUIET_TRIES {
            let found = self.snapshot(&mut read);
            if self.quiet.as_ref().is_none_or(Quiet::holds) {
                return found;
            }
            // Before it is opened again: closing a file drops all locks of the process on it.
            self.conn = None;
            let opened = quiet::open(&self.pool.place);
            let (conn, quiet) =
                opened.map_err(|error| StoreError::Busy(Cause::new(&error.to_string())))?;
            (self.conn, self.quiet, self.names) = (Some(conn), quiet, Names::default());
        }
        Err(StoreError::Busy(Cause::new("other processes open and close it all the time")))
    }

    fn snapshot<R>(
        &mut self,
        read: &mut impl FnMut(&mut Rows<'_>) -> Found<R>,
    ) -> Result<R, StoreError> {
        let Some(conn) = &self.conn else {
            return Err(StoreError::Busy(Cause::new("the reader is closed")));
        };
        let mut run = || {
            self.names.clear_queue_ids();
            let snapshot = conn.unchecked_transaction()?;
            let mut tx = Rows { conn, names: &mut self.names };
            let found = read(&mut tx)?;
            snapshot.finish()?;
            Ok(found)
        };
        run().map_err(|error: crate::error::TxError| error.of_read())
    }
}

impl Reader for SqliteReader {
    fn jobs(&mut self, ids: &[JobId]) -> Result<Vec<Option<JobDetail>>, StoreError> {
        self.read(|tx| {
            let jobs = tx.jobs(ids)?;
            jobs.into_iter().map(|job| job.map(|job| detail(tx, job)).transpose()).collect()
        })
    }

    fn list(
        &mut self,
        filter: &Filter,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        self.read(|tx| list(tx, filter, after, limit))
    }

    fn queues(&mut self) -> Result<Vec<QueueRow>, StoreError> {
        self.read(queues)
    }

    fn queue(&mut self, name: &QueueName) -> Result<Option<QueueRow>, StoreError> {
        self.read(|tx| queue_row(tx, name))
    }

    fn oldest_ready(&mut self, queue: &QueueName) -> Result<Option<Wall>, StoreError> {
        self.read(|tx| oldest_ready(tx, queue))
    }

    fn next_due(&mut self) -> Result<Option<Wall>, StoreError> {
        self.read(|tx| tx.first_at(View::Scheduled))
    }

    fn attempts(&mut self, id: JobId) -> Result<Vec<Attempt>, StoreError> {
        self.read(|tx| {
            let sql = concat!(
                "SELECT ",
                attempt_columns!(),
                " FROM attempts WHERE job = ?1 ORDER BY epoch"
            );
            attempts(tx, sql, [id_code(id)])
        })
    }

    fn workers(&mut self) -> Result<Vec<WorkerRow>, StoreError> {
        self.read(workers)
    }

    fn error_groups(&mut self) -> Result<Vec<GroupRow>, StoreError> {
        self.read(|tx| groups::all(tx.conn))
    }

    fn error_group(&mut self, id: GroupId) -> Result<Option<GroupRow>, StoreError> {
        self.read(|tx| Ok(groups::named(tx.conn, &[id])?.pop().flatten()))
    }

    fn settings(&mut self) -> Result<Vec<(SettingKey, SettingValue)>, StoreError> {
        self.read(settings)
    }

    fn figures(&mut self, ranges: &[FigureRange]) -> Result<Vec<FigureRow>, StoreError> {
        self.read(|tx| figures::within(tx.conn, ranges))
    }

    fn bulk(&mut self) -> Result<Vec<BulkRow>, StoreError> {
        self.read(|tx| bulk::all(tx.conn))
    }

    fn copy_page(&mut self, after: &CopyPlace, size: PageSize) -> Result<CopyRows, StoreError> {
        self.read(|tx| copy::page(tx, after, size))
    }

    fn dump(&mut self) -> Result<Dump, StoreError> {
        self.read(|tx| {
            let sql = concat!(select_jobs!(), "ORDER BY id");
            let jobs = tx.find(sql, [])?;
            let jobs: Found<Vec<JobDetail>> = jobs.into_iter().map(|job| detail(tx, job)).collect();
            let sql = concat!("SELECT ", attempt_columns!(), " FROM attempts ORDER BY job, epoch");
            Ok(Dump {
                next_id: tx.next_id()?,
                jobs: jobs?,
                queues: tx.all_queues()?,
                keys: keys(tx)?,
                attempts: attempts(tx, sql, [])?,
                workers: workers(tx)?,
                settings: settings(tx)?,
                markers: markers(tx)?,
                figures: figures::all(tx.conn)?,
                groups: groups::all(tx.conn)?,
                bulk: bulk::all(tx.conn)?,
            })
        })
    }
}

/// The columns of an attempt, as [`attempt`] reads them.
macro_rules! attempt_columns {
    () => {
        "job, epoch, worker, started_at, ended_at, outcome, error, error_cut, exit_code, stdout, \
         stdout_cut, stderr, stderr_cut"
    };
}
pub(crate) use attempt_columns;

pub(crate) fn detail(tx: &mut Rows<'_>, job: Job) -> Found<JobDetail> {
    let payload = tx.payload(job.id)?;
    let result = document(tx, "SELECT text FROM results WHERE job = ?1", job.id)?;
    let progress = document(tx, "SELECT text FROM progress WHERE job = ?1", job.id)?;
    let last_error = tx.last_error(job.id)?;
    Ok(JobDetail { job, payload, result, progress, last_error })
}

fn document(tx: &Rows<'_>, sql: &str, id: JobId) -> Found<Option<Payload>> {
    let mut statement = tx.conn.prepare_cached(sql)?;
    let mut rows = statement.query([id_code(id)])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let text = text(row, 0)?.map(Payload::new).transpose().map_err(bad)?;
    Ok(text)
}

/// Since when the longest-waiting ready job has been due: the earliest of the heads of its kinds
/// and classes. It looks at one row for each of these, however many jobs wait.
fn oldest_ready(tx: &mut Rows<'_>, queue: &QueueName) -> Found<Option<Wall>> {
    let Some(id) = tx.names.queue_id(tx.conn, queue)? else { return Ok(None) };
    let sql = "SELECT class, due, id, ifnull(run_at, due) FROM jobs \
               WHERE view = 0 AND queue = ?1 AND kind = ?2 \
               AND class > ?3 ORDER BY class, turn, due, id LIMIT 1";
    let mut oldest: Option<(i64, i64, i64)> = None;
    for (kind, _) in tx.counts(id)?.iter().filter(|(_, counts)| counts.get(View::Queued) > 0) {
        let Some(kind) = tx.names.kind_id(tx.conn, kind)? else { continue };
        let mut statement = tx.conn.prepare_cached(sql)?;
        let mut class = i64::MIN;
        loop {
            let mut rows = statement.query(params![id, kind, class])?;
            let Some(row) = rows.next()? else { break };
            class = row.get(0)?;
            oldest = oldest.into_iter().chain([(row.get(1)?, row.get(2)?, row.get(3)?)]).min();
        }
    }
    Ok(oldest.map(|(.., run_at)| Wall::new(run_at)))
}

pub(crate) fn attempts(
    tx: &mut Rows<'_>,
    sql: &str,
    params: impl rusqlite::Params,
) -> Found<Vec<Attempt>> {
    let mut statement = tx.conn.prepare_cached(sql)?;
    let mut rows = statement.query(params)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(attempt(row)?);
    }
    Ok(found)
}

/// The attempt in a row.
pub(crate) fn attempt(row: &rusqlite::Row<'_>) -> Found<Attempt> {
    Ok(Attempt {
        job: job_id(row.get(0)?)?,
        epoch: epoch(row.get(1)?),
        worker: WorkerId::new(text(row, 2)?.unwrap_or_default()).map_err(bad)?,
        started_at: Wall::new(row.get(3)?),
        ended_at: Wall::new(row.get(4)?),
        outcome: code_of(&AttemptOutcome::ALL, row.get(5)?, "outcome")?,
        error: excerpt(row, 6)?,
        exit_code: row.get(8)?,
        stdout: excerpt(row, 9)?,
        stderr: excerpt(row, 11)?,
    })
}

fn workers(tx: &mut Rows<'_>) -> Found<Vec<WorkerRow>> {
    let sql = "SELECT id, host, pid, kind, started_at, last_seen, demand, slots, presence, \
               stopping, instance, version, server FROM workers ORDER BY id";
    let mut statement = tx.conn.prepare_cached(sql)?;
    let mut rows = statement.query([])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(WorkerRow {
            worker: Worker {
                id: WorkerId::new(text(row, 0)?.unwrap_or_default()).map_err(bad)?,
                host: text(row, 1)?.unwrap_or_default().into(),
                pid: row.get(2)?,
                instance: text(row, 10)?.map(instance).transpose()?,
                version: text(row, 11)?.map(WorkerVersion::new).transpose().map_err(bad)?,
                server: text(row, 12)?.map(WorkerId::new).transpose().map_err(bad)?,
                kind: code_of(&WorkerKind::ALL, row.get(3)?, "kind of worker")?,
                demand: Demand::parse(text(row, 6)?.unwrap_or_default()).map_err(bad)?,
                slots: usize::try_from(row.get::<_, i64>(7)?).map_err(bad)?,
                presence: Millis::new(row.get::<_, i64>(8)?.cast_unsigned()),
            },
            started_at: Wall::new(row.get(4)?),
            last_seen: Wall::new(row.get(5)?),
            stopping: row.get(9)?,
            running: Vec::new(),
        });
    }
    let mut statement = tx.conn.prepare_cached("SELECT worker, id FROM jobs WHERE view = 2")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let holder = holder(row, 0)?.unwrap_or_default();
        let at = found.binary_search_by(|row| row.worker.id.as_str().cmp(holder));
        if let Ok(at) = at {
            found[at].running.push(job_id(row.get(1)?)?);
        }
    }
    for row in &mut found {
        row.running.sort_unstable();
    }
    Ok(found)
}

fn instance(text: &str) -> Found<Instance> {
    Instance::parse(text).ok_or_else(|| bad(format!("{text:?} names no process")))
}

fn queue_row(tx: &mut Rows<'_>, name: &QueueName) -> Found<Option<QueueRow>> {
    let Some(id) = tx.names.queue_id(tx.conn, name)? else { return Ok(None) };
    let Some(queue) = tx.queue(id)? else { return Ok(None) };
    Ok(Some(QueueRow { queue, kinds: tx.counts(id)?, tats: tx.tats(id)? }))
}

fn queues(tx: &mut Rows<'_>) -> Found<Vec<QueueRow>> {
    tx.all_queues()
}

fn settings(tx: &mut Rows<'_>) -> Found<Vec<(SettingKey, SettingValue)>> {
    let mut statement = tx.conn.prepare_cached("SELECT key, value FROM settings ORDER BY key")?;
    let mut rows = statement.query([])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let key = SettingKey::new(text(row, 0)?.unwrap_or_default()).map_err(bad)?;
        let value = SettingValue::new(text(row, 1)?.unwrap_or_default()).map_err(bad)?;
        found.push((key, value));
    }
    Ok(found)
}

fn keys(tx: &mut Rows<'_>) -> Found<Vec<windlass_core::KeyRecord>> {
    let sql = "SELECT key, job, request, created_at, orphan_until FROM keys ORDER BY key";
    let mut statement = tx.conn.prepare_cached(sql)?;
    let mut rows = statement.query([])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let key = IdempotencyKey::new(text(row, 0)?.unwrap_or_default()).map_err(bad)?;
        found.push(key_record(key, row, 1)?);
    }
    Ok(found)
}

fn markers(tx: &mut Rows<'_>) -> Found<Vec<Marker>> {
    let mut statement = tx.conn.prepare_cached("SELECT process, seq, at FROM markers")?;
    let mut rows = statement.query([])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(marker(row)?);
    }
    found.sort_by_key(|marker| marker.batch.process);
    Ok(found)
}
