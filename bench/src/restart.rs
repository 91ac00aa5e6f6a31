//! The `restart` scenario: the time from `kill -9` of the real server to the next claim, and from
//! the opening of an embedded store to its first claim. Both are measured with few and with many
//! stored jobs, on which neither may depend.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use windlass_core::store::Store;
use windlass_runtime_tokio::{Clock, SystemClock};

use crate::bare::{Bare, LOAD, Place, Which, on_store};
use crate::measure::{Line, Outcome, Spread, time};
use crate::server::{Client, Server};

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    place: Place,
    /// Number of stored jobs.
    #[arg(long, value_delimiter = ',', default_values_t = [1_000, 1_000_000])]
    sizes: Vec<usize>,
    /// Number of times to kill the server and to open the store.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Path of the server; the binary beside this program if not given.
    #[arg(long)]
    binary: Option<PathBuf>,
    /// Print one JSON line per size.
    #[arg(long)]
    json: bool,
}

/// Times of one size of store.
#[derive(Debug, Default)]
struct Times {
    listening: Vec<Duration>,
    claim: Vec<Duration>,
    open: Vec<Duration>,
    first: Vec<Duration>,
}

/// Kills and reopens stores of every size; returns a line for each.
pub(crate) fn run(options: &Options) -> Outcome<String> {
    if options.place.store == Which::Memory {
        return Err("nothing in memory is left after a restart: use another --store".into());
    }
    let mut lines = Vec::new();
    for size in &options.sizes {
        let folder = options.place.folder()?;
        let path = folder.path();
        on_store!(options.place, path, |store| fill(options, store, *size))?;
        let mut times = Times::default();
        server(options, path, &mut times).map_err(|error| error.to_string())?;
        library(options, path, &mut times)?;
        let line = Line::new(options.json, "restart")
            .word("store", options.place.name())
            .count("jobs", *size)
            .count("rounds", options.rounds.max(1))
            .spread("kill_to_listening", Spread::of(times.listening))
            .spread("kill_to_claim", Spread::of(times.claim))
            .spread("library_open", Spread::of(times.open))
            .spread("library_first_claim", Spread::of(times.first));
        lines.push(line.finish());
    }
    Ok(lines.join("\n"))
}

fn fill<S: Store>(options: &Options, store: S, jobs: usize) -> Outcome<()> {
    Bare::new(store)?.enqueue(&options.place.job()?, jobs, LOAD)
}

/// Kills the real server while it has leases and a WAL that is not checkpointed, and starts it
/// again.
fn server(options: &Options, folder: &Path, times: &mut Times) -> Outcome<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let store = options.place.store.of_server(folder)?;
    let start = || Server::start(options.binary.as_deref(), &store, &[]);
    for _ in 0..options.rounds.max(1) {
        let victim = start()?;
        runtime.block_on(async {
            let mut client = Client::to(victim.address).await?;
            claim(&mut client).await?;
            for _ in 0..ENQUEUED {
                client.send("/jobs", r#"{"kind":"bench","payload":{"n":1}}"#).await?;
            }
            Outcome::Ok(())
        })?;
        let (listening, claimed) = time(|| {
            victim.kill()?;
            let (next, listening) = time(start)?;
            runtime.block_on(async { claim(&mut Client::to(next.address).await?).await })?;
            Outcome::Ok(listening)
        })?;
        times.listening.push(listening);
        times.claim.push(claimed);
    }
    Ok(())
}

/// Jobs that are enqueued one by one before each kill.
const ENQUEUED: usize = 64;

async fn claim(client: &mut Client) -> Outcome<()> {
    let (status, answer) = client.send("/jobs/poll", r#"{"worker":"bench","max":1}"#).await?;
    let answer = String::from_utf8_lossy(&answer);
    if status == 200 && answer.contains("\"token\"") {
        return Ok(());
    }
    Err(format!("a claim was answered with {status}: {answer}").into())
}

/// Opens the store in this process, as a program that embeds Windlass does.
fn library(options: &Options, folder: &Path, times: &mut Times) -> Outcome<()> {
    for _ in 0..options.rounds.max(1) {
        let began = SystemClock.micros();
        on_store!(options.place, folder, |store| first(options, store, began, times))?;
    }
    Ok(())
}

/// Makes the first claim and its completion on a store that was just opened.
fn first<S: Store>(options: &Options, store: S, began: u64, times: &mut Times) -> Outcome<()> {
    let since = || Duration::from_micros(SystemClock.micros() - began);
    times.open.push(since());
    Bare::new(store)?.claim_one(&options.place.job()?)?;
    times.first.push(since());
    Ok(())
}
