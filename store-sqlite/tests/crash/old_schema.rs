//! A file of the first schema is brought up to date once, whenever a crash comes in between.

use std::path::Path;

use rusqlite::Connection;
use windlass_core::store::{Dump, Worker, WorkerKind};
use windlass_core::{Demand, Rank, Wall, WorkerId};
use windlass_store_sqlite::SqliteStore;
use windlass_store_sqlite_vfs::Image;
use windlass_tests::on_disk::scratch;

use crate::watch::{FILE, Watched, dump, fates, recover, seeds};

/// The first schema with a job, a setting, and a worker that was seen.
const OLD: &str = concat!(
    "PRAGMA auto_vacuum = INCREMENTAL; PRAGMA journal_mode = WAL; BEGIN;",
    include_str!("../../src/migrations/0001_first.sql"),
    "INSERT INTO queues (id, name) VALUES (1, 'default');
     INSERT INTO kinds (id, name) VALUES (1, 'default');
     INSERT INTO retries VALUES (1, 2, 2000, 1000, 3600000, 0);
     INSERT INTO jobs (id, view, at, queue, kind, rank, run_at, attempts, max_retries, epoch,
       generation, visibility_timeout, retry, created_at, updated_at)
       VALUES (1, 0, 5, 1, 1, -7, 5, 0, 3, 0, 0, 30000, 1, 5, 5);
     INSERT INTO payloads VALUES (1, '\"ä\"');
     INSERT INTO counts (queue, kind, queued) VALUES (1, 1, 1);
     UPDATE meta SET value = 1;
     INSERT INTO settings VALUES ('s', 'v');
     INSERT INTO workers VALUES ('w1', 'host', 7, 1, 1000, 2000);
     PRAGMA application_id = 1464093779; PRAGMA user_version = 1; COMMIT;"
);

fn make_old(path: &Path) {
    let conn = Connection::open(path).expect("it opens");
    conn.execute_batch(OLD).expect("the first schema");
}

fn version(path: &Path) -> i64 {
    let conn = Connection::open(path).expect("it opens");
    conn.query_row("PRAGMA user_version", [], |row| row.get(0)).expect("it has a version")
}

/// What the file should hold once it is up to date.
fn check(dump: &Dump) {
    assert_eq!((dump.jobs.len(), dump.settings.len(), dump.workers.len()), (1, 1, 1));
    let job = &dump.jobs[0].job;
    assert_eq!((job.priority.get(), job.payload_bytes), (7, 4), "bytes, not characters");
    assert_eq!(job.rank, Rank::new(job.priority, Wall::new(5), job.id));
    let row = &dump.workers[0];
    let id = WorkerId::new("w1").expect("a name");
    let worker = Worker { pid: Some(7), slots: 0, ..Worker::new(id, "host", WorkerKind::Process) };
    assert_eq!(row.worker, worker);
    assert_eq!((row.started_at, row.last_seen), (Wall::new(1_000), Wall::new(2_000)));
    assert!(!row.stopping);
    assert_eq!(row.worker.demand, Demand::ALL);
    assert_eq!(row.demand(row.last_seen), None, "it is not known what it would run");
}

#[test]
fn a_file_of_the_first_schema_is_brought_up_to_date_once() {
    let dir = scratch();
    let path = dir.path().join(FILE);
    make_old(&path);
    let store = SqliteStore::open(&path).expect("it opens");
    check(&dump(&store));
    assert_eq!(store.verify(), Ok(Vec::new()));
    drop(store);
    assert_eq!(version(&path), 3);
    check(&dump(&SqliteStore::open(&path).expect("it opens again")));
}

fn holds_the_file(image: &Image) -> bool {
    image.files().any(|(name, content)| name == FILE && !content.is_empty())
}

#[test]
fn a_crash_anywhere_in_the_step_to_the_next_schema_leaves_a_file_that_opens() {
    let mut watched = Watched::closed();
    make_old(&watched.dir.path().join(FILE));
    watched.open();
    watched.store = None;
    let mut images = 0;
    for at in 0..=watched.disk.now() {
        for fate in fates(at, seeds(2).min(8)) {
            let image = watched.disk.image(at, fate);
            if !holds_the_file(&image) {
                continue;
            }
            images += 1;
            check(&recover(&image).unwrap_or_else(|why| panic!("{at} {fate:?}: {why}")));
        }
    }
    assert!(images > 50, "only {images} images: the crashes are not what they were");
}
