//! `doctor`: whether a store agrees with itself. On the store itself it can mend what is derived.

use std::process::ExitCode;

use clap::Args;
use serde::Deserialize;
use tokio::time::Instant;
use windlass_core::store::{Disagreement, Reader, Store as _};
use windlass_core::{Counts, View};
use windlass_store_redb::RedbStore;
use windlass_store_sqlite::SqliteStore;

use crate::cli::{StoreUrl, Target};
use crate::client::{Client, Failure, Store};
use crate::out::{Out, escaped, span};
use crate::wire::Checkup;

/// Check whether the store agrees with itself: counters, keys, indexes, pages.
///
/// It reads the whole store, and takes about as much memory as the store is large. A SQLite store
/// may be in use meanwhile. It exits with 1 if anything is wrong. With --server the server checks,
/// and nothing is mended.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windlass doctor
  windlass doctor --repair")]
pub(crate) struct DoctorArgs {
    /// Make counters, keys and indexes anew from the jobs, and remove what belongs to no job. No
    /// job is touched. It works on the store itself.
    #[arg(long)]
    repair: bool,
}

/// What a check has found, as it comes over HTTP.
#[derive(Debug, Deserialize)]
struct Found {
    ok: bool,
    jobs: u64,
    findings: Vec<String>,
    more: usize,
    pages_checked: bool,
    took_ms: u64,
}

/// Runs it: on the bare store, which nothing else in this process uses, or by asking a server.
pub(crate) async fn run(
    target: &Target,
    args: &DoctorArgs,
    token: Option<String>,
    mut out: Out,
) -> Result<ExitCode, Failure> {
    let body = if target.server.is_some() {
        if args.repair {
            return Err(Failure::usage(
                "--repair works on the store itself: give --store instead of --server, on the \
                 machine where it lies",
            ));
        }
        let client = Client::open(target, token, Store::Exists)?;
        client.get_slowly("/doctor").await?.body
    } else {
        check(&target.store, args.repair, &out)?.into()
    };
    let found: Found = serde_json::from_slice(&body)
        .map_err(|error| Failure::failed(format!("the answer is not as expected: {error}")))?;
    if out.json {
        out.answer(&body)?;
    } else {
        tell(&mut out, &found)?;
    }
    out.flush()?;
    Ok(if found.ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn tell(out: &mut Out, found: &Found) -> Result<(), Failure> {
    for finding in &found.findings {
        out.line(&format!("wrong    {}", escaped(finding)))?;
    }
    if found.more > 0 {
        out.line(&format!("wrong    and {} more", found.more))?;
    }
    let pages = if found.pages_checked { ", every page" } else { ", not its pages" };
    out.line(&format!("checked  {} jobs{pages} in {}", found.jobs, span(found.took_ms)))?;
    out.line(&format!("result   {}", if found.ok { "all is well" } else { "something is wrong" }))?;
    if !found.ok {
        out.say("make a backup, then mend what can be made anew: windlass doctor --repair");
    }
    Ok(())
}

/// An open store with nothing running on it.
enum Bare {
    Sqlite(Box<SqliteStore>),
    Redb(Box<RedbStore>),
}

impl Bare {
    fn open(url: &StoreUrl) -> Result<Self, Failure> {
        if !url.path().exists() {
            return Err(Failure::not_found(format!("there is no store {url}; --store names it")));
        }
        let failed = |why: String| Failure::failed(format!("{url} cannot be opened: {why}"));
        Ok(match url {
            StoreUrl::Sqlite(path) => {
                let store = SqliteStore::open(path).map_err(|error| failed(error.to_string()))?;
                Self::Sqlite(Box::new(store))
            }
            StoreUrl::Redb(path) => {
                let store = RedbStore::open(path).map_err(|error| match error {
                    windlass_store_redb::OpenError::Locked { .. } => Failure::unreachable(format!(
                        "{url} is in use; ask its server with --server URL, or stop it first"
                    )),
                    other => failed(other.to_string()),
                })?;
                Self::Redb(Box::new(store))
            }
        })
    }

    fn verify(&self) -> Result<Vec<Disagreement>, Failure> {
        let found = match self {
            Self::Sqlite(store) => store.verify(),
            Self::Redb(store) => store.verify(),
        };
        found.map_err(|error| Failure::failed(format!("the store cannot be read: {error}")))
    }

    fn repair(&mut self) -> Result<(), Failure> {
        let mended = match self {
            Self::Sqlite(store) => store.repair(),
            Self::Redb(store) => store.repair(),
        };
        mended.map_err(|error| Failure::failed(format!("the store cannot be mended: {error}")))
    }

    fn jobs(&self) -> Result<u64, Failure> {
        let queues = match self {
            Self::Sqlite(store) => store.reader().and_then(|mut reader| reader.queues()),
            Self::Redb(store) => store.reader().and_then(|mut reader| reader.queues()),
        };
        let queues = queues.map_err(|error| Failure::failed(error.to_string()))?;
        let sum = queues.iter().fold(Counts::default(), |sum, row| sum.plus(&row.total()));
        Ok(View::ALL.iter().map(|view| sum.get(*view)).sum())
    }
}

fn check(url: &StoreUrl, repair: bool, out: &Out) -> Result<Vec<u8>, Failure> {
    let started = Instant::now();
    let mut store = Bare::open(url)?;
    let mut found = store.verify()?;
    if repair && !found.is_empty() {
        for finding in found.iter().take(Checkup::SHOWN) {
            out.say(&format!("mended: {finding}"));
        }
        store.repair()?;
        found = store.verify()?;
    }
    let checkup = Checkup {
        ok: found.is_empty(),
        jobs: store.jobs()?,
        findings: found.iter().take(Checkup::SHOWN).map(ToString::to_string).collect(),
        more: found.len().saturating_sub(Checkup::SHOWN),
        pages_checked: true,
        took_ms: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
    };
    serde_json::to_vec(&checkup).map_err(|error| Failure::failed(error.to_string()))
}
