//! The server's side of one command: starting its supervisor, reading its output, passing on
//! orders, and reading how it ended.
//!
//! An order is the time in which the command is to end. Whoever drops the sender of orders has
//! everything killed at once; the task behind the supervisor goes on until that has happened.

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

/// How long a supervisor has to kill and collect everything, before it is itself taken to be stuck.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long output is read once nothing of the command is left. Its end comes at once, unless a
/// process that never belonged to the command holds the pipe.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// A command that ended, and what it wrote.
#[derive(Debug)]
pub(super) struct Ended {
    /// How; nothing if its supervisor was killed.
    pub(super) report: Option<Report>,
    pub(super) stdout: Tail,
    pub(super) stderr: Tail,
}

/// The supervisors of this process. Every other child of it is a stray.
static SUPERVISORS: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

fn supervisors() -> MutexGuard<'static, BTreeSet<u32>> {
    SUPERVISORS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Prepares this process: should a supervisor be killed, what it kept comes to us.
pub(super) fn prepare() {
    family::adopt_orphans();
}

/// Starts a supervisor with this task; `env` is all that the command sees of the environment.
pub(super) fn start(task: &Task, env: &[(OsString, OsString)]) -> io::Result<Attendance> {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    let control = UnixStream::from_std(ours)?;
    let mut command = Command::new(this_binary()?);
    command.arg0("job-supervisor").arg(SUPERVISE).args(task.to_args());
    command.env_clear().envs(env.iter().map(|(name, value)| (name, value)));
    // A group of its own: a Ctrl-C meant for the server is not for its commands.
    command.process_group(0).stdin(Stdio::from(OwnedFd::from(theirs)));
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    // Under the lock, so that nobody takes it for a stray before it is known.
    let mut supervisors = supervisors();
    let child = command.spawn()?;
    supervisors.extend(child.id());
    Ok(Attendance { pid: child.id(), child, control, line: Vec::new() })
}

/// A supervisor at work.
#[derive(Debug)]
pub(super) struct Attendance {
    child: Child,
    pid: Option<u32>,
    control: UnixStream,
    /// What has come of its report.
    line: Vec<u8>,
}

impl Attendance {
    /// Reads, passes on orders, and ends when nothing of the command is left.
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

    /// Passes on orders until the report comes. Nothing if none will come.
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
                            Stage::Told(Instant::now() + grace)
                        }
                        // Whoever gives the orders has gone: there is no time left.
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

    /// Has the supervisor kill everything. The way back stays open for its report.
    async fn kill(&mut self) -> Stage {
        let _ = self.control.shutdown().await;
        Stage::Killing(Instant::now() + PATIENCE)
    }

    /// Collects the supervisor. One that has not done its work is killed, and its work done here.
    async fn dismiss(mut self, done: bool) {
        if !done || timeout(PATIENCE, self.child.wait()).await.is_err() {
            let _ = self.child.start_kill();
            let _ = self.child.wait().await;
        }
        if let Some(pid) = self.pid {
            supervisors().remove(&pid);
        }
        if !done {
            end_strays().await;
        }
    }
}

/// How far it has come with a command.
#[derive(Debug, Clone, Copy)]
enum Stage {
    Running,
    /// It was told to end, and is killed at this instant.
    Told(Instant),
    /// It is being killed; after this instant its supervisor is taken to be stuck.
    Killing(Instant),
}

impl Stage {
    fn deadline(self) -> Option<Instant> {
        match self {
            Self::Running => None,
            Self::Told(at) | Self::Killing(at) => Some(at),
        }
    }
}

/// How often, and how many times, strays are looked for.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
const LOOKS: usize = 200;

/// Ends what supervisors that were killed had kept.
async fn end_strays() {
    let mut left = 0;
    for _ in 0..LOOKS {
        left = look_for_strays();
        if left == 0 {
            return;
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    tracing::error!(left, "processes that a command left behind cannot be killed");
}

fn look_for_strays() -> usize {
    let supervisors = supervisors();
    family::kill_strays(&|pid: Pid| {
        u32::try_from(pid.as_raw_nonzero().get()).is_ok_and(|pid| supervisors.contains(&pid))
    })
}
