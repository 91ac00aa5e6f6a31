//! Rows of jobs as bytes, and back: names by number, the holder of a lease left out.

use windlass_core::{
    Epoch, GroupId, IdempotencyKey, Job, JobId, JobTimeout, LastVerdict, LeaseLength, MaxRetries,
    Priority, Rank, State, View, Wall,
};

use crate::bytes::{Bytes, put, put_signed, put_wide};
use crate::error::TxError;
use crate::rows::{bad, code, coded, of_version, versioned};
use crate::tables::Found;

/// The form of a job's row since the third schema.
pub(crate) const JOB_VERSION: u8 = 2;

/// What the second byte of a job's row says beside its view.
const STARTED: u8 = 0x10;
const TIMEOUT: u8 = 0x20;
const KEY: u8 = 0x40;
/// The rank is written out: it is not the [`short_rank`] of the row.
pub(crate) const RANKED: u8 = 0x80;
const VIEW: u8 = 0x0f;

/// A job's row: names by number, and without the holder of its lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JobRow {
    pub(crate) view: View,
    /// The instant it is ordered by in its view.
    pub(crate) at: Wall,
    pub(crate) last_verdict: Option<LastVerdict>,
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

/// The rank of a row without [`RANKED`]: class, turn and due time. A part of this form, like its
/// order of bytes, and no rule for ranks: a rank that differs is written out, however core computed
/// it.
fn short_rank(priority: Priority, run_at: Wall) -> (i16, u64, Wall) {
    (-priority.get(), 0, run_at)
}

/// Writes a job's row. What changes with a step of the job has always the same length.
pub(crate) fn put_job(out: &mut Vec<u8>, job: &Job, numbers: Numbers) {
    let view = job.state.view();
    let Rank { class, turn, due, .. } = job.rank;
    let is_short = (class, turn, due) == short_rank(job.priority, job.run_at);
    let flag = |set: bool, flag: u8| if set { flag } else { 0 };
    out.push(JOB_VERSION);
    let flags = flag(job.started_at.is_some(), STARTED)
        | flag(job.timeout.is_some(), TIMEOUT)
        | flag(job.idempotency_key.is_some(), KEY)
        | flag(!is_short, RANKED);
    out.push(u8::try_from(view.index()).unwrap_or(VIEW) | flags);
    // A done job needs none: its token was used to complete it.
    let last_verdict = job.state.last_verdict().filter(|_| view != View::Done);
    out.push(last_verdict.map_or(0, |verdict| 1 + code(&LastVerdict::ALL, &verdict)));
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
    if !is_short {
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
    let last_verdict = bytes.byte()?.checked_sub(1);
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
        short_rank(priority, run_at)
    } else {
        (short(bytes.signed()?)?, bytes.number()?, instant(&mut bytes)?)
    };
    let key = if flags & KEY == 0 { None } else { Some(bytes.rest()?) };
    bytes.end()?;
    Ok(JobRow {
        view: view(flags & VIEW)?,
        at,
        last_verdict: last_verdict
            .map(|code| coded(&LastVerdict::ALL, code, "verdict"))
            .transpose()?,
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
    let (flags, last_verdict) = (bytes.byte()?, bytes.byte()?);
    if flags & RANKED != 0 {
        return Err(bad(format!("{flags:#04x} are no flags of the second schema")));
    }
    out.extend_from_slice(&[JOB_VERSION, flags, last_verdict]);
    put(out, payload_bytes.into());
    out.extend_from_slice(bytes.0);
    Ok(())
}

/// The state of a job that is not leased. `group` is that of a dead letter.
pub(crate) fn state(row: &JobRow, group: GroupId) -> Option<State> {
    let (finished_at, last_verdict) = (row.at, row.last_verdict);
    match row.view {
        View::Queued => Some(State::Queued { ready: true, last_verdict }),
        View::Scheduled => Some(State::Queued { ready: false, last_verdict }),
        View::Processing => None,
        View::Done => Some(State::Done { finished_at }),
        View::Failed => Some(State::Failed { finished_at, last_verdict, group }),
        View::Cancelled => Some(State::Cancelled { finished_at, last_verdict }),
    }
}

fn short(number: i64) -> Found<i16> {
    i16::try_from(number).map_err(bad)
}

fn view(code: u8) -> Found<View> {
    let found = View::from_index(code.into());
    found.ok_or_else(|| TxError::BadRow(format!("{code} is no view")))
}
