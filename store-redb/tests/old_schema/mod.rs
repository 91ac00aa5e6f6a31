//! Files of earlier schemas, as they were written then: they are migrated with everything
//! in them, whenever the power is cut.

use redb::{ReadableTable, TableDefinition, TableHandle, WriteTransaction};
use windlass_core::store::{Admin, Reader, Store, Worker, WorkerKind};
use windlass_core::{Wall, WorkerId};
use windlass_store_redb::RedbStore;

use crate::disk::work::{KINDS, Work, dump, open, remote_worker};
use crate::disk::{Chance, Disk, Fault};
use crate::{SIZE, cases, furnished, recover};

const META: TableDefinition<'_, &[u8], u64> = TableDefinition::new("meta");
const JOBS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("jobs");
const COUNTS: TableDefinition<'_, &[u8; 8], &[u8]> = TableDefinition::new("counts");
const WORKERS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("workers");
const OLD_READY: TableDefinition<'_, &[u8; 26], ()> = TableDefinition::new("ready");
const READY: TableDefinition<'_, &[u8; 34], ()> = TableDefinition::new("ready2");
const WAITING: TableDefinition<'_, &[u8; 20], ()> = TableDefinition::new("waiting");
const PAIRS: TableDefinition<'_, &[u8; 16], ()> = TableDefinition::new("pairs");
const SETTLED: TableDefinition<'_, &[u8; 25], ()> = TableDefinition::new("settled");
const KEYED: TableDefinition<'_, &[u8], ()> = TableDefinition::new("keyed");
const FIGURES: TableDefinition<'_, &[u8; 17], &[u8]> = TableDefinition::new("figures");
const DEAD_LETTERS: TableDefinition<'_, u64, &[u8; 16]> = TableDefinition::new("dead_letters");
const GROUPED: TableDefinition<'_, &[u8; 32], ()> = TableDefinition::new("grouped");
const ERROR_GROUPS: TableDefinition<'_, &[u8; 16], &[u8]> = TableDefinition::new("error_groups");

/// Turns a file of today into one of an older schema.
fn turn_back(image: Vec<u8>, schema: u64) -> Vec<u8> {
    let disk = Disk::new(image, 0);
    let db = redb::Builder::new().create_with_backend(disk.clone()).expect("it opens");
    let txn = db.begin_write().expect("no other transaction writes");
    turn_back_versions(&txn);
    if schema < 9 {
        turn_back_counts(&txn);
    }
    if schema < 7 {
        turn_back_groups(&txn);
    }
    if schema < 6 {
        turn_back_instances(&txn);
    }
    if schema < 5 {
        assert!(txn.delete_table(FIGURES).expect("it goes"), "it was there");
    }
    if schema < 4 {
        turn_back_lists(&txn);
    }
    if schema < 3 {
        turn_back_jobs(&txn);
        turn_back_ready(&txn);
    }
    if schema == 1 {
        turn_back_workers(&txn);
    }
    let mut meta = txn.open_table(META).expect("it opens");
    meta.insert(&b"schema"[..], schema).expect("it is put");
    drop(meta);
    txn.commit().expect("it is committed");
    drop(db);
    disk.durable()
}

/// No number of retrying jobs stood at the end of counters.
fn turn_back_counts(txn: &WriteTransaction) {
    let mut counts = txn.open_table(COUNTS).expect("it opens");
    let rows = counts.iter().expect("it can be read").map(|row| {
        let (pair, row) = row.expect("it can be read");
        let ends = |at: &usize| row.value()[at - 1] & 0x80 == 0;
        // Where the last number begins: behind the last byte before it that ends a number.
        let end = (1..row.value().len()).rev().find(ends).expect("there are several numbers");
        (*pair.value(), row.value()[..end].to_vec())
    });
    let rows: Vec<([u8; 8], Vec<u8>)> = rows.collect();
    for (pair, row) in rows {
        counts.insert(&pair, row.as_slice()).expect("it is put");
    }
}

/// Dead letters were in no groups.
fn turn_back_groups(txn: &WriteTransaction) {
    for (name, gone) in [
        ("dead_letters", txn.delete_table(DEAD_LETTERS)),
        ("grouped", txn.delete_table(GROUPED)),
        ("error_groups", txn.delete_table(ERROR_GROUPS)),
    ] {
        assert!(gone.expect("it goes"), "{name}");
    }
}

/// Ready jobs were also keyed by queue, due time and id; no job by queue and kind.
fn turn_back_lists(txn: &WriteTransaction) {
    let ready = txn.open_table(READY).expect("it opens");
    let mut waiting = txn.open_table(WAITING).expect("it opens");
    for row in ready.iter().expect("it can be read") {
        let key = *row.expect("it can be read").0.value();
        let mut was = [0; 20];
        was[..4].copy_from_slice(&key[..4]);
        was[4..].copy_from_slice(&key[18..]);
        waiting.insert(&was, ()).expect("it is put");
    }
    for (name, gone) in [
        ("pairs", txn.delete_table(PAIRS)),
        ("settled", txn.delete_table(SETTLED)),
        ("keyed", txn.delete_table(KEYED)),
    ] {
        assert!(gone.expect("it goes"), "{name}");
    }
}

/// The first byte of a row was 1, and the length of the payload did not stand behind the third.
fn turn_back_jobs(txn: &WriteTransaction) {
    let mut jobs = txn.open_table(JOBS).expect("it opens");
    let rows = jobs.iter().expect("it can be read").map(|row| {
        let (id, row) = row.expect("it can be read");
        let [2, flags, verdict, rest @ ..] = row.value() else { panic!("no row of today") };
        assert_eq!(flags & 0x80, 0, "a rank that no older schema could hold");
        let length = rest.iter().position(|byte| byte & 0x80 == 0).expect("a number ends");
        (id.value(), [&[1, *flags, *verdict], &rest[length + 1..]].concat())
    });
    let rows: Vec<(u64, Vec<u8>)> = rows.collect();
    for (id, row) in rows {
        jobs.insert(id, row.as_slice()).expect("it is put");
    }
}

/// Ready jobs were keyed by queue, kind, how much their priority is below the greatest number there
/// is, when they were due, and id.
fn turn_back_ready(txn: &WriteTransaction) {
    let ready = txn.open_table(READY).expect("it opens");
    let mut old = txn.open_table(OLD_READY).expect("it opens");
    for row in ready.iter().expect("it can be read") {
        let key = *row.expect("it can be read").0.value();
        let priority = -(i32::from(u16::from_be_bytes([key[8], key[9]])) - 0x8000);
        let below = u16::try_from(i32::from(i16::MAX) - priority).expect("it is small");
        let mut was = [0; 26];
        was[..8].copy_from_slice(&key[..8]);
        was[8..10].copy_from_slice(&below.to_be_bytes());
        was[10..].copy_from_slice(&key[18..]);
        old.insert(&was, ()).expect("it is put");
    }
    drop(ready);
    txn.delete_table(READY).expect("it goes");
}

/// The first byte of a worker's row was 3, and no version and no server stood behind its instance.
fn turn_back_versions(txn: &WriteTransaction) {
    rewrite_workers(txn, |row| {
        let [4, length, rest @ ..] = row else { panic!("no row of today") };
        let (instance, rest) = rest.split_at(usize::from(*length));
        let rest = without_text(without_text(rest));
        [&[3, *length], instance, rest].concat()
    });
}

/// What stands behind a short text.
fn without_text(bytes: &[u8]) -> &[u8] {
    let [length, rest @ ..] = bytes else { panic!("a text has a length") };
    &rest[usize::from(*length)..]
}

/// The first byte of a worker's row was 2, and no instance stood behind it.
fn turn_back_instances(txn: &WriteTransaction) {
    rewrite_workers(txn, |row| {
        let [3, rest @ ..] = row else { panic!("no row of the ninth schema") };
        [&[2], without_text(rest)].concat()
    });
}

fn rewrite_workers(txn: &WriteTransaction, rewritten: impl Fn(&[u8]) -> Vec<u8>) {
    let mut workers = txn.open_table(WORKERS).expect("it opens");
    let rows = workers.iter().expect("it can be read").map(|row| {
        let (id, row) = row.expect("it can be read");
        (id.value().to_vec(), rewritten(row.value()))
    });
    let rows: Vec<(Vec<u8>, Vec<u8>)> = rows.collect();
    for (id, row) in rows {
        workers.insert(id.as_slice(), row.as_slice()).expect("it is put");
    }
}

/// The first schema knew of a worker only its kind, its process, its host, and when it was seen.
fn turn_back_workers(txn: &WriteTransaction) {
    let mut workers = txn.open_table(WORKERS).expect("it opens");
    workers.retain(|_, _| false).expect("they go");
    // Its version, its kind, first and last seen (1 and 2), its process, its host.
    let row = [&[1, 1, 2, 4, 1, 7][..], b"host"].concat();
    workers.insert(&b"w1"[..], row.as_slice()).expect("it is put");
}

/// What is known of the worker once the file is up to date.
fn check_old_worker(store: &RedbStore) {
    let rows = store.reader().and_then(|mut reader| reader.workers()).expect("it can be read");
    let [row] = rows.as_slice() else { panic!("one worker was seen: {rows:?}") };
    let id = WorkerId::new("w1").expect("a name");
    let worker = Worker { pid: Some(7), slots: 0, ..Worker::new(id, "host", WorkerKind::Process) };
    assert_eq!((&row.worker, row.stopping), (&worker, false));
    assert_eq!((row.started_at, row.last_seen), (Wall::new(1), Wall::new(2)));
    assert_eq!(row.demand(row.last_seen), None, "it is not known what it would run");
}

/// What is known of the worker that a file of a later schema holds.
fn check_worker(store: &RedbStore, schema: u64) {
    let rows = store.reader().and_then(|mut reader| reader.workers()).expect("it can be read");
    let [row] = rows.as_slice() else { panic!("one worker was seen: {rows:?}") };
    let before = Worker { version: None, server: None, ..remote_worker() };
    let known = if schema < 6 { Worker { instance: None, ..before } } else { before };
    assert_eq!(row.worker, known, "schema {schema}");
}

/// A file is up to date, and everything that was in it is still there.
fn check(store: &RedbStore, schema: u64, work: &Work) -> Result<(), String> {
    if schema == 1 {
        check_old_worker(store);
    } else {
        check_worker(store, schema);
    }
    // Of failures that were replayed or deleted nothing is known any more; a job knows its group.
    let compared = |line: &&str| !line.starts_with("worker ") && !line.starts_with("error group ");
    let rows =
        |text: String| -> Vec<String> { text.lines().filter(compared).map(Into::into).collect() };
    if rows(dump(store)?) != rows(dump(&work.shadow)?) {
        return Err("it does not hold what it held before".into());
    }
    match store.verify().map_err(|error| error.to_string())? {
        wrong if wrong.is_empty() => Ok(()),
        wrong => Err(format!("it contradicts itself: {wrong:?}")),
    }
}

#[test]
fn a_file_of_an_older_schema_is_brought_up_to_date_whenever_the_power_is_cut() {
    let (image, work) = furnished(true);
    for schema in [1, 2, 3, 4, 5, 6, 8, 9] {
        let image = turn_back(image.clone(), schema);
        let disk = Disk::new(image.clone(), 0);
        disk.set(None);
        let store = open(&disk).expect("it opens");
        assert_eq!(check(&store, schema, &work), Ok(()));
        drop(store);
        let syncs = disk.counts().syncs;
        assert!(syncs >= 2, "only {syncs} syncs: nothing was written");
        let again = Disk::new(disk.durable(), 0);
        assert_eq!(check(&open(&again).expect("it opens again"), schema, &work), Ok(()));
        for sync in 1..=syncs {
            for seed in 0..cases(20) {
                for fault in [Fault::CutAtSync(sync), Fault::CutAfterSync(sync)] {
                    let disk = Disk::new(image.clone(), seed);
                    disk.set(Some(fault));
                    let _ = open(&disk);
                    let recovered = recover(disk.crash(), &mut Chance(seed));
                    let checked = recovered.and_then(|(store, _)| check(&store, schema, &work));
                    checked.unwrap_or_else(|why| {
                        panic!("schema {schema}, {fault:?}, seed {seed}: {why}")
                    });
                }
            }
        }
    }
}

#[test]
fn an_error_at_any_operation_of_a_migration_is_named_and_the_next_opening_works() {
    let (image, work) = furnished(true);
    let image = turn_back(image, 2);
    for operation in 1.. {
        let disk = Disk::new(image.clone(), 0);
        disk.set(Some(Fault::FailAt(operation)));
        let opened = open(&disk);
        let failed = disk.counts().operations >= operation;
        disk.set(None);
        match opened {
            Err(error) => {
                assert!(error.contains("injected"), "operation {operation}: {error}");
                let store = open(&disk).unwrap_or_else(|why| panic!("{operation}: {why}"));
                assert_eq!(check(&store, 2, &work), Ok(()), "operation {operation}");
            }
            Ok(store) => assert_eq!(check(&store, 2, &work), Ok(()), "operation {operation}"),
        }
        if !failed {
            assert!(operation > 20, "only {operation} operations were made to fail");
            break;
        }
    }
}

#[test]
fn a_file_of_an_older_schema_goes_on_as_if_it_had_always_been_of_this_one() {
    let disk = Disk::new(Vec::new(), 0);
    let mut store = open(&disk).expect("an empty disk becomes a store");
    let mut work = Work::new();
    work.settle_in(&mut store);
    // More jobs than are migrated at a time.
    let (now, batch) = work.batch("enqueue", 2_300);
    store.commit(now, &batch).expect("the disk is well");
    work.follow(now, &batch);
    drop(store);
    let disk = Disk::new(turn_back(disk.durable(), 2), 0);
    let mut store = open(&disk).expect("it opens");
    assert_eq!(check(&store, 2, &work), Ok(()));
    // The old file knew less of the worker.
    let (now, mut batch) = work.batch("enqueue", 1);
    batch.admin.push(Admin::SeeWorker(remote_worker()));
    assert_eq!(work.follow(now, &batch), store.commit(now, &batch).expect("the disk is well"));
    for kind in KINDS.iter().chain(&KINDS) {
        let (now, batch) = work.batch(kind, 5 * SIZE);
        let done = store.commit(now, &batch).expect("the disk is well");
        assert_eq!(work.follow(now, &batch), done, "{kind}");
        assert_eq!(dump(&store), dump(&work.shadow), "{kind}");
    }
    assert_eq!(store.verify(), Ok(Vec::new()));
    drop(store);
    let db = redb::Builder::new().create_with_backend(disk).expect("it opens");
    let txn = db.begin_write().expect("no other transaction writes");
    let mut tables = txn.list_tables().expect("they can be listed");
    let old = [OLD_READY.name(), WAITING.name()];
    assert!(tables.all(|table| !old.contains(&table.name())), "the old keys are still there");
}
