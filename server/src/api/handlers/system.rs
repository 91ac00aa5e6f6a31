//! The server itself: workers, events, metrics, health, the document.

use std::time::Duration;

use http::StatusCode;
use http::header::ACCEPT;
use windlass_core::store::{Reader, WorkerKind, WorkerRow};
use windlass_core::{FigureSet, Wall, WorkerId};
use windlass_runtime_tokio::{Health, NewJob};

use crate::api::exposition::Format;
use crate::api::handlers::{jobs, queues};
use crate::api::problem::{self, Problem};
use crate::api::wire::{Alive, Ready, Worker, WorkerList};
use crate::api::{events, metrics, openapi};
use crate::app::{App, Stage, now};
use crate::http::router::{self, Answer, Call};
use crate::store;

/// `GET /workers`
pub(crate) async fn workers(call: Call) -> Answer {
    let query = call.query(&["limit", "cursor"])?;
    let limit = query.get("limit").map(|_| jobs::limit(&query)).transpose()?;
    let after = query.get("cursor").map(WorkerId::new).transpose()?;
    let (mut rows, now) = workers_now(&call.app).await?;
    if let Some(after) = after {
        rows.retain(|row| row.worker.id > after);
    }
    let limit = limit.unwrap_or(rows.len());
    let more = rows.len() > limit;
    rows.truncate(limit);
    let next = rows.last().filter(|_| more).map(|row| row.worker.id.as_str().to_owned());
    router::ok(&WorkerList { workers: rows.iter().map(|row| Worker::of(row, now)).collect(), next })
}

/// Every known worker, by id, and what time it is by the store's clock.
async fn workers_now(app: &App) -> Result<(Vec<WorkerRow>, Wall), Problem> {
    Ok(app.reads.read(|reader| Ok((reader.workers()?, reader.now(now())?))).await?)
}

/// `POST /workers/{worker}/stop`: marks a worker process; it drains when it next looks.
pub(crate) async fn stop_worker(call: Call) -> Answer {
    let id = WorkerId::new(call.param())?;
    let rows = call.app.reads.read(|reader| reader.workers()).await?;
    let row = rows.iter().find(|row| row.worker.id == id);
    let row = row.ok_or_else(|| {
        let detail = format!("there is no worker {id}; GET /workers lists them");
        Problem::new(problem::NOT_FOUND, detail)
    })?;
    let how = match row.worker.kind {
        WorkerKind::Process => None,
        WorkerKind::Local => Some("is a server or a program of its own; stop it with SIGTERM"),
        WorkerKind::Remote => Some("polls over HTTP; stop it where it runs"),
    };
    if let Some(how) = how {
        return Err(Problem::new(problem::NOT_A_PROCESS, format!("worker {id} {how}")));
    }
    call.app.queue()?.stop_worker(id.clone()).await?;
    let (rows, now) = workers_now(&call.app).await?;
    match rows.iter().find(|row| row.worker.id == id) {
        Some(row) => router::json(StatusCode::ACCEPTED, &Worker::of(row, now)),
        None => Ok(router::no_content()),
    }
}

/// `GET /events`
pub(crate) async fn events(call: Call) -> Answer {
    let query = call.query(&["feed"])?;
    match query.get("feed") {
        None | Some("jobs") => events::stream(&call),
        Some("snapshot") => Ok(events::snapshots(&call)),
        Some(_) => {
            let detail = "`feed` must be `jobs` or `snapshot`; absent means `jobs`";
            Err(Problem::new(problem::INVALID, detail))
        }
    }
}

/// `GET /metrics`
pub(crate) async fn metrics(call: Call) -> Answer {
    call.query(&[])?;
    let rows = queues::rows(&call.app).await?;
    let accept = call.headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    let format = Format::asked(accept);
    let totals = |reader: &mut dyn Reader| Ok((FigureSet::totals(reader)?, reader.now(now())?));
    let (totals, now) = call.app.reads.read(totals).await?;
    let bytes = call.app.store_bytes().await;
    let xmin = call.app.oldest_xmin().await;
    let text = format.write(metrics::open_metrics(&call.app, (&rows, now), totals, bytes, xmin)?);
    Ok(router::text(format.content_type(), text))
}

/// `GET /livez`: the loop that writes is there.
pub(crate) async fn livez(call: Call) -> Answer {
    status_only_without_read(&call, alive(&call))
}

/// The answer, or only its status for a caller that may not read: a cause can name paths.
fn status_only_without_read(call: &Call, answer: Answer) -> Answer {
    if call.may_read() {
        return answer;
    }
    match answer {
        Ok(response) => Ok(router::bare(response.status())),
        Err(problem) => Ok(router::bare(problem.status())),
    }
}

fn alive(call: &Call) -> Answer {
    match call.app.health() {
        Health::Died(cause) | Health::Lost(cause) => {
            let detail = format!("the dispatcher has stopped: {cause}; start the server again");
            Err(Problem::new(problem::NOT_READY, detail))
        }
        _ => router::ok(&Alive { alive: true }),
    }
}

/// How long the dispatcher has for the turn that shows it is ready.
const TURN: Duration = Duration::from_secs(2);

/// `GET /readyz`: the server takes work and stores it; new jobs too, unless the disk has too little
/// space for them, which is said and is no reason to keep requests away. It has the dispatcher make
/// a turn, so that it is about work and not about the process.
pub(crate) async fn readyz(call: Call) -> Answer {
    let answer = ready(&call).await;
    status_only_without_read(&call, answer)
}

async fn ready(call: &Call) -> Answer {
    let app = &call.app;
    let not_ready = |detail: String| Err(Problem::new(problem::NOT_READY, detail));
    if app.closing.stage() != Stage::Open {
        return not_ready("the server is shutting down".into());
    }
    let short = app.store.file().and_then(store::short_of_space);
    match app.health() {
        Health::Good => {}
        // New jobs were refused for want of space, and everything else goes on.
        Health::Retrying(_) if short.is_some() => {}
        health => {
            let cause = health.cause().map_or_else(|| format!("{health:?}"), ToString::to_string);
            return not_ready(format!("the store cannot be written: {cause}"));
        }
    }
    let turn = app.queue()?.try_enqueue_many(Vec::<NewJob>::new());
    let (enqueues, detail) = (short.is_none(), short.map(|cause| cause.to_string()));
    match tokio::time::timeout(TURN, turn).await {
        Ok(Ok(_)) => router::ok(&Ready { ready: true, enqueues, detail }),
        Ok(Err(error)) => match Problem::from(error) {
            full if full.kind() == problem::STORE_FULL && !enqueues => {
                router::ok(&Ready { ready: true, enqueues, detail })
            }
            problem => Err(problem),
        },
        Err(_) => not_ready(format!("the dispatcher made no turn in {} s", TURN.as_secs())),
    }
}

/// `GET /openapi.json`
pub(crate) async fn openapi(call: Call) -> Answer {
    call.query(&[])?;
    Ok(router::text("application/json", openapi::text()))
}
