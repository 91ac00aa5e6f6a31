//! Puts what a batch changed into one flight, with the commit behind it.
//!
//! The commit is sent before it is known what the statements in front of it met. So a statement
//! that does not meet the rows it was to replace has to fail: it divides by zero. PostgreSQL then
//! answers the commit with a rollback.

use std::collections::BTreeMap;

use windlass_core::store::{Changes, CountDelta, Doc, Marker, Moved, Worker, WorkerKind, is_seal};
use windlass_core::{
    AttemptOutcome, Excerpt, IdempotencyKey, Job, JobId, KeyRecord, Queue, RetryPolicy, View, Wall,
};

use crate::answer::Transaction;
use crate::bulk;
use crate::error::TxError;
use crate::figures;
use crate::groups;
use crate::heads::Moves;
use crate::names::{Pair, retry_key};
use crate::rows::{count, get, id_code, position};
use crate::session::{Flight, Found, params};
use crate::settings;
use crate::thin;

/// What a batch writes, ready to be sent.
pub(crate) struct Written {
    pub(crate) flight: Flight,
    /// The last id that it has given to a job.
    pub(crate) last_id: Option<JobId>,
    /// Names were added or changed.
    pub(crate) new_names: bool,
    /// Jobs are ready, in queues that are not paused, and the claims of this batch left them.
    pub(crate) leaves_ready: bool,
    /// What it does to ready jobs.
    pub(crate) moves: Moves,
}

impl Transaction<'_> {
    /// Prepares everything a batch changed. Names that are new get their numbers first.
    pub(crate) fn write(&mut self, changes: &Changes) -> Found<Written> {
        let new_names = self.number_names(changes)?;
        let now = self.now();
        let mut flight = Flight::default();
        thin::delete(&mut flight, changes);
        self.insert_jobs(&mut flight, changes)?;
        thin::insert(&mut flight, self.names, changes)?;
        remove_jobs(&mut flight, &changes.removes);
        put_docs(&mut flight, changes);
        put_attempts(&mut flight, changes);
        put_keys(&mut flight, changes);
        self.add_counts(&mut flight, &changes.counts)?;
        self.put_tats(&mut flight, changes)?;
        self.drop_queues(&mut flight, changes);
        settings::write(&mut flight, changes);
        put_workers(&mut flight, changes, now);
        figures::write(&mut flight, changes);
        groups::write(&mut flight, changes);
        bulk::write(&mut flight, changes);
        let last_id = changes.inserts.last().map(|job| job.id);
        if let Some(next) = changes.next_id {
            move_ids(&mut flight, next);
        }
        if let Some(marker) = &changes.marker {
            put_marker(&mut flight, marker, last_id);
        }
        flight.add("COMMIT", vec![]);
        let is_open = |job: &Job| {
            let queue = self.names.queue_id(&job.queue).and_then(|id| self.names.queue(id));
            queue.is_none_or(|queue| !queue.is_paused())
        };
        let waits = |job: &Job| job.state.view() == View::Queued && is_open(job);
        let updated = changes.updates.iter().map(|moved| &moved.job);
        let leaves_ready = changes.inserts.iter().chain(updated).any(waits);
        let moves = Moves::of(changes, self.names);
        Ok(Written { flight, last_id, new_names, leaves_ready, moves })
    }

    /// Writes queues, kinds, retry policies and pairs that are new, and queues that have changed.
    fn number_names(&mut self, changes: &Changes) -> Found<bool> {
        let mut kinds: Vec<_> = changes.inserts.iter().map(|job| &job.kind).collect();
        kinds.dedup();
        kinds.retain(|kind| self.names.kind_id(kind).is_none());
        for kind in kinds {
            if self.names.kind_id(kind).is_none() {
                let name = kind.as_str().to_owned();
                let rows = self.session.query(PUT_KIND, params![name])?;
                self.names.add_kind(number(&rows)?, kind.clone());
            }
        }
        let settings = changes.queues.iter().filter_map(|queue| queue.settings.retry);
        let retries = changes.inserts.iter().map(|job| job.retry).chain(settings);
        let retries: Vec<RetryPolicy> = retries.collect();
        let mut new_retry = false;
        for policy in retries {
            if self.names.retry_id(policy).is_none() {
                let [strategy, factor, initial, cap, jitter] = retry_key(policy);
                let params = params![strategy, factor, initial, cap, jitter];
                let rows = self.session.query(PUT_RETRY, params)?;
                self.names.add_retry(number(&rows)?, policy);
                new_retry = true;
            }
        }
        for queue in &changes.queues {
            self.put_queue(queue)?;
        }
        let mut pairs: Vec<Pair> = Vec::new();
        for job in &changes.inserts {
            if !self.names.has_pair(&job.queue, &job.kind) {
                let pair = (self.queue_id(job)?, self.kind_id(job)?);
                if !pairs.contains(&pair) {
                    pairs.push(pair);
                }
            }
        }
        if !pairs.is_empty() {
            pairs.sort_unstable();
            let (queues, kinds): (Vec<i32>, Vec<i32>) = pairs.iter().copied().unzip();
            self.session.query(PUT_PAIRS, params![queues, kinds])?;
        }
        let dropped = !changes.dropped_queues.is_empty();
        let marked = changes.settings.iter().any(|(key, _)| is_seal(key));
        let raises = dropped || marked || !pairs.is_empty() || !changes.queues.is_empty();
        if raises {
            let sql = "UPDATE meta SET value = value + 1 WHERE key = 'names'";
            self.session.query(sql, vec![])?;
        }
        Ok(raises || new_retry)
    }

    /// Deletes queues, which have no jobs left, with their counters.
    fn drop_queues(&self, flight: &mut Flight, changes: &Changes) {
        let ids = changes.dropped_queues.iter().filter_map(|name| self.names.queue_id(name));
        let ids: Vec<i32> = ids.collect();
        if !ids.is_empty() {
            flight.add("DELETE FROM counts WHERE queue = ANY($1::integer[])", params![ids.clone()]);
            flight.add("DELETE FROM pairs WHERE queue = ANY($1::integer[])", params![ids.clone()]);
            flight.add("DELETE FROM rates WHERE queue = ANY($1::integer[])", params![ids.clone()]);
            flight.add("DELETE FROM queues WHERE id = ANY($1::integer[])", params![ids]);
        }
    }

    fn put_queue(&mut self, queue: &Queue) -> Found<()> {
        let (settings, pause) = (&queue.settings, queue.paused.as_ref());
        let retry = settings.retry.and_then(|retry| self.names.retry_id(retry));
        let params = params![
            queue.name.as_str().to_owned(),
            queue.is_paused(),
            settings.max_queued.map(|most| most.get().cast_signed()),
            settings.concurrency.map(|most| i64::from(most.get())),
            settings.visibility_timeout.map(|length| length.get().cast_signed()),
            settings.max_retries.map(|retries| i64::from(retries.get())),
            settings.timeout.map(|timeout| timeout.get().cast_signed()),
            retry,
            pause.and_then(|pause| pause.at).map(Wall::get),
            pause.and_then(|pause| pause.by.as_deref().map(str::to_owned)),
            settings.flow.to_text(),
        ];
        let rows = self.session.query(PUT_QUEUE, params)?;
        self.names.add_queue(number(&rows)?, queue.clone());
        Ok(())
    }

    fn queue_id(&self, job: &Job) -> Found<i32> {
        self.names.queue_id(&job.queue).ok_or(TxError::StaleNames)
    }

    fn kind_id(&self, job: &Job) -> Found<i32> {
        self.names.kind_id(&job.kind).ok_or(TxError::StaleNames)
    }

    fn insert_jobs(&self, flight: &mut Flight, changes: &Changes) -> Found<()> {
        if changes.inserts.is_empty() {
            return Ok(());
        }
        let payloads = changes.docs.iter().filter(|write| write.doc == Doc::Payload);
        let texts: BTreeMap<JobId, &str> =
            payloads.map(|write| (write.job, write.text.as_str())).collect();
        let jobs = &changes.inserts;
        let text = |job: &Job| {
            let text = texts.get(&job.id).map(|text| (*text).to_owned());
            text.ok_or_else(|| TxError::BadRow(format!("new job {} has no payload", job.id)))
        };
        let retry = |job: &Job| self.names.retry_id(job.retry).ok_or(TxError::StaleNames);
        flight.add(
            INSERT_JOBS,
            params![
                column(jobs, |job| id_code(job.id)),
                column(jobs, |job| job.created_at.get()),
                column(jobs, |job| job.visibility_timeout.get().cast_signed()),
                column(jobs, |job| job.timeout.map(|timeout| timeout.get().cast_signed())),
                try_column(jobs, |job| self.queue_id(job))?,
                try_column(jobs, |job| self.kind_id(job))?,
                try_column(jobs, retry)?,
                column(jobs, |job| job.max_retries.get().cast_signed()),
                column(jobs, |job| job.payload_bytes.cast_signed()),
                column(jobs, |job| job.priority.get()),
                column(jobs, |job| job.idempotency_key.as_ref().map(|key| key.as_str().to_owned())),
                try_column(jobs, text)?,
            ],
        );
        Ok(())
    }

    fn put_tats(&self, flight: &mut Flight, changes: &Changes) -> Found<()> {
        for (queue, tats) in &changes.tats {
            let queue = self.names.queue_id(queue).ok_or(TxError::StaleNames)?;
            match tats {
                Some(tats) => flight.add(PUT_TATS, params![queue, tats.clone()]),
                None => flight.add("DELETE FROM rates WHERE queue = $1::integer", params![queue]),
            };
        }
        Ok(())
    }

    fn add_counts(&self, flight: &mut Flight, deltas: &[CountDelta]) -> Found<()> {
        if deltas.is_empty() {
            return Ok(());
        }
        let mut rows: BTreeMap<Pair, &CountDelta> = BTreeMap::new();
        for delta in deltas {
            let CountDelta { queue, kind, .. } = delta;
            let pair = self.names.queue_id(queue).zip(self.names.kind_id(kind));
            let pair = pair.ok_or(TxError::StaleNames)?;
            rows.insert(pair, delta);
        }
        let (queues, kinds): (Vec<i32>, Vec<i32>) = rows.keys().copied().unzip();
        let by = |at: usize| -> Vec<i64> { rows.values().map(|delta| delta.by[at]).collect() };
        let retrying: Vec<i64> = rows.values().map(|delta| delta.retrying).collect();
        let process = self.batch.id.process.0.cast_signed();
        // By view, in the order of `CountDelta::by` and of the columns of the statement.
        let [v0, v1, v2, v3, v4, v5] = [by(0), by(1), by(2), by(3), by(4), by(5)];
        let params = params![queues, kinds, process, v0, v1, v2, v3, v4, v5, retrying];
        flight.add(ADD_COUNTS, params);
        Ok(())
    }
}

fn column<T>(jobs: &[Job], value: impl Fn(&Job) -> T) -> Vec<T> {
    jobs.iter().map(value).collect()
}

fn try_column<T>(jobs: &[Job], value: impl Fn(&Job) -> Found<T>) -> Found<Vec<T>> {
    jobs.iter().map(value).collect()
}

/// The number of a row that was written.
fn number(rows: &[tokio_postgres::Row]) -> Found<i32> {
    let row = rows.first().ok_or_else(|| TxError::Conflict("a name was not written".into()))?;
    get(row, 0)
}

fn remove_jobs(flight: &mut Flight, jobs: &[Moved]) {
    if jobs.is_empty() {
        return;
    }
    let ids: Vec<i64> = jobs.iter().map(|moved| id_code(moved.job.id)).collect();
    for sql in [
        "DELETE FROM jobs WHERE id = ANY($1::bigint[])",
        "DELETE FROM results WHERE job = ANY($1::bigint[])",
        "DELETE FROM progress WHERE job = ANY($1::bigint[])",
        "DELETE FROM errors WHERE job = ANY($1::bigint[])",
        "DELETE FROM attempts WHERE job = ANY($1::bigint[])",
    ] {
        flight.add(sql, params![ids.clone()]);
    }
}

fn put_docs(flight: &mut Flight, changes: &Changes) {
    for (doc, sql) in [(Doc::Result, PUT_RESULTS), (Doc::Progress, PUT_PROGRESS)] {
        // The last one counts.
        let writes = changes.docs.iter().filter(|write| write.doc == doc);
        let writes: BTreeMap<i64, String> =
            writes.map(|write| (id_code(write.job), write.text.as_str().to_owned())).collect();
        if !writes.is_empty() {
            let (ids, texts): (Vec<i64>, Vec<String>) = writes.into_iter().unzip();
            flight.add(sql, params![ids, texts]);
        }
    }
    let errors: BTreeMap<i64, &Excerpt> =
        changes.errors.iter().map(|(job, error)| (id_code(*job), error)).collect();
    if !errors.is_empty() {
        let ids: Vec<i64> = errors.keys().copied().collect();
        let texts: Vec<String> = errors.values().map(|error| error.as_str().to_owned()).collect();
        let cuts: Vec<bool> = errors.values().map(|error| error.is_cut()).collect();
        flight.add(PUT_ERRORS, params![ids, texts, cuts]);
    }
}

fn put_attempts(flight: &mut Flight, changes: &Changes) {
    for (job, epoch) in &changes.dropped_attempts {
        let sql = "DELETE FROM attempts WHERE job = $1::bigint AND epoch <= $2::bigint";
        flight.add(sql, params![id_code(*job), epoch.get().cast_signed()]);
    }
    for attempt in &changes.attempts {
        let (error, error_cut) = parts(attempt.error.as_ref());
        let (stdout, stdout_cut) = parts(attempt.stdout.as_ref());
        let (stderr, stderr_cut) = parts(attempt.stderr.as_ref());
        flight.add(
            PUT_ATTEMPT,
            params![
                id_code(attempt.job),
                attempt.epoch.get().cast_signed(),
                attempt.started_at.get(),
                attempt.ended_at.get(),
                attempt.worker.as_str().to_owned(),
                position(&AttemptOutcome::ALL, &attempt.outcome),
                error,
                error_cut,
                attempt.exit_code,
                stdout,
                stdout_cut,
                stderr,
                stderr_cut,
            ],
        );
    }
}

fn parts(excerpt: Option<&Excerpt>) -> (Option<String>, Option<bool>) {
    (excerpt.map(|excerpt| excerpt.as_str().to_owned()), excerpt.map(Excerpt::is_cut))
}

fn put_keys(flight: &mut Flight, changes: &Changes) {
    if !changes.dropped_keys.is_empty() {
        let keys: Vec<String> = changes
            .dropped_keys
            .iter()
            .map(|key: &IdempotencyKey| key.as_str().to_owned())
            .collect();
        flight.add("DELETE FROM keys WHERE key = ANY($1::text[])", params![keys]);
    }
    if changes.keys.is_empty() {
        return;
    }
    let mut records: Vec<&KeyRecord> = changes.keys.iter().collect();
    records.sort_by(|a, b| a.key.cmp(&b.key));
    let keys: Vec<String> = records.iter().map(|record| record.key.as_str().to_owned()).collect();
    let jobs: Vec<i64> = records.iter().map(|record| id_code(record.job)).collect();
    let created: Vec<i64> = records.iter().map(|record| record.created_at.get()).collect();
    let until: Vec<Option<i64>> =
        records.iter().map(|record| record.orphan_until.map(Wall::get)).collect();
    let requests: Vec<Vec<u8>> =
        records.iter().map(|record| record.request.0.to_le_bytes().to_vec()).collect();
    flight.add(PUT_KEYS, params![keys, jobs, created, until, requests]);
}

fn put_workers(flight: &mut Flight, changes: &Changes, now: Wall) {
    for id in &changes.removed_workers {
        flight.add("DELETE FROM workers WHERE id = $1::text", params![id.as_str().to_owned()]);
    }
    for worker in &changes.workers {
        let Worker { id, host, pid, instance, version, server, kind, demand, slots, presence } =
            worker;
        let host = host.replace('\0', "\u{1a}");
        flight.add(
            PUT_WORKER,
            params![
                id.as_str().to_owned(),
                host,
                demand.to_string(),
                pid.map(i64::from),
                count(*slots),
                presence.get().cast_signed(),
                now.get(),
                position(&WorkerKind::ALL, kind),
                instance.as_ref().map(ToString::to_string),
                version.as_ref().map(ToString::to_string),
                server.as_ref().map(ToString::to_string),
            ],
        );
    }
    for id in &changes.stopped_workers {
        let sql = "UPDATE workers SET stopping = true WHERE id = $1::text";
        flight.add(sql, params![id.as_str().to_owned()]);
    }
    let touched: Vec<String> =
        changes.touched_workers.iter().map(|id| id.as_str().to_owned()).collect();
    if !touched.is_empty() {
        flight.add(TOUCH_WORKERS, params![touched, now.get()]);
    }
    if let Some(before) = changes.drop_silent {
        flight.add("DELETE FROM workers WHERE last_seen < $1::bigint", params![before.get()]);
        flight.add(DROP_MARKERS, params![before.get()]);
    }
}

/// Has new jobs get this id or a later one.
fn move_ids(flight: &mut Flight, next: JobId) {
    let last = id_code(next) - 1;
    if last > 0 {
        flight.add(MOVE_IDS, params![last]);
        flight.add(MOVE_LAST_ID, params![last]);
    }
}

fn put_marker(flight: &mut Flight, marker: &Marker, last_id: Option<JobId>) {
    let process = marker.batch.process.0.cast_signed();
    let seq = marker.batch.seq.cast_signed();
    let last_id = last_id.map_or(0, id_code);
    flight.add(PUT_MARKER, params![process, seq, marker.at.get(), last_id]);
}

const PUT_KIND: &str = "INSERT INTO kinds (name) VALUES ($1::text) \
    ON CONFLICT (name) DO UPDATE SET name = excluded.name RETURNING id";
const PUT_RETRY: &str = "INSERT INTO retries (strategy, factor, initial, cap, jitter) \
    VALUES ($1::bigint, $2::bigint, $3::bigint, $4::bigint, $5::bigint) \
    ON CONFLICT (strategy, factor, initial, cap, jitter) \
    DO UPDATE SET strategy = excluded.strategy RETURNING id";
const PUT_QUEUE: &str = "INSERT INTO queues (name, paused, max_queued, concurrency, \
    visibility_timeout, max_retries, timeout, retry, paused_at, paused_by, flow) VALUES \
    ($1::text, $2::boolean, $3::bigint, $4::bigint, $5::bigint, $6::bigint, $7::bigint, \
    $8::integer, $9::bigint, $10::text, $11::text) ON CONFLICT (name) DO UPDATE SET \
    paused = excluded.paused, max_queued = excluded.max_queued, \
    concurrency = excluded.concurrency, visibility_timeout = excluded.visibility_timeout, \
    max_retries = excluded.max_retries, timeout = excluded.timeout, retry = excluded.retry, \
    paused_at = excluded.paused_at, paused_by = excluded.paused_by, \
    flow = excluded.flow RETURNING id";
const PUT_TATS: &str = "INSERT INTO rates (queue, tats) VALUES ($1::integer, $2::text) \
    ON CONFLICT (queue) DO UPDATE SET tats = excluded.tats";
const PUT_PAIRS: &str = "INSERT INTO pairs (queue, kind) \
    SELECT * FROM unnest($1::integer[], $2::integer[]) ON CONFLICT DO NOTHING";
const INSERT_JOBS: &str = "INSERT INTO jobs (id, created_at, visibility_timeout, timeout, queue, \
    kind, retry, max_retries, payload_bytes, priority, idempotency_key, payload) SELECT * FROM \
    unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::integer[], $6::integer[], \
    $7::integer[], $8::integer[], $9::integer[], $10::smallint[], $11::text[], $12::text[])";
const PUT_RESULTS: &str = "INSERT INTO results (job, text) \
    SELECT * FROM unnest($1::bigint[], $2::text[]) \
    ON CONFLICT (job) DO UPDATE SET text = excluded.text";
const PUT_PROGRESS: &str = "INSERT INTO progress (job, text) \
    SELECT * FROM unnest($1::bigint[], $2::text[]) \
    ON CONFLICT (job) DO UPDATE SET text = excluded.text";
const PUT_ERRORS: &str = "INSERT INTO errors (job, text, cut) \
    SELECT * FROM unnest($1::bigint[], $2::text[], $3::boolean[]) \
    ON CONFLICT (job) DO UPDATE SET text = excluded.text, cut = excluded.cut";
const PUT_ATTEMPT: &str = "INSERT INTO attempts (job, epoch, started_at, ended_at, worker, \
    outcome, error, error_cut, exit_code, stdout, stdout_cut, stderr, stderr_cut) \
    VALUES ($1::bigint, $2::bigint, $3::bigint, $4::bigint, $5::text, $6::smallint, $7::text, \
    $8::boolean, $9::integer, $10::text, $11::boolean, $12::text, $13::boolean) \
    ON CONFLICT (job, epoch) DO UPDATE SET started_at = excluded.started_at, \
    ended_at = excluded.ended_at, worker = excluded.worker, outcome = excluded.outcome, \
    error = excluded.error, error_cut = excluded.error_cut, exit_code = excluded.exit_code, \
    stdout = excluded.stdout, stdout_cut = excluded.stdout_cut, stderr = excluded.stderr, \
    stderr_cut = excluded.stderr_cut";
const PUT_KEYS: &str = "INSERT INTO keys (key, job, created_at, orphan_until, request) \
    SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bytea[]) \
    ON CONFLICT (key) DO UPDATE SET job = excluded.job, created_at = excluded.created_at, \
    orphan_until = excluded.orphan_until, request = excluded.request";
const ADD_COUNTS: &str = "INSERT INTO counts (queue, kind, process, queued, scheduled, processing, \
    done, failed, cancelled, retrying) SELECT queue, kind, $3::bigint, a, b, c, d, e, f, g FROM \
    unnest($1::integer[], $2::integer[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], \
    $8::bigint[], $9::bigint[], $10::bigint[]) AS rows (queue, kind, a, b, c, d, e, f, g) \
    ON CONFLICT (queue, kind, process) DO UPDATE SET queued = counts.queued + excluded.queued, \
    scheduled = counts.scheduled + excluded.scheduled, \
    processing = counts.processing + excluded.processing, done = counts.done + excluded.done, \
    failed = counts.failed + excluded.failed, \
    cancelled = counts.cancelled + excluded.cancelled, \
    retrying = counts.retrying + excluded.retrying";
const PUT_WORKER: &str = "INSERT INTO workers (id, host, demand, pid, slots, presence, started_at, \
    last_seen, kind, instance, version, server) VALUES ($1::text, $2::text, $3::text, $4::bigint, \
    $5::bigint, $6::bigint, $7::bigint, $7::bigint, $8::smallint, $9::text, $10::text, $11::text) \
    ON CONFLICT (id) DO UPDATE SET host = excluded.host, instance = excluded.instance, \
    version = excluded.version, server = excluded.server, \
    demand = excluded.demand, pid = excluded.pid, slots = excluded.slots, \
    presence = excluded.presence, last_seen = excluded.last_seen, kind = excluded.kind";
const TOUCH_WORKERS: &str = "UPDATE workers SET last_seen = $2::bigint WHERE id = ANY($1::text[])";
/// What is kept of markers that go: the highest id.
const DROP_MARKERS: &str = "WITH gone AS (DELETE FROM markers WHERE at < $1::bigint \
    RETURNING last_id) UPDATE meta SET value = greatest(value, (SELECT max(last_id) FROM gone)) \
    WHERE key = 'last_id'";
/// A sequence that was never used has its first number as its last one.
const MOVE_IDS: &str = "SELECT setval('ids', greatest($1::bigint, last_value)) FROM ids \
    WHERE $1 > last_value OR NOT is_called";
const MOVE_LAST_ID: &str = "UPDATE meta SET value = greatest(value, $1::bigint) \
    WHERE key = 'last_id'";
const PUT_MARKER: &str = "INSERT INTO markers (process, seq, at, last_id) \
    VALUES ($1::bigint, $2::bigint, $3::bigint, $4::bigint) ON CONFLICT (process) DO UPDATE SET \
    seq = excluded.seq, at = excluded.at, last_id = greatest(markers.last_id, excluded.last_id)";
