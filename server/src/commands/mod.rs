//! What each command does. A command is written against the HTTP contract and calls the client;
//! whether a server or the store answers is not known here.

pub(crate) mod backup;
pub(crate) mod config;
pub(crate) mod doctor;
pub(crate) mod enqueue;
mod hints;
pub(crate) mod list;
pub(crate) mod show;
pub(crate) mod status;
pub(crate) mod top;
pub(crate) mod worker;

use std::process::ExitCode;

use crate::cli::{Command, Target};
use crate::client::{Client, Failure, Store};
use crate::out::Out;

pub(crate) use hints::nearest;

/// A command at work: whom it asks, and where it writes.
pub(crate) struct Session {
    pub(crate) client: Client,
    pub(crate) out: Out,
}

/// Runs a command in a small runtime of its own, and returns its exit code.
pub(crate) fn main(target: &Target, command: Command, token: Option<String>) -> ExitCode {
    let result = block_on(run(target, command, token, Out::new(target.json)));
    result.unwrap_or_else(|failure| failure.tell(target.json))
}

/// Runs something to its end in a small runtime of its own.
fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime
        .map_err(|error| Failure::failed(format!("the system refused to start: {error}")))?;
    let result = runtime.block_on(work);
    // Reads that hang must not keep the process.
    runtime.shutdown_background();
    result
}

async fn run(
    target: &Target,
    command: Command,
    token: Option<String>,
    out: Out,
) -> Result<ExitCode, Failure> {
    // It works on the bare store: nothing may run on it meanwhile in this process.
    if let Command::Doctor(args) = &command {
        return doctor::run(target, args, token, out).await;
    }
    let on = |store| Session::open(target, token, store, out);
    match command {
        Command::Serve(_) | Command::Doctor(_) => {
            Err(Failure::usage("this command is not run here; this is a bug"))
        }
        Command::Backup(args) => {
            on(Store::Exists)?.runs(async |session| backup::run(session, &args).await).await
        }
        Command::Config(args) => {
            let store = if args.writes() { Store::Made } else { Store::Exists };
            on(store)?.runs(async |session| config::run(session, &args).await).await
        }
        Command::Worker(args) => {
            on(Store::Exists)?.runs(async |session| worker::run(session, &args).await).await
        }
        Command::Status(args) => {
            on(Store::Exists)?.runs(async |session| status::run(session, &args).await).await
        }
        Command::Top(args) => {
            on(Store::Exists)?.runs(async |session| top::run(session, &args).await).await
        }
        Command::Enqueue(args) => {
            on(Store::Made)?.runs(async |session| enqueue::run(session, &args).await).await
        }
        Command::List(args) => {
            on(Store::Exists)?.runs(async |session| list::run(session, &args).await).await
        }
        Command::Show(args) => {
            on(Store::Exists)?.runs(async |session| show::run(session, &args).await).await
        }
    }
}

impl Session {
    fn open(
        target: &Target,
        token: Option<String>,
        store: Store,
        out: Out,
    ) -> Result<Self, Failure> {
        Ok(Self { client: Client::open(target, token, store)?, out })
    }

    /// Runs a command to its end, then ends in order whatever became of it.
    async fn runs(
        mut self,
        command: impl AsyncFnOnce(&mut Self) -> Result<ExitCode, Failure>,
    ) -> Result<ExitCode, Failure> {
        let result = command(&mut self).await;
        let flushed = self.out.flush();
        self.client.end().await;
        let code = result?;
        flushed?;
        Ok(code)
    }
}
