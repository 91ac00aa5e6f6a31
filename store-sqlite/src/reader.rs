//! Reads of committed states, on connections that cannot write. Each call sees one state.

use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::{Connection, params};
use windlass_core::store::{
    Cause, Cursor, Dump, Filter, JobDetail, Listing, Marker, Page, Reader, StoreError, Worker,
    WorkerKind, WorkerRow,
};
use windlass_core::{
    Attempt, AttemptOutcome, Demand, IdempotencyKey, Job, JobId, Millis, Payload, QueueName,
    QueueRow, SettingKey, SettingValue, View, Wall, WorkerId,
};

use crate::find::{Found, Rows, count, key_record};
use crate::names::Names;
use crate::open::{self, Place};
use crate::rows::{bad, code_of, epoch, excerpt, id_code, job_columns, job_id, text};
use crate::store::marker;

/// How many idle connections are kept.
const POOLED: usize = 4;

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
        Ok(SqliteReader { pool: Arc::clone(self), conn: Some(conn), names })
    }

    /// Drops idle connections: the file is about to be opened anew.
    pub(crate) fn clear(&self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// A reader of a [`SqliteStore`](crate::SqliteStore), for any thread.
#[derive(Debug)]
pub struct SqliteReader {
    pool: Arc<Pool>,
    /// Always there but while it is dropped.
    conn: Option<Connection>,
    names: Names,
}

impl Drop for SqliteReader {
    fn drop(&mut self) {
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

    /// Runs reads in one snapshot.
    fn read<R>(&mut self, read: impl FnOnce(&mut Rows<'_>) -> Found<R>) -> Result<R, StoreError> {
        let Some(conn) = &self.conn else {
            return Err(StoreError::Busy(Cause::new("the reader is closed")));
        };
        let run = || {
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

    fn settings(&mut self) -> Result<Vec<(SettingKey, SettingValue)>, StoreError> {
        self.read(settings)
    }

    fn dump(&mut self) -> Result<Dump, StoreError> {
        self.read(|tx| {
            let sql = concat!("SELECT ", job_columns!(), " FROM jobs ORDER BY id");
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
            })
        })
    }
}

macro_rules! attempt_columns {
    () => {
        "job, epoch, worker, started_at, ended_at, outcome, error, error_cut, exit_code, stdout, \
         stdout_cut, stderr, stderr_cut"
    };
}
use attempt_columns;

fn detail(tx: &mut Rows<'_>, job: Job) -> Found<JobDetail> {
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

fn list(tx: &mut Rows<'_>, filter: &Filter, after: Option<Cursor>, limit: usize) -> Found<Page> {
    let mut listing = Listing::new(filter, after, limit);
    while let Some((after, rows)) = listing.wanted() {
        listing.add(newest(tx, filter, after, rows)?);
    }
    Ok(listing.page())
}

fn newest(
    tx: &mut Rows<'_>,
    filter: &Filter,
    after: Option<Cursor>,
    limit: usize,
) -> Found<Vec<Job>> {
    let id = after.map_or(i64::MAX, |after| id_code(after.id));
    match filter.view {
        None => {
            let sql = concat!(
                "SELECT ",
                job_columns!(),
                " FROM jobs WHERE id < ?1 ORDER BY id DESC LIMIT ?2"
            );
            tx.find(sql, params![id, count(limit)])
        }
        Some(view) => tx.newest(view, after, limit),
    }
}

/// Since when the longest-waiting ready job has been due: the least of the heads of its kinds and
/// ranks. It looks at one row for each of these, however many jobs wait.
fn oldest_ready(tx: &mut Rows<'_>, queue: &QueueName) -> Found<Option<Wall>> {
    let Some(id) = tx.names.queue_id(tx.conn, queue)? else { return Ok(None) };
    let sql = "SELECT class, run_at FROM jobs WHERE view = 0 AND queue = ?1 AND kind = ?2 \
               AND class > ?3 ORDER BY class, turn, due LIMIT 1";
    let mut oldest: Option<i64> = None;
    for (kind, _) in tx.counts(id)?.iter().filter(|(_, counts)| counts.get(View::Queued) > 0) {
        let Some(kind) = tx.names.kind_id(tx.conn, kind)? else { continue };
        let mut statement = tx.conn.prepare_cached(sql)?;
        let mut class = i64::MIN;
        loop {
            let mut rows = statement.query(params![id, kind, class])?;
            let Some(row) = rows.next()? else { break };
            class = row.get(0)?;
            oldest = oldest.into_iter().chain([row.get(1)?]).min();
        }
    }
    Ok(oldest.map(Wall::new))
}

fn attempts(tx: &mut Rows<'_>, sql: &str, params: impl rusqlite::Params) -> Found<Vec<Attempt>> {
    let mut statement = tx.conn.prepare_cached(sql)?;
    let mut rows = statement.query(params)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(Attempt {
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
        });
    }
    Ok(found)
}

fn workers(tx: &mut Rows<'_>) -> Found<Vec<WorkerRow>> {
    let sql = "SELECT id, host, pid, kind, started_at, last_seen, demand, slots, presence, \
               stopping FROM workers ORDER BY id";
    let mut statement = tx.conn.prepare_cached(sql)?;
    let mut rows = statement.query([])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(WorkerRow {
            worker: Worker {
                id: WorkerId::new(text(row, 0)?.unwrap_or_default()).map_err(bad)?,
                host: text(row, 1)?.unwrap_or_default().into(),
                pid: row.get(2)?,
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
        let holder = text(row, 0)?.unwrap_or_default();
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

fn queue_row(tx: &mut Rows<'_>, name: &QueueName) -> Found<Option<QueueRow>> {
    let Some(id) = tx.names.queue_id(tx.conn, name)? else { return Ok(None) };
    let Some(queue) = tx.queue(id)? else { return Ok(None) };
    Ok(Some(QueueRow { queue, kinds: tx.counts(id)? }))
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
