//! A job as a row, and back. What cannot be read back as a job is corruption, and is said so.

use rusqlite::{Connection, Row};
use windlass_core::{
    Epoch, Excerpt, IdempotencyKey, Job, JobId, JobTimeout, LastVerdict, Lease, LeaseLength,
    MaxRetries, Priority, Rank, State, View, Wall, WorkerId,
};

use crate::error::TxError;
use crate::groups;
use crate::names::Names;

/// The columns of `jobs`, which the steps of a job rewrite.
macro_rules! hot_columns {
    () => {
        "id, view, at, queue, kind, class, turn, due, run_at, attempts, epoch, generation, \
         payload_bytes, updated_at, started_at, spent, lease_length, worker"
    };
}
pub(crate) use hot_columns;

/// The columns of `bodies` without the id and the payload.
macro_rules! fixed_columns {
    () => {
        "priority, max_retries, visibility_timeout, retry, created_at, timeout, idempotency_key"
    };
}
pub(crate) use fixed_columns;

/// The start of a query for jobs: the columns in the order [`job`] reads them, then the payload.
macro_rules! select_jobs {
    () => {
        concat!(
            "SELECT ",
            $crate::rows::hot_columns!(),
            ", ",
            $crate::rows::fixed_columns!(),
            ", text FROM jobs CROSS JOIN bodies ON job = id "
        )
    };
}
pub(crate) use select_jobs;

/// A query for jobs of a view by their instant; the view is its first parameter. Leased jobs have
/// an index of their own.
macro_rules! in_view {
    ($view:expr, [$($before:tt)*], $behind:literal) => {
        match $view {
            windlass_core::View::Processing => {
                concat!($($before)*, "view = 2 AND ?1 = 2", $behind)
            }
            _ => concat!($($before)*, "view <> 0 AND view <> 2 AND view = ?1", $behind),
        }
    };
}
pub(crate) use in_view;

/// The payload, in a row of [`select_jobs`]. SQLite reads it from the file only when asked for.
pub(crate) const PAYLOAD: usize = 25;

/// Reads a job.
pub(crate) fn job(conn: &Connection, names: &mut Names, row: &Row<'_>) -> Result<Job, TxError> {
    let id = job_id(row.get(0)?)?;
    let last_verdict: Option<i64> = row.get(15)?;
    let last_verdict = last_verdict.map(last_verdict_of).transpose()?;
    let rank = rank(row, [5, 6, 7], 0)?;
    let run_at: Option<i64> = row.get(8)?;
    Ok(Job {
        id,
        queue: names.queue(conn, row.get(3)?)?,
        kind: names.kind(conn, row.get(4)?)?,
        priority: priority(row.get(18)?)?,
        rank,
        state: state(conn, row, last_verdict)?,
        attempts: small(row.get(9)?)?,
        max_retries: MaxRetries::new(small(row.get(19)?)?).map_err(bad)?,
        epoch: epoch(row.get(10)?),
        generation: small(row.get(11)?)?,
        run_at: run_at.map_or(rank.due, Wall::new),
        timeout: optional(row.get(23)?, JobTimeout::new)?,
        visibility_timeout: LeaseLength::new(unsigned(row.get(20)?)).map_err(bad)?,
        retry: names.retry(conn, row.get(21)?)?,
        idempotency_key: text(row, 24)?.map(IdempotencyKey::new).transpose().map_err(bad)?,
        payload_bytes: payload_bytes(row)?,
        created_at: Wall::new(row.get(22)?),
        updated_at: Wall::new(row.get(13)?),
        started_at: row.get::<_, Option<i64>>(14)?.map(Wall::new),
    })
}

/// The length of a job's payload, which is known without reading it.
pub(crate) fn payload_bytes(row: &Row<'_>) -> Result<u32, TxError> {
    small(row.get(12)?)
}

fn state(
    conn: &Connection,
    row: &Row<'_>,
    last_verdict: Option<LastVerdict>,
) -> Result<State, TxError> {
    let at = Wall::new(row.get(2)?);
    Ok(match view_of(row.get(1)?)? {
        View::Queued => State::Queued { ready: true, last_verdict },
        View::Scheduled => State::Queued { ready: false, last_verdict },
        View::Processing => {
            let length = optional(row.get(16)?, LeaseLength::new)?;
            let worker = holder(row, 17)?.map(WorkerId::new).transpose().map_err(bad)?;
            let (Some(worker), Some(length)) = (worker, length) else {
                return Err(TxError::BadRow("a leased job without a holder".into()));
            };
            State::Processing(Lease { worker, until: at, length })
        }
        View::Done => State::Done { finished_at: at },
        View::Failed => {
            let group = groups::of_job(conn, row.get(0)?)?;
            State::Failed { finished_at: at, last_verdict, group }
        }
        View::Cancelled => State::Cancelled { finished_at: at, last_verdict },
    })
}

/// The view of a job and the instant it is ordered by there.
pub(crate) fn place(job: &Job) -> (i64, i64) {
    let key = job.index_key();
    (view_code(key.view), key.at.get())
}

/// What is stored as the worker of a job that was never leased: room for its first lease. A row
/// that keeps its length is changed in its place; one that grows would split its page.
pub(crate) const ROOM: &str = match str::from_utf8(&[b' '; HOLDER + LEASED]) {
    Ok(room) => room,
    Err(_) => "",
};
/// Workers are stored with spaces behind them, up to this length. No name has spaces.
const HOLDER: usize = 24;
/// By how many bytes the columns `view` and `started_at` grow with the first lease.
const LEASED: usize = 1 + 6;

/// The worker in a column, if a job has one.
pub(crate) fn holder<'r>(row: &'r Row<'_>, at: usize) -> Result<Option<&'r str>, TxError> {
    Ok(text(row, at)?.map(|worker| worker.trim_end_matches(' ')))
}

/// A worker as it is stored.
pub(crate) fn worker_code(worker: &WorkerId) -> String {
    format!("{:<HOLDER$}", worker.as_str())
}

/// The instant a job is due, if its rank does not say so.
pub(crate) fn run_at_code(job: &Job) -> Option<i64> {
    (job.run_at != job.rank.due).then_some(job.run_at.get())
}

/// The stored code of a view.
pub(crate) fn view_code(view: View) -> i64 {
    i64::try_from(view.index()).unwrap_or(i64::MAX)
}

pub(crate) fn view_of(code: i64) -> Result<View, TxError> {
    let view = usize::try_from(code).ok().and_then(View::from_index);
    view.ok_or_else(|| TxError::BadRow(format!("{code} is no view")))
}

/// The stored code of the last verdict; a done job needs none.
pub(crate) fn last_verdict_code(state: &State) -> Option<i64> {
    let last_verdict = state.last_verdict().filter(|_| state.view() != View::Done)?;
    position(&LastVerdict::ALL, &last_verdict)
}

fn last_verdict_of(code: i64) -> Result<LastVerdict, TxError> {
    code_of(&LastVerdict::ALL, code, "verdict")
}

/// The thing with this code in a list of all.
pub(crate) fn code_of<T: Copy>(all: &[T], code: i64, what: &str) -> Result<T, TxError> {
    let found = usize::try_from(code).ok().and_then(|at| all.get(at));
    found.copied().ok_or_else(|| TxError::BadRow(format!("{code} is no {what}")))
}

/// The code of a thing in a list of all.
pub(crate) fn position<T: PartialEq>(all: &[T], one: &T) -> Option<i64> {
    all.iter().position(|other| other == one).and_then(|at| i64::try_from(at).ok())
}

pub(crate) fn job_id(number: i64) -> Result<JobId, TxError> {
    let id = u64::try_from(number).ok().and_then(JobId::new);
    id.ok_or_else(|| TxError::BadRow(format!("{number} is no job id")))
}

pub(crate) fn id_code(id: JobId) -> i64 {
    id.get().cast_signed()
}

pub(crate) fn epoch(number: i64) -> Epoch {
    Epoch::new(number.cast_unsigned())
}

/// The parts of a rank as they are stored and sorted by.
pub(crate) fn rank_code(rank: Rank) -> (i64, i64, i64, i64) {
    (rank.class.into(), rank.turn.cast_signed(), rank.due.get(), id_code(rank.id))
}

/// The rank in these columns: class, turn, due; and id.
pub(crate) fn rank(
    row: &Row<'_>,
    [class, turn, due]: [usize; 3],
    id: usize,
) -> Result<Rank, TxError> {
    Ok(Rank {
        class: i16::try_from(row.get::<_, i64>(class)?).map_err(bad)?,
        turn: unsigned(row.get(turn)?),
        due: Wall::new(row.get(due)?),
        id: job_id(row.get(id)?)?,
    })
}

fn priority(number: i64) -> Result<Priority, TxError> {
    let priority = i16::try_from(number).ok().and_then(|number| Priority::new(number).ok());
    priority.ok_or_else(|| TxError::BadRow(format!("{number} is no priority")))
}

pub(crate) fn small(number: i64) -> Result<u32, TxError> {
    u32::try_from(number).map_err(|_| TxError::BadRow(format!("{number} is out of range")))
}

pub(crate) fn unsigned(number: i64) -> u64 {
    number.cast_unsigned()
}

/// A bounded number that may be absent.
pub(crate) fn optional<T, E: std::fmt::Display>(
    number: Option<i64>,
    make: impl Fn(u64) -> Result<T, E>,
) -> Result<Option<T>, TxError> {
    number.map(|number| make(unsigned(number)).map_err(bad)).transpose()
}

/// A text that may be absent, without copying it.
pub(crate) fn text<'r>(row: &'r Row<'_>, at: usize) -> Result<Option<&'r str>, TxError> {
    let value = row.get_ref(at)?;
    value.as_str_or_null().map_err(bad)
}

/// An excerpt in two columns that may be absent.
pub(crate) fn excerpt(row: &Row<'_>, at: usize) -> Result<Option<Excerpt>, TxError> {
    let cut: Option<bool> = row.get(at + 1)?;
    let stored = |text| Excerpt::stored(text, cut.unwrap_or(false));
    Ok(text(row, at)?.map(stored))
}

/// A value that this code cannot have written.
pub(crate) fn bad(error: impl std::fmt::Display) -> TxError {
    TxError::BadRow(error.to_string())
}
