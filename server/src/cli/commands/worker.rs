//! `worker start | list | stop`: worker processes on the same store.

use std::fmt::Write as _;
use std::path::{Path, absolute};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::json;
use tokio::time::Instant;

use super::{Session, block_on, opened};
use crate::api::wire::WorkerList;
use crate::cli::client::{Failure, Store, segment};
use crate::cli::out::{Column, Out, Table, age};
use crate::cli::{Target, duration};
use crate::process::{self, Ready, StartArgs};

/// Start, list and stop worker processes on the store.
///
/// A worker process runs jobs of the built-in kinds, beside a server or without one. A job that
/// crashes its process does not affect the others. Worker processes need a store that processes
/// can share: SQLite or PostgreSQL. A redb file is open in one process, so there the server runs
/// the jobs.
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
    /// SIGTERM or SIGINT drains them: running jobs may finish until --drain-timeout, the rest are
    /// released. A second signal stops at once.
    #[command(after_help = "Examples:\n  windlass worker start --count 4 --concurrency 2 --detach")]
    Start(StartArgs),
    /// List workers with their kind, heartbeat and running jobs.
    #[command(after_help = "Examples:\n  windlass worker list --json")]
    List,
    /// Stop worker processes on any machine, and wait until they have stopped.
    #[command(after_help = "Examples:\n  windlass worker stop --all --timeout 2m")]
    Stop(StopArgs),
    /// Run one worker process.
    #[command(hide = true, after_help = "Examples:\n  windlass worker run --concurrency 2")]
    Run(StartArgs),
    /// End the leases of a worker process that died.
    #[command(hide = true, after_help = "Examples:\n  WINDLASS_DEAD_WORKER=w1 windlass worker end")]
    End(StartArgs),
}

#[derive(Debug, Args)]
pub(crate) struct StopArgs {
    /// Ids of the workers, from `worker list`.
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    ids: Vec<String>,
    /// Stop all live worker processes.
    #[arg(long)]
    all: bool,
    /// Maximum time to wait for them; they stop even if it passes.
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
        opened(target, None, Store::Made)?.end().await;
        Ok(())
    })
}

/// `worker start --detach`: returns once they are registered.
pub(crate) fn detach(target: &Target, args: &StartArgs) -> ExitCode {
    let mut out = Out::new(target.json);
    let started = prepare(target).and_then(|()| detached(target, args, &mut out));
    started.map_or_else(|failure| failure.print(target.json), |()| ExitCode::SUCCESS)
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
        out.say(&format!("  {}", stop_command(target, &workers)));
    }
    out.flush()
}

/// The command that stops these workers, as it can be pasted into a shell in any directory.
fn stop_command(target: &Target, workers: &[Ready]) -> String {
    let ids: Vec<&str> = workers.iter().map(|worker| worker.id.as_str()).collect();
    let whole = |path: &Path| absolute(path).unwrap_or_else(|_| path.to_owned());
    let store = match target.store.file() {
        Some(file) => target.store.with_file(&whole(file)),
        None => target.store.clone(),
    };
    let mut command = format!("windlass --store {}", quoted(&store.to_string()));
    if let Some(file) = &target.store_password_file {
        let file = whole(file).display().to_string();
        let _ = write!(command, " --store-password-file {}", quoted(&file));
    }
    command + " worker stop " + &ids.join(" ")
}

/// A text as one word of a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Runs what is asked of the store or a server.
pub(crate) async fn run(session: &mut Session, args: &WorkerArgs) -> Result<ExitCode, Failure> {
    match &args.action {
        Action::List => list(session).await,
        Action::Stop(args) => stop(session, args).await,
        Action::Start(_) | Action::Run(_) | Action::End(_) => {
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
        Column::text("VERSION"),
        Column::whole("STATE"),
        Column::text("HOST"),
        Column::number("PID"),
        Column::whole("HEARTBEAT"),
        Column::number("SLOTS"),
        Column::text("RUNNING"),
    ]);
    for worker in &workers.workers {
        let mut running: Vec<String> = worker.running.iter().map(ToString::to_string).collect();
        if worker.running_total > running.len() {
            running.push(format!("and {} more", worker.running_total - running.len()));
        }
        table.row(&[
            worker.id.clone(),
            worker.kind.to_string(),
            worker.version.clone().unwrap_or_default(),
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
    Err(Failure::failed(format!("still running: {left}; they stop when their jobs end")))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_printed_command_names_the_password_file_and_works_in_any_directory() {
        let target = |store: &str, file: Option<&str>| Target {
            store: store.parse().unwrap(),
            store_password_file: file.map(Into::into),
            server: None,
            ca: None,
            json: false,
        };
        let workers = [Ready { id: "w1".into(), pid: 7 }];
        let here = std::env::current_dir().unwrap();
        let here = here.display();
        assert_eq!(
            stop_command(&target("sqlite:it's.db", None), &workers),
            format!(r"windlass --store 'sqlite:{here}/it'\''s.db' worker stop w1"),
        );
        assert_eq!(
            stop_command(&target("postgres://me@host/jobs", Some("secret")), &workers),
            format!(
                "windlass --store 'postgres://me@host:5432/jobs' --store-password-file \
                 '{here}/secret' worker stop w1"
            ),
        );
    }
}
