//! The binary `windlass`. Settings are read here, once; what they mean is decided elsewhere.
//!
//! In the book: [commands](../../book/CLI.html), [operations](../../book/OPERATIONS.html).
#![forbid(unsafe_code)]

mod api;
mod app;
mod attempts;
mod cli;
mod demo;
mod http;
mod kinds;
mod log;
mod notify;
mod process;
mod serve;
mod settings;
mod store;

use std::ffi::OsStr;
use std::io::Write;
use std::process::ExitCode;

use clap::builder::Resettable;
use clap::parser::ValueSource::DefaultValue;
use clap::{CommandFactory, FromArgMatches, Parser};
use tokio::runtime::Builder as Runtime;

use cli::client::Failure;
use cli::commands;
use cli::commands::worker::{Action, WorkerArgs};
use cli::{Cli, Command, LogFormat, ServeArgs, Target};
use store::StoreUrl;

fn main() -> ExitCode {
    let mut given = std::env::args_os().skip(1);
    if given.next().is_some_and(|first| first == kinds::command::SUPERVISE) {
        return kinds::command::supervisor::main(given);
    }
    store::hide_password();
    let matches = without_empty_variables(Cli::command()).get_matches();
    let given = matches.value_source("store").is_some_and(|source| source != DefaultValue);
    let mut cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let file = cli.target.store_password_file.as_deref();
    match cli.target.store.with_password_of(file, |name| std::env::var_os(name)) {
        Ok(store) => cli.target.store = store,
        Err(error) => return complain(&error, 2),
    }
    let token = std::env::var_os("WINDLASS_TOKEN").and_then(|value| value.into_string().ok());
    let token = token.filter(|token| !token.is_empty());
    match cli.command {
        Some(Command::Serve(args)) if args.demo && !given => show(cli.target, *args, token),
        Some(Command::Serve(args)) => serve(cli.target, *args, token),
        None => serve(cli.target, serve_by_default(), token),
        Some(Command::Worker(args)) => worker_command(&cli.target, *args, token),
        Some(command) => commands::main(&cli.target, command, token),
    }
}

/// A demo in a temporary directory, which is removed when it ends in order.
fn show(mut target: Target, args: ServeArgs, token: Option<String>) -> ExitCode {
    let folder = match tempfile::Builder::new().prefix("windlass-demo-").tempdir() {
        Ok(folder) => folder,
        Err(error) => {
            return complain(&format!("cannot make a directory for the demo: {error}"), 1);
        }
    };
    target.store = StoreUrl::Sqlite(folder.path().join("windlass.db"));
    serve(target, args, token)
}

fn serve(target: Target, args: ServeArgs, token: Option<String>) -> ExitCode {
    let kinds = match args.kinds.settings(|name| std::env::var_os(name)) {
        Ok(kinds) => kinds,
        Err(error) => return complain(&error, 2),
    };
    let (log, level) = (args.log, args.log_level.clone());
    let serving = serve::serve(target.store, args, kinds, token);
    stay(log, &level, &mut Runtime::new_multi_thread(), serving)
}

/// `worker`: starting takes processes; the rest is asked of the store or a server.
fn worker_command(target: &Target, args: WorkerArgs, token: Option<String>) -> ExitCode {
    let store = target.store.clone();
    match args.action {
        Action::Run(args) => {
            let args = args.work;
            let kinds = match args.kinds.settings(|name| std::env::var_os(name)) {
                Ok(kinds) => kinds,
                Err(error) => return complain(&error, 2),
            };
            let (log, level) = (args.log, args.log_level.clone());
            let running = process::run(store, args, kinds, dead_worker());
            stay(log, &level, &mut Runtime::new_multi_thread(), running)
        }
        Action::End(args) => {
            let (log, level) = (args.work.log, args.work.log_level);
            let ending = process::end(store, dead_worker());
            stay(log, &level, &mut Runtime::new_current_thread(), ending)
        }
        Action::Start(args) if args.detach => commands::worker::detach(target, &args),
        Action::Start(args) => {
            if args.detached {
                // A session of its own: the terminal's end is none of its business.
                let _ = rustix::process::setsid();
            } else if let Err(failure) = commands::worker::prepare(target) {
                return failure.print(target.json);
            }
            let (log, level) = (args.work.log, args.work.log_level.clone());
            // On this very thread: the system ends workers with the thread that started them.
            stay(log, &level, &mut Runtime::new_current_thread(), process::supervise(args))
        }
        action => commands::main(target, Command::Worker(Box::new(WorkerArgs { action })), token),
    }
}

/// The worker that this process is to replace or to end.
fn dead_worker() -> Option<String> {
    std::env::var_os(process::DEAD_WORKER).and_then(|id| id.into_string().ok())
}

/// Runs something until it is stopped, with a log.
fn stay(
    log: LogFormat,
    level: &str,
    runtime: &mut Runtime,
    work: impl Future<Output = Result<ExitCode, Failure>>,
) -> ExitCode {
    let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    if let Err(error) = log::start(log, level, no_colour) {
        return complain(&error, 2);
    }
    let runtime = match runtime.enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return complain(&format!("cannot start the async runtime: {error}"), 1),
    };
    let code = match runtime.block_on(work) {
        Ok(code) => code,
        Err(failure) => failure.print(false),
    };
    // Reads that hang must not keep the process.
    runtime.shutdown_background();
    log::flush();
    code
}

/// The settings of `serve` if it was not named: the environment's, else the defaults.
fn serve_by_default() -> ServeArgs {
    #[derive(Parser)]
    struct Alone {
        #[command(flatten)]
        args: ServeArgs,
    }
    store::hide_password();
    let matches = without_empty_variables(Alone::command()).get_matches_from(["windlass"]);
    Alone::from_arg_matches(&matches).unwrap_or_else(|error| error.exit()).args
}

/// A command line for which an environment variable that is set to nothing is not set.
fn without_empty_variables(command: clap::Command) -> clap::Command {
    let is_empty = |name: &OsStr| std::env::var_os(name).is_some_and(|value| value.is_empty());
    let command = command.mut_args(|arg| {
        if arg.get_env().is_some_and(is_empty) {
            arg.env(Resettable::<clap::builder::OsStr>::Reset)
        } else {
            arg
        }
    });
    command.mut_subcommands(without_empty_variables)
}

fn complain(error: &str, code: u8) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "windlass: {error}");
    ExitCode::from(code)
}
