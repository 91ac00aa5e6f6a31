//! One worker process: it runs jobs until it is stopped, by a signal or by a mark in the
//! store, and drains.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use windlass_core::WorkerId;
use windlass_core::machine::Input;
use windlass_runtime_tokio::Queue;

use super::dead_workers::{end_dead, end_gone};
use super::{Ready, WorkArgs};
use crate::attempts;
use crate::cli::client::Failure;
use crate::kinds::KindSettings;
use crate::serve::{Signals, is_lost, log_report, lost};
use crate::settings::{Given, Id};
use crate::store::StoreUrl;
use crate::store::{self, Purpose};

/// Runs jobs until it is stopped. `replaces` is the id of a worker that its supervisor saw die.
/// The exit code tells how it ended.
pub(crate) async fn run(
    url: StoreUrl,
    args: WorkArgs,
    kinds: KindSettings,
    replaces: Option<String>,
) -> Result<ExitCode, Failure> {
    // A worker whose supervisor was killed has no one left to stop it.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM));
    // Its supervisor has made sure of it: a store that was deleted is not created again, empty.
    if url.file().is_some_and(|path| !path.exists()) {
        return Err(format!("there is no store {url} any more").into());
    }
    let mut signals = Signals::new().map_err(|error| format!("cannot handle signals: {error}"))?;
    let flags: Vec<_> =
        args.concurrency.map(|value| (Id::WorkerConcurrency, value)).into_iter().collect();
    let given = Given::from_environment(&flags)?;
    let started = store::start(&url, Purpose::Work(&args, &kinds), given);
    let queue = started.map_err(|error| Failure::from(&error))?.queue;
    let id = queue.worker_id().clone();
    queue.reconfigure(Input::Started);
    tokio::spawn(attempts::follow(queue.events()));
    if let Some(dead) = replaces.and_then(|id| WorkerId::new(&id).ok()) {
        end_dead(&queue, dead).await;
    }
    tokio::spawn(end_gone(queue.clone()));
    let reason = tokio::select! {
        reason = announced(&queue) => reason,
        name = signals.next() => name,
        () = queue.stop_asked() => "asked",
        () = lost(&queue) => "lost",
    };
    let health = queue.health();
    tracing::info!(worker = %id, reason, "shutting down: no new jobs are started");
    let report = tokio::select! {
        report = queue.shutdown(args.drain_timeout) => report,
        code = signals.second() => return Ok(code),
    };
    log_report(&report);
    let in_order = report.cause.is_none() && !is_lost(&health);
    if let Some(cause) = report.cause.as_ref().or(health.cause()) {
        tracing::error!(%cause, "stopped without an orderly shutdown");
    }
    Ok(if in_order { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// How often to look whether the store knows this worker; only until it does.
const LOOK: Duration = Duration::from_millis(10);

/// Prints that it is registered, once its row is stored. Never ends.
async fn announced(queue: &Queue) -> &'static str {
    let (id, mut ticks) = (queue.worker_id(), tokio::time::interval(LOOK));
    loop {
        ticks.tick().await;
        let workers = queue.workers().await.unwrap_or_default();
        if workers.iter().any(|row| row.worker.id == *id) {
            break;
        }
    }
    ready(id.as_str());
    std::future::pending().await
}

/// Prints that it is registered, for the process that started it.
fn ready(id: &str) {
    let ready = Ready { id: id.into(), pid: std::process::id() };
    let line = serde_json::to_string(&ready).unwrap_or_default();
    let mut out = std::io::stdout().lock();
    // The reader may be gone.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
    tracing::info!(worker = id, pid = ready.pid, "ready");
}
