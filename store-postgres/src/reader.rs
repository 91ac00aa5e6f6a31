//! Reads of committed states, on connections of their own. Each call sees one state.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio_postgres::Row;
use windlass_core::store::{
    Cause, Cursor, Dump, FigureRange, FigureRow, Filter, Instance, JobDetail, Marker, Page, Reader,
    StoreError, Worker, WorkerKind, WorkerRow,
};
use windlass_core::{
    Attempt, AttemptOutcome, Counts, Demand, Epoch, Excerpt, Job, JobId, KeyRecord, Kind, Millis,
    Payload, QueueName, QueueRow, SettingKey, SettingValue, Wall, WorkerId,
};

use crate::error::TxError;
use crate::figures;
use crate::find::{counts, key_record};
use crate::list::list;
use crate::names::Names;
use crate::open::Opener;
use crate::rows::{
    bad, code_of, excerpt, get, id_code, id_codes, job_id, jobs, select_done, select_leased,
    select_ready, select_scheduled,
};
use crate::session::{Flight, Found, Landed, Place, Session, params};
use crate::store::read_marker;

/// How many idle connections are kept.
const POOLED: usize = 4;
/// How often a read is made when names have changed under it.
const TRIES: u32 = 5;

/// Idle connections for readers of one store.
#[derive(Debug)]
pub(crate) struct Pool {
    opener: Opener,
    idle: Mutex<Vec<Session>>,
}

impl Pool {
    pub(crate) fn new(opener: Opener) -> Arc<Self> {
        Arc::new(Self { opener, idle: Mutex::new(Vec::new()) })
    }

    pub(crate) fn reader(self: &Arc<Self>) -> PgReader {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let session = idle.filter(|session| !session.is_closed());
        PgReader { pool: Arc::clone(self), session, names: Names::default() }
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
    names: Names,
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
            // A transaction may be open.
            self.session = None;
            self.names.forget();
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
            self.names = Names::load(session).map_err(Ok)?;
        }
        read(&mut Reading { session, names: &self.names }).map_err(Ok)
    }
}

impl Reader for PgReader {
    fn jobs(&mut self, ids: &[JobId]) -> Result<Vec<Option<JobDetail>>, StoreError> {
        self.read(|reading| {
            let mut flight = Flight::default();
            flight.add(BEGIN, vec![]);
            let places = Details::ask(&mut flight, Some(ids));
            flight.add("COMMIT", vec![]);
            let mut landed = reading.session.fly(flight, None)?;
            let mut found = BTreeMap::new();
            for detail in places.read(reading.names, &mut landed)? {
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
        // Filters name queues and kinds: those of an earlier call may be old.
        self.names.forget();
        self.read(|reading| list(reading, filter, after, limit))
    }

    fn queues(&mut self) -> Result<Vec<QueueRow>, StoreError> {
        // Queues are read with the names: those of an earlier call may be old.
        self.names.forget();
        self.read(|reading| {
            let rows = reading.session.query(ALL_COUNTS, vec![])?;
            queue_rows(reading.names, &rows)
        })
    }

    fn queue(&mut self, name: &QueueName) -> Result<Option<QueueRow>, StoreError> {
        self.names.forget();
        self.read(|reading| {
            let Some(id) = reading.names.queue_id(name) else { return Ok(None) };
            let rows = reading.session.query(QUEUE_COUNTS, params![id])?;
            let rows = queue_rows(reading.names, &rows)?;
            Ok(rows.into_iter().find(|row| row.queue.name == *name))
        })
    }

    fn oldest_ready(&mut self, queue: &QueueName) -> Result<Option<Wall>, StoreError> {
        self.names.forget();
        self.read(|reading| {
            let Some(id) = reading.names.queue_id(queue) else { return Ok(None) };
            let kinds: Vec<i32> = reading.names.pairs_of(id).map(|(_, kind)| kind).collect();
            let rows = reading.session.query(OLDEST_READY, params![id, kinds])?;
            let oldest: Option<i64> = rows.first().map(|row| get(row, 0)).transpose()?.flatten();
            Ok(oldest.map(Wall::new))
        })
    }

    fn next_due(&mut self) -> Result<Option<Wall>, StoreError> {
        self.read(|reading| {
            let sql = "SELECT run_at FROM scheduled ORDER BY run_at, id LIMIT 1";
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
            let mut landed = reading.session.fly(flight, None)?;
            workers(&landed.take(places.0), &landed.take(places.1))
        })
    }

    fn settings(&mut self) -> Result<Vec<(SettingKey, SettingValue)>, StoreError> {
        self.read(|reading| settings(&reading.session.query(SETTINGS, vec![])?))
    }

    fn figures(&mut self, ranges: &[FigureRange]) -> Result<Vec<FigureRow>, StoreError> {
        self.read(|reading| figures::within(reading.session, ranges))
    }

    fn dump(&mut self) -> Result<Dump, StoreError> {
        self.names.forget();
        self.read(dump)
    }
}

const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

fn dump(reading: &mut Reading<'_>) -> Found<Dump> {
    let mut flight = Flight::default();
    flight.add(BEGIN, vec![]);
    let version = flight.add(crate::names::VERSION, vec![]);
    let details = Details::ask(&mut flight, None);
    let counts = flight.add(ALL_COUNTS, vec![]);
    let keys = "SELECT key, job, request, created_at, orphan_until FROM keys ORDER BY key";
    let keys = flight.add(keys, vec![]);
    let all_attempts = flight.add(ALL_ATTEMPTS, vec![]);
    let (all_workers, holders) = (flight.add(WORKERS, vec![]), flight.add(HOLDERS, vec![]));
    let all_settings = flight.add(SETTINGS, vec![]);
    let markers = flight.add("SELECT process, seq, at FROM markers", vec![]);
    let all_figures = flight.add(figures::ALL, vec![]);
    let last_id = flight.add(LAST_ID, vec![]);
    flight.add("COMMIT", vec![]);
    let mut landed = reading.session.fly(flight, None)?;
    let version = landed.take(version);
    let version: Option<i64> = version.first().map(|row| get(row, 0)).transpose()?;
    if version != reading.names.version {
        return Err(TxError::StaleNames);
    }
    let jobs = details.read(reading.names, &mut landed)?;
    let keys: Found<Vec<KeyRecord>> = landed.take(keys).iter().map(key_record).collect();
    let markers: Found<Vec<Marker>> = landed.take(markers).iter().map(read_marker).collect();
    let mut markers = markers?;
    markers.sort_by_key(|marker| marker.batch.process);
    let last_id = landed.take(last_id);
    let last_id: i64 = last_id.first().map(|row| get(row, 0)).transpose()?.unwrap_or(0);
    Ok(Dump {
        next_id: job_id(last_id.saturating_add(1))?,
        jobs,
        queues: queue_rows(reading.names, &landed.take(counts))?,
        keys: keys?,
        attempts: attempts(&landed.take(all_attempts))?,
        workers: workers(&landed.take(all_workers), &landed.take(holders))?,
        settings: settings(&landed.take(all_settings))?,
        markers,
        figures: figures::rows(&landed.take(all_figures))?,
    })
}

/// The places of jobs and what is kept beside them in a flight.
struct Details {
    jobs: Vec<Place>,
    texts: [Place; 3],
    errors: Place,
}

impl Details {
    /// Asks for these jobs, or for all.
    fn ask(flight: &mut Flight, ids: Option<&[JobId]>) -> Self {
        let mut ask = |all: &'static str, some: &'static str| match ids {
            None => flight.add(all, vec![]),
            Some(ids) => flight.add(some, params![id_codes(ids)]),
        };
        Self {
            jobs: vec![
                ask(select_ready!(), of_ids!(select_ready!(), "t.id")),
                ask(select_scheduled!(), of_ids!(select_scheduled!(), "t.id")),
                ask(select_leased!(), of_ids!(select_leased!(), "t.id")),
                ask(select_done!(), of_ids!(select_done!(), "t.id")),
            ],
            texts: [
                ask("SELECT id, payload FROM jobs", crate::find::PAYLOADS),
                ask(
                    "SELECT job, text FROM results",
                    of_ids!("SELECT job, text FROM results ", "job"),
                ),
                ask(
                    "SELECT job, text FROM progress",
                    of_ids!("SELECT job, text FROM progress ", "job"),
                ),
            ],
            errors: ask(
                "SELECT job, text, cut FROM errors",
                of_ids!("SELECT job, text, cut FROM errors ", "job"),
            ),
        }
    }

    /// The jobs with what is kept beside them, by id.
    fn read(self, names: &Names, landed: &mut Landed) -> Found<Vec<JobDetail>> {
        let mut rows: Vec<Job> = Vec::new();
        for place in self.jobs {
            rows.append(&mut jobs(names, &landed.take(place))?);
        }
        rows.sort_by_key(|job| job.id);
        let [mut payloads, mut results, mut progress] = [
            texts(&landed.take(self.texts[0]))?,
            texts(&landed.take(self.texts[1]))?,
            texts(&landed.take(self.texts[2]))?,
        ];
        let mut errors: BTreeMap<JobId, Excerpt> = BTreeMap::new();
        for row in landed.take(self.errors) {
            let id = job_id(get(&row, 0)?)?;
            errors.extend(excerpt(&row, 1)?.map(|error| (id, error)));
        }
        let detail = |job: Job| {
            let payload = payloads.remove(&job.id);
            let missing = || TxError::BadRow(format!("job {} has no payload", job.id));
            Ok(JobDetail {
                payload: payload.ok_or_else(missing)?,
                result: results.remove(&job.id),
                progress: progress.remove(&job.id),
                last_error: errors.remove(&job.id),
                job,
            })
        };
        rows.into_iter().map(detail).collect()
    }
}

/// A query for the rows of some jobs.
macro_rules! of_ids {
    ($select:expr, $id:literal) => {
        concat!($select, "WHERE ", $id, " = ANY($1::bigint[])")
    };
}
use of_ids;

fn texts(rows: &[Row]) -> Found<BTreeMap<JobId, Payload>> {
    let text = |row: &Row| Ok((job_id(get(row, 0)?)?, Payload::new(get(row, 1)?).map_err(bad)?));
    rows.iter().map(text).collect()
}

/// Every queue with its counters, by name.
fn queue_rows(names: &Names, rows: &[Row]) -> Found<Vec<QueueRow>> {
    let mut kinds: BTreeMap<i32, Vec<(Kind, Counts)>> = BTreeMap::new();
    for row in rows {
        let counts = counts(row, 2)?;
        if !counts.is_empty() {
            let kind = names.kind_name(get(row, 1)?)?.clone();
            kinds.entry(get(row, 0)?).or_default().push((kind, counts));
        }
    }
    let row = |(id, queue): (i32, &windlass_core::Queue)| {
        let mut kinds = kinds.remove(&id).unwrap_or_default();
        kinds.sort_by(|(a, _), (b, _)| a.cmp(b));
        QueueRow { queue: queue.clone(), kinds }
    };
    Ok(names.queues_by_name().map(row).collect())
}

fn attempts(rows: &[Row]) -> Found<Vec<Attempt>> {
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

fn workers(rows: &[Row], holders: &[Row]) -> Found<Vec<WorkerRow>> {
    let mut found = Vec::with_capacity(rows.len());
    for row in rows {
        let pid: Option<i64> = get(row, 2)?;
        let instance: Option<&str> = get(row, 10)?;
        found.push(WorkerRow {
            worker: Worker {
                id: WorkerId::new(get(row, 0)?).map_err(bad)?,
                host: get::<&str>(row, 1)?.into(),
                pid: pid.map(u32::try_from).transpose().map_err(bad)?,
                instance: instance.map(process_of).transpose()?,
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

fn settings(rows: &[Row]) -> Found<Vec<(SettingKey, SettingValue)>> {
    let setting = |row: &Row| {
        let key = SettingKey::new(get(row, 0)?).map_err(bad)?;
        Ok((key, SettingValue::new(get(row, 1)?).map_err(bad)?))
    };
    rows.iter().map(setting).collect()
}

const WORKERS: &str = "SELECT id, host, pid, kind, started_at, last_seen, demand, slots, presence, \
    stopping, instance FROM workers ORDER BY id";
const HOLDERS: &str = "SELECT worker, id FROM leased";
const SETTINGS: &str = "SELECT key, value FROM settings ORDER BY key";
const ALL_COUNTS: &str = "SELECT queue, kind, sum(queued)::bigint, sum(scheduled)::bigint, \
    sum(processing)::bigint, sum(done)::bigint, sum(failed)::bigint, sum(cancelled)::bigint \
    FROM counts GROUP BY queue, kind";
const QUEUE_COUNTS: &str = "SELECT queue, kind, sum(queued)::bigint, sum(scheduled)::bigint, \
    sum(processing)::bigint, sum(done)::bigint, sum(failed)::bigint, sum(cancelled)::bigint \
    FROM counts WHERE queue = $1 GROUP BY queue, kind";
macro_rules! attempt_columns {
    () => {
        "SELECT job, epoch, worker, started_at, ended_at, outcome, error, error_cut, exit_code, \
         stdout, stdout_cut, stderr, stderr_cut FROM attempts "
    };
}
const ATTEMPTS_OF: &str = concat!(attempt_columns!(), "WHERE job = $1::bigint ORDER BY epoch");
const ALL_ATTEMPTS: &str = concat!(attempt_columns!(), "ORDER BY job, epoch");
/// The least instant over the first jobs of each kind and class, found by seeking from class to
/// class.
const OLDEST_READY: &str = "SELECT min(due) FROM unnest($2::integer[]) AS of_kind \
    CROSS JOIN LATERAL (WITH RECURSIVE head AS ( \
        (SELECT class, due FROM ready WHERE queue = $1 AND kind = of_kind \
         ORDER BY class, turn, due, id LIMIT 1) \
        UNION ALL \
        SELECT next.class, next.due FROM head CROSS JOIN LATERAL \
        (SELECT class, due FROM ready WHERE queue = $1 AND kind = of_kind \
         AND class > head.class ORDER BY class, turn, due, id LIMIT 1) next) \
    SELECT due FROM head) heads";
/// The highest id that a job has, or has had.
const LAST_ID: &str = "SELECT greatest((SELECT max(id) FROM jobs), \
    (SELECT max(last_id) FROM markers), (SELECT value FROM meta WHERE key = 'last_id'), 0)";
