//! A real process that gets SIGTERM or SIGINT under load: what it acknowledged is stored, what it
//! had not finished is given back uncharged, and it claims nothing more.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]
#![cfg(unix)]

mod common;

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use common::within;
use tokio::signal::unix::{SignalKind, signal};
use windlass_core::store::{Batch, CommitError, Outcomes, Store, StoreError};
use windlass_core::{BatchId, JobId, Millis, StateName, Wall};
use windlass_runtime_tokio::{Clock, Context, NewJob, Queue, Runtime, SystemClock, seconds};
use windlass_store_sqlite::{SqliteReader, SqliteStore};

const NAME: &str = "a_process_asked_to_end_under_load_keeps_its_promises_and_claims_nothing_more";

/// What the child process is given: the store to work on.
const CHILD: &str = "WINDLASS_TEST_SIGNALS";

/// How many handlers of the child never end by themselves.
const ENDLESS: usize = 4;

#[test]
fn a_process_asked_to_end_under_load_keeps_its_promises_and_claims_nothing_more() {
    let tokio = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    if let Some(path) = std::env::var_os(CHILD) {
        return tokio.block_on(within(child(Path::new(&path))));
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs.db");
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", NAME, "--nocapture", "-q"]).env(CHILD, &path);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let (mut promised, mut signalled, mut late) = (Vec::new(), None, None);
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        if let Some(id) = line.strip_prefix("stored ") {
            promised.push(JobId::new(id.parse().unwrap()).unwrap());
        } else if let Some(count) = line.strip_prefix("late claims ") {
            late = Some(count.parse::<usize>().unwrap());
        }
        // It is busy, and its endless handlers run.
        if signalled.is_none() && promised.len() >= 500 {
            let pid = child.id().to_string();
            assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
            signalled = Some(SystemClock.now().mono);
        }
    }
    let status = child.wait().unwrap();
    let took = SystemClock.now().mono.since(signalled.unwrap());
    assert!(status.success(), "{status}");
    assert!(took < Millis::seconds(3), "a deadline of one second, and it took {took}");
    // One commit may have been on its way when the order came.
    assert!(late.unwrap() <= 1, "{late:?} commits with claims after it was asked to end");
    tokio.block_on(within(check(&path, &promised)));
}

/// Everything that was promised is there, is done or can be run at once, and nothing was charged
/// that did not end.
async fn check(path: &Path, promised: &[JobId]) {
    let queue = Runtime::builder(SqliteStore::open(path).unwrap()).start().unwrap();
    let (mut done, mut given_back) = (0, 0);
    for id in promised {
        let found = queue.get(*id).await.unwrap();
        let job = found.unwrap_or_else(|| panic!("job {id} was promised and is lost")).job;
        match job.state.name() {
            StateName::Done => {
                assert_eq!(job.attempts, 1, "{job:?}");
                done += 1;
            }
            StateName::Queued => {
                assert_eq!(job.attempts, 0, "{job:?}");
                given_back += usize::from(job.epoch.get() > 0);
            }
            other => panic!("job {id} is {other:?}"),
        }
    }
    assert!(done > 0, "results that were there are stored");
    assert!(given_back >= ENDLESS, "only {given_back} were given back");
    let counts = queue.counts().await.unwrap();
    assert_eq!(counts.get(windlass_core::View::Processing), 0, "{counts:?}");
    queue.shutdown(seconds(5)).await;
}

/// Enqueues and works until it is asked to end.
async fn child(path: &Path) {
    let (signalled, late) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let inner = SqliteStore::open(path).unwrap();
    let store = Spy { inner, signalled: Arc::clone(&signalled), late: Arc::clone(&late) };
    let queue = Runtime::builder(store)
        .workers(2 * ENDLESS)
        .handler("quick", |(): (), _: Context| async {})
        .handler("endless", |(): (), ctx: Context| async move {
            ctx.stopping().await;
            std::future::pending::<()>().await;
        })
        .start()
        .unwrap();
    let mut terminated = signal(SignalKind::terminate()).unwrap();
    for _ in 0..ENDLESS {
        stored(&queue, "endless").await;
    }
    for _ in 0..16 {
        let queue = queue.clone();
        tokio::spawn(async move { while stored(&queue, "quick").await {} });
    }
    terminated.recv().await;
    let ending = queue.shutdown(seconds(1));
    let mut ending = std::pin::pin!(ending);
    // Asked once, the order is in the mailbox; from then on claims are late.
    let first = std::future::poll_fn(|cx| std::task::Poll::Ready(ending.as_mut().poll(cx))).await;
    signalled.store(true, Ordering::SeqCst);
    let report = match first {
        std::task::Poll::Ready(report) => report,
        std::task::Poll::Pending => ending.await,
    };
    assert!(report.is_clean(), "{report:?}");
    assert!(report.released >= ENDLESS as u64, "{report:?}");
    say(&format!("late claims {}", late.load(Ordering::SeqCst)));
}

/// Enqueues a job and says so; not after the end has begun.
async fn stored(queue: &Queue, kind: &str) -> bool {
    let Ok(receipt) = queue.enqueue(NewJob::of(kind, &()).unwrap()).await else { return false };
    say(&format!("stored {}", receipt.id));
    true
}

/// Says a whole line to the parent.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").unwrap();
    out.flush().unwrap();
}

/// A store that counts the commits that claim after the process was asked to end.
struct Spy {
    inner: SqliteStore,
    signalled: Arc<AtomicBool>,
    late: Arc<AtomicUsize>,
}

impl Store for Spy {
    type Reader = SqliteReader;

    fn commit(&mut self, now: Wall, batch: &Batch) -> Result<Outcomes, CommitError> {
        if !batch.claims.is_empty() && self.signalled.load(Ordering::SeqCst) {
            self.late.fetch_add(1, Ordering::SeqCst);
        }
        self.inner.commit(now, batch)
    }

    fn was_committed(&mut self, batch: BatchId) -> Result<bool, StoreError> {
        self.inner.was_committed(batch)
    }

    fn reopen(&mut self) -> Result<(), StoreError> {
        self.inner.reopen()
    }

    fn reader(&self) -> Result<SqliteReader, StoreError> {
        self.inner.reader()
    }
}
