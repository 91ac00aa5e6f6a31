//! Error groups, and the values that the dead letters of one share.

use windlass_core::store::{Filter, Page, Reader, StoreError};
use windlass_core::{GroupId, GroupRow, JobId, Kind, QueueName, Wall};

use super::{history, jobs};
use crate::api::problem::{self, Problem};
use crate::api::shared::{Sample, shared};
use crate::api::wire::{ErrorDetail, ErrorGroup, ErrorList, Query, Shared};
use crate::app::now;
use crate::http::router::{self, Answer, Call};

/// Maximum number of dead letters compared, and of bytes of their payloads.
const SAMPLED: usize = 200;
const SAMPLED_BYTES: usize = 4 * 1024 * 1024;
/// Maximum number of marks shown from before the first failure of a group.
const MARKS: usize = 5;
/// Maximum number of ids of the newest jobs of a group.
const NEWEST: usize = 3;

/// `GET /errors`
pub(crate) async fn list(call: Call) -> Answer {
    let query = call.query(&["queue", "kind", "by", "limit", "cursor"])?;
    let queue = query.get("queue").map(QueueName::new).transpose()?;
    let kind = query.get("kind").map(Kind::new).transpose()?;
    let order = order(&query)?;
    let limit = jobs::limit(&query)?;
    let after = query.get("cursor").map(cursor).transpose()?;
    let read = move |reader: &mut dyn Reader| {
        let mut rows = reader.error_groups()?;
        rows.retain(|row| {
            row.live > 0
                && kind.as_ref().is_none_or(|kind| row.kind == *kind)
                && queue.as_ref().is_none_or(|queue| has(row, queue))
        });
        let place = |row: &GroupRow| (order(row), row.id);
        rows.sort_by_key(|row| std::cmp::Reverse(place(row)));
        rows.retain(|row| after.is_none_or(|after| place(row) < after));
        let more = rows.len() > limit;
        rows.truncate(limit);
        let last = rows.last().filter(|_| more).map(place);
        let now = reader.now(now())?;
        let groups: Result<Vec<ErrorGroup>, StoreError> =
            rows.iter().map(|row| group(reader, row, now)).collect();
        Ok(ErrorList { groups: groups?, next: last.map(|(at, id)| format!("{at}_{id}")) })
    };
    router::ok(&call.app.reads.read(read).await?)
}

fn has(row: &GroupRow, queue: &QueueName) -> bool {
    row.queues.named.iter().any(|(name, _)| name == queue)
}

/// What groups are ordered by, from the greatest down.
type Order = fn(&GroupRow) -> i64;

fn order(query: &Query) -> Result<Order, Problem> {
    match query.get("by").unwrap_or("jobs") {
        "jobs" => Ok(|row| i64::try_from(row.live).unwrap_or(i64::MAX)),
        "last" => Ok(|row| row.last_at.get()),
        "new" => Ok(|row| row.first_at.get()),
        _ => Err(Problem::new(problem::INVALID, "`by` must be `jobs`, `last` or `new`")),
    }
}

fn cursor(text: &str) -> Result<(i64, GroupId), Problem> {
    let parts = text.split_once('_');
    let parts = parts.and_then(|(at, id)| Some((at.parse().ok()?, id.parse().ok()?)));
    parts.ok_or_else(|| {
        let detail = "`cursor` is not one that was given out; send `next` of the last page back";
        Problem::new(problem::INVALID, detail)
    })
}

fn group(reader: &mut dyn Reader, row: &GroupRow, now: Wall) -> Result<ErrorGroup, StoreError> {
    let Page { jobs, .. } = reader.list(&of_group(row.id), None, NEWEST)?;
    let newest: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
    Ok(ErrorGroup::of(row, &newest, now))
}

fn of_group(id: GroupId) -> Filter {
    Filter { group: Some(id), ..Filter::default() }
}

/// `GET /errors/{id}`
pub(crate) async fn get(call: Call) -> Answer {
    call.query(&[])?;
    let id: GroupId = call.param().parse().map_err(|error: windlass_core::ParseIdError| {
        Problem::new(problem::NOT_FOUND, error.to_string())
    })?;
    let read = move |reader: &mut dyn Reader| {
        let Some(row) = reader.error_group(id)? else { return Ok(None) };
        let samples = samples(reader, id)?;
        let now = reader.now(now())?;
        let group = group(reader, &row, now)?;
        let marks = history::marks_before(reader, row.first_at)?;
        let marks = marks.iter().rev().take(MARKS).filter_map(Shared::mark);
        let shared = shared(&samples).into_iter().chain(marks).collect();
        Ok(Some(ErrorDetail { group, sampled: samples.len(), shared }))
    };
    let found = call.app.reads.read(read).await?;
    let missing = || {
        let detail = format!("there is no error group {id}; its dead letters may be gone");
        Problem::new(problem::NOT_FOUND, detail)
    };
    router::ok(&found.ok_or_else(missing)?)
}

/// The newest dead letters of a group, as far as their payloads fit.
fn samples(reader: &mut dyn Reader, id: GroupId) -> Result<Vec<Sample>, StoreError> {
    let Page { jobs, .. } = reader.list(&of_group(id), None, SAMPLED)?;
    let (mut bytes, mut ids) = (0, Vec::with_capacity(jobs.len()));
    for job in jobs {
        bytes += job.payload_bytes as usize;
        if bytes > SAMPLED_BYTES && !ids.is_empty() {
            break;
        }
        ids.push(job.id);
    }
    let mut samples = Vec::with_capacity(ids.len());
    // One that was removed since is left out.
    for detail in reader.jobs(&ids)?.into_iter().flatten() {
        let last = reader.attempts(detail.job.id)?.pop();
        samples.push(Sample {
            payload: detail.payload,
            worker: last.as_ref().map(|attempt| attempt.worker.clone()),
            exit_code: last.and_then(|attempt| attempt.exit_code),
        });
    }
    Ok(samples)
}
