//! The supervisor: a small process between the server and one command.
//!
//! It adopts the orphans of the command, and reports the end of the command only once no process
//! of it is left. It reads orders from its standard input; EOF, because the server closed it or has
//! died, kills everything at once. The server sets deadlines.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream as StdStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use rustix::process::{
    Pid, Resource, Rlimit, Signal, WaitStatus, getrlimit, kill_process_group, setrlimit,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::signal::unix::{Signal as SignalStream, SignalKind, signal};
use tokio::time::Instant;

use super::family;
use super::protocol::{Limits, Report, TERM, Task};

/// Runs a supervisor with the arguments after [`SUPERVISE`](super::protocol::SUPERVISE).
pub(crate) fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let kept = Task::from_args(args).ok_or_else(usage).and_then(|task| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(keep(&task))
    });
    match kept {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "windlass: a job's supervisor failed: {error}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> io::Error {
    io::Error::other("supervisors are started by `windlass serve`, not by hand")
}

async fn keep(task: &Task) -> io::Result<()> {
    let control = StdStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    control.set_nonblocking(true)?;
    let mut control = UnixStream::from_std(control)?;
    let changes = signal(SignalKind::child())?;
    // Signals to the process group of the server are handled by the server.
    let _deaf = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()]
        .map(signal)
        .into_iter()
        .collect::<io::Result<Vec<SignalStream>>>()?;
    family::adopt_orphans();
    name_this_process();
    let report = match start(task) {
        Ok(command) => Kept::new(command, changes).attend(&mut control).await,
        Err(report) => report,
    };
    // If the server is gone, the report is not needed: the command has ended.
    let _ = control.write_all(report.to_line().as_bytes()).await;
    Ok(())
}

/// Renames this process, so that a kill of the server by name does not hit its supervisors, which
/// then end their commands.
fn name_this_process() {
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::set_name(c"job-supervisor");
}

/// Starts the command in a process group of its own.
fn start(task: &Task) -> Result<Pid, Report> {
    let code = |error: io::Error| error.raw_os_error().unwrap_or(0);
    if let Some(cwd) = &task.cwd {
        std::env::set_current_dir(cwd).map_err(|error| Report::NoDirectory(code(error)))?;
    }
    limit(task.limits);
    let (program, args) = task.argv.split_first().ok_or(Report::NotStarted(0))?;
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).process_group(0);
    let child = command.spawn().map_err(|error| Report::NotStarted(code(error)))?;
    i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or(Report::NotStarted(0))
}

/// Sets limits on this process, which the command inherits.
fn limit(limits: Limits) {
    let lower = |resource, soft: u64, hard: u64| {
        let highest = getrlimit(resource).maximum.unwrap_or(u64::MAX);
        let limit = Rlimit { current: Some(soft.min(highest)), maximum: Some(hard.min(highest)) };
        let _ = setrlimit(resource, limit);
    };
    if let Some(seconds) = limits.cpu_seconds {
        // SIGXCPU first, then SIGKILL.
        lower(Resource::Cpu, seconds, seconds.saturating_add(2));
    }
    if let Some(bytes) = limits.memory_bytes {
        lower(Resource::As, bytes, bytes);
    }
    if let Some(files) = limits.open_files {
        lower(Resource::Nofile, files, files);
    }
}

/// Interval of searches for children of killed processes.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Time after which processes that cannot be killed, because they run with other rights, are left.
/// Otherwise the job would never end.
const GIVE_UP: Duration = Duration::from_secs(10);

/// A command that was started.
struct Kept {
    command: Pid,
    changes: SignalStream,
    /// `None` while it runs.
    ended: Option<Report>,
    /// Whether the order to end arrived while it ran.
    ordered: bool,
    /// Whether every process gets KILL.
    killing: bool,
}

impl Kept {
    fn new(command: Pid, changes: SignalStream) -> Self {
        Self { command, changes, ended: None, ordered: false, killing: false }
    }

    /// Waits until no process of the command is left.
    async fn attend(mut self, control: &mut UnixStream) -> Report {
        let mut open = true;
        let mut give_up = None;
        while self.reap() {
            // Processes that outlive a command that ended by itself are killed. If it was ordered
            // to end, the others of its group have the rest of their grace.
            self.killing |= self.ended.is_some() && !self.ordered;
            if self.killing {
                self.kill();
                let at = *give_up.get_or_insert_with(|| Instant::now() + GIVE_UP);
                if self.ended.is_some() && Instant::now() >= at {
                    break;
                }
            }
            let mut order = [0];
            tokio::select! {
                _ = self.changes.recv() => {}
                read = control.read(&mut order), if open => {
                    open = matches!(read, Ok(1..));
                    self.obey(open.then_some(order[0]));
                }
                () = tokio::time::sleep(LOOK_AGAIN), if self.killing => {}
            }
        }
        match self.ended {
            Some(report) if !self.ordered => report,
            _ => Report::Stopped,
        }
    }

    fn obey(&mut self, order: Option<u8>) {
        self.reap();
        // It may have ended before the order came.
        self.ordered |= self.ended.is_none();
        match order {
            // Once: to some programs a second one means that there is no time to clean up.
            Some(TERM) if self.ended.is_none() => {
                let _ = kill_process_group(self.command, Signal::TERM);
            }
            Some(TERM) => {}
            _ => self.killing = true,
        }
    }

    /// Collects processes that have ended; returns whether others are left.
    fn reap(&mut self) -> bool {
        let (command, ended) = (self.command, &mut self.ended);
        family::reap(|pid, status| {
            if pid == command {
                *ended = Some(how(status));
            }
        })
    }

    fn kill(&self) {
        // The number of a group is its own as long as its first process was not collected. All at
        // once is better than one by one: no process can be started in between.
        if self.ended.is_none() {
            let _ = kill_process_group(self.command, Signal::KILL);
        }
        family::kill_descendants();
    }
}

fn how(status: WaitStatus) -> Report {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Report::Exited(code),
        (None, Some(signal)) => Report::Signalled(signal),
        (None, None) => Report::Exited(0),
    }
}
