//! Reads of committed states, on connections of their own. Each call sees one state.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_postgres::Row;
use windlass_core::store::{
    BulkRow, Cause, CopyPlace, CopyRows, Cursor, Dump, FigureRange, FigureRow, Filter, Instance,
    JobDetail, Marker, Page, PageSize, Reader, StoreError, Worker, WorkerKind, WorkerRow,
};
use windlass_core::{
    Attempt, AttemptOutcome, Counts, Demand, Epoch, GroupId, GroupRow, JobId, KeyRecord, Kind,
    Millis, QueueName, QueueRow, SettingKey, SettingValue, Tats, Wall, WorkerId, WorkerVersion,
};

use crate::bulk;
use crate::copy;
use crate::details::Details;
use crate::error::TxError;
use crate::figures;
use crate::find::{NOW, counts, key_record};
use crate::groups;
use crate::list::list;
use crate::names::{Names, VERSION};
use crate::open::Opener;
use crate::rows::{bad, code_of, excerpt, get, id_code, job_id};
use crate::session::{Flight, Found, Param, Session, params};
use crate::store::{Clock, read_marker};

/// How many idle connections are kept.
const POOLED: usize = 4;
/// How often a read is made when names have changed under it.
const TRIES: u32 = 5;

/// Idle connections for readers of one store.
#[derive(Debug)]
pub(crate) struct Pool {
    opener: Opener,
    clock: Clock,
    idle: Mutex<Vec<Session>>,
    /// The latest that a reader has read.
    names: Mutex<Arc<Names>>,
}

impl Pool {
    pub(crate) fn new(opener: Opener, clock: Clock) -> Arc<Self> {
        Arc::new(Self { opener, clock, idle: Mutex::default(), names: Mutex::default() })
    }

    pub(crate) fn reader(self: &Arc<Self>) -> PgReader {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let session = idle.filter(|session| !session.is_closed());
        PgReader { pool: Arc::clone(self), session, names: Arc::clone(&self.names()) }
    }

    fn names(&self) -> MutexGuard<'_, Arc<Names>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn opener(&self) -> &Opener {
        &self.opener
    }

    /// Drops idle connections.
    pub(crate) fn clear(&self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// A reader of a [`PgStore`](crate::PgStore), for any thread.
#[derive(Debug)]
pub struct PgReader {
    pool: Arc<Pool>,
    /// Made when it is needed.
    session: Option<Session>,
    names: Arc<Names>,
}

impl Drop for PgReader {
    fn drop(&mut self) {
        let mut idle = self.pool.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(session) = self.session.take().filter(|_| idle.len() < POOLED) {
            idle.push(session);
        }
    }
}

/// What a read works with.
pub(crate) struct Reading<'r> {
    pub(crate) session: &'r mut Session,
    pub(crate) names: &'r Names,
}

impl Reading<'_> {
    /// Runs one statement whose meaning depends on the names.
    fn query(&mut self, sql: &'static str, params: Vec<Param>) -> Found<Vec<Row>> {
        let mut flight = Flight::default();
        let rows = flight.add(sql, params);
        // Behind the rows: if it is the same now, it was the same then.
        let version = flight.add(VERSION, vec![]);
        let mut returned = self.session.fly(flight, None)?;
        self.check_version(&returned.take(version))?;
        Ok(returned.take(rows))
    }

    /// The rows of queues: their counters, as this statement reads them, and their rates.
    fn queue_rows(&mut self, counts: &'static str, params: Vec<Param>) -> Found<Vec<QueueRow>> {
        let mut flight = Flight::default();
        let (counts, tats) = (flight.add(counts, params), flight.add(ALL_TATS, vec![]));
        let version = flight.add(VERSION, vec![]);
        let mut returned = self.session.fly(flight, None)?;
        self.check_version(&returned.take(version))?;
        queue_rows(self.names, &returned.take(counts), &returned.take(tats))
    }

    /// Refuses names that are not those of the store any more. `rows` is the answer to [`VERSION`].
    pub(crate) fn check_version(&self, rows: &[Row]) -> Found<()> {
        let version: Option<i64> = rows.first().map(|row| get(row, 0)).transpose()?;
        if version == self.names.version { Ok(()) } else { Err(TxError::StaleNames) }
    }
}

impl PgReader {
    /// Runs reads; again where names have changed under them, and once more where an idle
    /// connection turns out to be lost.
    pub(crate) fn read<R>(
        &mut self,
        mut read: impl FnMut(&mut Reading<'_>) -> Found<R>,
    ) -> Result<R, StoreError> {
        let mut tried = 0;
        loop {
            let was_idle = tried == 0 && self.session.is_some();
            let error = match self.try_read(&mut read) {
                Ok(found) => return Ok(found),
                Err(error) => error?,
            };
            tried += 1;
            self.names = Arc::default();
            // A transaction may be open.
            let stale = matches!(error, TxError::StaleNames);
            self.session.take_if(|session| !stale || session.run("ROLLBACK").is_err());
            let again = match &error {
                TxError::StaleNames => tried < TRIES,
                TxError::Lost(_) => was_idle,
                _ => false,
            };
            if !again {
                return Err(error.of_read());
            }
        }
    }

    fn try_read<R>(
        &mut self,
        read: &mut impl FnMut(&mut Reading<'_>) -> Found<R>,
    ) -> Result<R, Result<TxError, StoreError>> {
        if self.session.is_none() {
            let busy = |error: crate::OpenError| StoreError::Busy(Cause::new(&error.to_string()));
            let opened = self.pool.opener.session().map_err(|error| Err(busy(error)))?;
            self.session = Some(opened);
        }
        let Some(session) = &mut self.session else {
            return Err(Err(StoreError::Busy(Cause::new("there is no connection"))));
        };
        if self.names.version.is_none() {
            self.names = Arc::new(Names::load(session).map_err(Ok)?);
            *self.pool.names() = Arc::clone(&self.names);
        }
        read(&mut Reading { session, names: &self.names }).map_err(Ok)
    }
}

impl Reader for PgReader {
    fn now(&mut self, own: Wall) -> Result<Wall, StoreError> {
        if self.pool.clock == Clock::Caller {
            return Ok(own);
        }
        self.read(|reading| {
            let rows = reading.session.query(NOW, vec![])?;
            Ok(rows.first().map(|row| get(row, 0)).transpose()?.map_or(own, Wall::new))
        })
    }

    fn jobs(&mut self, ids: &[JobId]) -> Result<Vec<Option<JobDetail>>, StoreError> {
        self.read(|reading| {
            let mut flight = Flight::default();
            flight.add(BEGIN, vec![]);
            let places = Details::ask(&mut flight, Some(ids));
            flight.add("COMMIT", vec![]);
            let mut returned = reading.session.fly(flight, None)?;
            let mut found = BTreeMap::new();
            for detail in places.read(reading.names, &mut returned)? {
                found.insert(detail.job.id, detail);
            }
            Ok(ids.iter().map(|id| found.get(id).cloned()).collect())
        })
    }

    fn list(
        &mut self,
        filter: &Filter,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        self.read(|reading| list(reading, filter, after, limit))
    }

    fn queues(&mut self) -> Result<Vec<QueueRow>, StoreError> {
        self.read(|reading| reading.queue_rows(ALL_COUNTS, vec![]))
    }

    fn queue(&mut self, name: &QueueName) -> Result<Option<QueueRow>, StoreError> {
        self.read(|reading| {
            let id = reading.names.queue_id(name);
            let rows = reading.queue_rows(QUEUE_COUNTS, params![id])?;
            Ok(rows.into_iter().find(|row| row.queue.name == *name))
        })
    }

    fn oldest_ready(&mut self, queue: &QueueName) -> Result<Option<Wall>, StoreError> {
        self.read(|reading| {
            let id = reading.names.queue_id(queue);
            let pairs = id.into_iter().flat_map(|id| reading.names.pairs_of(id));
            let kinds: Vec<i32> = pairs.map(|(_, kind)| kind).collect();
            let rows = reading.query(OLDEST_READY, params![id, kinds])?;
            let oldest: Option<i64> = rows.first().map(|row| get(row, 0)).transpose()?.flatten();
            Ok(oldest.map(Wall::new))
        })
    }

    fn next_due(&mut self) -> Result<Option<Wall>, StoreError> {
        self.read(|reading| {
            let sql = "SELECT run_at FROM scheduled WHERE epoch >= 0 ORDER BY run_at, id LIMIT 1";
            let rows = reading.session.query(sql, vec![])?;
            Ok(rows.first().map(|row| get(row, 0)).transpose()?.map(Wall::new))
        })
    }

    fn attempts(&mut self, id: JobId) -> Result<Vec<Attempt>, StoreError> {
        self.read(|reading| attempts(&reading.session.query(ATTEMPTS_OF, params![id_code(id)])?))
    }

    fn workers(&mut self) -> Result<Vec<WorkerRow>, StoreError> {
        self.read(|reading| {
            let mut flight = Flight::default();
            flight.add(BEGIN, vec![]);
            let places = (flight.add(WORKERS, vec![]), flight.add(HOLDERS, vec![]));
            flight.add("COMMIT", vec![]);
            let mut returned = reading.session.fly(flight, None)?;
            workers(&returned.take(places.0), &returned.take(places.1))
        })
    }

    fn error_groups(&mut self) -> Result<Vec<GroupRow>, StoreError> {
        self.read(|reading| groups::rows(&reading.session.query(groups::ALL, vec![])?))
    }

    fn error_group(&mut self, id: GroupId) -> Result<Option<GroupRow>, StoreError> {
        self.read(|reading| groups::one(reading.session, id))
    }

    fn settings(&mut self) -> Result<Vec<(SettingKey, SettingValue)>, StoreError> {
        self.read(|reading| settings(&reading.session.query(SETTINGS, vec![])?))
    }

    fn figures(&mut self, ranges: &[FigureRange]) -> Result<Vec<FigureRow>, StoreError> {
        self.read(|reading| figures::within(reading.session, ranges))
    }

    fn bulk(&mut self) -> Result<Vec<BulkRow>, StoreError> {
        self.read(|reading| bulk::rows(&reading.session.query(bulk::ALL, vec![])?))
    }

    fn copy_page(&mut self, after: &CopyPlace, size: PageSize) -> Result<CopyRows, StoreError> {
        self.read(|reading| copy::page(reading, after, size))
    }

    fn dump(&mut self) -> Result<Dump, StoreError> {
        self.read(dump)
    }
}

pub(crate) const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

fn dump(reading: &mut Reading<'_>) -> Found<Dump> {
    let mut flight = Flight::default();
    flight.add(BEGIN, vec![]);
    let version = flight.add(VERSION, vec![]);
    let details = Details::ask(&mut flight, None);
    let (counts, tats) = (flight.add(ALL_COUNTS, vec![]), flight.add(ALL_TATS, vec![]));
    let keys = "SELECT key, job, request, created_at, orphan_until FROM keys ORDER BY key";
    let keys = flight.add(keys, vec![]);
    let all_attempts = flight.add(ALL_ATTEMPTS, vec![]);
    let (all_workers, holders) = (flight.add(WORKERS, vec![]), flight.add(HOLDERS, vec![]));
    let all_settings = flight.add(SETTINGS, vec![]);
    let markers = flight.add("SELECT process, seq, at FROM markers", vec![]);
    let all_figures = flight.add(figures::ALL, vec![]);
    let all_groups = flight.add(groups::ALL, vec![]);
    let all_bulk = flight.add(bulk::ALL, vec![]);
    let last_id = flight.add(LAST_ID, vec![]);
    flight.add("COMMIT", vec![]);
    let mut returned = reading.session.fly(flight, None)?;
    reading.check_version(&returned.take(version))?;
    let jobs = details.read(reading.names, &mut returned)?;
    let keys: Found<Vec<KeyRecord>> = returned.take(keys).iter().map(key_record).collect();
    let markers: Found<Vec<Marker>> = returned.take(markers).iter().map(read_marker).collect();
    let mut markers = markers?;
    markers.sort_by_key(|marker| marker.batch.process);
    Ok(Dump {
        next_id: next_id(&returned.take(last_id))?,
        jobs,
        queues: queue_rows(reading.names, &returned.take(counts), &returned.take(tats))?,
        keys: keys?,
        attempts: attempts(&returned.take(all_attempts))?,
        workers: workers(&returned.take(all_workers), &returned.take(holders))?,
        settings: settings(&returned.take(all_settings))?,
        markers,
        figures: figures::rows(&returned.take(all_figures))?,
        groups: groups::rows(&returned.take(all_groups))?,
        bulk: bulk::rows(&returned.take(all_bulk))?,
    })
}

/// The id of the next new job, from the row of [`LAST_ID`].
pub(crate) fn next_id(rows: &[Row]) -> Found<JobId> {
    let last: i64 = rows.first().map(|row| get(row, 0)).transpose()?.unwrap_or(0);
    job_id(last.saturating_add(1))
}

/// Every queue with its counters, by name.
pub(crate) fn queue_rows(names: &Names, rows: &[Row], tats: &[Row]) -> Found<Vec<QueueRow>> {
    let mut kinds: BTreeMap<i32, Vec<(Kind, Counts)>> = BTreeMap::new();
    for row in rows {
        let counts = counts(row, 2)?;
        if !counts.is_empty() {
            let kind = names.kind_name(get(row, 1)?)?.clone();
            kinds.entry(get(row, 0)?).or_default().push((kind, counts));
        }
    }
    let tats = tats.iter().map(|row| Ok((get(row, 0)?, Tats::parse(get(row, 1)?).map_err(bad)?)));
    let mut tats: BTreeMap<i32, Tats> = tats.collect::<Found<_>>()?;
    let row = |(id, queue): (i32, &windlass_core::Queue)| {
        let mut kinds = kinds.remove(&id).unwrap_or_default();
        kinds.sort_by(|(a, _), (b, _)| a.cmp(b));
        QueueRow { queue: queue.clone(), kinds, tats: tats.remove(&id).unwrap_or_default() }
    };
    Ok(names.queues_by_name().map(row).collect())
}

pub(crate) fn attempts(rows: &[Row]) -> Found<Vec<Attempt>> {
    let attempt = |row: &Row| {
        Ok(Attempt {
            job: job_id(get(row, 0)?)?,
            epoch: Epoch::new(get::<i64>(row, 1)?.cast_unsigned()),
            worker: WorkerId::new(get(row, 2)?).map_err(bad)?,
            started_at: Wall::new(get(row, 3)?),
            ended_at: Wall::new(get(row, 4)?),
            outcome: code_of(&AttemptOutcome::ALL, get(row, 5)?, "outcome")?,
            error: excerpt(row, 6)?,
            exit_code: get(row, 8)?,
            stdout: excerpt(row, 9)?,
            stderr: excerpt(row, 11)?,
        })
    };
    rows.iter().map(attempt).collect()
}

pub(crate) fn workers(rows: &[Row], holders: &[Row]) -> Found<Vec<WorkerRow>> {
    let mut found = Vec::with_capacity(rows.len());
    for row in rows {
        let pid: Option<i64> = get(row, 2)?;
        let instance: Option<&str> = get(row, 10)?;
        let (version, server): (Option<&str>, Option<&str>) = (get(row, 11)?, get(row, 12)?);
        found.push(WorkerRow {
            worker: Worker {
                id: WorkerId::new(get(row, 0)?).map_err(bad)?,
                host: get::<&str>(row, 1)?.into(),
                pid: pid.map(u32::try_from).transpose().map_err(bad)?,
                instance: instance.map(process_of).transpose()?,
                version: version.map(WorkerVersion::new).transpose().map_err(bad)?,
                server: server.map(WorkerId::new).transpose().map_err(bad)?,
                kind: code_of(&WorkerKind::ALL, get(row, 3)?, "kind of worker")?,
                demand: Demand::parse(get(row, 6)?).map_err(bad)?,
                slots: usize::try_from(get::<i64>(row, 7)?).map_err(bad)?,
                presence: Millis::new(get::<i64>(row, 8)?.cast_unsigned()),
            },
            started_at: Wall::new(get(row, 4)?),
            last_seen: Wall::new(get(row, 5)?),
            stopping: get(row, 9)?,
            running: Vec::new(),
        });
    }
    for row in holders {
        let holder: &str = get(row, 0)?;
        let at = found.binary_search_by(|row: &WorkerRow| row.worker.id.as_str().cmp(holder));
        if let Ok(at) = at {
            found[at].running.push(job_id(get(row, 1)?)?);
        }
    }
    for row in &mut found {
        row.running.sort_unstable();
    }
    Ok(found)
}

fn process_of(text: &str) -> Found<Instance> {
    Instance::parse(text).ok_or_else(|| bad(format!("{text:?} names no process")))
}

pub(crate) fn settings(rows: &[Row]) -> Found<Vec<(SettingKey, SettingValue)>> {
    let setting = |row: &Row| {
        let key = SettingKey::new(get(row, 0)?).map_err(bad)?;
        Ok((key, SettingValue::new(get(row, 1)?).map_err(bad)?))
    };
    rows.iter().map(setting).collect()
}

pub(crate) const WORKERS: &str = "SELECT id, host, pid, kind, started_at, last_seen, demand, \
    slots, presence, stopping, instance, version, server FROM workers ORDER BY id";
pub(crate) const HOLDERS: &str = "SELECT worker, id FROM leased";
pub(crate) const SETTINGS: &str = "SELECT key, value FROM settings ORDER BY key";
pub(crate) const ALL_TATS: &str = "SELECT queue, tats FROM rates";
pub(crate) const ALL_COUNTS: &str = "SELECT queue, kind, sum(queued)::bigint, \
    sum(scheduled)::bigint, sum(processing)::bigint, sum(done)::bigint, sum(failed)::bigint, \
    sum(cancelled)::bigint, sum(retrying)::bigint FROM counts GROUP BY queue, kind";
const QUEUE_COUNTS: &str = "SELECT queue, kind, sum(queued)::bigint, sum(scheduled)::bigint, \
    sum(processing)::bigint, sum(done)::bigint, sum(failed)::bigint, sum(cancelled)::bigint, \
    sum(retrying)::bigint \
    FROM counts WHERE queue = $1 GROUP BY queue, kind";
macro_rules! attempt_columns {
    () => {
        "SELECT job, epoch, worker, started_at, ended_at, outcome, error, error_cut, exit_code, \
         stdout, stdout_cut, stderr, stderr_cut FROM attempts "
    };
}
pub(crate) use attempt_columns;
const ATTEMPTS_OF: &str = concat!(attempt_columns!(), "WHERE job = $1::bigint ORDER BY epoch");
const ALL_ATTEMPTS: &str = concat!(attempt_columns!(), "ORDER BY job, epoch");
/// The least instant over the first jobs of each kind and class, found by seeking from class to
/// class.
const OLDEST_READY: &str = "SELECT coalesce(run_at, due) FROM unnest($2::integer[]) AS of_kind \
    CROSS JOIN LATERAL (WITH RECURSIVE head AS ( \
        (SELECT class, due, id, run_at FROM ready \
         WHERE epoch >= 0 AND queue = $1 AND kind = of_kind \
         ORDER BY class, turn, due, id LIMIT 1) \
        UNION ALL \
        SELECT next.class, next.due, next.id, next.run_at FROM head CROSS JOIN LATERAL \
        (SELECT class, due, id, run_at FROM ready \
         WHERE epoch >= 0 AND queue = $1 AND kind = of_kind \
         AND class > head.class ORDER BY class, turn, due, id LIMIT 1) next) \
    SELECT due, id, run_at FROM head) heads ORDER BY due, id LIMIT 1";
/// The highest id that a job has, or has had.
pub(crate) const LAST_ID: &str = "SELECT greatest((SELECT max(id) FROM jobs), \
    (SELECT max(last_id) FROM markers), (SELECT value FROM meta WHERE key = 'last_id'), 0)";
