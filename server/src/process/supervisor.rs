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

use super::{DEAD_WORKER, Ready, StartArgs, this_binary, told_again};
use crate::cli::client::Failure;
use crate::serve::Signals;

/// The wait before a worker that died is started again, at first and at most.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// A worker that lived so long did not die of its start.
const SETTLED: Duration = Duration::from_mins(1);

/// What the workers are told, as a number of signals: none, drain, stop at once.
type Told = watch::Receiver<u8>;

/// Supervises `args.count` workers until all have ended. The exit code is the worst of theirs.
pub(crate) async fn supervise(args: StartArgs) -> Result<ExitCode, Failure> {
    let mut signals = Signals::new().map_err(|error| format!("no signal can be heard: {error}"))?;
    let (tell, told) = watch::channel(0_u8);
    let (ready, mut readies) = mpsc::channel(16);
    let mut workers = JoinSet::new();
    for _ in 0..args.count {
        workers.spawn(keep(told.clone(), ready.clone()));
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
                tell.send_modify(|signals| *signals = signals.saturating_add(1));
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

/// Says on standard output that a worker is there.
fn announce(ready: &Ready) {
    let line = serde_json::to_string(ready).unwrap_or_default();
    let mut out = std::io::stdout().lock();
    // Nobody may be reading.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// Whoever waited for the workers leaves now: what would be written for it goes to the log.
fn leave_output() {
    let _ = rustix::stdio::dup2_stdout(std::io::stderr());
}

/// Keeps one worker running until it ends in order, or everybody is told to stop.
async fn keep(mut told: Told, ready: mpsc::Sender<Ready>) -> u8 {
    let mut wait = AGAIN.0;
    // The worker that died, until its successor has taken its leases back.
    let mut dead = None;
    loop {
        let started = Instant::now();
        let status = match spawn(dead.as_deref()) {
            Ok(child) => watch(child, &mut told, &ready, &mut dead).await,
            Err(error) => {
                tracing::error!(%error, "a worker could not be started");
                None
            }
        };
        let code = status.map_or(1, code);
        let stopping = *told.borrow() > 0;
        if stopping || code == 0 {
            return code;
        }
        if started.elapsed() >= SETTLED {
            wait = AGAIN.0;
        }
        let how = status.map_or_else(|| "unknown".into(), |status| status.to_string());
        let again_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        tracing::warn!(how, again_ms, "a worker died; it is started again");
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            _ = told.wait_for(|told| *told > 0) => return code,
        }
        wait = (wait * 2).min(AGAIN.1);
    }
}

/// Starts a worker, and says whose leases it is to take back: `dead` has ended without doing so.
fn spawn(dead: Option<&str>) -> std::io::Result<Child> {
    let mut command = Command::new(this_binary()?);
    command.args(told_again(std::env::args_os().skip(1), &[("start", "run")]));
    match dead {
        Some(dead) => command.env(DEAD_WORKER, dead),
        None => command.env_remove(DEAD_WORKER),
    };
    // A group of its own: an interrupt from the terminal comes to the supervisor alone, which
    // passes it on once.
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped());
    command.spawn()
}

/// Waits for the end of a worker, and passes on what it has to say and to hear.
async fn watch(
    mut child: Child,
    told: &mut Told,
    ready: &mpsc::Sender<Ready>,
    worker: &mut Option<String>,
) -> Option<ExitStatus> {
    let pid = child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
    let mut lines = child.stdout.take().map(|out| BufReader::new(out).lines());
    let mut heard = 0;
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
                Some(Ok(told)) => {
                    let told: Ready = told;
                    *worker = Some(told.id.clone());
                    drop(ready.send(told).await);
                }
                Some(Err(_)) => {}
                None => lines = None,
            },
            Ok(signals) = async { told.wait_for(|told| *told > heard).await.map(|told| *told) } => {
                heard = signals;
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
