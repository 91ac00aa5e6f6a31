//! The server's side of one command: starting its supervisor, reading its output, passing on
//! orders, and reading how it ended.
//!
//! An order is the time in which the command is to end. Dropping the order channel kills the
//! command at once; the task behind the supervisor goes on until that has happened.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::process::Stdio;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::Pid;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

use super::family;
use super::protocol::{Report, SUPERVISE, TERM, Task};
use crate::kinds::output::Tail;
use crate::process::this_binary;

/// Time in which a supervisor must kill and collect everything; after that it is killed itself.
const SUPERVISOR_TIMEOUT: Duration = Duration::from_secs(1);

/// Time limit to read output once no process of the command is left. Its end comes at once, unless
/// another process holds the pipe.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// A command that ended, and what it wrote.
#[derive(Debug)]
pub(super) struct Ended {
    /// `None` if its supervisor was killed.
    pub(super) report: Option<Report>,
    pub(super) stdout: Tail,
    pub(super) stderr: Tail,
}

/// The supervisors of this process. Every other child of it is an orphaned process of a command.
static SUPERVISORS: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

fn supervisors() -> MutexGuard<'static, BTreeSet<u32>> {
    SUPERVISORS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes this process adopt the descendants of a supervisor that is killed.
pub(super) fn prepare() {
    family::adopt_orphans();
}

/// Starts a supervisor with this task; `env` is the whole environment of the command.
pub(super) fn start(task: &Task, env: &[(OsString, OsString)]) -> io::Result<Supervision> {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    let control = UnixStream::from_std(ours)?;
    let mut command = Command::new(this_binary()?);
    command.arg0("job-supervisor").arg(SUPERVISE).args(task.to_args());
    command.env_clear().envs(env.iter().map(|(name, value)| (name, value)));
    // A separate process group: a Ctrl-C for the server must not reach its commands.
    command.process_group(0).stdin(Stdio::from(OwnedFd::from(theirs)));
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    // Under the lock, so that it is not killed as an orphan before it is registered.
    let mut supervisors = supervisors();
    let child = command.spawn()?;
    supervisors.extend(child.id());
    Ok(Supervision { pid: child.id(), child, control, line: Vec::new() })
}

/// A running supervisor.
#[derive(Debug)]
pub(super) struct Supervision {
    child: Child,
    pid: Option<u32>,
    control: UnixStream,
    /// Bytes of its report that were read so far.
    line: Vec<u8>,
}

impl Supervision {
    /// Reads output, passes on orders, and returns when no process of the command is left.
    pub(super) async fn attend(mut self, orders: mpsc::Receiver<Duration>) -> Ended {
        let (out, err) = (self.child.stdout.take(), self.child.stderr.take());
        let (mut stdout, mut stderr) = (Tail::default(), Tail::default());
        let report = {
            let filled = async {
                tokio::join!(stdout.fill(out), stderr.fill(err));
            };
            let (mut filled, mut followed) = (pin!(filled), pin!(self.follow(orders)));
            let mut open = true;
            let report = loop {
                tokio::select! {
                    report = &mut followed => break report,
                    () = &mut filled, if open => open = false,
                }
            };
            if open {
                let _ = timeout(LAST_WORDS, filled).await;
            }
            report
        };
        self.dismiss(report.is_some()).await;
        Ended { report, stdout, stderr }
    }

    /// Passes on orders until the report arrives; `None` if the supervisor ended without one.
    async fn follow(&mut self, mut orders: mpsc::Receiver<Duration>) -> Option<Report> {
        let mut stage = Stage::Running;
        loop {
            let deadline = stage.deadline();
            tokio::select! {
                read = self.control.read_buf(&mut self.line) => {
                    if !matches!(read, Ok(1..)) || self.line.ends_with(b"\n") {
                        return Report::from_line(&self.line);
                    }
                }
                order = orders.recv(), if !matches!(stage, Stage::Killing(_)) => {
                    stage = match order {
                        Some(grace) => {
                            let _ = self.control.write_all(&[TERM]).await;
                            Stage::Stopping(Instant::now() + grace)
                        }
                        // The sender of orders was dropped: there is no time left.
                        None => self.kill().await,
                    };
                }
                () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {
                    if matches!(stage, Stage::Killing(_)) {
                        return None;
                    }
                    stage = self.kill().await;
                }
            }
        }
    }

    /// Makes the supervisor kill everything. Its report can still be read.
    async fn kill(&mut self) -> Stage {
        let _ = self.control.shutdown().await;
        Stage::Killing(Instant::now() + SUPERVISOR_TIMEOUT)
    }

    /// Collects the supervisor. If it is stuck, kills it and the command's processes.
    async fn dismiss(mut self, done: bool) {
        if !done || timeout(SUPERVISOR_TIMEOUT, self.child.wait()).await.is_err() {
            let _ = self.child.start_kill();
            let _ = self.child.wait().await;
        }
        if let Some(pid) = self.pid {
            supervisors().remove(&pid);
        }
        if !done {
            end_orphans().await;
        }
    }
}

/// State of a command's end.
#[derive(Debug, Clone, Copy)]
enum Stage {
    Running,
    /// It got TERM, and is killed at this instant.
    Stopping(Instant),
    /// It gets KILL; after this instant its supervisor counts as stuck.
    Killing(Instant),
}

impl Stage {
    fn deadline(self) -> Option<Instant> {
        match self {
            Self::Running => None,
            Self::Stopping(at) | Self::Killing(at) => Some(at),
        }
    }
}

/// Interval and number of searches for orphaned processes.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
const LOOKS: usize = 200;

/// Kills the processes of supervisors that were killed.
async fn end_orphans() {
    let mut left = 0;
    for _ in 0..LOOKS {
        left = look_for_orphans();
        if left == 0 {
            return;
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    tracing::error!(left, "processes that a command left behind cannot be killed");
}

fn look_for_orphans() -> usize {
    let supervisors = supervisors();
    family::kill_orphans(&|pid: Pid| {
        u32::try_from(pid.as_raw_nonzero().get()).is_ok_and(|pid| supervisors.contains(&pid))
    })
}
