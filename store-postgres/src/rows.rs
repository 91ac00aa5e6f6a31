//! A job as rows, and back. What cannot be read back as a job is corruption, and is said so.

use tokio_postgres::Row;
use tokio_postgres::types::FromSql;
use windlass_core::{
    Epoch, Excerpt, IdempotencyKey, Job, JobId, JobTimeout, LastVerdict, Lease, LeaseLength,
    MaxRetries, Priority, Rank, State, View, Wall, WorkerId,
};

use crate::error::TxError;
use crate::groups;
use crate::names::Names;
use crate::session::Found;

/// The start of a query for jobs of a thin table `t`: the columns in the order [`job`] reads them,
/// then those that are given. In order: view, instant, `run_at`, `spent`, lease length, worker,
/// error group.
macro_rules! select_jobs {
    ($view:literal, $at:literal, $run_at:literal, $spent:literal, $length:literal, $worker:literal,
     $group:literal, $more:literal) => {
        concat!(
            "SELECT t.id, ",
            $view,
            ", ",
            $at,
            ", j.queue, j.kind, t.class, t.turn, t.due, ",
            $run_at,
            ", t.attempts, t.epoch, t.generation, t.updated_at, t.started_at, ",
            $spent,
            ", ",
            $length,
            ", ",
            $worker,
            ", j.priority, j.max_retries, j.visibility_timeout, j.retry, j.created_at, j.timeout, \
             j.idempotency_key, j.payload_bytes, ",
            $group,
            $more
        )
    };
}
pub(crate) use select_jobs;

/// Ready jobs: the columns, without the tables.
macro_rules! ready_columns {
    ($more:literal) => {
        $crate::rows::select_jobs!(
            "0::int2",
            "coalesce(t.run_at, t.due)",
            "t.run_at",
            "t.spent",
            "NULL::int8",
            "NULL::text",
            "NULL::bytea",
            $more
        )
    };
}
pub(crate) use ready_columns;

/// The start of a query for ready jobs.
macro_rules! select_ready {
    () => {
        concat!($crate::rows::ready_columns!(""), " FROM ready t JOIN jobs j ON j.id = t.id ")
    };
}
pub(crate) use select_ready;

/// The start of a query for scheduled jobs.
macro_rules! select_scheduled {
    () => {
        concat!(
            $crate::rows::select_jobs!(
                "1::int2",
                "t.run_at",
                "t.run_at",
                "t.spent",
                "NULL::int8",
                "NULL::text",
                "NULL::bytea",
                ""
            ),
            " FROM scheduled t JOIN jobs j ON j.id = t.id "
        )
    };
}
pub(crate) use select_scheduled;

/// The start of a query for leased jobs.
macro_rules! select_leased {
    () => {
        concat!(
            $crate::rows::select_jobs!(
                "2::int2",
                "t.lease_until",
                "t.run_at",
                "NULL::int2",
                "t.lease_length",
                "t.worker",
                "NULL::bytea",
                ""
            ),
            " FROM leased t JOIN jobs j ON j.id = t.id "
        )
    };
}
pub(crate) use select_leased;

/// The start of a query for finished jobs.
macro_rules! select_done {
    () => {
        concat!(
            $crate::rows::select_jobs!(
                "t.view",
                "t.finished_at",
                "t.run_at",
                "t.spent",
                "NULL::int8",
                "NULL::text",
                "t.error_group",
                ""
            ),
            " FROM done t JOIN jobs j ON j.id = t.id "
        )
    };
}
pub(crate) use select_done;

/// The first column behind those of a job.
pub(crate) const MORE: usize = 26;

/// Reads a job.
pub(crate) fn job(names: &Names, row: &Row) -> Found<Job> {
    let id = job_id(get(row, 0)?)?;
    let last_verdict: Option<i16> = get(row, 14)?;
    let last_verdict =
        last_verdict.map(|code| code_of(&LastVerdict::ALL, code, "verdict")).transpose()?;
    let rank = Rank {
        class: get(row, 5)?,
        turn: get::<i64>(row, 6)?.cast_unsigned(),
        due: Wall::new(get(row, 7)?),
        id,
    };
    let run_at: Option<i64> = get(row, 8)?;
    let key: Option<&str> = get(row, 23)?;
    let timeout: Option<i64> = get(row, 22)?;
    Ok(Job {
        id,
        queue: names.queue_name(get(row, 3)?)?.clone(),
        kind: names.kind_name(get(row, 4)?)?.clone(),
        priority: Priority::new(get(row, 17)?).map_err(bad)?,
        rank,
        state: state(row, last_verdict)?,
        attempts: get::<i32>(row, 9)?.cast_unsigned(),
        max_retries: MaxRetries::new(get::<i32>(row, 18)?.cast_unsigned()).map_err(bad)?,
        epoch: Epoch::new(get::<i64>(row, 10)?.cast_unsigned()),
        generation: get::<i32>(row, 11)?.cast_unsigned(),
        run_at: run_at.map_or(rank.due, Wall::new),
        timeout: optional(timeout, JobTimeout::new)?,
        visibility_timeout: LeaseLength::new(get::<i64>(row, 19)?.cast_unsigned()).map_err(bad)?,
        retry: names.retry(get(row, 20)?)?,
        idempotency_key: key.map(IdempotencyKey::new).transpose().map_err(bad)?,
        payload_bytes: get::<i32>(row, 24)?.cast_unsigned(),
        created_at: Wall::new(get(row, 21)?),
        updated_at: Wall::new(get(row, 12)?),
        started_at: get::<Option<i64>>(row, 13)?.map(Wall::new),
    })
}

fn state(row: &Row, last_verdict: Option<LastVerdict>) -> Found<State> {
    let at = Wall::new(get(row, 2)?);
    Ok(match view_of(get(row, 1)?)? {
        View::Queued => State::Queued { ready: true, last_verdict },
        View::Scheduled => State::Queued { ready: false, last_verdict },
        View::Processing => {
            let length = optional(get(row, 15)?, LeaseLength::new)?;
            let worker: Option<&str> = get(row, 16)?;
            let worker = worker.map(WorkerId::new).transpose().map_err(bad)?;
            let (Some(worker), Some(length)) = (worker, length) else {
                return Err(TxError::BadRow("a leased job without a holder".into()));
            };
            State::Processing(Lease { worker, until: at, length })
        }
        View::Done => State::Done { finished_at: at },
        View::Failed => {
            State::Failed { finished_at: at, last_verdict, group: groups::id(row, 25)? }
        }
        View::Cancelled => State::Cancelled { finished_at: at, last_verdict },
    })
}

/// Reads all jobs of a query.
pub(crate) fn jobs(names: &Names, rows: &[Row]) -> Found<Vec<Job>> {
    rows.iter().map(|row| job(names, row)).collect()
}

/// A column of a row.
pub(crate) fn get<'r, T: FromSql<'r>>(row: &'r Row, at: usize) -> Found<T> {
    row.try_get(at).map_err(bad)
}

/// The stored code of a view.
pub(crate) fn view_code(view: View) -> i16 {
    i16::try_from(view.index()).unwrap_or(i16::MAX)
}

pub(crate) fn view_of(code: i16) -> Found<View> {
    let view = usize::try_from(code).ok().and_then(View::from_index);
    view.ok_or_else(|| TxError::BadRow(format!("{code} is no view")))
}

/// The stored code of the last verdict; a done job needs none.
pub(crate) fn last_verdict_code(state: &State) -> Option<i16> {
    let last_verdict = state.last_verdict().filter(|_| state.view() != View::Done)?;
    position(&LastVerdict::ALL, &last_verdict)
}

/// The instant a job is due, if its rank does not say so.
pub(crate) fn run_at_code(job: &Job) -> Option<i64> {
    (job.run_at != job.rank.due).then_some(job.run_at.get())
}

/// The thing with this code in a list of all.
pub(crate) fn code_of<T: Copy>(all: &[T], code: i16, what: &str) -> Found<T> {
    let found = usize::try_from(code).ok().and_then(|at| all.get(at));
    found.copied().ok_or_else(|| TxError::BadRow(format!("{code} is no {what}")))
}

/// The code of a thing in a list of all.
pub(crate) fn position<T: PartialEq>(all: &[T], one: &T) -> Option<i16> {
    all.iter().position(|other| other == one).and_then(|at| i16::try_from(at).ok())
}

pub(crate) fn job_id(number: i64) -> Found<JobId> {
    let id = u64::try_from(number).ok().and_then(JobId::new);
    id.ok_or_else(|| TxError::BadRow(format!("{number} is no job id")))
}

pub(crate) fn id_code(id: JobId) -> i64 {
    id.get().cast_signed()
}

pub(crate) fn id_codes<'i>(ids: impl IntoIterator<Item = &'i JobId>) -> Vec<i64> {
    ids.into_iter().map(|id| id_code(*id)).collect()
}

/// A limit as PostgreSQL counts.
pub(crate) fn count(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// A bounded number that may be absent.
pub(crate) fn optional<T, E: std::fmt::Display>(
    number: Option<i64>,
    make: impl Fn(u64) -> Result<T, E>,
) -> Found<Option<T>> {
    number.map(|number| make(number.cast_unsigned()).map_err(bad)).transpose()
}

/// An excerpt in two columns that may be absent.
pub(crate) fn excerpt(row: &Row, at: usize) -> Found<Option<Excerpt>> {
    let text: Option<&str> = get(row, at)?;
    let cut: Option<bool> = get(row, at + 1)?;
    Ok(text.map(|text| Excerpt::stored(text, cut.unwrap_or(false))))
}

/// A value that this code cannot have written.
pub(crate) fn bad(error: impl std::fmt::Display) -> TxError {
    TxError::BadRow(error.to_string())
}
