//! Worker processes: each a process of its own on the same store, minded by the one that started
//! them, so that a crash of one touches no other.

mod detach;
mod mind;
mod process;

pub(crate) use detach::detach;
pub(crate) use mind::mind;
pub(crate) use process::run;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde::{Deserialize, Serialize};

use crate::cli::{LogFormat, duration};
use crate::settings::{Value, parser};

/// What a worker process runs, and how it ends.
#[derive(Debug, Clone, Args)]
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
}

/// How many worker processes, and where they live.
#[derive(Debug, Clone, Args)]
pub(crate) struct StartArgs {
    /// How many processes.
    #[arg(long, default_value_t = 1, value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) count: u16,
    /// Let them live on when this terminal is closed; it returns once they are registered.
    #[arg(long)]
    pub(crate) detach: bool,
    /// Where they log when detached; beside the store if not given.
    #[arg(long, requires = "detach", value_name = "FILE")]
    pub(crate) log_file: Option<PathBuf>,
    /// Be the process that was detached.
    #[arg(long, hide = true, conflicts_with = "detach")]
    pub(crate) detached: bool,
    #[command(flatten)]
    pub(crate) work: WorkArgs,
}

/// What a worker says on standard output, once, when it is registered.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Ready {
    pub(crate) id: String,
    pub(crate) pid: u32,
}

impl WorkArgs {
    /// The same, as arguments of another process. What the environment says it sees itself.
    fn arguments(&self) -> Vec<String> {
        let mut arguments = Vec::new();
        let mut give = |flag: &str, value: String| arguments.extend([flag.to_owned(), value]);
        if let Some(concurrency) = &self.concurrency {
            give("--concurrency", concurrency.to_string());
        }
        if !self.queues.is_empty() {
            give("--queues", self.queues.join(","));
        }
        give("--drain-timeout", format!("{}ms", self.drain_timeout.as_millis()));
        give("--log", self.log.as_str().into());
        give("--log-level", self.log_level.clone());
        arguments
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Alone {
        #[command(flatten)]
        start: StartArgs,
    }

    #[test]
    fn what_a_worker_is_told_is_what_its_minder_was_told() {
        let given = ["x", "--concurrency", "3", "--queues", "a,b", "--log", "json"];
        let given = given.into_iter().chain(["--drain-timeout", "1m30s", "--log-level", "debug"]);
        let minder = Alone::parse_from(given).start.work;
        let told = ["x".to_owned()].into_iter().chain(minder.arguments());
        let worker = Alone::parse_from(told).start.work;
        assert_eq!(format!("{worker:?}"), format!("{minder:?}"));
    }
}
