//! `doctor`: whether a store agrees with itself. It reads the store, or asks a server; with
//! --repair it opens the store to write, and derives again what is derived.

use std::process::ExitCode;

use clap::Args;
use tokio::time::Instant;
use windlass_core::store::StoreError;

use crate::api::wire::Checkup;
use crate::cli::Target;
use crate::cli::client::{Client, Failure, Store};
use crate::cli::out::{Out, escaped, span};
use crate::store::{BareStore, OpenError, StoreUrl};

/// Check the store for inconsistencies: counters, keys, indexes, pages.
///
/// Reads the whole store and writes nothing. A SQLite store may be in use meanwhile. Exits with 1
/// if there are problems. On PostgreSQL it also reports problems of the server: transactions that
/// keep dead rows, missing rights, settings. With --server the server checks, and nothing is
/// repaired.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windlass doctor
  windlass doctor --repair")]
pub(crate) struct DoctorArgs {
    /// Rebuild counters, keys and indexes from the jobs, and remove what belongs to no job. Jobs
    /// are not changed. Works on the store itself.
    #[arg(long)]
    repair: bool,
}

/// Runs it. A repair works on the bare store, which nothing else in this process uses.
pub(crate) async fn run(
    target: &Target,
    args: &DoctorArgs,
    token: Option<String>,
    mut out: Out,
) -> Result<ExitCode, Failure> {
    let body = if args.repair {
        if target.server.is_some() {
            return Err(Failure::usage(
                "--repair works on the store itself: give --store instead of --server, on the \
                 machine that has the file",
            ));
        }
        repair(&target.store, &out)?.into()
    } else {
        let client = Client::open(target, token, Store::Exists)?;
        let reply = client.get_slowly("/doctor").await;
        client.end().await;
        reply?.body
    };
    let found: Checkup = serde_json::from_slice(&body)
        .map_err(|error| Failure::failed(format!("the answer is not as expected: {error}")))?;
    if out.json {
        out.answer(&body)?;
    } else {
        print(&mut out, &found)?;
    }
    out.flush()?;
    Ok(if found.ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print(out: &mut Out, found: &Checkup) -> Result<(), Failure> {
    for finding in &found.findings {
        out.line(&format!("problem  {}", escaped(finding)))?;
    }
    if found.more > 0 {
        out.line(&format!("problem  and {} more", found.more))?;
    }
    for notice in &found.notices {
        out.line(&format!("notice   {}", escaped(notice)))?;
    }
    let pages = if found.pages_checked { ", every page" } else { ", not its pages" };
    out.line(&format!("checked  {} jobs{pages} in {}", found.jobs, span(found.took_ms)))?;
    out.line(&format!(
        "result   {}",
        if found.ok { "no problems found" } else { "problems found" }
    ))?;
    if !found.ok {
        out.say("make a backup, then rebuild derived data: windlass doctor --repair");
    }
    Ok(())
}

fn repair(url: &StoreUrl, out: &Out) -> Result<Vec<u8>, Failure> {
    let started = Instant::now();
    let mut store = open(url)?;
    let mut found = store.verify().map_err(|error| unreadable(&error))?;
    if !found.is_empty() {
        for finding in found.iter().take(Checkup::SHOWN) {
            out.say(&format!("repaired: {finding}"));
        }
        store
            .repair()
            .map_err(|error| Failure::failed(format!("the store cannot be repaired: {error}")))?;
        found = store.verify().map_err(|error| unreadable(&error))?;
    }
    let checkup = Checkup {
        ok: found.is_empty(),
        jobs: store.jobs().map_err(|error| unreadable(&error))?,
        findings: found.iter().take(Checkup::SHOWN).map(ToString::to_string).collect(),
        more: found.len().saturating_sub(Checkup::SHOWN),
        notices: Vec::new(),
        pages_checked: url.file().is_some(),
        took_ms: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
    };
    serde_json::to_vec(&checkup).map_err(|error| Failure::failed(error.to_string()))
}

fn open(url: &StoreUrl) -> Result<BareStore, Failure> {
    if url.file().is_some_and(|path| !path.exists()) {
        return Err(Failure::not_found(format!("there is no store {url}; --store names it")));
    }
    BareStore::open(url).map_err(|error| match error {
        OpenError::InUse { .. } => Failure::unreachable(format!(
            "{url} is in use; ask its server with --server URL, or stop it first"
        )),
        other => Failure::from(&other),
    })
}

fn unreadable(error: &StoreError) -> Failure {
    Failure::failed(format!("the store cannot be read: {error}"))
}
