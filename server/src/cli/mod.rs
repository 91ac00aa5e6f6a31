//! The command line: what can be said. What a command means is in `commands/`.
//! `serve` is the command if none is given.

mod serve;
mod values;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::commands::{backup, config, doctor, enqueue, list, show, status, top, worker};

pub(crate) use serve::{LogFormat, ServeArgs};
pub(crate) use values::{StoreUrl, duration};

/// A durable background job queue.
///
/// Without --server a command works on the store itself; servers and workers may run on the same
/// SQLite file meanwhile. A redb file belongs to one process: ask its server with --server.
#[derive(Debug, Parser)]
#[command(name = "windlass", version, about, after_help = MORE)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) target: Target,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

const MORE: &str = "\
Examples:
  windlass serve
  windlass enqueue email '{\"to\":\"ada@example.org\"}'
  windlass list --state failed
  windlass --server http://127.0.0.1:8080 show 42 --json

Exit codes: 0 ok, 1 failed, 2 usage, 3 not found, 4 conflict, 5 not allowed, 6 unreachable.
The token for a server is read from the environment variable WINDLASS_TOKEN.";

/// Whom a command works with, and how it answers.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Target {
    /// Where jobs are kept: sqlite:PATH or redb:PATH.
    #[arg(
        long,
        global = true,
        env = "WINDLASS_STORE",
        default_value = "sqlite:windlass-data/windlass.db",
        value_name = "STORE"
    )]
    pub(crate) store: StoreUrl,
    /// Ask this server instead of the store, like <http://127.0.0.1:8080>.
    #[arg(long, global = true, env = "WINDLASS_SERVER", value_name = "URL")]
    pub(crate) server: Option<String>,
    /// Also trust the certificates in this PEM file, for --server with https.
    #[arg(long, global = true, env = "WINDLASS_CA", value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// Print JSON in the shapes of the HTTP API.
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve the HTTP API; the command if none is given.
    Serve(Box<ServeArgs>),
    Enqueue(Box<enqueue::EnqueueArgs>),
    List(list::ListArgs),
    Show(show::ShowArgs),
    Worker(worker::WorkerArgs),
    Status(status::StatusArgs),
    Top(top::TopArgs),
    Config(config::ConfigArgs),
    Doctor(doctor::DoctorArgs),
    Backup(backup::BackupArgs),
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_holds_together() {
        Cli::command().debug_assert();
    }
}
