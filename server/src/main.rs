//! The binary `windlass`. Settings are read here, once; what they mean is decided elsewhere.
#![forbid(unsafe_code)]

mod app;
mod auth;
mod body;
mod cli;
mod client;
mod commands;
mod connection;
mod demo;
mod events;
mod find;
mod guard;
mod handlers;
mod http;
mod hub;
mod keeper;
mod kinds;
mod limits;
mod log;
mod lookup;
mod metrics;
mod notify;
mod openapi;
mod out;
mod page;
mod problem;
mod rates;
mod router;
mod routes;
mod serve;
mod settings;
mod store;
mod tls;
mod wire;
mod worker;

use std::io::Write;
use std::process::ExitCode;

use clap::parser::ValueSource::DefaultValue;
use clap::{CommandFactory, FromArgMatches, Parser};
use tokio::runtime::Builder as Runtime;

use cli::{Cli, Command, LogFormat, ServeArgs, StoreUrl, Target};
use commands::worker::{Action, WorkerArgs};

fn main() -> ExitCode {
    let mut given = std::env::args_os().skip(1);
    if given.next().is_some_and(|first| first == kinds::command::KEEP) {
        return kinds::command::keeper::main(given);
    }
    let matches = Cli::command().get_matches();
    let given = matches.value_source("store").is_some_and(|source| source != DefaultValue);
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
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

/// A demo in a folder of its own, which is gone when it ends in order.
fn show(mut target: Target, args: ServeArgs, token: Option<String>) -> ExitCode {
    let folder = match tempfile::Builder::new().prefix("windlass-demo-").tempdir() {
        Ok(folder) => folder,
        Err(error) => return complain(&format!("no folder for the demo: {error}"), 1),
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
            stay(log, &level, &mut Runtime::new_multi_thread(), worker::run(store, args, kinds))
        }
        Action::Start(args) if args.detach => commands::worker::detach(target, &args),
        Action::Start(args) => {
            if args.detached {
                // A session of its own: the terminal's end is none of its business.
                let _ = rustix::process::setsid();
            } else if let Err(failure) = commands::worker::prepare(target) {
                return failure.tell(target.json);
            }
            let (log, level) = (args.work.log, args.work.log_level.clone());
            // On this very thread: the system ends workers with the thread that started them.
            stay(log, &level, &mut Runtime::new_current_thread(), worker::mind(args))
        }
        action => commands::main(target, Command::Worker(Box::new(WorkerArgs { action })), token),
    }
}

/// Runs something that stays until it is told to go, with a log.
fn stay(
    log: LogFormat,
    level: &str,
    runtime: &mut Runtime,
    work: impl Future<Output = Result<ExitCode, String>>,
) -> ExitCode {
    let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    if let Err(error) = log::start(log, level, no_colour) {
        return complain(&error, 2);
    }
    let runtime = match runtime.enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return complain(&format!("the system refused to start: {error}"), 1),
    };
    let code = match runtime.block_on(work) {
        Ok(code) => code,
        Err(error) => complain(&error, 1),
    };
    // Reads that hang must not keep the process.
    runtime.shutdown_background();
    code
}

/// The settings of `serve` when nobody named it: the environment's, else the defaults.
fn serve_by_default() -> ServeArgs {
    #[derive(Parser)]
    struct Alone {
        #[command(flatten)]
        args: ServeArgs,
    }
    Alone::parse_from(["windlass"]).args
}

fn complain(error: &str, code: u8) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "windlass: {error}");
    ExitCode::from(code)
}
