//! Worker processes: each a process of its own on the same store, supervised by the one that
//! started them, so that a crash of one touches no other.

mod detach;
mod neighbours;
mod supervisor;
mod worker;

pub(crate) use detach::detach;
pub(crate) use neighbours::{end_gone, own_instance};
pub(crate) use supervisor::supervise;
pub(crate) use worker::run;

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde::{Deserialize, Serialize};

use crate::cli::{LogFormat, duration};
use crate::kinds::KindArgs;
use crate::settings::{Value, parser};

/// What a worker process runs, and how it ends.
#[derive(Debug, Args)]
pub(crate) struct WorkArgs {
    /// Jobs that each process runs at once; what the setting `worker_concurrency` says, else 1.
    #[arg(long, value_name = "JOBS", value_parser = parser("worker_concurrency"))]
    pub(crate) concurrency: Option<Value>,
    /// Run jobs of these queues only.
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    pub(crate) queues: Vec<String>,
    /// How long running jobs have when the worker is told to stop.
    #[arg(long, env = "WINDLASS_DRAIN_TIMEOUT", default_value = "30s", value_parser = duration,
        value_name = "TIME")]
    pub(crate) drain_timeout: Duration,
    /// How the log is written, on standard error.
    #[arg(long = "log", env = "WINDLASS_LOG", default_value = "text", value_name = "FORMAT")]
    pub(crate) log: LogFormat,
    /// What is logged: error, warn, info, debug, trace, or a filter.
    #[arg(long, env = "WINDLASS_LOG_LEVEL", default_value = "info", value_name = "LEVEL")]
    pub(crate) log_level: String,
    #[command(flatten)]
    pub(crate) kinds: KindArgs,
}

/// How many worker processes, and where they live.
#[derive(Debug, Args)]
pub(crate) struct StartArgs {
    /// How many processes.
    #[arg(long, default_value_t = 1, value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) count: u16,
    /// Let them live on when this terminal is closed; it returns once they are registered.
    #[arg(long)]
    pub(crate) detach: bool,
    /// Where they log when detached; beside the store if not given, or in the current
    /// directory if that is no file.
    #[arg(long, value_name = "FILE")]
    pub(crate) log_file: Option<PathBuf>,
    /// Be the process that was detached.
    #[arg(long, hide = true, conflicts_with = "detach")]
    pub(crate) detached: bool,
    #[command(flatten)]
    pub(crate) work: WorkArgs,
}

/// By this variable of the environment a supervisor tells a worker which one has died before it.
pub(crate) const DEAD_WORKER: &str = "WINDLASS_DEAD_WORKER";

/// What a worker says on standard output, once, when it is registered.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Ready {
    pub(crate) id: String,
    pub(crate) pid: u32,
}

/// The file that this process runs, even if it was deleted or replaced since the start: then Linux
/// still runs it by this link.
pub(crate) fn this_binary() -> io::Result<PathBuf> {
    let path = std::env::current_exe()?;
    let gone = cfg!(target_os = "linux") && !path.exists();
    Ok(if gone { "/proc/self/exe".into() } else { path })
}

/// The command line of this process, with other words in some places: another process is told the
/// very same.
fn told_again(given: impl Iterator<Item = OsString>, words: &[(&str, &str)]) -> Vec<OsString> {
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
    fn a_worker_is_told_what_its_supervisor_was_told() {
        let given = ["--store", "sqlite:start", "worker", "start", "--queues", "start", "--detach"];
        let told = told_again(given.into_iter().map(Into::into), &[("start", "run")]);
        let expected =
            ["--store", "sqlite:start", "worker", "run", "--queues", "start", "--detach"];
        assert_eq!(told, expected);
        let words = [("--detach", "--detached")];
        let told = told_again(given.into_iter().map(Into::into), &words);
        assert_eq!(told.last().unwrap(), "--detached");
    }
}
