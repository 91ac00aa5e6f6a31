//! The files of an open store are changed from outside: it stops and says so, and acknowledges
//! nothing any more.

use std::fs::{self, File, OpenOptions, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use windlass_core::store::{CommitError, Dump, Store, StoreError};
use windlass_store_sqlite::{OpenError, SqliteStore};
use windlass_tests::on_disk::scratch;

use crate::story::{perform, short_story};
use crate::watch::dump;

/// An ordinary store with some jobs in it, all of them in the database file.
struct Victim {
    store: SqliteStore,
    dir: TempDir,
}

impl Victim {
    fn new() -> Self {
        let dir = scratch();
        let mut store = SqliteStore::open(dir.path().join("jobs.db")).expect("the store opens");
        for act in &short_story()[..4] {
            perform(&mut store, act).expect("a healthy store commits");
        }
        Self { store, dir }
    }

    fn path(&self, end: &str) -> PathBuf {
        self.dir.path().join(format!("jobs.db{end}"))
    }

    /// Nothing is acknowledged, now or later; the message names the file and what happened to it.
    #[track_caller]
    fn assert_stopped(&mut self, file: &str, what: &str) {
        let next = &short_story()[4];
        let error = self.store.news(&[]).expect_err("it is noticed without a commit");
        assert_says(&error.to_string(), file, what);
        let error = perform(&mut self.store, next).expect_err("it is not acknowledged");
        assert!(matches!(error, CommitError::Corrupt(_)), "{error}");
        assert_says(&error.to_string(), file, what);
        perform(&mut self.store, next).expect_err("not at the second time either");
    }

    /// Reopening it does not help.
    #[track_caller]
    fn assert_lost(&mut self, what: &str) {
        let error = self.store.reopen().expect_err("it must not go on");
        assert!(matches!(error, StoreError::Corrupt(_)), "{error}");
        assert_says(&error.to_string(), "jobs.db", what);
        perform(&mut self.store, &short_story()[4]).expect_err("it is not acknowledged");
    }
}

#[track_caller]
fn assert_says(text: &str, file: &str, what: &str) {
    assert!(text.contains(file) && text.contains(what), "{text}");
}

#[test]
fn a_store_whose_file_was_deleted_stops_and_makes_no_new_one() {
    let mut victim = Victim::new();
    fs::remove_file(victim.path("")).expect("it can be deleted");
    victim.assert_stopped("jobs.db", "deleted");
    victim.assert_lost("deleted");
    assert!(!victim.path("").exists(), "an empty store took its place");
}

#[test]
fn a_store_that_was_moved_away_goes_on_once_it_is_back() {
    let mut victim = Victim::new();
    let before = dump(&victim.store);
    let elsewhere = victim.dir.path().join("elsewhere");
    fs::rename(victim.path(""), &elsewhere).expect("it can be moved");
    victim.assert_stopped("jobs.db", "moved");
    fs::rename(elsewhere, victim.path("")).expect("it can be moved back");
    victim.store.reopen().expect("it is the same file");
    assert_eq!(dump(&victim.store), before);
    perform(&mut victim.store, &short_story()[4]).expect("it goes on");
}

/// A backup is restored while a server runs.
fn replace(victim: &Victim) -> Dump {
    let before = dump(&victim.store);
    let backup = victim.dir.path().join("backup.db");
    victim.store.backup(&backup).expect("it can be copied");
    fs::rename(backup, victim.path("")).expect("it can be replaced");
    before
}

#[test]
fn a_store_whose_file_was_replaced_stops() {
    let mut victim = Victim::new();
    replace(&victim);
    victim.assert_stopped("jobs.db", "replaced");
    victim.assert_lost("replaced");
}

#[test]
fn a_store_that_is_closed_leaves_the_log_of_its_successor_alone() {
    let victim = Victim::new();
    let before = replace(&victim);
    let log = victim.path("-wal");
    fs::write(&log, b"the log of another").expect("it can be written");
    let Victim { store, dir } = victim;
    drop(store);
    let kept = fs::read(&log).expect("it is still there");
    assert_eq!(kept, b"the log of another");
    let path = dir.path().join("jobs.db");
    let refused = SqliteStore::open(&path).expect_err("the log is that of another");
    assert!(matches!(refused, OpenError::StaleWal { .. }), "{refused}");
    fs::remove_file(&log).expect("it can be removed");
    let store = SqliteStore::open(path).expect("the successor opens");
    assert_eq!(dump(&store), before);
}

#[test]
fn a_store_whose_log_was_deleted_stops() {
    let mut victim = Victim::new();
    fs::remove_file(victim.path("-wal")).expect("it can be deleted");
    victim.assert_stopped("jobs.db-wal", "deleted");
    victim.store.reopen().expect("all that was acknowledged is in the database");
    perform(&mut victim.store, &short_story()[4]).expect("it goes on");
}

#[test]
fn a_store_whose_shared_memory_was_deleted_stops() {
    let mut victim = Victim::new();
    fs::remove_file(victim.path("-shm")).expect("it can be deleted");
    victim.assert_stopped("jobs.db-shm", "deleted");
}

fn cut(path: &Path, keep: impl Fn(u64) -> u64) {
    let file: File = OpenOptions::new().write(true).open(path).expect("it can be opened");
    let size = file.metadata().expect("it has a size").len();
    file.set_len(keep(size)).expect("it can be cut");
}

#[test]
fn a_store_whose_file_was_emptied_stops() {
    let mut victim = Victim::new();
    cut(&victim.path(""), |_| 0);
    victim.assert_stopped("jobs.db", "cut");
    victim.assert_lost("cut");
}

#[test]
fn a_store_whose_file_was_cut_in_half_stops() {
    let mut victim = Victim::new();
    cut(&victim.path(""), |size| size / 2);
    victim.assert_stopped("jobs.db", "cut");
    victim.assert_lost("cut");
}

#[test]
fn a_store_that_was_made_read_only_stops_until_it_can_be_written() {
    let mut victim = Victim::new();
    let (before, next) = (dump(&victim.store), &short_story()[4]);
    let allow = |mode| fs::set_permissions(victim.path(""), Permissions::from_mode(mode));
    allow(0o400).expect("it can be made read-only");
    let error = perform(&mut victim.store, next).expect_err("it is not acknowledged");
    assert!(matches!(error, CommitError::Fatal { outcomes: None, .. }), "{error}");
    assert_says(&error.to_string(), "jobs.db", "read-only");
    let error = victim.store.reopen().expect_err("it is still read-only");
    assert!(matches!(error, StoreError::Busy(_)), "{error}");
    assert_says(&error.to_string(), "jobs.db", "read-only");
    let path = victim.dir.path().join("jobs.db");
    fs::set_permissions(path, Permissions::from_mode(0o600)).expect("it can be made writable");
    victim.store.reopen().expect("it can be written again");
    assert_eq!(dump(&victim.store), before);
    perform(&mut victim.store, next).expect("it goes on");
}
