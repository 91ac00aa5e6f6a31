//! The command line: what can be said. What a command means is in `commands/`.
//! `serve` is the command if none is given.

pub(crate) mod client;
pub(crate) mod commands;
pub(crate) mod out;
mod serve;
mod values;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::cli::commands::{
    about, backup, bulk, config, copy, dlq, doctor, enqueue, errors, history, jobs, list, migrate,
    queue, restore, show, status, top, wait, worker,
};

use crate::store::{StoreParser, StoreUrl};

pub(crate) use serve::{LogFormat, ServeArgs};
pub(crate) use values::duration;

/// A durable background job queue.
///
/// Without --server a command works on the store itself; servers and workers may run on the same
/// SQLite file or PostgreSQL database meanwhile. A redb file belongs to one process: ask its server
/// with --server.
#[derive(Debug, Parser)]
#[command(name = "windlass", version, after_help = MORE, help_template = TEMPLATE)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) target: Target,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// The help, with commands in groups. A test sees to it that none is missing.
const TEMPLATE: &str = "\
{about-with-newline}
{usage-heading} {usage}

Server:
  serve        Start the server (the default command)
  worker       Start, list and stop worker processes

Jobs:
  enqueue      Enqueue a job, or many from a file
  list         List jobs, newest first
  show         Show a job with its attempts and the ends of their output
  explain      Show why a job is in its state
  wait         Wait until a job is done, failed or cancelled
  cancel       Cancel queued or running jobs
  retry        Run failed or cancelled jobs again
  delete       Delete finished jobs
  dlq          List, retry and purge dead letters
  errors       List and show groups of dead letters with the same error
  bulk         Retry, cancel or delete many jobs in one action; list, stop

Queues:
  queue        List, pause, resume, configure and delete queues

Upkeep:
  status       Show counts, rates, workers, size and health on one screen
  history      Show counts, backlog and latencies over time
  top          Show a live screen of queues, running jobs, dead letters and workers
  config       List, get, set and unset settings
  doctor       Check the store for inconsistencies
  backup       Copy the store while it is in use
  restore      Replace the store with a backup
  migrate      Migrate the schema of the store to this version
  copy         Move everything to another store of any kind

This program:
  completions  Print shell completions
  version      Print the version
  help         Print this, or the help of a command

Options:
{options}{after-help}";

const MORE: &str = "\
Examples:
  windlass serve
  windlass enqueue email '{\"to\":\"ada@example.org\"}'
  windlass list --state failed
  windlass --server http://127.0.0.1:8080 show 42 --json

Exit codes: 0 ok, 1 failed, 2 usage, 3 not found, 4 conflict, 5 not allowed, 6 unreachable,
124 timed out (wait). An environment variable that is empty counts as not set.
The token for a server is read from the environment variable WINDLASS_TOKEN.";

/// The store or server that a command uses, and the format of its output.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Target {
    // Written here, because a comment would want brackets around the address.
    #[arg(
        long,
        global = true,
        env = "WINDLASS_STORE",
        hide_env_values = true,
        default_value = "sqlite:windlass-data/windlass.db",
        value_name = "STORE",
        value_parser = StoreParser,
        help = "Where jobs are kept: sqlite:PATH, redb:PATH or postgres://USER@HOST/DATABASE"
    )]
    pub(crate) store: StoreUrl,
    /// Read the password of a PostgreSQL store from this file. Without it: from the URL,
    /// PGPASSWORD, PGPASSFILE or ~/.pgpass.
    #[arg(long, global = true, env = "WINDLASS_STORE_PASSWORD_FILE", value_name = "FILE")]
    pub(crate) store_password_file: Option<PathBuf>,
    // Written here, because a comment would want brackets around the address.
    #[arg(
        long,
        global = true,
        env = "WINDLASS_SERVER",
        value_name = "URL",
        help = "Ask this server instead of the store, like http://127.0.0.1:8080"
    )]
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
    /// Start the server (the default command).
    Serve(Box<ServeArgs>),
    Enqueue(Box<enqueue::EnqueueArgs>),
    List(list::ListArgs),
    Show(show::ShowArgs),
    Explain(jobs::ExplainArgs),
    Wait(wait::WaitArgs),
    Cancel(jobs::CancelArgs),
    Retry(jobs::RetryArgs),
    Delete(jobs::DeleteArgs),
    Bulk(bulk::BulkArgs),
    Dlq(dlq::DlqArgs),
    Errors(errors::ErrorsArgs),
    Queue(queue::QueueArgs),
    Worker(Box<worker::WorkerArgs>),
    Status(status::StatusArgs),
    History(history::HistoryArgs),
    Top(top::TopArgs),
    Config(config::ConfigArgs),
    Doctor(doctor::DoctorArgs),
    Backup(backup::BackupArgs),
    Restore(restore::RestoreArgs),
    Migrate(migrate::MigrateArgs),
    Copy(Box<copy::CopyArgs>),
    Completions(about::CompletionsArgs),
    /// Print the version.
    #[command(after_help = "Examples:\n  windlass version --json")]
    Version,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_holds_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_is_in_its_group_and_has_a_sentence_and_an_example() {
        for command in Cli::command().get_subcommands() {
            let name = command.get_name();
            let line = TEMPLATE.lines().find(|line| line.starts_with(&format!("  {name} ")));
            assert!(line.is_some(), "{name} is not in the help");
            with_sentence(command);
        }
    }

    fn with_sentence(command: &clap::Command) {
        let name = command.get_name();
        assert!(command.get_about().is_some(), "{name} has no sentence");
        let example =
            command.get_after_help().is_some_and(|text| text.to_string().contains("Exam"));
        assert!(example || command.has_subcommands() || name == "serve", "{name} has no example");
        command.get_subcommands().for_each(with_sentence);
    }
}
