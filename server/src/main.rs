//! The binary `windlass`. Settings are read here, once; what they mean is decided elsewhere.
#![forbid(unsafe_code)]

mod app;
mod auth;
mod body;
mod cli;
mod connection;
mod events;
mod find;
mod guard;
mod handlers;
mod http;
mod hub;
mod kinds;
mod limits;
mod log;
mod lookup;
mod metrics;
mod notify;
mod openapi;
mod page;
mod problem;
mod router;
mod routes;
mod serve;
mod store;
mod tls;
mod wire;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command, ServeArgs};

fn main() -> ExitCode {
    let mut given = std::env::args_os().skip(1);
    if given.next().is_some_and(|first| first == kinds::command::KEEP) {
        return kinds::command::keeper::main(given);
    }
    let cli = Cli::parse();
    let args = match cli.command {
        Some(Command::Serve(args)) => *args,
        None => serve_by_default(),
    };
    let text = |name| std::env::var_os(name).and_then(|value| value.into_string().ok());
    let token = text("WINDLASS_TOKEN").filter(|token| !token.is_empty());
    let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    if let Err(error) = log::start(args.log, &args.log_level, no_colour) {
        return complain(&error, 2);
    }
    let kinds = match args.kinds.settings(|name| std::env::var_os(name)) {
        Ok(kinds) => kinds,
        Err(error) => return complain(&error, 2),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return complain(&format!("the system refused to start: {error}"), 1),
    };
    let code = match runtime.block_on(serve::serve(cli.store, args, kinds, token)) {
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
