//! The file of an open store is changed from outside: it stops and says so, and acknowledges
//! nothing any more.

use std::fs::{self, OpenOptions, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use tempfile::TempDir;
use windlass_core::store::{Batch, CommitError, Dump, Outcomes, Reader, Store, StoreError};
use windlass_core::{BatchId, Policy, ProcessId};
use windlass_store_redb::RedbStore;
use windlass_tests::fixture::{START, work};
use windlass_tests::on_disk::scratch;

/// A store with some jobs in it.
struct Victim {
    store: RedbStore,
    dir: TempDir,
    seq: u64,
}

impl Victim {
    fn new() -> Self {
        let dir = scratch();
        let store = RedbStore::open(dir.path().join("jobs.redb")).expect("the store opens");
        let mut victim = Self { store, dir, seq: 0 };
        victim.enqueue().expect("a healthy store takes jobs");
        victim
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("jobs.redb")
    }

    fn enqueue(&mut self) -> Result<Outcomes, CommitError> {
        self.seq += 1;
        let id = BatchId { process: ProcessId(1), seq: self.seq };
        let mut batch = Batch::new(id, Policy::default());
        batch.enqueues = vec![work(); 20];
        self.store.commit(START, &batch)
    }

    fn dump(&self) -> Dump {
        let dump = self.store.reader().and_then(|mut reader| reader.dump());
        dump.expect("a healthy store can be read")
    }

    /// Nothing is acknowledged, now or later; the message names the file and what happened to it.
    #[track_caller]
    fn assert_stopped(&mut self, what: &str) {
        let error = self.enqueue().expect_err("it is not acknowledged");
        assert!(matches!(error, CommitError::Corrupt(_)), "{error}");
        assert_says(&error.to_string(), what);
        self.enqueue().expect_err("not at the second time either");
    }

    /// Reopening it does not help.
    #[track_caller]
    fn assert_lost(&mut self, what: &str) {
        let error = self.store.reopen().expect_err("it must not go on");
        assert!(matches!(error, StoreError::Corrupt(_)), "{error}");
        assert_says(&error.to_string(), what);
        self.enqueue().expect_err("it is not acknowledged");
    }
}

#[track_caller]
fn assert_says(text: &str, what: &str) {
    assert!(text.contains("jobs.redb") && text.contains(what), "{text}");
}

#[test]
fn a_store_whose_file_was_deleted_stops_and_makes_no_new_one() {
    let mut victim = Victim::new();
    fs::remove_file(victim.path()).expect("it can be deleted");
    victim.assert_stopped("deleted");
    victim.assert_lost("deleted");
    assert!(!victim.path().exists(), "an empty store took its place");
}

#[test]
fn a_store_that_was_moved_away_goes_on_once_it_is_back() {
    let mut victim = Victim::new();
    let before = victim.dump();
    let elsewhere = victim.dir.path().join("elsewhere");
    fs::rename(victim.path(), &elsewhere).expect("it can be moved");
    victim.assert_stopped("moved");
    fs::rename(elsewhere, victim.path()).expect("it can be moved back");
    victim.store.reopen().expect("it is the same file");
    assert_eq!(victim.dump(), before);
    victim.enqueue().expect("it goes on");
}

#[test]
fn a_store_whose_file_was_replaced_stops() {
    let mut victim = Victim::new();
    let backup = victim.dir.path().join("backup.redb");
    victim.store.backup(&backup).expect("it can be copied");
    fs::rename(backup, victim.path()).expect("it can be replaced");
    victim.assert_stopped("replaced");
    victim.assert_lost("replaced");
}

#[test]
fn a_store_whose_file_was_cut_stops() {
    for keep in [0, 2] {
        let mut victim = Victim::new();
        let file = OpenOptions::new().write(true).open(victim.path()).expect("it can be opened");
        let size = file.metadata().expect("it has a size").len();
        file.set_len(size / 4 * keep).expect("it can be cut");
        victim.assert_stopped("cut");
    }
}

#[test]
fn a_store_that_was_made_read_only_stops_until_it_can_be_written() {
    let mut victim = Victim::new();
    let before = victim.dump();
    let allow = |path: PathBuf, mode| fs::set_permissions(path, Permissions::from_mode(mode));
    allow(victim.path(), 0o400).expect("it can be made read-only");
    let error = victim.enqueue().expect_err("it is not acknowledged");
    assert!(matches!(error, CommitError::Fatal { outcomes: None, .. }), "{error}");
    assert_says(&error.to_string(), "read-only");
    let error = victim.store.reopen().expect_err("it is still read-only");
    assert!(matches!(error, StoreError::Busy(_)), "{error}");
    allow(victim.path(), 0o600).expect("it can be made writable");
    victim.store.reopen().expect("it can be written again");
    assert_eq!(victim.dump(), before);
    victim.enqueue().expect("it goes on");
}

/// redb itself cuts its file: when pages are checked, and when they are given back.
#[test]
fn a_store_that_was_verified_or_repaired_goes_on() {
    let mut victim = Victim::new();
    for _ in 0..3 {
        victim.enqueue().expect("it takes jobs");
        assert_eq!(victim.store.verify(), Ok(Vec::new()));
        victim.enqueue().expect("it takes jobs after it was verified");
        victim.store.repair().expect("it can be repaired");
        victim.enqueue().expect("it takes jobs after it was repaired");
    }
}
