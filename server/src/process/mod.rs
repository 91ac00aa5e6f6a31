//! Worker processes: each a process of its own on the same store, supervised by the one that
//! started them, so that a crash of one touches no other.

mod dead_workers;
mod detach;
mod supervisor;
mod worker;

pub(crate) use dead_workers::{dead_here, end, end_gone, own_instance};
pub(crate) use detach::detach;
pub(crate) use supervisor::supervise;
pub(crate) use worker::run;

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use rustix::fs::{Access, access};
use serde::{Deserialize, Serialize};

use crate::cli::{LogFormat, duration};
use crate::kinds::KindArgs;
use crate::settings::{Value, parser};

/// What a worker process runs, and how it ends.
#[derive(Debug, Args)]
pub(crate) struct WorkArgs {
    /// Maximum number of jobs that each process runs at once; the setting `worker_concurrency` if
    /// not given.
    #[arg(long, value_name = "JOBS", value_parser = parser("worker_concurrency"))]
    pub(crate) concurrency: Option<Value>,
    /// Run jobs of these queues only.
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    pub(crate) queues: Vec<String>,
    /// Time for running jobs to finish after a signal or `worker stop`, like 30s or 1m30s.
    #[arg(long, env = "WINDLASS_DRAIN_TIMEOUT", default_value = "30s", value_parser = duration,
        value_name = "TIME")]
    pub(crate) drain_timeout: Duration,
    /// Format of the log on standard error.
    #[arg(long = "log", env = "WINDLASS_LOG", default_value = "text", value_name = "FORMAT")]
    pub(crate) log: LogFormat,
    /// Log level: error, warn, info, debug, trace, or a filter like windlass=debug.
    #[arg(long, env = "WINDLASS_LOG_LEVEL", default_value = "info", value_name = "LEVEL")]
    pub(crate) log_level: String,
    #[command(flatten)]
    pub(crate) kinds: KindArgs,
}

/// Number of worker processes, and where they log.
#[derive(Debug, Args)]
pub(crate) struct StartArgs {
    /// Number of worker processes.
    #[arg(long, default_value_t = 1, value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) count: u16,
    /// Run in the background; return once the workers are registered.
    #[arg(long)]
    pub(crate) detach: bool,
    /// Log file of detached workers; workers.log beside the store if not given, or in the current
    /// directory on PostgreSQL.
    #[arg(long, value_name = "FILE")]
    pub(crate) log_file: Option<PathBuf>,
    /// Be the process that was detached.
    #[arg(long, hide = true, conflicts_with = "detach")]
    pub(crate) detached: bool,
    #[command(flatten)]
    pub(crate) work: WorkArgs,
}

/// Environment variable: id of the dead worker that this process replaces.
pub(crate) const DEAD_WORKER: &str = "WINDLASS_DEAD_WORKER";

/// What a worker says on standard output, once, when it is registered.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Ready {
    pub(crate) id: String,
    pub(crate) pid: u32,
}

/// The program that this process runs, even if its file was deleted or replaced since the start:
/// then Linux still runs it by this link. For processes that must be of the same version.
pub(crate) fn this_binary() -> io::Result<PathBuf> {
    let path = std::env::current_exe()?;
    let gone = cfg!(target_os = "linux") && !path.exists();
    Ok(if gone { THIS_PROGRAM.into() } else { path })
}

/// Leads to the program that this process runs, whether its file still has a name or not.
const THIS_PROGRAM: &str = "/proc/self/exe";

/// What Linux adds to the path of a program whose file was deleted or replaced.
const DELETED: &str = " (deleted)";

/// The program that is installed where this process was started from: after an upgrade the new one.
/// If there is none that can be run, [`this_binary`].
fn installed_binary() -> io::Result<PathBuf> {
    installed_at(std::env::current_exe()?.as_os_str()).map_or_else(this_binary, Ok)
}

/// The path of an executable file, without the mark of one that was replaced.
fn installed_at(path: &OsStr) -> Option<PathBuf> {
    let path = path.as_bytes();
    let path = path.strip_suffix(DELETED.as_bytes()).unwrap_or(path);
    let path = Path::new(OsStr::from_bytes(path));
    let runs = path.is_file() && access(path, Access::EXEC_OK).is_ok();
    runs.then(|| path.to_owned())
}

/// The command line of this process with some words replaced, for another process.
fn args_with_replacements(
    given: impl Iterator<Item = OsString>,
    words: &[(&str, &str)],
) -> Vec<OsString> {
    let mut words = words.to_vec();
    let mut of_worker = false;
    given
        .map(|word| {
            let found = words.iter().position(|(old, _)| of_worker && word == *old);
            of_worker |= word == "worker";
            // Each once: what follows may be a value.
            found.map_or(word, |at| words.remove(at).1.into())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_gets_the_arguments_of_its_supervisor() {
        let given = ["--store", "sqlite:start", "worker", "start", "--queues", "start", "--detach"];
        let args = args_with_replacements(given.into_iter().map(Into::into), &[("start", "run")]);
        let expected =
            ["--store", "sqlite:start", "worker", "run", "--queues", "start", "--detach"];
        assert_eq!(args, expected);
        let words = [("--detach", "--detached")];
        let args = args_with_replacements(given.into_iter().map(Into::into), &words);
        assert_eq!(args.last().unwrap(), "--detached");
    }
}
