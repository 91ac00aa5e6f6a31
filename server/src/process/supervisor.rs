//! The supervisor: it starts worker processes, restarts those that die, and passes on signals. It
//! does not open the store, so nothing that a store or a job does can end it.

use std::io::Write;
use std::process::{ExitCode, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{DEAD_WORKER, Ready, StartArgs, args_with_replacements, installed_binary};
use crate::cli::client::Failure;
use crate::serve::Signals;

/// The wait before a worker that died is started again, at first and at most.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// Maximum time to end the leases of a worker that died.
const END: Duration = Duration::from_secs(10);
/// A worker that ran for this time did not fail to start.
const SETTLED: Duration = Duration::from_mins(1);

/// How workers are to stop, as a number of signals: not, drain, at once.
type StopLevel = watch::Receiver<u8>;

/// Supervises `args.count` workers until all have ended. The exit code is the worst of theirs.
pub(crate) async fn supervise(args: StartArgs) -> Result<ExitCode, Failure> {
    let mut signals = Signals::new().map_err(|error| format!("cannot handle signals: {error}"))?;
    let (raise, level) = watch::channel(0_u8);
    let (ready, mut readies) = mpsc::channel(16);
    let mut workers = JoinSet::new();
    for _ in 0..args.count {
        workers.spawn(keep(level.clone(), ready.clone()));
    }
    drop(ready);
    let (mut worst, mut left) = (0_u8, usize::from(args.count));
    let mut announced = 0;
    while let Some(event) = tokio::select! {
        Some(ended) = workers.join_next() => Some(Event::Ended(ended.unwrap_or(1))),
        Some(ready) = readies.recv() => Some(Event::Ready(ready)),
        name = signals.next() => Some(Event::Signal(name)),
        else => None,
    } {
        match event {
            Event::Ended(code) => {
                worst = worst.max(code);
                left -= 1;
                if left == 0 {
                    break;
                }
            }
            Event::Ready(ready) => {
                announce(&ready);
                announced += 1;
                if announced == usize::from(args.count) && args.detached {
                    leave_output();
                }
            }
            Event::Signal(name) => {
                tracing::info!(reason = name, "stopping the workers");
                raise.send_modify(|signals| *signals = signals.saturating_add(1));
            }
        }
    }
    Ok(ExitCode::from(worst))
}

enum Event {
    Ended(u8),
    Ready(Ready),
    Signal(&'static str),
}

/// Prints on standard output that a worker is registered.
fn announce(ready: &Ready) {
    let line = serde_json::to_string(ready).unwrap_or_default();
    let mut out = std::io::stdout().lock();
    // The reader may be gone.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// The process that waited for the workers exits now: later output goes to the log.
fn leave_output() {
    let _ = rustix::stdio::dup2_stdout(std::io::stderr());
}

/// Keeps one worker running until it ends in order, or all are to stop.
async fn keep(mut level: StopLevel, ready: mpsc::Sender<Ready>) -> u8 {
    let mut wait = AGAIN.0;
    // The worker that runs; then the one that died, until its leases are ended.
    let mut dead = None;
    loop {
        let started = Instant::now();
        let status = match spawn(dead.as_deref()) {
            Ok(child) => watch(child, &mut level, &ready, &mut dead).await,
            Err(error) => {
                tracing::error!(%error, "a worker could not be started");
                None
            }
        };
        let code = status.map_or(1, code);
        if code == 0 || end_leases(dead.as_deref(), &mut level).await {
            dead = None;
        }
        let stopping = *level.borrow() > 0;
        if stopping || code == 0 {
            return code;
        }
        if started.elapsed() >= SETTLED {
            wait = AGAIN.0;
        }
        let how = status.map_or_else(|| "unknown".into(), |status| status.to_string());
        let again_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        tracing::warn!(how, again_ms, "a worker process died; restarting it");
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            _ = level.wait_for(|now| *now > 0) => return code,
        }
        wait = (wait * 2).min(AGAIN.1);
    }
}

/// Ends the leases of a worker that died, by a short-lived process, so that its jobs do not wait
/// for a successor. Returns whether they are ended. A second signal interrupts it.
async fn end_leases(dead: Option<&str>, level: &mut StopLevel) -> bool {
    let Some(dead) = dead else { return true };
    let ending = async {
        let mut child = command("end", Some(dead))?.kill_on_drop(true).spawn()?;
        child.wait().await
    };
    let ended = tokio::select! {
        ended = tokio::time::timeout(END, ending) => ended,
        _ = level.wait_for(|now| *now > 1) => return false,
    };
    match ended {
        Ok(Ok(status)) => status.success(),
        Ok(Err(error)) => {
            tracing::error!(%error, "the leases of a dead worker could not be ended");
            false
        }
        Err(_) => {
            tracing::error!("ending the leases of a dead worker took too long");
            false
        }
    }
}

/// Starts a worker. It ends the leases of `dead`, if they could not be ended before.
fn spawn(dead: Option<&str>) -> std::io::Result<Child> {
    command("run", dead)?.stdout(Stdio::piped()).spawn()
}

/// The command `worker ACTION` of the version that is installed now, with the arguments of this
/// process.
fn command(action: &str, dead: Option<&str>) -> std::io::Result<Command> {
    let mut command = Command::new(installed_binary()?);
    command.args(args_with_replacements(std::env::args_os().skip(1), &[("start", action)]));
    match dead {
        Some(dead) => command.env(DEAD_WORKER, dead),
        None => command.env_remove(DEAD_WORKER),
    };
    // A group of its own: an interrupt from the terminal comes to the supervisor alone, which
    // passes it on once.
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null());
    Ok(command)
}

/// Waits for the end of a worker; passes on its registration, and signals to it.
async fn watch(
    mut child: Child,
    level: &mut StopLevel,
    ready: &mpsc::Sender<Ready>,
    worker: &mut Option<String>,
) -> Option<ExitStatus> {
    let pid = child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
    let mut lines = child.stdout.take().map(|out| BufReader::new(out).lines());
    let mut seen = 0;
    loop {
        let line = async {
            match &mut lines {
                Some(lines) => lines.next_line().await.ok().flatten(),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            status = child.wait() => return status.ok(),
            line = line => match line.as_deref().map(serde_json::from_str) {
                Some(Ok(registered)) => {
                    let registered: Ready = registered;
                    *worker = Some(registered.id.clone());
                    drop(ready.send(registered).await);
                }
                Some(Err(_)) => {}
                None => lines = None,
            },
            Ok(signals) = async { level.wait_for(|now| *now > seen).await.map(|now| *now) } => {
                seen = signals;
                // It may have ended meanwhile.
                let _ = pid.map(|pid| kill_process(pid, Signal::TERM));
            }
        }
    }
}

/// The exit code of a process; 128 and the signal if one ended it.
fn code(status: ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt;
    let signal = status.signal().map(|signal| 128 + signal);
    let code = status.code().or(signal).unwrap_or(1);
    u8::try_from(code).unwrap_or(1)
}
