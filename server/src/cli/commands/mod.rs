//! What each command does. A command is written against the HTTP contract and calls the client;
//! whether a server or the store answers is not known here.

pub(crate) mod about;
pub(crate) mod backup;
pub(crate) mod bulk;
mod bulk_filter;
pub(crate) mod config;
mod confirm;
pub(crate) mod copy;
pub(crate) mod dlq;
pub(crate) mod doctor;
pub(crate) mod enqueue;
pub(crate) mod errors;
mod hints;
pub(crate) mod history;
pub(crate) mod jobs;
pub(crate) mod list;
pub(crate) mod migrate;
pub(crate) mod queue;
pub(crate) mod restore;
pub(crate) mod show;
pub(crate) mod status;
pub(crate) mod top;
pub(crate) mod wait;
pub(crate) mod worker;

use std::io::Write as _;
use std::process::ExitCode;

use crate::cli::client::{Client, Failure, Store};
use crate::cli::out::Out;
use crate::cli::{Command, Target};

pub(crate) use hints::nearest;

/// What a running command uses: a store or a server, and its output.
pub(crate) struct Session {
    pub(crate) client: Client,
    pub(crate) out: Out,
}

/// Runs a command in a small runtime of its own, and returns its exit code.
pub(crate) fn main(target: &Target, command: Command, token: Option<String>) -> ExitCode {
    let result = block_on(run(target, command, token, Out::new(target.json)));
    result.unwrap_or_else(|failure| failure.print(target.json))
}

/// Runs something to its end in a small runtime of its own.
fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime
        .map_err(|error| Failure::failed(format!("cannot start the async runtime: {error}")))?;
    let result = runtime.block_on(work);
    // Reads that hang must not keep the process.
    runtime.shutdown_background();
    result
}

async fn run(
    target: &Target,
    command: Command,
    token: Option<String>,
    mut out: Out,
) -> Result<ExitCode, Failure> {
    // A command that only looks does not make a store; nor does one that needs what is in it.
    let store = match &command {
        Command::Enqueue(_) => Store::Made,
        Command::Config(args) if args.writes() => Store::Made,
        _ => Store::Exists,
    };
    match &command {
        Command::Serve(_) => return Err(Failure::failed("`serve` is started elsewhere")),
        Command::Completions(args) => return about::completions(&mut out, args),
        Command::Version => return about::version(&mut out),
        // It works on the bare store: nothing else in this process may run on it.
        Command::Doctor(args) => return doctor::run(target, args, token, out).await,
        Command::Restore(args) => return restore::run(target, args, &mut out),
        Command::Migrate(args) => return migrate::run(target, args, &mut out),
        Command::Copy(args) => return copy::run(target, args, &mut out),
        _ => {}
    }
    let mut session = Session { client: opened(target, token, store)?, out };
    let result = asked(&mut session, &command).await;
    let flushed = session.out.flush();
    session.client.end().await;
    let code = result?;
    flushed?;
    Ok(code)
}

/// Opens the store or gets ready to ask the server. That a store was made is printed on standard
/// error, also with --json: it may be the wrong directory.
fn opened(target: &Target, token: Option<String>, store: Store) -> Result<Client, Failure> {
    let file = target.store.file().filter(|_| target.server.is_none());
    let made = file.is_some_and(|file| matches!(file.try_exists(), Ok(false)));
    let client = Client::open(target, token, store)?;
    if made {
        // A closed standard error is ignored.
        let _ = writeln!(std::io::stderr(), "made a new store {}", target.store);
    }
    Ok(client)
}

/// Runs a command that calls a store or a server.
async fn asked(session: &mut Session, command: &Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Enqueue(args) => enqueue::run(session, args).await,
        Command::List(args) => list::run(session, args).await,
        Command::Show(args) => show::run(session, args).await,
        Command::Explain(args) => jobs::explain(session, args).await,
        Command::Wait(args) => wait::run(session, args).await,
        Command::Cancel(args) => jobs::cancel(session, args).await,
        Command::Retry(args) => jobs::retry(session, args).await,
        Command::Delete(args) => jobs::delete(session, args).await,
        Command::Bulk(args) => bulk::run(session, args).await,
        Command::Dlq(args) => dlq::run(session, args).await,
        Command::Errors(args) => errors::run(session, args).await,
        Command::Queue(args) => queue::run(session, args).await,
        Command::Worker(args) => worker::run(session, args).await,
        Command::Status(args) => status::run(session, args).await,
        Command::History(args) => history::run(session, args).await,
        Command::Top(args) => top::run(session, args).await,
        Command::Config(args) => config::run(session, args).await,
        Command::Backup(args) => backup::run(session, args).await,
        Command::Serve(_)
        | Command::Doctor(_)
        | Command::Restore(_)
        | Command::Migrate(_)
        | Command::Copy(_)
        | Command::Completions(_)
        | Command::Version => Ok(ExitCode::SUCCESS),
    }
}
