//! Opening, copying, checking and repairing: what is refused, with which words, and what is put
//! right.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use redb::{Database, ReadableTable, TableDefinition, WriteTransaction};
use tempfile::TempDir;
use windlass_core::store::{Admin, Batch, ClaimFor, CommitError, Reader, Store, Taker};
use windlass_core::{
    BatchId, Demand, Fingerprint, Idempotency, IdempotencyKey, JobId, Kind, NewJob, Payload,
    Policy, ProcessId, Wall, WorkerId,
};
use windlass_store_redb::{OpenError, RedbStore};

fn dir() -> TempDir {
    TempDir::new().expect("a directory")
}

fn open(path: &Path) -> RedbStore {
    RedbStore::open(path).expect("the store opens")
}

fn refused(path: &Path) -> OpenError {
    RedbStore::open(path).expect_err("the file is refused")
}

/// A store with jobs that wait, run and have keys.
fn filled(path: &Path) -> RedbStore {
    let mut store = open(path);
    commit(&mut store, 1, |batch| {
        for at in 0..20 {
            let mut new = NewJob::new(Kind::default(), Payload::null());
            let key = IdempotencyKey::new(&format!("key-{at}")).expect("it is a key");
            new.idempotency = Some(Idempotency { key, payload: Fingerprint(at) });
            batch.enqueues.push(new);
        }
        let worker = WorkerId::new("w1").expect("it is a name");
        let takers = vec![Taker { worker, max: 5, length: None }];
        batch.claims.push(ClaimFor { demand: Demand::ALL, takers });
    });
    store
}

fn commit(store: &mut RedbStore, seq: u64, fill: impl FnOnce(&mut Batch)) {
    let id = BatchId { process: ProcessId(1), seq };
    let mut batch = Batch::new(id, Policy::default());
    fill(&mut batch);
    store.commit(Wall::new(1_000), &batch).expect("the store is well");
}

fn dump(store: &RedbStore) -> String {
    let dump = store.reader().and_then(|mut reader| reader.dump());
    dump.expect("it can be read").to_string()
}

#[test]
fn a_second_opener_is_refused_until_the_first_is_gone() {
    let dir = dir();
    let path = dir.path().join("jobs.redb");
    let first = open(&path);
    let error = refused(&path);
    assert!(matches!(error, OpenError::Locked { .. }), "{error:?}");
    assert!(error.to_string().contains("another process"), "{error}");
    drop(first);
    open(&path);
}

#[test]
fn a_reader_left_behind_does_not_keep_the_file_from_being_reopened() {
    let dir = dir();
    let mut store = filled(&dir.path().join("jobs.redb"));
    let mut reader = store.reader().expect("it is open");
    let before = reader.dump().expect("it can be read");
    store.reopen().expect("it reopens");
    assert_eq!(reader.dump().expect("it can still be read"), before);
    assert_eq!(store.verify(), Ok(Vec::new()));
}

#[test]
fn a_reader_left_behind_does_not_keep_the_file_open_when_the_store_is_gone() {
    let dir = dir();
    let path = dir.path().join("jobs.redb");
    let store = filled(&path);
    let mut reader = store.reader().expect("it is open");
    drop(store);
    let error = reader.next_due().expect_err("the store is gone").to_string();
    assert!(error.contains("the store was closed"), "{error}");
    assert_eq!(open(&path).verify(), Ok(Vec::new()));
}

#[test]
fn a_new_directory_and_file_are_for_their_owner_alone() {
    let dir = dir();
    let path = dir.path().join("data").join("jobs.redb");
    drop(open(&path));
    let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(path.parent().expect("it has one")), 0o700);
    let files = fs::read_dir(path.parent().expect("it has one")).expect("it can be listed");
    assert_eq!(files.count(), 1, "nothing else is left there");
}

#[test]
fn files_that_are_not_ours_are_refused_and_left_as_they_are() {
    let dir = dir();
    let text = dir.path().join("notes.txt");
    fs::write(&text, "These are notes, and no database.").expect("it can be written");
    assert!(matches!(refused(&text), OpenError::Foreign { .. }));
    assert_eq!(fs::read(&text).expect("it is there"), b"These are notes, and no database.");

    for name in ["other", "meta"] {
        let path = dir.path().join(format!("{name}.redb"));
        tamper(&path, |txn| {
            let table: TableDefinition<'_, u64, u64> = TableDefinition::new(name);
            txn.open_table(table).expect("it opens").insert(1, 2).expect("it is put");
        });
        let error = refused(&path);
        assert!(error.to_string().contains("another program"), "{error}");
    }
    assert!(matches!(refused(dir.path()), OpenError::Redb { .. }));
}

/// Changes a file behind the store's back.
fn tamper(path: &Path, change: impl FnOnce(&WriteTransaction)) {
    let db = Database::create(path).expect("it opens");
    let txn = db.begin_write().expect("no other transaction writes");
    change(&txn);
    txn.commit().expect("it is committed");
}

const META: TableDefinition<'_, &[u8], u64> = TableDefinition::new("meta");
const JOBS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("jobs");
const PAYLOADS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("payloads");
const READY: TableDefinition<'_, &[u8; 34], ()> = TableDefinition::new("ready2");
const LEASED: TableDefinition<'_, &[u8; 16], &[u8]> = TableDefinition::new("leased");
const DONE: TableDefinition<'_, &[u8; 16], ()> = TableDefinition::new("done");
const COUNTS: TableDefinition<'_, &[u8; 8], &[u8]> = TableDefinition::new("counts");
const KEYS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("keys");
const PAIRS: TableDefinition<'_, &[u8; 16], ()> = TableDefinition::new("pairs");
const SETTLED: TableDefinition<'_, &[u8; 25], ()> = TableDefinition::new("settled");
const KEYED: TableDefinition<'_, &[u8], ()> = TableDefinition::new("keyed");

#[test]
fn a_newer_schema_is_refused() {
    let dir = dir();
    let path = dir.path().join("jobs.redb");
    drop(filled(&path));
    tamper(&path, |txn| {
        txn.open_table(META).expect("it opens").insert(&b"schema"[..], 1_000).expect("it is put");
    });
    let error = refused(&path);
    assert!(matches!(error, OpenError::Newer { found: 1_000, .. }), "{error:?}");
    assert!(error.to_string().contains("newer Windlass"), "{error}");
}

#[test]
fn a_missing_table_is_corruption() {
    let dir = dir();
    let path = dir.path().join("jobs.redb");
    drop(filled(&path));
    tamper(&path, |txn| assert!(txn.delete_table(READY).expect("it goes")));
    let error = refused(&path);
    assert!(matches!(error, OpenError::Corrupt { .. }), "{error:?}");
    assert!(error.to_string().contains("ready2"), "{error}");
}

#[test]
fn a_copy_is_as_the_store_was_and_overwrites_nothing() {
    let dir = dir();
    let mut store = filled(&dir.path().join("jobs.redb"));
    let before = dump(&store);
    let copy = dir.path().join("copy.redb");
    store.backup(&copy).expect("it is copied");
    commit(&mut store, 2, |batch| {
        batch.enqueues.push(NewJob::new(Kind::default(), Payload::null()));
    });
    let again = store.backup(&copy).expect_err("it is there already");
    assert!(matches!(again, OpenError::Create { .. }), "{again:?}");
    assert_eq!(fs::metadata(&copy).expect("it is there").permissions().mode() & 0o777, 0o600);
    let copied = open(&copy);
    assert_eq!(dump(&copied), before);
    assert_eq!(copied.verify(), Ok(Vec::new()));
    assert_ne!(dump(&store), before, "the store went on meanwhile");
}

/// Damages a store, and checks that the damage is found and put right.
fn check_repaired(what: &str, damage: impl FnOnce(&WriteTransaction)) {
    let dir = dir();
    let path = dir.path().join("jobs.redb");
    let before = dump(&filled(&path));
    tamper(&path, damage);
    let mut store = open(&path);
    let found = store.verify();
    assert!(!matches!(&found, Ok(found) if found.is_empty()), "{what} was not found");
    store.repair().unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(store.verify(), Ok(Vec::new()), "{what}");
    let jobs = |dump: &str| dump.lines().filter(|line| line.starts_with("job")).count();
    assert_eq!(jobs(&dump(&store)), jobs(&before), "{what}");
}

#[test]
fn damage_to_what_is_derived_from_rows_is_found_and_repaired() {
    check_repaired("a ready job that is not indexed", |txn| {
        let mut ready = txn.open_table(READY).expect("it opens");
        ready.pop_first().expect("it goes").expect("there is one");
    });
    check_repaired("a ready job that is indexed by another rank", |txn| {
        let mut ready = txn.open_table(READY).expect("it opens");
        let (key, _) = ready.pop_first().expect("it goes").expect("there is one");
        let mut other = *key.value();
        drop(key);
        other[17] = 1;
        ready.insert(&other, ()).expect("it is put");
    });
    check_repaired("a job that is not indexed by queue and kind", |txn| {
        let mut pairs = txn.open_table(PAIRS).expect("it opens");
        pairs.pop_first().expect("it goes").expect("there is one");
    });
    check_repaired("an entry of no job in the index of finished jobs by queue and kind", |txn| {
        let mut settled = txn.open_table(SETTLED).expect("it opens");
        settled.insert(&[0x80; 25], ()).expect("it is put");
    });
    check_repaired("an idempotency key of no job", |txn| {
        let mut keyed = txn.open_table(KEYED).expect("it opens");
        keyed.insert(&b"stray\0\0\0\0\0\0\0\x09"[..], ()).expect("it is put");
    });
    check_repaired("a payload of another length than its row says", |txn| {
        let mut payloads = txn.open_table(PAYLOADS).expect("it opens");
        payloads.insert(7, &b"\"longer\""[..]).expect("it is put");
    });
    check_repaired("a stray key", |txn| {
        let mut done = txn.open_table(DONE).expect("it opens");
        done.insert(&[0x80; 16], ()).expect("it is put");
    });
    check_repaired("a lost counter", |txn| {
        let mut counts = txn.open_table(COUNTS).expect("it opens");
        counts.pop_first().expect("it goes").expect("there is one");
    });
    check_repaired("a lost idempotency key", |txn| {
        let mut keys = txn.open_table(KEYS).expect("it opens");
        keys.pop_first().expect("it goes").expect("there is one");
    });
    check_repaired("a payload of no job", |txn| {
        let mut payloads = txn.open_table(PAYLOADS).expect("it opens");
        payloads.insert(99, &b"null"[..]).expect("it is put");
    });
    check_repaired("a lease without a holder", |txn| {
        let mut leased = txn.open_table(LEASED).expect("it opens");
        leased.pop_first().expect("it goes").expect("there is one");
    });
    check_repaired("an id given out that is not remembered", |txn| {
        let mut meta = txn.open_table(META).expect("it opens");
        meta.insert(&b"last_id"[..], 3).expect("it is put");
    });
}

#[test]
fn a_row_that_cannot_be_read_is_corruption_and_no_panic() {
    for row in [&b""[..], &[9], &[1; 40], &[2], &[2, 0xff, 0xff], &[2; 200]] {
        let dir = dir();
        let path = dir.path().join("jobs.redb");
        drop(filled(&path));
        tamper(&path, |txn| {
            let mut jobs = txn.open_table(JOBS).expect("it opens");
            assert!(jobs.get(7).expect("it can be read").is_some());
            jobs.insert(7, row).expect("it is put");
        });
        let mut store = open(&path);
        let read = store.reader().and_then(|mut reader| reader.dump());
        let error = read.expect_err("the row is no job").to_string();
        assert!(error.contains("corrupt"), "{error}");
        let id = BatchId { process: ProcessId(1), seq: 9 };
        let mut batch = Batch::new(id, Policy::default());
        let worker = WorkerId::new("w1").expect("it is a name");
        let takers = vec![Taker { worker, max: 20, length: None }];
        batch.claims.push(ClaimFor { demand: Demand::ALL, takers });
        let error = store.commit(Wall::new(1_000), &batch).expect_err("the row is no job");
        assert!(error.to_string().contains("corrupt"), "{error}");
    }
}

/// A store that is damaged, and a batch that finds it out.
fn check_corrupt(
    what: &str,
    damage: impl FnOnce(&WriteTransaction),
    fill: impl FnOnce(&mut Batch),
) {
    let dir = dir();
    let path = dir.path().join("jobs.redb");
    let before = dump(&filled(&path));
    tamper(&path, damage);
    let mut store = open(&path);
    let mut batch = Batch::new(BatchId { process: ProcessId(1), seq: 9 }, Policy::default());
    fill(&mut batch);
    let error = store.commit(Wall::new(1_000), &batch).expect_err("the rows contradict each other");
    assert!(matches!(error, CommitError::Corrupt(_)), "{what}: {error}");
    store.reopen().expect("it reopens");
    assert_eq!(store.was_committed(batch.id), Ok(false), "{what}");
    store.repair().unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(store.verify(), Ok(Vec::new()), "{what}");
    let jobs = |dump: &str| dump.lines().filter(|line| line.starts_with("job")).count();
    assert_eq!(jobs(&dump(&store)), jobs(&before), "{what}");
    store.commit(Wall::new(1_000), &batch).unwrap_or_else(|error| panic!("{what}: {error}"));
}

#[test]
fn a_job_that_is_not_where_its_row_says_is_not_changed() {
    let id = |number| JobId::new(number).expect("it is an id");
    check_corrupt(
        "a ready job that is not indexed",
        |txn| {
            let mut ready = txn.open_table(READY).expect("it opens");
            ready.retain(|_, ()| false).expect("they go");
        },
        |batch| batch.admin.push(Admin::Cancel(id(20))),
    );
    check_corrupt(
        "an id that is given out again",
        |txn| {
            let mut meta = txn.open_table(META).expect("it opens");
            meta.insert(&b"last_id"[..], 3).expect("it is put");
        },
        |batch| batch.enqueues.push(NewJob::new(Kind::default(), Payload::null())),
    );
    check_corrupt(
        "a payload of another length than its row says",
        |txn| {
            let mut payloads = txn.open_table(PAYLOADS).expect("it opens");
            payloads.insert(6, &b"\"longer\""[..]).expect("it is put");
        },
        |batch| {
            let worker = WorkerId::new("w1").expect("it is a name");
            let takers = vec![Taker { worker, max: 20, length: None }];
            batch.claims.push(ClaimFor { demand: Demand::ALL, takers });
        },
    );
}
