//! Rows as bytes, and back; those of jobs are in `job_row.rs`. Each starts with its version; what
//! cannot be read back is reported as corruption.

use windlass_core::store::{Instance, Marker, Worker, WorkerKind};
use windlass_core::{
    Attempt, AttemptOutcome, BatchId, Counts, Demand, Epoch, Excerpt, Fingerprint, Flow,
    IdempotencyKey, JobId, JobTimeout, KeyRecord, LeaseLength, MaxQueued, MaxRetries, MaxRunning,
    Millis, NameError, Pause, ProcessId, View, Wall, WorkerId, WorkerVersion,
};

use crate::bytes::{Bytes, put, put_signed, put_text};
use crate::error::TxError;
pub(crate) use crate::job_row::{JobRow, Numbers, job_row, put_job, put_second_job, state};
use crate::tables::{Found, job_id};

/// The version of a row, unless its kind has had several.
pub(crate) const VERSION: u8 = 1;

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
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct QueueBytes {
    pub(crate) paused: Option<Pause>,
    pub(crate) max_queued: Option<MaxQueued>,
    pub(crate) concurrency: Option<MaxRunning>,
    pub(crate) visibility_timeout: Option<LeaseLength>,
    pub(crate) max_retries: Option<MaxRetries>,
    pub(crate) timeout: Option<JobTimeout>,
    pub(crate) retry: Option<u32>,
    pub(crate) flow: Flow,
}

pub(crate) fn put_queue(out: &mut Vec<u8>, queue: &QueueBytes) {
    out.push(VERSION);
    put_pause(out, queue.paused.as_ref());
    let mut maybe = |number: Option<u64>| put_optional(out, number, put);
    maybe(queue.max_queued.map(MaxQueued::get));
    maybe(queue.concurrency.map(|most| most.get().into()));
    maybe(queue.visibility_timeout.map(LeaseLength::get));
    maybe(queue.max_retries.map(|retries| retries.get().into()));
    maybe(queue.timeout.map(JobTimeout::get));
    maybe(queue.retry.map(u64::from));
    // A row of before the eleventh schema ends here, and so does one without such settings.
    if let Some(flow) = queue.flow.to_text() {
        put_text(out, &flow);
    }
}

pub(crate) fn queue(row: &[u8]) -> Found<QueueBytes> {
    let mut bytes = versioned(row)?;
    let number = |bytes: &mut Bytes<'_>| Ok(bytes.number()?);
    let small = |bytes: &mut Bytes<'_>| Ok(bytes.small()?);
    let queue = QueueBytes {
        paused: pause(&mut bytes)?,
        max_queued: optional(&mut bytes, number)?.map(MaxQueued::new).transpose().map_err(bad)?,
        concurrency: optional(&mut bytes, small)?.map(MaxRunning::new).transpose().map_err(bad)?,
        visibility_timeout: optional(&mut bytes, number)?
            .map(LeaseLength::new)
            .transpose()
            .map_err(bad)?,
        max_retries: optional(&mut bytes, small)?.map(MaxRetries::new).transpose().map_err(bad)?,
        timeout: optional(&mut bytes, number)?.map(JobTimeout::new).transpose().map_err(bad)?,
        retry: optional(&mut bytes, small)?,
        flow: Flow::NONE,
    };
    let text = if bytes.is_empty() { None } else { Some(bytes.text()?) };
    bytes.end()?;
    if text == Some("") {
        return Err(bad("an empty text of limits"));
    }
    Ok(QueueBytes { flow: Flow::parse(text).map_err(bad)?, ..queue })
}

/// Nothing is known of a pause of before the ninth schema: it is written as it was then.
fn put_pause(out: &mut Vec<u8>, pause: Option<&Pause>) {
    match pause {
        None => out.push(0),
        Some(Pause { at: None, by: None }) => out.push(1),
        Some(Pause { at, by }) => {
            out.push(2);
            put_optional(out, *at, |out, at| put_signed(out, at.get()));
            put_optional(out, by.as_deref(), put_text);
        }
    }
}

fn pause(bytes: &mut Bytes<'_>) -> Found<Option<Pause>> {
    match bytes.byte()? {
        0 => Ok(None),
        1 => Ok(Some(Pause::default())),
        2 => {
            let at = optional(bytes, |bytes| Ok(Wall::new(bytes.signed()?)))?;
            let by = optional(bytes, |bytes| Ok(bytes.text()?.into()))?;
            Ok(Some(Pause { at, by }))
        }
        other => Err(TxError::BadRow(format!("{other} is no state of a queue"))),
    }
}

pub(crate) fn put_counts(out: &mut Vec<u8>, counts: &Counts) {
    out.push(VERSION);
    for view in View::ALL {
        put(out, counts.get(view));
    }
    put(out, counts.retrying());
}

pub(crate) fn counts(row: &[u8]) -> Found<Counts> {
    let mut bytes = versioned(row)?;
    let counts = views(&mut bytes)?.with_retrying(bytes.number()?);
    bytes.end()?;
    Ok(counts)
}

/// Counters as they were written before the ninth schema: none is retrying.
pub(crate) fn old_counts(row: &[u8]) -> Found<Counts> {
    let mut bytes = versioned(row)?;
    let counts = views(&mut bytes)?;
    bytes.end()?;
    Ok(counts)
}

fn views(bytes: &mut Bytes<'_>) -> Found<Counts> {
    let mut views = [0; View::ALL.len()];
    for count in &mut views {
        *count = bytes.number()?;
    }
    Ok(Counts::new(views))
}

/// A worker as it was last seen; its id is its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) worker: Worker,
    pub(crate) first: Wall,
    pub(crate) last: Wall,
    pub(crate) stopping: bool,
}

/// The form of a worker's row since the tenth schema.
const WORKER_VERSION: u8 = 4;
/// The form since the sixth schema: without the version of its program and its server.
const UNVERSIONED_WORKER: u8 = 3;
/// The form since the second schema: without its instance too.
const OLD_WORKER_VERSION: u8 = 2;

pub(crate) fn put_worker(out: &mut Vec<u8>, seen: &Seen) {
    let Worker { kind, pid, instance, version, server, demand, slots, presence, host, .. } =
        &seen.worker;
    out.push(WORKER_VERSION);
    put_text(out, &instance.as_ref().map(ToString::to_string).unwrap_or_default());
    put_text(out, version.as_ref().map_or("", WorkerVersion::as_str));
    put_text(out, server.as_ref().map_or("", WorkerId::as_str));
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
    let form = match row.first() {
        Some(&form @ (OLD_WORKER_VERSION | UNVERSIONED_WORKER)) => form,
        _ => WORKER_VERSION,
    };
    let mut bytes = of_version(row, form)?;
    let instance = if form < UNVERSIONED_WORKER { None } else { instance(bytes.text()?)? };
    let (mut version, mut server) = (None, None);
    if form == WORKER_VERSION {
        version = unless_empty(bytes.text()?, WorkerVersion::new)?;
        server = unless_empty(bytes.text()?, WorkerId::new)?;
    }
    let kind = coded(&WorkerKind::ALL, bytes.byte()?, "kind of worker")?;
    let (first, last) = (Wall::new(bytes.signed()?), Wall::new(bytes.signed()?));
    let pid = optional(&mut bytes, |bytes| Ok(bytes.small()?))?;
    let stopping = truth(&mut bytes)?;
    let slots = usize::try_from(bytes.number()?).map_err(bad)?;
    let presence = Millis::new(bytes.number()?);
    let demand = Demand::parse(bytes.text()?).map_err(bad)?;
    let host = bytes.rest()?.into();
    let worker = Worker { id, host, pid, instance, version, server, kind, demand, slots, presence };
    Ok(Seen { worker, first, last, stopping })
}

/// Nothing if it is not known.
fn unless_empty<T>(text: &str, new: fn(&str) -> Result<T, NameError>) -> Found<Option<T>> {
    if text.is_empty() { Ok(None) } else { new(text).map(Some).map_err(bad) }
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

pub(crate) fn versioned(row: &[u8]) -> Found<Bytes<'_>> {
    of_version(row, VERSION)
}

pub(crate) fn of_version(row: &[u8], version: u8) -> Found<Bytes<'_>> {
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

/// The code of a thing in a list of all, which are few.
pub(crate) fn code<T: PartialEq>(all: &[T], one: &T) -> u8 {
    let at = all.iter().position(|other| other == one);
    at.and_then(|at| u8::try_from(at).ok()).unwrap_or(u8::MAX)
}

pub(crate) fn coded<T: Copy>(all: &[T], code: u8, what: &str) -> Found<T> {
    let found = all.get(usize::from(code));
    found.copied().ok_or_else(|| TxError::BadRow(format!("{code} is no {what}")))
}

#[cfg(test)]
#[path = "rows_tests.rs"]
mod tests;
