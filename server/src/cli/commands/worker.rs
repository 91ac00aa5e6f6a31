//! `worker start | list | stop`: worker processes on the same store.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::json;
use tokio::time::Instant;

use super::{Session, block_on};
use crate::api::wire::WorkerList;
use crate::cli::client::{Client, Failure, Store, segment};
use crate::cli::out::{Column, Out, Table, age};
use crate::cli::{Target, duration};
use crate::process::{self, Ready, StartArgs};
use crate::store::StoreUrl;

/// Run worker processes on the same store, see them, stop them.
///
/// Worker processes run jobs of the built-in kinds beside a server, or without one. Each is a
/// process of its own: a job that crashes it touches no other. Several share a SQLite file; a redb
/// file belongs to one process, so there the server's own workers run.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windlass worker start --count 4 --concurrency 2
  windlass worker start --count 4 --detach
  windlass worker list
  windlass worker stop --all")]
pub(crate) struct WorkerArgs {
    #[command(subcommand)]
    pub(crate) action: Action,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    /// Start worker processes and supervise them: one that dies is started again.
    ///
    /// SIGTERM or SIGINT drains them: what runs may finish until --drain-timeout, the rest is given
    /// back. A second signal stops at once.
    #[command(after_help = "Examples:\n  windlass worker start --count 4 --concurrency 2 --detach")]
    Start(StartArgs),
    /// Every worker the store knows: what it is, whether it is alive, what it runs.
    #[command(after_help = "Examples:\n  windlass worker list --json")]
    List,
    /// Ask worker processes to stop, on whatever machine, and wait until they have.
    #[command(after_help = "Examples:\n  windlass worker stop --all --timeout 2m")]
    Stop(StopArgs),
    /// Be one worker process.
    #[command(hide = true, after_help = "Examples:\n  windlass worker run --concurrency 2")]
    Run(StartArgs),
}

#[derive(Debug, Args)]
pub(crate) struct StopArgs {
    /// The workers, as `worker list` names them.
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    ids: Vec<String>,
    /// Every worker process that is alive.
    #[arg(long)]
    all: bool,
    /// How long to wait until they are gone. They stop all the same.
    #[arg(long, default_value = "45s", value_parser = duration, value_name = "TIME")]
    timeout: Duration,
}

/// Makes sure that worker processes can be started on this store, and that it exists.
pub(crate) fn prepare(target: &Target) -> Result<(), Failure> {
    if target.server.is_some() {
        return Err(Failure::usage(
            "worker processes work on the store itself: give --store instead of --server; over \
             HTTP, workers poll POST /jobs/poll",
        ));
    }
    if !target.store.is_shared() {
        return Err(Failure::usage(
            "a redb store belongs to one process: its jobs are run by the server's own workers \
             (windlass serve --workers N) and by those that poll POST /jobs/poll; worker \
             processes need --store sqlite:PATH",
        ));
    }
    block_on(async {
        Client::open(target, None, Store::Made)?.end().await;
        Ok(())
    })
}

/// `worker start --detach`: returns once they are registered.
pub(crate) fn detach(target: &Target, args: &StartArgs) -> ExitCode {
    let mut out = Out::new(target.json);
    let started = prepare(target).and_then(|()| detached(target, args, &mut out));
    started.map_or_else(|failure| failure.tell(target.json), |()| ExitCode::SUCCESS)
}

fn detached(target: &Target, args: &StartArgs, out: &mut Out) -> Result<(), Failure> {
    let (workers, log) = process::detach(&target.store, args).map_err(Failure::failed)?;
    if out.json {
        let answer = json!({ "workers": workers, "log": log.display().to_string() });
        out.answer(answer.to_string().as_bytes())?;
    } else {
        let mut table = Table::new(&[Column::whole("WORKER"), Column::number("PID")]);
        for worker in &workers {
            table.row(&[worker.id.clone(), worker.pid.to_string()]);
        }
        out.table(&table)?;
        out.say(&format!("they log to {}; to stop them:", log.display()));
        out.say(&format!("  {}", stop_command(&target.store, &workers)));
    }
    out.flush()
}

/// The command that stops these workers, as it can be pasted into a shell.
fn stop_command(store: &StoreUrl, workers: &[Ready]) -> String {
    let ids: Vec<&str> = workers.iter().map(|worker| worker.id.as_str()).collect();
    let store = store.to_string().replace('\'', r"'\''");
    format!("windlass --store '{store}' worker stop {}", ids.join(" "))
}

/// Runs what is asked of the store or a server.
pub(crate) async fn run(session: &mut Session, args: &WorkerArgs) -> Result<ExitCode, Failure> {
    match &args.action {
        Action::List => list(session).await,
        Action::Stop(args) => stop(session, args).await,
        Action::Start(_) | Action::Run(_) => {
            Err(Failure::usage("this command is not run here; this is a bug"))
        }
    }
}

/// `worker list`
async fn list(session: &mut Session) -> Result<ExitCode, Failure> {
    let reply = session.client.get("/workers").await?;
    let out = &mut session.out;
    if out.json {
        out.answer(&reply.body)?;
        return Ok(ExitCode::SUCCESS);
    }
    let workers: WorkerList = reply.json()?;
    let mut table = Table::new(&[
        Column::whole("WORKER"),
        Column::whole("KIND"),
        Column::whole("STATE"),
        Column::text("HOST"),
        Column::number("PID"),
        Column::whole("HEARTBEAT"),
        Column::number("SLOTS"),
        Column::text("RUNNING"),
    ]);
    for worker in &workers.workers {
        let running: Vec<String> = worker.running.iter().map(ToString::to_string).collect();
        table.row(&[
            worker.id.clone(),
            worker.kind.to_string(),
            worker.state().into(),
            worker.host.clone(),
            worker.pid.map(|pid| pid.to_string()).unwrap_or_default(),
            age(worker.last_heartbeat),
            worker.slots.to_string(),
            running.join(" "),
        ]);
    }
    out.table(&table)?;
    if workers.workers.is_empty() {
        out.say("there are no workers; `windlass worker start` or `windlass serve` starts some");
    }
    Ok(ExitCode::SUCCESS)
}

/// How often to look whether workers are gone.
const LOOK: Duration = Duration::from_millis(200);

/// `worker stop`
async fn stop(session: &mut Session, args: &StopArgs) -> Result<ExitCode, Failure> {
    let ids = if args.all {
        let known: WorkerList = session.client.get("/workers").await?.json()?;
        let alive = known.workers.into_iter().filter(|row| row.alive && row.kind == "process");
        alive.map(|worker| worker.id).collect()
    } else {
        args.ids.clone()
    };
    for id in &ids {
        session.client.post(&format!("/workers/{}/stop", segment(id)), "").await?;
    }
    let left = gone(session, &ids, args.timeout).await?;
    let stopped: Vec<&String> = ids.iter().filter(|id| !left.contains(id)).collect();
    if session.out.json {
        let answer = json!({ "stopped": stopped, "left": left });
        session.out.answer(answer.to_string().as_bytes())?;
    } else {
        session.out.line(&format!("{} stopped", stopped.len()))?;
    }
    if left.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    let left = left.join(", ");
    Err(Failure::failed(format!("not gone yet: {left}; they stop when what they run is over")))
}

/// Waits until these workers are gone, or have been silent for long; those that are left.
async fn gone(session: &Session, ids: &[String], wait: Duration) -> Result<Vec<String>, Failure> {
    let deadline = Instant::now() + wait;
    let mut ticks = tokio::time::interval(LOOK);
    loop {
        ticks.tick().await;
        let known: WorkerList = session.client.get("/workers").await?.json()?;
        let there = |id: &&String| known.workers.iter().any(|row| row.alive && row.id == **id);
        let left: Vec<String> = ids.iter().filter(there).cloned().collect();
        if left.is_empty() || Instant::now() >= deadline {
            return Ok(left);
        }
    }
}
