//! Jobs: one, lists, why, and what operators do with them.

use std::time::Duration;

use windlass_core::machine::Refused;
use windlass_core::store::{Cursor, Filter, JobDetail, Page, Reader, StoreError};
use windlass_core::{
    self as core, Demand, Job, JobId, Kind, Payload, QueueName, StateName, Surroundings, View,
    Wall, explain,
};
use windlass_runtime_tokio::Unserved;

use crate::app::{App, Stage, now};
use crate::limits::{PAGE, PAGE_BYTES, POLL_WAIT_MS};
use crate::problem::{self, Problem};
use crate::router::{self, Answer, Call};
use crate::wire;
use crate::wire::{Attempts, Explained, JobAnswer, JobList, Query};

/// `GET /jobs/{id}`
pub(crate) async fn get(call: Call) -> Answer {
    let query = call.query(&["wait_ms"])?;
    let id = call.job_id()?;
    if let Some(wait) = wait(&query)? {
        let app = &call.app;
        tokio::select! {
            // Whatever came of it is seen below.
            _ = tokio::time::timeout(wait, app.queue.wait(id)) => {}
            () = app.closing.reached(Stage::Draining) => {
                return Err(Problem::from(Unserved::Refused(Refused::ShuttingDown)));
            }
        }
    }
    let found = call.app.lookup.job(id).await?;
    router::ok(&wire::Job::of(found.ok_or_else(|| Problem::no_job(id))?))
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

/// `GET /jobs`
pub(crate) async fn list(call: Call) -> Answer {
    let query = call.query(&["state", "queue", "kind", "limit", "cursor"])?;
    let view = query.get("state").map(view).transpose()?;
    page(&call.app, filter(&query, view)?, &query).await
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
    Ok(Filter {
        view,
        queue: query.get("queue").map(QueueName::new).transpose()?,
        kind: query.get("kind").map(Kind::new).transpose()?,
    })
}

/// A page of jobs with everything kept beside them.
pub(super) async fn page(app: &App, filter: Filter, query: &Query) -> Answer {
    let limit = limit(query)?;
    let after = query.get("cursor").map(cursor).transpose()?;
    let read = move |reader: &mut dyn Reader| full_page(reader, &filter, after, limit);
    let (jobs, next) = app.queue.read(read).await?;
    let jobs = jobs.into_iter().map(wire::Job::of).collect();
    router::ok(&JobList { jobs, next: next.map(written) })
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

/// How many jobs are read together.
const CHUNK: usize = 16;

fn limit(query: &Query) -> Result<usize, Problem> {
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
    let attempts = call.app.queue.read(read).await?;
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
        Ok(Some((detail.job, row, workers)))
    };
    let found = call.app.queue.read(read).await?;
    let (job, row, workers) = found.ok_or_else(|| Problem::no_job(id))?;
    let now = now();
    let counts = row.as_ref().map(core::QueueRow::total).unwrap_or_default();
    let queue = row.map_or_else(|| core::Queue::new(job.queue.clone()), |row| row.queue);
    let demands: Vec<Demand> = workers.iter().filter_map(|row| row.demand(now)).cloned().collect();
    let around = Surroundings {
        queue: &queue,
        running: counts.get(View::Processing),
        before_it: counts.get(View::Queued).saturating_sub(1),
        demands: &demands,
    };
    router::ok(&Explained::of(id, job.state.name(), &explain(&job, &around, now)))
}

/// `POST /jobs/{id}/cancel`
pub(crate) async fn cancel(call: Call) -> Answer {
    let job = call.app.queue.cancel(call.job_id()?).await?;
    changed(&call.app, job).await
}

/// `POST /jobs/{id}/retry`
pub(crate) async fn retry(call: Call) -> Answer {
    let job = call.app.queue.replay(call.job_id()?).await?;
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
    call.app.queue.delete(call.job_id()?).await?;
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
