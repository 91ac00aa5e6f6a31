//! The server itself: workers, events, metrics, health, the document, the page.

use std::time::Duration;

use http::StatusCode;
use windlass_core::store::{Filter, WorkerKind};
use windlass_core::{View, WorkerId};
use windlass_runtime_tokio::{Health, NewJob};

use crate::app::{Stage, now};
use crate::handlers::{jobs, queues};
use crate::problem::{self, Problem};
use crate::router::{self, Answer, Call};
use crate::wire::{Alive, Ready, Worker, WorkerList};
use crate::{events, metrics, openapi, page};

/// `GET /workers`
pub(crate) async fn workers(call: Call) -> Answer {
    call.query(&[])?;
    let rows = call.app.queue.workers().await?;
    let now = now();
    let workers = rows.iter().map(|row| Worker::of(row, now)).collect();
    router::ok(&WorkerList { workers })
}

/// `POST /workers/{worker}/stop`: marks a worker process; it drains when it next looks.
pub(crate) async fn stop_worker(call: Call) -> Answer {
    let id = WorkerId::new(call.param())?;
    let rows = call.app.queue.workers().await?;
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
    call.app.queue.stop_worker(id.clone()).await?;
    let rows = call.app.queue.workers().await?;
    match rows.iter().find(|row| row.worker.id == id) {
        Some(row) => router::json(StatusCode::ACCEPTED, &Worker::of(row, now())),
        None => Ok(router::no_content()),
    }
}

/// `GET /events`
pub(crate) async fn events(call: Call) -> Answer {
    call.query(&[])?;
    events::stream(&call)
}

/// `GET /metrics`
pub(crate) async fn metrics(call: Call) -> Answer {
    call.query(&[])?;
    let rows = queues::rows(&call.app).await?;
    let text = metrics::text(&call.app, &rows)?;
    Ok(router::text(metrics::CONTENT_TYPE, text))
}

/// `GET /livez`: the loop that writes is there.
pub(crate) async fn livez(call: Call) -> Answer {
    match call.app.queue.health() {
        Health::Died(cause) | Health::Lost(cause) => {
            let detail = format!("the dispatcher is gone: {cause}; start the server again");
            Err(Problem::new(problem::NOT_READY, detail))
        }
        _ => router::ok(&Alive { alive: true }),
    }
}

/// How long the dispatcher has for the turn that shows it is ready.
const TURN: Duration = Duration::from_secs(2);

/// `GET /readyz`: the server takes work and stores it. It has the dispatcher make a turn, so that
/// it is about work and not about the process.
pub(crate) async fn readyz(call: Call) -> Answer {
    let app = &call.app;
    let not_ready = |detail: String| Err(Problem::new(problem::NOT_READY, detail));
    if app.closing.stage() != Stage::Open {
        return not_ready("the server is shutting down".into());
    }
    match app.queue.health() {
        Health::Good => {}
        health => {
            let cause = health.cause().map_or_else(|| format!("{health:?}"), ToString::to_string);
            return not_ready(format!("the store cannot be written: {cause}"));
        }
    }
    let turn = app.queue.try_enqueue_many(Vec::<NewJob>::new());
    match tokio::time::timeout(TURN, turn).await {
        Ok(Ok(_)) => router::ok(&Ready { ready: true }),
        Ok(Err(error)) => not_ready(error.to_string()),
        Err(_) => not_ready(format!("the dispatcher made no turn in {} s", TURN.as_secs())),
    }
}

/// `GET /openapi.json`
pub(crate) async fn openapi(call: Call) -> Answer {
    call.query(&[])?;
    Ok(router::text("application/json", openapi::text()))
}

/// `GET /`
pub(crate) async fn dashboard(call: Call) -> Answer {
    let rows = queues::rows(&call.app).await?;
    let dead = call.app.queue.read(|reader| {
        let filter = Filter { view: Some(View::Failed), ..Filter::default() };
        jobs::full_page(reader, &filter, None, page::DEAD)
    });
    let (dead, _) = dead.await?;
    let health = call.app.queue.health();
    Ok(router::text("text/html; charset=utf-8", page::page(&rows, &dead, &health, now())))
}
