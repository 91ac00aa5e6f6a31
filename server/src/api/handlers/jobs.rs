//! Jobs: read, list, explain, cancel, retry and delete.

use std::time::Duration;

use windlass_core::machine::Refused;
use windlass_core::store::{Cursor, Filter, JobDetail, Page, Reader, StoreError};
use windlass_core::{
    self as core, Demand, GroupId, IdempotencyKey, Job, JobId, Kind, Payload, QueueName, StateName,
    Surroundings, View, Wall, explain,
};
use windlass_runtime_tokio::Unserved;

use super::search;
use crate::api::problem::{self, Problem};
use crate::api::wire;
use crate::api::wire::{Attempts, Explained, JobAnswer, JobList, JobRow, Query, RowList};
use crate::app::{App, Stage, now};
use crate::http::limits::{PAGE, PAGE_BYTES, POLL_WAIT_MS};
use crate::http::router::{self, Answer, Call};

/// `GET /jobs/{id}`
pub(crate) async fn get(call: Call) -> Answer {
    let query = call.query(&["wait_ms", "fields"])?;
    let id = call.job_id()?;
    let head = fields(&query, "head")?;
    if let Some(wait) = wait(&query)? {
        let app = &call.app;
        tokio::select! {
            // The result is read below.
            _ = tokio::time::timeout(wait, app.finished(id)) => {}
            () = app.closing.reached(Stage::Draining) => {
                return Err(Problem::from(Unserved::Refused(Refused::ShuttingDown)));
            }
        }
    }
    let found = call.app.lookup.job(id).await?.ok_or_else(|| Problem::no_job(id))?;
    if head { router::ok(&JobRow::head_of(&found)) } else { router::ok(&wire::Job::of(found)) }
}

/// Whether `fields` asks for this short form; it takes no other value.
fn fields(query: &Query, short: &str) -> Result<bool, Problem> {
    match query.get("fields") {
        None => Ok(false),
        Some(text) if text == short => Ok(true),
        Some(_) => {
            let detail = format!("`fields` must be `{short}`, or absent for everything");
            Err(Problem::new(problem::INVALID, detail))
        }
    }
}

/// `GET /jobs/{id}/payload`: the stored text, byte for byte.
pub(crate) async fn payload(call: Call) -> Answer {
    call.query(&[])?;
    let id = call.job_id()?;
    let found = call.app.lookup.job(id).await?.ok_or_else(|| Problem::no_job(id))?;
    Ok(router::text("application/json", String::from(found.payload.as_str())))
}

/// `GET /jobs/{id}/result`: the stored text, byte for byte.
pub(crate) async fn result(call: Call) -> Answer {
    call.query(&[])?;
    let id = call.job_id()?;
    let found = call.app.lookup.job(id).await?.ok_or_else(|| Problem::no_job(id))?;
    let result = found.result.ok_or_else(|| {
        let state = found.job.state.name().as_str();
        Problem::new(problem::NOT_FOUND, format!("job {id} is {state} and has no result"))
    })?;
    Ok(router::text("application/json", String::from(result.as_str())))
}

/// How long to wait for a verdict, if at all.
fn wait(query: &Query) -> Result<Option<Duration>, Problem> {
    let Some(text) = query.get("wait_ms") else { return Ok(None) };
    let millis: u64 = text.parse().map_err(|_| {
        let detail = "`wait_ms` must be a whole number, 0 or more";
        Problem::new(problem::INVALID, detail)
    })?;
    Ok(Some(Duration::from_millis(millis.min(POLL_WAIT_MS))))
}

/// The names that a list of jobs seeks by, and those that shape its page.
const LISTED: [&str; 9] =
    ["state", "queue", "kind", "key", "id", "group", "fields", "limit", "cursor"];

/// `GET /jobs`
pub(crate) async fn list(call: Call) -> Answer {
    let query = call.query(&[&LISTED, search::NAMES.as_slice()].concat())?;
    let view = query.get("state").map(view).transpose()?;
    let short = fields(&query, "row")?;
    if let Some(search) = search::asked(&query, view)? {
        return search::page(&call.app, search, &query, short).await;
    }
    match query.get("id").map(ids).transpose()?.as_deref() {
        None | Some([_]) if short => rows(&call.app, filter(&query, view)?, &query).await,
        None | Some([_]) => page(&call.app, filter(&query, view)?, &query).await,
        Some(ids) if short => by_ids(&call.app, ids.to_vec(), filter(&query, view)?).await,
        Some(_) => {
            let detail = "several ids are answered with rows only: add `fields=row`";
            Err(Problem::new(problem::INVALID, detail))
        }
    }
}

/// Rows of the jobs with these ids that fit the filter, newest first, on one page.
async fn by_ids(app: &App, ids: Vec<JobId>, filter: Filter) -> Answer {
    let read = move |reader: &mut dyn Reader| {
        let mut rows: Vec<JobRow> = Vec::with_capacity(ids.len());
        for some in ids.rchunks(CHUNK) {
            let found = reader.jobs(some)?;
            let fit = found.iter().rev().flatten().filter(|detail| filter.includes(&detail.job));
            rows.extend(fit.map(JobRow::of));
        }
        Ok(RowList::page(rows, None))
    };
    router::ok(&app.reads.read(read).await?)
}

/// A page of rows: payloads are read, cut and dropped chunk by chunk.
async fn rows(app: &App, filter: Filter, query: &Query) -> Answer {
    let limit = limit(query)?;
    let after = query.get("cursor").map(cursor).transpose()?;
    let read = move |reader: &mut dyn Reader| {
        let Page { jobs, next } = reader.list(&filter, after, limit)?;
        let mut rows: Vec<JobRow> = Vec::with_capacity(jobs.len());
        for some in jobs.chunks(CHUNK) {
            let ids: Vec<JobId> = some.iter().map(|job| job.id).collect();
            rows.extend(reader.jobs(&ids)?.iter().flatten().map(JobRow::of));
        }
        Ok(RowList::page(rows, next.map(written)))
    };
    router::ok(&app.reads.read(read).await?)
}

fn view(text: &str) -> Result<View, Problem> {
    let found = View::ALL.into_iter().find(|view| view.as_str() == text);
    found.ok_or_else(|| {
        let names: Vec<&str> = View::ALL.iter().map(|view| view.as_str()).collect();
        let detail = format!("`state` must be one of {}", names.join(", "));
        Problem::new(problem::INVALID, detail)
    })
}

pub(super) fn filter(query: &Query, view: Option<View>) -> Result<Filter, Problem> {
    let queue = query.get("queue").map(QueueName::new).transpose()?;
    Ok(Filter { queue, ..filter_without_queue(query, view)? })
}

/// The same, but for the queue.
pub(super) fn filter_without_queue(query: &Query, view: Option<View>) -> Result<Filter, Problem> {
    let group = query.get("group").map(group).transpose()?;
    let view = match (group, view) {
        (None, view) => view,
        (Some(_), None | Some(View::Failed)) => Some(View::Failed),
        (Some(_), Some(_)) => {
            let detail = "`group` lists dead letters: `state` must be `failed`, or absent";
            return Err(Problem::new(problem::INVALID, detail));
        }
    };
    Ok(Filter {
        view,
        queue: None,
        kind: query.get("kind").map(Kind::new).transpose()?,
        key: query.get("key").map(IdempotencyKey::new).transpose()?,
        id: match query.get("id").map(ids).transpose()?.as_deref() {
            Some([id]) => Some(*id),
            _ => None,
        },
        group,
    })
}

fn group(text: &str) -> Result<GroupId, Problem> {
    text.parse().map_err(|error: core::ParseIdError| {
        Problem::new(problem::INVALID, format!("`group`: {error}"))
    })
}

/// One id, or several with commas between them.
fn ids(text: &str) -> Result<Vec<JobId>, Problem> {
    let ids = text.split(',').map(|text| {
        text.parse().map_err(|error: core::ParseIdError| {
            Problem::new(problem::INVALID, format!("`id`: {error}"))
        })
    });
    let mut ids = ids.collect::<Result<Vec<JobId>, Problem>>()?;
    ids.sort_unstable();
    ids.dedup();
    if ids.len() > PAGE.1 {
        let detail = format!("`id` takes up to {} ids", PAGE.1);
        return Err(Problem::new(problem::INVALID, detail));
    }
    Ok(ids)
}

/// A page of jobs with everything kept beside them.
pub(super) async fn page(app: &App, filter: Filter, query: &Query) -> Answer {
    let limit = limit(query)?;
    let after = query.get("cursor").map(cursor).transpose()?;
    let read = move |reader: &mut dyn Reader| full_page(reader, &filter, after, limit);
    let (jobs, next) = app.reads.read(read).await?;
    let jobs = jobs.into_iter().map(wire::Job::of).collect();
    router::ok(&JobList { jobs, next: next.map(written), scanned: None, reached: None })
}

/// A page that ends early rather than hold too many bytes.
fn full_page(
    reader: &mut dyn Reader,
    filter: &Filter,
    after: Option<Cursor>,
    limit: usize,
) -> Result<(Vec<JobDetail>, Option<Cursor>), StoreError> {
    let Page { jobs, mut next } = reader.list(filter, after, limit)?;
    let mut full: Vec<JobDetail> = Vec::with_capacity(jobs.len());
    let mut bytes = 0;
    for some in jobs.chunks(CHUNK) {
        let ids: Vec<JobId> = some.iter().map(|job| job.id).collect();
        let found = reader.jobs(&ids)?;
        for (row, detail) in some.iter().zip(found) {
            // One that was deleted since is left out.
            let Some(detail) = detail else { continue };
            bytes += detail.payload.as_str().len();
            bytes += detail.result.as_ref().map_or(0, |result| result.as_str().len());
            full.push(detail);
            if bytes > PAGE_BYTES {
                let last = jobs.last().is_none_or(|last| last.id == row.id);
                next = if last { next } else { Some(filter.place(row)) };
                return Ok((full, next));
            }
        }
    }
    Ok((full, next))
}

/// Jobs per read.
const CHUNK: usize = 16;

pub(super) fn limit(query: &Query) -> Result<usize, Problem> {
    let (default, most) = PAGE;
    let Some(text) = query.get("limit") else { return Ok(default) };
    match text.parse() {
        Ok(limit) if (1..=most).contains(&limit) => Ok(limit),
        _ => {
            let detail = format!("`limit` must be a whole number between 1 and {most}");
            Err(Problem::new(problem::INVALID, detail))
        }
    }
}

pub(super) fn written(cursor: Cursor) -> String {
    format!("{}_{}", cursor.at.get(), cursor.id)
}

pub(super) fn cursor(text: &str) -> Result<Cursor, Problem> {
    let parts = text.split_once('_');
    let parts = parts.and_then(|(at, id)| Some((at.parse().ok()?, id.parse().ok()?)));
    let (at, id) = parts.ok_or_else(|| {
        let detail = "`cursor` is not one that was given out; send `next` of the last page back";
        Problem::new(problem::INVALID, detail)
    })?;
    Ok(Cursor { at: Wall::new(at), id })
}

/// `GET /jobs/{id}/attempts`
pub(crate) async fn attempts(call: Call) -> Answer {
    call.query(&[])?;
    let id = call.job_id()?;
    let read = move |reader: &mut dyn Reader| {
        let known = reader.jobs(&[id])?.pop().flatten().is_some();
        Ok(if known { Some(reader.attempts(id)?) } else { None })
    };
    let attempts = call.app.reads.read(read).await?;
    router::ok(&Attempts::of(&attempts.ok_or_else(|| Problem::no_job(id))?))
}

/// `GET /jobs/{id}/explain`
pub(crate) async fn explained(call: Call) -> Answer {
    call.query(&[])?;
    let id = call.job_id()?;
    let read = move |reader: &mut dyn Reader| {
        let Some(detail) = reader.jobs(&[id])?.pop().flatten() else { return Ok(None) };
        let row = reader.queue(&detail.job.queue)?;
        // Who would run it matters only while it waits.
        let waits = detail.job.state.name() == StateName::Queued;
        let workers = if waits { reader.workers()? } else { Vec::new() };
        Ok(Some((detail.job, row, workers, reader.now(now())?)))
    };
    let found = call.app.reads.read(read).await?;
    let (job, row, workers, now) = found.ok_or_else(|| Problem::no_job(id))?;
    let usage = row.as_ref().map(core::QueueRow::usage).unwrap_or_default();
    let queue = row.map_or_else(|| core::Queue::new(job.queue.clone()), |row| row.queue);
    let demands: Vec<Demand> = workers.iter().filter_map(|row| row.demand(now)).cloned().collect();
    let around = Surroundings {
        queue: &queue,
        in_use: usage.of(&job.kind),
        before_it: usage.counts.get(View::Queued).saturating_sub(1),
        demands: &demands,
    };
    router::ok(&Explained::of(id, job.state.name(), &explain(&job, &around, now)))
}

/// `POST /jobs/{id}/cancel`
pub(crate) async fn cancel(call: Call) -> Answer {
    let job = call.app.queue()?.cancel(call.job_id()?).await?;
    changed(&call.app, job).await
}

/// `POST /jobs/{id}/retry`
pub(crate) async fn retry(call: Call) -> Answer {
    let job = call.app.queue()?.replay(call.job_id()?).await?;
    changed(&call.app, job).await
}

/// A job that a command has changed, with what is kept beside it.
pub(super) async fn changed(app: &App, job: Job) -> Answer {
    let job = match app.lookup.job(job.id).await {
        Ok(Some(detail)) => wire::Job::of(detail),
        Ok(None) | Err(_) => wire::Job::bare(&job, Payload::null()),
    };
    router::ok(&JobAnswer { job })
}

/// `DELETE /jobs/{id}`
pub(crate) async fn delete(call: Call) -> Answer {
    call.app.queue()?.delete(call.job_id()?).await?;
    Ok(router::no_content())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_was_written() {
        let place = Cursor { at: Wall::new(-5), id: JobId::LAST };
        assert_eq!(cursor(&written(place)).unwrap(), place);
        for text in ["", "_", "1", "1_0", "x_1", "1_1_1"] {
            assert!(cursor(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_limit_is_a_number_in_its_bounds() {
        let limit =
            |text: &str| limit(&Query::parse(&format!("limit={text}"), &["limit"]).unwrap());
        assert_eq!(limit(""), Ok(50));
        assert_eq!(limit("1000"), Ok(1_000));
        for text in ["0", "-1", "1001", "1e9", "NaN", "99999999999999999999"] {
            assert!(limit(text).is_err(), "{text}");
        }
    }
}
