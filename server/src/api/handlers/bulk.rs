//! Bulk actions: count the matching jobs, start, list, continue and stop.

use std::collections::BTreeMap;

use http::header::LOCATION;
use http::{HeaderValue, StatusCode};
use windlass_core::bulk::{Action, Bulk, Target, Terms};
use windlass_core::search::Search;
use windlass_core::store::{Admin, AdminDone, Filter, Page, Reader, StoreError};
use windlass_core::{BulkId, Job, JobId, Kind, QueueName, QueueRow, View};

use super::search::{Bounds, STEP};
use crate::api::problem::{self, Problem};
use crate::api::wire::{self, BulkAnswer, BulkList, DryRun, JobRow, NewBulk, QueueCount};
use crate::app::App;
use crate::http::auth::Caller;
use crate::http::router::{self, Answer, Call};

/// Rows to take examples from where counters give the number.
const SAMPLED: usize = 1_000;
/// Jobs with their payloads that are read together.
const CHUNK: usize = 16;
/// Jobs that are shown of those that match.
const SAMPLE: usize = 5;

/// `POST /bulk`
pub(crate) async fn start(call: Call) -> Answer {
    let order: NewBulk = wire::json(&call.body)?;
    let terms = order.check()?;
    let wanted = terms.clone();
    let counted = call.app.reads.read(move |reader| count(reader, &wanted)).await?;
    if order.dry_run {
        return router::ok(&counted);
    }
    let DryRun { matched, exact, .. } = counted;
    if let Some(expect) = order.expect.filter(|expect| matched > expect + expect / 10) {
        return Err(Problem::count_changed(matched, expect));
    }
    let by = call.caller.as_ref().and_then(Caller::name).unwrap_or_default();
    let most = if exact { None } else { order.expect };
    let terms = Terms { by: by.into(), of: matched, most, ..terms };
    let bulk = ordered(&call.app, Admin::StartBulk(Box::new(terms))).await?;
    let answer = BulkAnswer { bulk: wire::Bulk::of(&bulk) };
    let mut response = router::json(StatusCode::ACCEPTED, &answer)?;
    if let Ok(location) = HeaderValue::try_from(format!("/bulk/{}", bulk.id)) {
        response.headers_mut().insert(LOCATION, location);
    }
    Ok(response)
}

/// `GET /bulk`
pub(crate) async fn list(call: Call) -> Answer {
    call.query(&[])?;
    let found = call.app.reads.read(all).await?;
    router::ok(&BulkList { bulk: found.iter().rev().map(wire::Bulk::of).collect() })
}

/// `GET /bulk/{bulk}`
pub(crate) async fn get(call: Call) -> Answer {
    call.query(&[])?;
    let id = id(&call)?;
    let found = call.app.reads.read(all).await?.into_iter().find(|bulk| bulk.id == id);
    let missing = windlass_core::bulk::BulkRefused::NotFound(id);
    let bulk = found.ok_or_else(|| Problem::new(problem::NOT_FOUND, missing.to_string()))?;
    router::ok(&BulkAnswer { bulk: wire::Bulk::of(&bulk) })
}

/// `POST /bulk/{bulk}/continue`
pub(crate) async fn resume(call: Call) -> Answer {
    order(&call, Admin::ContinueBulk(id(&call)?)).await
}

/// `POST /bulk/{bulk}/stop`
pub(crate) async fn stop(call: Call) -> Answer {
    order(&call, Admin::StopBulk(id(&call)?)).await
}

async fn order(call: &Call, order: Admin) -> Answer {
    let bulk = ordered(&call.app, order).await?;
    router::ok(&BulkAnswer { bulk: wire::Bulk::of(&bulk) })
}

async fn ordered(app: &App, order: Admin) -> Result<Bulk, Problem> {
    match app.queue()?.command(order).await? {
        AdminDone::Bulk(bulk) => Ok(*bulk),
        _ => Err(Problem::new(problem::INTERNAL, "the store answered something else")),
    }
}

fn id(call: &Call) -> Result<BulkId, Problem> {
    let id = call.param().parse();
    id.map_err(|error: windlass_core::ParseIdError| {
        Problem::new(problem::NOT_FOUND, error.to_string())
    })
}

/// Every bulk action, by id.
pub(crate) fn all(reader: &mut dyn Reader) -> Result<Vec<Bulk>, StoreError> {
    reader.bulk()?.iter().map(windlass_core::store::BulkRow::decode).collect()
}

/// Number of jobs by queue, whether all were counted, and some of them.
struct Counted {
    counts: BTreeMap<QueueName, u64>,
    exact: bool,
    sample: Vec<JobId>,
}

/// Counts the matching jobs: by counters if possible, else by reading a bounded number of rows.
fn count(reader: &mut dyn Reader, terms: &Terms) -> Result<DryRun, StoreError> {
    let counted = match (&terms.target, terms.target.search()) {
        (Target::Jobs(ids), _) => by_id(reader, ids, terms.action)?,
        (_, Some(search)) => by_search(reader, &search, terms.action)?,
        (_, None) => Counted { counts: BTreeMap::new(), exact: true, sample: Vec::new() },
    };
    let Counted { mut counts, exact, sample } = counted;
    counts.retain(|_, count| *count > 0);
    let sample = reader.jobs(&sample)?.iter().flatten().map(JobRow::of).collect();
    Ok(DryRun { matched: counts.values().sum(), exact, queues: QueueCount::all(counts), sample })
}

fn by_search(
    reader: &mut dyn Reader,
    search: &Search,
    action: Action,
) -> Result<Counted, StoreError> {
    let counts = if !search.conditions.are_none() {
        None
    } else if let Filter { key: None, id: None, group: None, .. } = search.filter {
        Some(by_counters(reader, search, action)?)
    } else {
        by_group(reader, search)?
    };
    let Some(counts) = counts else { return by_looking(reader, search, action) };
    let first = search.list(reader, None, SAMPLED)?;
    let suits = |job: &&Job| action.suits(job.state.name());
    let sample = first.jobs.iter().filter(suits).map(|job| job.id).take(SAMPLE).collect();
    Ok(Counted { counts, exact: true, sample })
}

/// Counts what a filter of views, queues and a kind includes.
fn by_counters(
    reader: &mut dyn Reader,
    Search { filter, queues, .. }: &Search,
    action: Action,
) -> Result<BTreeMap<QueueName, u64>, StoreError> {
    let wanted = |of: View| filter.view.is_none_or(|view| view == of) && action.suits(of.state());
    let views = View::ALL.into_iter().filter(|view| wanted(*view));
    let counted = |row: &QueueRow| -> u64 {
        let of_kind = |of: &Kind| filter.kind.as_ref().is_none_or(|kind| kind == of);
        let kinds = row.kinds.iter().filter(|(kind, _)| of_kind(kind));
        kinds.flat_map(|(_, counts)| views.clone().map(|view| counts.get(view))).sum()
    };
    let mut rows = match &filter.queue {
        Some(name) => reader.queue(name)?.into_iter().collect(),
        None => reader.queues()?,
    };
    if !queues.is_empty() {
        rows.retain(|row| queues.binary_search(&row.queue.name).is_ok());
    }
    Ok(rows.iter().map(|row| (row.queue.name.clone(), counted(row))).collect())
}

/// Counts the dead letters of an error group by its row; `None` if the filter asks for more than a
/// group, a kind and a queue, or the row does not name every queue.
fn by_group(
    reader: &mut dyn Reader,
    Search { filter, queues, .. }: &Search,
) -> Result<Option<BTreeMap<QueueName, u64>>, StoreError> {
    let Filter { view: Some(View::Failed), queue, kind, key: None, id: None, group: Some(group) } =
        filter
    else {
        return Ok(None);
    };
    let Some(row) = reader.error_group(*group)? else { return Ok(Some(BTreeMap::new())) };
    if row.queues.others > 0 {
        return Ok(None);
    }
    let of_kind = kind.as_ref().is_none_or(|kind| row.kind == *kind);
    let of_queue = |name: &QueueName| {
        queue.as_ref().is_none_or(|queue| queue == name)
            && (queues.is_empty() || queues.binary_search(name).is_ok())
    };
    let named = row.queues.named.into_iter().filter(|(name, _)| of_kind && of_queue(name));
    Ok(Some(named.collect()))
}

fn by_id(reader: &mut dyn Reader, ids: &[JobId], action: Action) -> Result<Counted, StoreError> {
    let (mut counts, mut sample) = (BTreeMap::new(), Vec::new());
    for some in ids.chunks(CHUNK) {
        for detail in reader.jobs(some)?.into_iter().flatten() {
            if action.suits(detail.job.state.name()) {
                *counts.entry(detail.job.queue).or_default() += 1;
                sample.push(detail.job.id);
            }
        }
    }
    sample.truncate(SAMPLE);
    Ok(Counted { counts, exact: true, sample })
}

/// Counts what is found within the bounds of a search.
fn by_looking(
    reader: &mut dyn Reader,
    search: &Search,
    action: Action,
) -> Result<Counted, StoreError> {
    let (mut counts, mut sample) = (BTreeMap::new(), Vec::new());
    let (mut bounds, mut after) = (Bounds::begin(), None);
    let exact = 'pages: loop {
        let Page { jobs, next } = search.list(reader, after, STEP)?;
        let mut rest = jobs.as_slice();
        while !rest.is_empty() {
            let suits = |job: &Job| action.suits(job.state.name());
            let looked = search.look_at_rows(reader, rest, &mut bounds.spent, suits)?;
            rest = &rest[looked.rows..];
            bounds.rows += looked.rows;
            for job in looked.found {
                *counts.entry(job.queue).or_default() += 1;
                sample.push(job.id);
            }
            sample.truncate(SAMPLE);
            if looked.over {
                break 'pages true;
            }
            if bounds.are_reached() {
                break 'pages rest.is_empty() && next.is_none();
            }
        }
        match next {
            None => break true,
            next => after = next,
        }
    };
    Ok(Counted { counts, exact, sample })
}
