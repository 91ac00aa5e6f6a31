//! Opening a store: what is refused, with what words, and what a fresh one looks like.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::thread;

use rusqlite::Connection;
use tempfile::TempDir;
use windlass_core::store::{Batch, CommitError, Reader, Store};
use windlass_core::{BatchId, Kind, NewJob, Payload, Policy, ProcessId, Wall};
use windlass_store_sqlite::{OpenError, SqliteReader, SqliteStore};

fn scratch() -> (TempDir, PathBuf) {
    let dir = TempDir::new().expect("a directory");
    let path = dir.path().join("data").join("jobs.db");
    (dir, path)
}

fn refusal(path: &Path) -> OpenError {
    SqliteStore::open(path).expect_err("it is refused")
}

fn enqueue(store: &mut SqliteStore, seq: u64) {
    let id = BatchId { process: ProcessId(1), seq };
    let mut batch = Batch::new(id, Policy::default());
    batch.enqueues.push(NewJob::new(Kind::default(), Payload::null()));
    store.commit(Wall::new(1), &batch).expect("it commits");
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("it exists").permissions().mode() & 0o777
}

#[test]
fn a_fresh_store_belongs_to_its_owner_alone() {
    let (_dir, path) = scratch();
    let mut store = SqliteStore::open(&path).expect("it opens");
    enqueue(&mut store, 1);
    assert_eq!(mode(path.parent().expect("a directory")), 0o700);
    for end in ["", "-wal", "-shm"] {
        let mut file = path.clone().into_os_string();
        file.push(end);
        assert_eq!(mode(Path::new(&file)), 0o600, "{end}");
    }
}

#[test]
fn many_that_open_a_fresh_file_at_once_all_succeed() {
    for _ in 0..20 {
        let (_dir, path) = scratch();
        let barrier = Barrier::new(4);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    barrier.wait();
                    SqliteStore::open(&path).expect("it opens");
                });
            }
        });
    }
}

#[test]
fn a_file_that_is_no_database_is_refused_and_left_as_it_was() {
    let (dir, _) = scratch();
    let path = dir.path().join("notes.txt");
    let text =
        "these are notes, and no database at all; they are longer than a header is. ".repeat(9);
    fs::write(&path, &text).expect("it is written");
    let refused = refusal(&path);
    assert!(matches!(refused, OpenError::Foreign { .. }), "{refused}");
    assert!(refused.to_string().contains("give the path of another file"), "{refused}");
    assert_eq!(fs::read_to_string(&path).expect("it is there"), text);
}

#[test]
fn a_database_of_another_program_is_refused() {
    let (dir, _) = scratch();
    let path = dir.path().join("other.db");
    Connection::open(&path)
        .and_then(|conn| conn.execute_batch("CREATE TABLE theirs (x)"))
        .expect("it is made");
    let refused = refusal(&path);
    assert!(matches!(refused, OpenError::Foreign { .. }), "{refused}");
}

#[test]
fn a_store_of_a_newer_windlass_is_refused_and_left_as_it_was() {
    let (_dir, path) = scratch();
    drop(SqliteStore::open(&path).expect("it opens"));
    let conn = Connection::open(&path).expect("it opens");
    conn.pragma_update(None, "user_version", 99).expect("it is set");
    drop(conn);
    let refused = refusal(&path);
    assert!(matches!(refused, OpenError::Newer { found: 99, known: 12, .. }), "{refused}");
    assert!(refused.to_string().contains("newer Windlass"), "{refused}");
}

#[test]
fn a_path_that_cannot_be_is_refused_by_name() {
    let (dir, _) = scratch();
    let file = dir.path().join("file");
    fs::write(&file, "").expect("it is written");
    for path in [file.join("jobs.db"), dir.path().to_path_buf()] {
        let refused = refusal(&path).to_string();
        assert!(refused.contains(&path.display().to_string()), "{refused}");
    }
}

#[test]
fn a_backup_under_load_is_a_store_of_its_own_and_overwrites_nothing() {
    let (dir, path) = scratch();
    let mut store = SqliteStore::open(&path).expect("it opens");
    enqueue(&mut store, 1);
    let to = dir.path().join("copy.db");
    store.backup(&to).expect("it is copied");
    enqueue(&mut store, 2);
    assert_eq!(mode(&to), 0o600);
    let copy = SqliteStore::open(&to).expect("the copy opens");
    let jobs = copy.reader().and_then(|mut reader| reader.dump()).expect("it dumps").jobs;
    assert_eq!((jobs.len(), copy.verify()), (1, Ok(Vec::new())));
    let refused = store.backup(&to).expect_err("it exists");
    assert!(refused.to_string().contains("copy.db"), "{refused}");
}

#[test]
fn what_disagrees_is_found_and_repaired() {
    let (_dir, path) = scratch();
    let mut store = SqliteStore::open(&path).expect("it opens");
    enqueue(&mut store, 1);
    let conn = Connection::open(&path).expect("it opens");
    for (harm, word) in [
        ("UPDATE counts SET queued = 7", "counters"),
        ("INSERT INTO results (job, text) VALUES (99, '1')", "results"),
        ("INSERT INTO keys VALUES ('k', 99, zeroblob(16), 0, NULL)", "key k"),
        ("INSERT INTO keys VALUES ('n', 1, zeroblob(16), 0, NULL)", "does not carry it"),
        ("UPDATE bodies SET idempotency_key = 'lost'", "carries key lost"),
        ("UPDATE meta SET value = 0", "next id"),
        ("UPDATE jobs SET payload_bytes = 9", "payload"),
        ("UPDATE jobs SET class = 9, due = 1", "ranked"),
    ] {
        conn.execute_batch(harm).expect("the harm is done");
        let found = store.verify().expect("it can be verified");
        assert!(found.iter().any(|one| one.0.contains(word)), "{harm}: {found:?}");
        store.repair().expect("it can be repaired");
        assert_eq!(store.verify(), Ok(Vec::new()), "{harm}");
    }
}

#[test]
fn another_process_is_noticed_and_our_own_commits_are_not() {
    let (_dir, path) = scratch();
    let mut ours = SqliteStore::open(&path).expect("it opens");
    assert_eq!(ours.news(&[]).map(|news| news.wrote), Ok(false));
    let mut theirs = SqliteStore::open(&path).expect("it opens twice");
    // Opening a store commits, to sync what others have in the WAL.
    assert_eq!(ours.news(&[]).map(|news| news.wrote), Ok(true));
    enqueue(&mut ours, 1);
    assert_eq!(ours.news(&[]).map(|news| news.wrote), Ok(false));
    enqueue(&mut theirs, 1);
    assert_eq!(ours.news(&[]).map(|news| news.wrote), Ok(true));
    assert_eq!(ours.news(&[]).map(|news| news.wrote), Ok(false));
}

#[test]
fn a_foreign_writer_that_does_not_let_go_costs_a_retry_and_leaves_no_transaction_open() {
    let (_dir, path) = scratch();
    let mut store = SqliteStore::open(&path).expect("it opens");
    enqueue(&mut store, 1);
    let foreign = Connection::open(&path).expect("it opens");
    foreign.execute_batch("BEGIN IMMEDIATE").expect("no other process writes");
    let batch = Batch::new(BatchId { process: ProcessId(1), seq: 2 }, Policy::default());
    let refused = store.commit(Wall::new(1), &batch).expect_err("another is writing");
    assert!(matches!(refused, CommitError::NotCommitted(_)), "{refused}");
    assert!(refused.to_string().contains("locked"), "{refused}");
    let jobs = store.reader().and_then(|mut reader| reader.dump()).expect("it can be read").jobs;
    assert_eq!(jobs.len(), 1);
    foreign.execute_batch("COMMIT; BEGIN IMMEDIATE; COMMIT").expect("no lock is held");
    enqueue(&mut store, 2);
}

/// Puts a copy in the place of a store that has written much to its WAL since, as if its process
/// had been killed.
fn replaced(path: &Path, copy: &Path) {
    let side = |end| {
        let mut file = path.to_path_buf().into_os_string();
        file.push(end);
        PathBuf::from(file)
    };
    let kept = path.with_extension("kept");
    let mut store = SqliteStore::open(path).expect("it opens");
    (2..200).for_each(|seq| enqueue(&mut store, seq));
    fs::copy(side("-wal"), &kept).expect("a copy");
    drop(store);
    let _ = fs::remove_file(side("-shm"));
    fs::rename(kept, side("-wal")).expect("the WAL as it was");
    fs::copy(copy, path).expect("a copy");
}

#[test]
fn a_copy_beside_the_wal_of_the_old_store_is_refused_with_what_to_do() {
    for used in [false, true] {
        let (dir, path) = scratch();
        let copy = dir.path().join("copy.db");
        let mut store = SqliteStore::open(&path).expect("it opens");
        enqueue(&mut store, 1);
        store.backup(&copy).expect("a copy");
        drop(store);
        if used {
            // Its pages lie elsewhere than those of the store.
            let other = Connection::open(&copy).expect("it opens");
            for n in 0..60 {
                let sql = format!("CREATE TABLE other{n} (x PRIMARY KEY) WITHOUT ROWID");
                other.execute_batch(&sql).expect("it is made");
            }
            drop(other);
            enqueue(&mut SqliteStore::open(&copy).expect("it opens"), 1);
        }
        replaced(&path, &copy);
        let refused = [refusal(&path), SqliteReader::open(&path).expect_err("it is refused")];
        for error in refused {
            assert!(matches!(error, OpenError::StaleWal { .. }), "used: {used}, {error}");
            let advice = error.to_string();
            assert!(advice.contains("jobs.db-wal") && advice.contains("restore"), "{advice}");
        }
        assert_eq!(fs::read(&path).ok(), fs::read(&copy).ok(), "it is as it was");
    }
}

/// Closing a file drops all locks that the process has on it.
#[test]
fn opening_a_store_again_leaves_its_locks_in_place() {
    let (_dir, path) = scratch();
    let mut store = SqliteStore::open(&path).expect("it opens");
    enqueue(&mut store, 1);
    let locks = || fs::read_to_string("/proc/locks").expect("the locks of the system");
    let inode = fs::metadata(&path).expect("it exists").ino();
    let held = || locks().lines().filter(|line| line.contains(&format!(":{inode} "))).count();
    let before = held();
    assert!(before > 0, "{}", locks());
    SqliteReader::open(&path).expect("it opens");
    SqliteStore::open(&path).expect("it opens");
    assert_eq!(held(), before);
}
