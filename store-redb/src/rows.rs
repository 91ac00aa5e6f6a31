//! Rows as bytes, and back. Each starts with its version; what cannot be read back is reported as
//! corruption.

use windlass_core::store::{Instance, Marker, Worker, WorkerKind};
use windlass_core::{
    Attempt, AttemptOutcome, BatchId, Counts, Demand, Epoch, Excerpt, Fingerprint, IdempotencyKey,
    Job, JobId, JobTimeout, KeyRecord, LastVerdict, LeaseLength, MaxQueued, MaxRetries, MaxRunning,
    Millis, Priority, ProcessId, Rank, State, View, Wall, WorkerId,
};

use crate::bytes::{Bytes, put, put_signed, put_text, put_wide};
use crate::error::TxError;
use crate::tables::{Found, job_id};

/// The version of a row, unless its kind has had several.
const VERSION: u8 = 1;
/// The form of a job's row since the third schema.
const JOB_VERSION: u8 = 2;

/// What the second byte of a job's row says beside its view.
const STARTED: u8 = 0x10;
const TIMEOUT: u8 = 0x20;
const KEY: u8 = 0x40;
/// The rank is written out, because it does not follow from the priority and `run_at`.
const RANKED: u8 = 0x80;
const VIEW: u8 = 0x0f;

/// A job's row: names by number, and without the holder of its lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JobRow {
    pub(crate) view: View,
    /// The instant it is ordered by in its view.
    pub(crate) at: Wall,
    pub(crate) spent: Option<LastVerdict>,
    pub(crate) payload_bytes: u32,
    pub(crate) numbers: Numbers,
    pub(crate) priority: Priority,
    /// Its rank, but for the id.
    pub(crate) class: i16,
    pub(crate) turn: u64,
    pub(crate) due: Wall,
    pub(crate) attempts: u32,
    pub(crate) max_retries: MaxRetries,
    pub(crate) epoch: Epoch,
    pub(crate) generation: u32,
    pub(crate) visibility_timeout: LeaseLength,
    pub(crate) timeout: Option<JobTimeout>,
    pub(crate) created_at: Wall,
    pub(crate) run_at: Wall,
    pub(crate) updated_at: Wall,
    pub(crate) started_at: Option<Wall>,
    pub(crate) idempotency_key: Option<IdempotencyKey>,
}

impl JobRow {
    /// The rank of the job, whose id is the key of the row.
    pub(crate) fn rank(&self, id: JobId) -> Rank {
        Rank { class: self.class, turn: self.turn, due: self.due, id }
    }
}

/// What a job's row refers to by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Numbers {
    pub(crate) queue: u32,
    pub(crate) kind: u32,
    pub(crate) retry: u32,
}

/// Writes a job's row. What changes with a step of the job has always the same length.
pub(crate) fn put_job(out: &mut Vec<u8>, job: &Job, numbers: Numbers) {
    let view = job.state.view();
    let Rank { class, turn, due, .. } = job.rank;
    let plain = (class, turn, due) == (-job.priority.get(), 0, job.run_at);
    let flag = |set: bool, flag: u8| if set { flag } else { 0 };
    out.push(JOB_VERSION);
    let flags = flag(job.started_at.is_some(), STARTED)
        | flag(job.timeout.is_some(), TIMEOUT)
        | flag(job.idempotency_key.is_some(), KEY)
        | flag(!plain, RANKED);
    out.push(u8::try_from(view.index()).unwrap_or(VIEW) | flags);
    // A done job needs none: its token was used to complete it.
    let spent = job.state.spent().filter(|_| view != View::Done);
    out.push(spent.map_or(0, |spent| 1 + code(&LastVerdict::ALL, &spent)));
    put(out, job.payload_bytes.into());
    put(out, numbers.queue.into());
    put(out, numbers.kind.into());
    put(out, numbers.retry.into());
    put_signed(out, job.priority.get().into());
    put(out, job.attempts.into());
    put(out, job.max_retries.get().into());
    put(out, job.epoch.get());
    put(out, job.generation.into());
    put(out, job.visibility_timeout.get());
    if let Some(timeout) = job.timeout {
        put(out, timeout.get());
    }
    let created = job.created_at.get();
    put_signed(out, created);
    put_wide(out, job.run_at.get().wrapping_sub(created));
    put_wide(out, job.updated_at.get().wrapping_sub(created));
    put_wide(out, job.started_at.map_or(0, |at| at.get().wrapping_sub(created)));
    put_wide(out, job.index_key().at.get().wrapping_sub(created));
    if !plain {
        put_signed(out, class.into());
        put(out, turn);
        put_wide(out, due.get().wrapping_sub(created));
    }
    if let Some(key) = &job.idempotency_key {
        out.extend_from_slice(key.as_str().as_bytes());
    }
}

/// Reads a job's row.
pub(crate) fn job_row(row: &[u8]) -> Found<JobRow> {
    let mut bytes = of_version(row, JOB_VERSION)?;
    let flags = bytes.byte()?;
    let spent = bytes.byte()?.checked_sub(1);
    let payload_bytes = bytes.small()?;
    let numbers = Numbers { queue: bytes.small()?, kind: bytes.small()?, retry: bytes.small()? };
    let priority = Priority::new(short(bytes.signed()?)?).map_err(bad)?;
    let attempts = bytes.small()?;
    let max_retries = MaxRetries::new(bytes.small()?).map_err(bad)?;
    let epoch = Epoch::new(bytes.number()?);
    let generation = bytes.small()?;
    let visibility_timeout = LeaseLength::new(bytes.number()?).map_err(bad)?;
    let timeout = if flags & TIMEOUT == 0 { None } else { Some(bytes.number()?) };
    let created = bytes.signed()?;
    let instant =
        |bytes: &mut Bytes<'_>| bytes.signed().map(|since| Wall::new(created.wrapping_add(since)));
    let (run_at, updated_at) = (instant(&mut bytes)?, instant(&mut bytes)?);
    let (started_at, at) = (instant(&mut bytes)?, instant(&mut bytes)?);
    let (class, turn, due) = if flags & RANKED == 0 {
        (-priority.get(), 0, run_at)
    } else {
        (short(bytes.signed()?)?, bytes.number()?, instant(&mut bytes)?)
    };
    let key = if flags & KEY == 0 { None } else { Some(bytes.rest()?) };
    bytes.end()?;
    Ok(JobRow {
        view: view(flags & VIEW)?,
        at,
        spent: spent.map(|code| coded(&LastVerdict::ALL, code, "verdict")).transpose()?,
        payload_bytes,
        numbers,
        priority,
        class,
        turn,
        due,
        attempts,
        max_retries,
        epoch,
        generation,
        visibility_timeout,
        timeout: timeout.map(JobTimeout::new).transpose().map_err(bad)?,
        created_at: Wall::new(created),
        run_at,
        updated_at,
        started_at: Some(started_at).filter(|_| flags & STARTED != 0),
        idempotency_key: key.map(IdempotencyKey::new).transpose().map_err(bad)?,
    })
}

/// Converts a job's row of the first two schemas: the length of the payload is inserted behind the
/// first three bytes. In those schemas the rank follows from the priority and `run_at`, so it takes
/// no bytes.
pub(crate) fn put_second_job(out: &mut Vec<u8>, row: &[u8], payload_bytes: u32) -> Found<()> {
    let mut bytes = versioned(row)?;
    let (flags, spent) = (bytes.byte()?, bytes.byte()?);
    if flags & RANKED != 0 {
        return Err(bad(format!("{flags:#04x} are no flags of the second schema")));
    }
    out.extend_from_slice(&[JOB_VERSION, flags, spent]);
    put(out, payload_bytes.into());
    out.extend_from_slice(bytes.0);
    Ok(())
}

/// The state of a job that is not leased.
pub(crate) fn state(row: &JobRow) -> Option<State> {
    let (finished_at, spent) = (row.at, row.spent);
    match row.view {
        View::Queued => Some(State::Queued { ready: true, spent }),
        View::Scheduled => Some(State::Queued { ready: false, spent }),
        View::Processing => None,
        View::Done => Some(State::Done { finished_at }),
        View::Failed => Some(State::Failed { finished_at, spent }),
        View::Cancelled => Some(State::Cancelled { finished_at, spent }),
    }
}

/// The holder of a lease and its length.
pub(crate) fn put_holder(out: &mut Vec<u8>, worker: &WorkerId, length: LeaseLength) {
    out.push(VERSION);
    put(out, length.get());
    out.extend_from_slice(worker.as_str().as_bytes());
}

/// Reads the holder of a lease; one worker often holds many.
pub(crate) fn holder(row: &[u8], latest: Option<&WorkerId>) -> Found<(WorkerId, LeaseLength)> {
    let mut bytes = versioned(row)?;
    let length = LeaseLength::new(bytes.number()?).map_err(bad)?;
    let name = bytes.rest()?;
    Ok(match latest.filter(|latest| latest.as_str() == name) {
        Some(latest) => (latest.clone(), length),
        None => (WorkerId::new(name).map_err(bad)?, length),
    })
}

pub(crate) fn put_error(out: &mut Vec<u8>, error: &Excerpt) {
    out.push(VERSION);
    out.push(error.is_cut().into());
    out.extend_from_slice(error.as_str().as_bytes());
}

pub(crate) fn error(row: &[u8]) -> Found<Excerpt> {
    let mut bytes = versioned(row)?;
    let cut = truth(&mut bytes)?;
    Ok(Excerpt::stored(bytes.rest()?, cut))
}

/// An attempt; its job and epoch are its key.
pub(crate) fn put_attempt(out: &mut Vec<u8>, attempt: &Attempt) {
    out.push(VERSION);
    out.push(code(&AttemptOutcome::ALL, &attempt.outcome));
    put_signed(out, attempt.started_at.get());
    put_signed(out, attempt.ended_at.get().wrapping_sub(attempt.started_at.get()));
    put_text(out, attempt.worker.as_str());
    put_optional(out, attempt.exit_code, |out, code| put_signed(out, code.into()));
    for text in [&attempt.error, &attempt.stdout, &attempt.stderr] {
        put_optional(out, text.as_ref(), |out, text| {
            out.push(text.is_cut().into());
            put_text(out, text.as_str());
        });
    }
}

pub(crate) fn attempt(job: JobId, epoch: Epoch, row: &[u8]) -> Found<Attempt> {
    let mut bytes = versioned(row)?;
    let outcome = coded(&AttemptOutcome::ALL, bytes.byte()?, "outcome")?;
    let started = bytes.signed()?;
    let ended = started.wrapping_add(bytes.signed()?);
    let worker = WorkerId::new(bytes.text()?).map_err(bad)?;
    let exit_code = optional(&mut bytes, |bytes| Ok(bytes.signed()?))?;
    let excerpt = |bytes: &mut Bytes<'_>| {
        let cut = truth(bytes)?;
        Ok(Excerpt::stored(bytes.text()?, cut))
    };
    let [error, stdout, stderr] = [(); 3].map(|()| optional(&mut bytes, excerpt));
    bytes.end()?;
    Ok(Attempt {
        job,
        epoch,
        worker,
        started_at: Wall::new(started),
        ended_at: Wall::new(ended),
        outcome,
        error: error?,
        exit_code: exit_code.map(i32::try_from).transpose().map_err(bad)?,
        stdout: stdout?,
        stderr: stderr?,
    })
}

/// The record of an idempotency key.
pub(crate) fn put_key(out: &mut Vec<u8>, record: &KeyRecord) {
    out.push(VERSION);
    put(out, record.job.get());
    out.extend_from_slice(&record.request.0.to_le_bytes());
    put_signed(out, record.created_at.get());
    put_optional(out, record.orphan_until, |out, until| put_signed(out, until.get()));
}

pub(crate) fn key_record(key: IdempotencyKey, row: &[u8]) -> Found<KeyRecord> {
    let mut bytes = versioned(row)?;
    let job = job_id(bytes.number()?)?;
    let request = Fingerprint(u128::from_le_bytes(bytes.array()?));
    let created_at = Wall::new(bytes.signed()?);
    let orphan_until = optional(&mut bytes, |bytes| Ok(Wall::new(bytes.signed()?)))?;
    bytes.end()?;
    Ok(KeyRecord { key, job, request, created_at, orphan_until })
}

/// A queue without its name; its retry policy by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueueBytes {
    pub(crate) paused: bool,
    pub(crate) max_queued: Option<MaxQueued>,
    pub(crate) concurrency: Option<MaxRunning>,
    pub(crate) visibility_timeout: Option<LeaseLength>,
    pub(crate) max_retries: Option<MaxRetries>,
    pub(crate) timeout: Option<JobTimeout>,
    pub(crate) retry: Option<u32>,
}

pub(crate) fn put_queue(out: &mut Vec<u8>, queue: &QueueBytes) {
    out.push(VERSION);
    out.push(queue.paused.into());
    let mut maybe = |number: Option<u64>| put_optional(out, number, put);
    maybe(queue.max_queued.map(MaxQueued::get));
    maybe(queue.concurrency.map(|most| most.get().into()));
    maybe(queue.visibility_timeout.map(LeaseLength::get));
    maybe(queue.max_retries.map(|retries| retries.get().into()));
    maybe(queue.timeout.map(JobTimeout::get));
    maybe(queue.retry.map(u64::from));
}

pub(crate) fn queue(row: &[u8]) -> Found<QueueBytes> {
    let mut bytes = versioned(row)?;
    let number = |bytes: &mut Bytes<'_>| Ok(bytes.number()?);
    let small = |bytes: &mut Bytes<'_>| Ok(bytes.small()?);
    let queue = QueueBytes {
        paused: truth(&mut bytes)?,
        max_queued: optional(&mut bytes, number)?.map(MaxQueued::new).transpose().map_err(bad)?,
        concurrency: optional(&mut bytes, small)?.map(MaxRunning::new).transpose().map_err(bad)?,
        visibility_timeout: optional(&mut bytes, number)?
            .map(LeaseLength::new)
            .transpose()
            .map_err(bad)?,
        max_retries: optional(&mut bytes, small)?.map(MaxRetries::new).transpose().map_err(bad)?,
        timeout: optional(&mut bytes, number)?.map(JobTimeout::new).transpose().map_err(bad)?,
        retry: optional(&mut bytes, small)?,
    };
    bytes.end()?;
    Ok(queue)
}

pub(crate) fn put_counts(out: &mut Vec<u8>, counts: &[u64; View::ALL.len()]) {
    out.push(VERSION);
    for count in counts {
        put(out, *count);
    }
}

pub(crate) fn counts(row: &[u8]) -> Found<Counts> {
    let mut bytes = versioned(row)?;
    let mut counts = [0; View::ALL.len()];
    for count in &mut counts {
        *count = bytes.number()?;
    }
    bytes.end()?;
    Ok(Counts::new(counts))
}

/// A worker as it was last seen; its id is its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) worker: Worker,
    pub(crate) first: Wall,
    pub(crate) last: Wall,
    pub(crate) stopping: bool,
}

/// The form of a worker's row since the sixth schema.
const WORKER_VERSION: u8 = 3;
/// The form before, since the second schema: without its instance.
const OLD_WORKER_VERSION: u8 = 2;

pub(crate) fn put_worker(out: &mut Vec<u8>, seen: &Seen) {
    let Worker { kind, pid, instance, demand, slots, presence, host, .. } = &seen.worker;
    out.push(WORKER_VERSION);
    put_text(out, &instance.as_ref().map(ToString::to_string).unwrap_or_default());
    out.push(code(&WorkerKind::ALL, kind));
    put_signed(out, seen.first.get());
    put_signed(out, seen.last.get());
    put_optional(out, *pid, |out, pid| put(out, pid.into()));
    out.push(seen.stopping.into());
    put(out, *slots as u64);
    put(out, presence.get());
    put_text(out, &demand.to_string());
    out.extend_from_slice(host.as_bytes());
}

pub(crate) fn worker(id: WorkerId, row: &[u8]) -> Found<Seen> {
    let before = row.first() == Some(&OLD_WORKER_VERSION);
    let mut bytes = of_version(row, if before { OLD_WORKER_VERSION } else { WORKER_VERSION })?;
    let instance = if before { None } else { instance(bytes.text()?)? };
    let kind = coded(&WorkerKind::ALL, bytes.byte()?, "kind of worker")?;
    let (first, last) = (Wall::new(bytes.signed()?), Wall::new(bytes.signed()?));
    let pid = optional(&mut bytes, |bytes| Ok(bytes.small()?))?;
    let stopping = truth(&mut bytes)?;
    let slots = usize::try_from(bytes.number()?).map_err(bad)?;
    let presence = Millis::new(bytes.number()?);
    let demand = Demand::parse(bytes.text()?).map_err(bad)?;
    let host = bytes.rest()?.into();
    let worker = Worker { id, host, pid, instance, kind, demand, slots, presence };
    Ok(Seen { worker, first, last, stopping })
}

/// Nothing if it is not known.
fn instance(text: &str) -> Found<Option<Instance>> {
    match text {
        "" => Ok(None),
        text => match Instance::parse(text) {
            Some(instance) => Ok(Some(instance)),
            None => Err(bad(format!("{text:?} names no process"))),
        },
    }
}

/// A worker as it was written by the first schema: nothing is known of what it would run.
pub(crate) fn first_worker(id: WorkerId, row: &[u8]) -> Found<Seen> {
    let mut bytes = versioned(row)?;
    let kind = coded(&WorkerKind::ALL, bytes.byte()?, "kind of worker")?;
    let (first, last) = (Wall::new(bytes.signed()?), Wall::new(bytes.signed()?));
    let pid = optional(&mut bytes, |bytes| Ok(bytes.small()?))?;
    let host = bytes.rest()?;
    let worker = Worker { pid, slots: 0, ..Worker::new(id, host, kind) };
    Ok(Seen { worker, first, last, stopping: false })
}

pub(crate) fn put_marker(out: &mut Vec<u8>, marker: &Marker) {
    out.push(VERSION);
    put(out, marker.batch.seq);
    put_signed(out, marker.at.get());
}

pub(crate) fn marker(process: u64, row: &[u8]) -> Found<Marker> {
    let mut bytes = versioned(row)?;
    let batch = BatchId { process: ProcessId(process), seq: bytes.number()? };
    let at = Wall::new(bytes.signed()?);
    bytes.end()?;
    Ok(Marker { batch, at })
}

// Parts of rows.

/// A value that this code cannot have written.
pub(crate) fn bad(error: impl std::fmt::Display) -> TxError {
    TxError::BadRow(error.to_string())
}

fn versioned(row: &[u8]) -> Found<Bytes<'_>> {
    of_version(row, VERSION)
}

fn of_version(row: &[u8], version: u8) -> Found<Bytes<'_>> {
    let mut bytes = Bytes(row);
    match bytes.byte()? {
        found if found == version => Ok(bytes),
        other => Err(TxError::BadRow(format!("a row of version {other}, which is not known"))),
    }
}

fn put_optional<T>(out: &mut Vec<u8>, value: Option<T>, put: impl FnOnce(&mut Vec<u8>, T)) {
    out.push(value.is_some().into());
    if let Some(value) = value {
        put(out, value);
    }
}

fn optional<'b, T>(
    bytes: &mut Bytes<'b>,
    read: impl FnOnce(&mut Bytes<'b>) -> Found<T>,
) -> Found<Option<T>> {
    if truth(bytes)? { read(bytes).map(Some) } else { Ok(None) }
}

fn truth(bytes: &mut Bytes<'_>) -> Found<bool> {
    match bytes.byte()? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(TxError::BadRow(format!("{other} is neither yes nor no"))),
    }
}

fn short(number: i64) -> Found<i16> {
    i16::try_from(number).map_err(bad)
}

fn view(code: u8) -> Found<View> {
    let found = View::from_index(code.into());
    found.ok_or_else(|| TxError::BadRow(format!("{code} is no view")))
}

/// The code of a thing in a list of all, which are few.
fn code<T: PartialEq>(all: &[T], one: &T) -> u8 {
    let at = all.iter().position(|other| other == one);
    at.and_then(|at| u8::try_from(at).ok()).unwrap_or(u8::MAX)
}

fn coded<T: Copy>(all: &[T], code: u8, what: &str) -> Found<T> {
    let found = all.get(usize::from(code));
    found.copied().ok_or_else(|| TxError::BadRow(format!("{code} is no {what}")))
}

#[cfg(test)]
#[path = "rows_tests.rs"]
mod tests;
