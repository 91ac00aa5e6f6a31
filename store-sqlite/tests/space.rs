//! The size of the files: the WAL is bounded and reused, the space of purged jobs given back.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rusqlite::Connection;
use tempfile::TempDir;
use windlass_core::store::{Batch, Purge, Settle, Store};
use windlass_core::{BatchId, LeaseToken, Millis, NewJob, Policy, ProcessId};
use windlass_store_sqlite::SqliteStore;
use windlass_tests::fixture::{
    START, claim_for, complete, keep_all_for, main_work, text, work as plain_work,
};

const MIB: u64 = 1 << 20;
/// The size that a log gets once there is work for it.
const FULL: u64 = 5_000 * (4_096 + 24) + 32;
/// How many pages go with one commit: 256, and those that said where they belong.
const STEP: i64 = 260;
/// What may be left of a log that was longer.
const KEPT: u64 = 64 * MIB;

/// A store, and what it takes on the disk.
struct Sized {
    store: SqliteStore,
    dir: TempDir,
    seq: u64,
}

impl Sized {
    fn new() -> Self {
        let dir = TempDir::new().expect("a directory");
        let store = SqliteStore::open(dir.path().join("jobs.db")).expect("it opens");
        Self { store, dir, seq: 0 }
    }

    fn path(&self, end: &str) -> PathBuf {
        self.dir.path().join(format!("jobs.db{end}"))
    }

    fn size(&self, end: &str) -> u64 {
        fs::metadata(self.path(end)).map_or(0, |found| found.len())
    }

    fn commit(&mut self, fill: impl FnOnce(&mut Batch)) -> windlass_core::store::Outcomes {
        self.seq += 1;
        let id = BatchId { process: ProcessId(1), seq: self.seq };
        let mut batch = Batch::new(id, Policy::default());
        fill(&mut batch);
        self.store.commit(START.plus(Millis::seconds(self.seq)), &batch).expect("it commits")
    }

    fn enqueue(&mut self, jobs: usize, bytes: usize) {
        let payload = text(&format!("\"{}\"", "p".repeat(bytes)));
        let new = NewJob { payload, ..plain_work() };
        self.commit(|batch| batch.enqueues = vec![new; jobs]);
    }

    fn number(&self, pragma: &str) -> i64 {
        let conn = Connection::open(self.path("")).expect("it opens");
        conn.query_row(&format!("PRAGMA {pragma}"), [], |row| row.get(0)).expect("it answers")
    }
}

/// A connection that holds its view of the store.
fn reader(path: &Path) -> Connection {
    let reader = Connection::open(path).expect("it opens");
    reader.execute_batch("BEGIN; SELECT count(*) FROM queues").expect("it reads");
    reader
}

#[test]
fn a_log_gets_its_full_size_once_there_is_work_and_is_recycled_then() {
    let mut store = Sized::new();
    store.enqueue(1, 10);
    assert!(store.size("-wal") < MIB, "a store that is hardly used stays small");
    store.enqueue(100, 8_000);
    assert_eq!(store.size("-wal"), FULL);
    for _ in 0..60 {
        store.enqueue(100, 8_000);
        assert_eq!(store.size("-wal"), FULL);
    }
    assert!(store.size("") > 2 * FULL, "the WAL was checkpointed several times");
}

#[test]
fn a_reader_held_open_for_long_costs_no_commit_and_the_log_shrinks_after_it() {
    let mut store = Sized::new();
    store.enqueue(1, 10);
    let reader = reader(&store.path(""));
    for _ in 0..14 {
        store.enqueue(100, 60_000);
    }
    assert!(store.size("-wal") > KEPT + 8 * MIB, "the reader keeps the WAL from being reset");
    drop(reader);
    for _ in 0..3 {
        store.enqueue(1, 10);
    }
    assert!(store.size("-wal") <= KEPT, "{} bytes of log", store.size("-wal"));
    assert_eq!(store.store.verify(), Ok(Vec::new()));
}

/// Takes some time, for a reader that has much to do.
const LONG_QUERY: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n \
    WHERE i < 5000) SELECT max(i), (SELECT count(*) FROM queues) FROM n";

/// Reads until it is stopped; each reader begins before the one before it has ended, so that
/// there never is a moment without any.
fn read_without_a_gap(path: &Path, stop: &AtomicBool) -> u64 {
    let mut readers = [reader(path), reader(path)];
    let mut turns = 0;
    while !stop.load(Ordering::Relaxed) {
        readers.swap(0, 1);
        readers[0].execute_batch("COMMIT; BEGIN; SELECT count(*) FROM queues").expect("it reads");
        readers[0].execute_batch(LONG_QUERY).expect("it reads on");
        turns += 1;
    }
    turns
}

/// The salt of a log, which SQLite changes each time it begins the log from its start again.
fn salt(log: &Path) -> [u8; 8] {
    let mut head = [0; 24];
    fs::File::open(log).and_then(|mut file| file.read_exact(&mut head)).expect("a log");
    head[16..].try_into().expect("8 bytes")
}

#[test]
fn readers_without_a_gap_between_them_do_not_let_the_log_grow_for_ever() {
    let mut store = Sized::new();
    store.enqueue(1, 10);
    let (path, log, stop) = (store.path(""), store.path("-wal"), AtomicBool::new(false));
    let (restarts, turns) = thread::scope(|scope| {
        let readers = scope.spawn(|| read_without_a_gap(&path, &stop));
        let mut salts = vec![salt(&log)];
        // Each 64 MB of log, readers are waited for; on a loaded machine in vain at times.
        for _ in 0..1_000 {
            store.enqueue(25, 60_000);
            let now = salt(&log);
            if salts.last() != Some(&now) {
                salts.push(now);
            }
            if salts.len() > 2 {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
        (salts.len() - 1, readers.join().expect("it reads to the end"))
    });
    assert!(turns > 10, "only {turns} readers");
    assert_eq!(restarts, 2, "{} bytes of log", store.size("-wal"));
}

#[test]
fn space_of_purged_jobs_is_given_back_in_bounded_steps() {
    let mut store = Sized::new();
    for _ in 0..8 {
        store.enqueue(50, 60_000);
    }
    let claimed = store.commit(|batch| batch.claims.push(claim_for(main_work(), "w1", 400)));
    let tokens: Vec<LeaseToken> =
        claimed.claims.iter().flat_map(|claim| &claim.jobs).map(|one| one.job.token()).collect();
    assert_eq!(tokens.len(), 400);
    store.commit(|batch| {
        batch.settles =
            tokens.iter().map(|token| Settle { token: *token, verdict: complete() }).collect();
    });
    let full = store.number("page_count");
    store.commit(|batch| {
        batch.purge = Some(Purge { retention: keep_all_for(Millis::new(1)), limit: 1_000 });
    });
    let mut pages = store.number("page_count");
    assert!((full - STEP..full).contains(&pages), "from {full} to {pages} pages");
    for _ in 0..40 {
        store.enqueue(1, 10);
        let now = store.number("page_count");
        assert!((pages - STEP..=pages).contains(&now), "from {pages} to {now} pages");
        pages = now;
    }
    let free = store.number("freelist_count");
    assert!((900..=1_000).contains(&free), "{free} of {pages} pages are free");
    assert!(pages < full / 4, "{pages} of {full} pages are left");
    store.store.reopen().expect("it reopens");
    assert!(store.size("") < 6 * MIB, "{} bytes", store.size(""));
    assert_eq!(store.store.verify(), Ok(Vec::new()));
}
