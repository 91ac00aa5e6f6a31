//! Files of the first and of the third schema are migrated once, whenever a crash comes in between.

use std::path::Path;

use rusqlite::Connection;
use windlass_core::store::{Dump, Filter, Reader, Store, Worker, WorkerKind};
use windlass_core::{
    Counts, Demand, IdempotencyKey, Kind, Pause, QueueName, Rank, View, Wall, WorkerId,
};
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

/// The third schema with a job in every view.
const THIRD: &str = concat!(
    "PRAGMA auto_vacuum = INCREMENTAL; PRAGMA journal_mode = WAL; BEGIN;",
    include_str!("../../src/migrations/0001_first.sql"),
    include_str!("../../src/migrations/0002_workers.sql"),
    include_str!("../../src/migrations/0003_rank.sql"),
    "INSERT INTO queues (id, name, paused) VALUES (1, 'default', 0), (2, 'rare', 1);
     INSERT INTO kinds (id, name) VALUES (1, 'default'), (2, 'rare');
     INSERT INTO retries VALUES (1, 2, 2000, 1000, 3600000, 0);
     INSERT INTO jobs (id, view, at, queue, kind, class, run_at, attempts, max_retries, epoch,
       generation, visibility_timeout, retry, created_at, updated_at, started_at, timeout, spent,
       lease_length, worker, idempotency_key, turn, due, priority, payload_bytes)
       VALUES
       (1, 0, 5, 1, 1, -7, 5, 0, 3, 0, 0, 30000, 1, 5, 5, NULL, 900, NULL, NULL, NULL, NULL,
        0, 5, 7, 4),
       (2, 1, 9000, 1, 1, 0, 9000, 2, 3, 2, 0, 30000, 1, 5, 8, 7, NULL, 1, NULL, NULL, NULL,
        0, 9000, 0, 4),
       (3, 2, 40000, 1, 2, 0, 5, 1, 3, 1, 0, 30000, 1, 5, 10, 10, NULL, NULL, 30000, 'w1', NULL,
        0, 5, 0, 4),
       (4, 3, 20, 2, 2, 0, 5, 1, 3, 1, 0, 30000, 1, 5, 20, 10, NULL, NULL, NULL, NULL, 'k',
        0, 5, 0, 4),
       (5, 4, 30, 2, 2, 0, 5, 1, 0, 1, 0, 30000, 1, 5, 30, 10, NULL, 1, NULL, NULL, NULL,
        0, 5, 0, 4),
       (6, 5, 40, 2, 1, 3, 5, 0, 3, 0, 1, 30000, 1, 5, 40, NULL, NULL, NULL, NULL, NULL, NULL,
        0, 5, -3, 4);
     INSERT INTO payloads SELECT id, '\"ä\"' FROM jobs;
     INSERT INTO errors VALUES (5, 'broken', 0);
     INSERT INTO keys VALUES ('k', 4, zeroblob(16), 5, NULL);
     INSERT INTO counts VALUES (1, 1, 1, 1, 0, 0, 0, 0), (1, 2, 0, 0, 1, 0, 0, 0),
       (2, 2, 0, 0, 0, 1, 1, 0), (2, 1, 0, 0, 0, 0, 0, 1);
     UPDATE meta SET value = 6;
     PRAGMA application_id = 1464093779; PRAGMA user_version = 3; COMMIT;"
);

/// What is in a file of the third schema once it was migrated.
fn check_third(dump: &Dump) {
    let job = |at: usize| &dump.jobs[at].job;
    let views: Vec<View> = dump.jobs.iter().map(|row| row.job.state.view()).collect();
    assert_eq!(views, View::ALL);
    for (row, id) in dump.jobs.iter().zip(1..) {
        assert_eq!((row.job.id.get(), row.payload.as_str()), (id, "\"ä\""));
        assert_eq!((row.job.rank, row.job.payload_bytes), (Rank::of(&row.job), 4));
        assert_eq!(row.job.created_at, Wall::new(5));
    }
    let due: Vec<i64> = dump.jobs.iter().map(|row| row.job.run_at.get()).collect();
    assert_eq!(due, [5, 9_000, 5, 5, 5, 5]);
    assert_eq!((job(0).priority.get(), job(5).priority.get()), (7, -3));
    assert_eq!(job(0).timeout.map(windlass_core::JobTimeout::get), Some(900));
    assert_eq!(job(2).lease().map(|lease| lease.worker.as_str()), Some("w1"));
    assert_eq!(job(3).idempotency_key.as_ref().map(IdempotencyKey::as_str), Some("k"));
    assert_eq!((job(4).max_retries.get(), job(5).generation), (0, 1));
    let paused: Vec<Option<Pause>> =
        dump.queues.iter().map(|row| row.queue.paused.clone()).collect();
    assert_eq!(paused, [None, Some(Pause::default())], "it is not known since when");
    let counts = |queue: usize, kind: usize| dump.queues[queue].kinds[kind].1;
    assert_eq!(counts(0, 0), Counts::new([1, 1, 0, 0, 0, 0]).with_retrying(1));
    assert_eq!(counts(1, 0).retrying(), 0, "jobs that ended with attempts are not retrying");
    let [group] = dump.groups.as_slice() else { panic!("there is one dead letter") };
    assert_eq!(job(4).state.group(), Some(group.id));
    assert_eq!((group.title.to_string().as_str(), group.live), ("broken", 1));
    assert_eq!((group.first_at, group.last_at), (Wall::new(30), Wall::new(30)));
}

type Check = fn(&Dump);
const FILES: [(&str, Check); 2] = [(OLD, check), (THIRD, check_third)];

fn make_old(path: &Path, sql: &str) {
    let conn = Connection::open(path).expect("it opens");
    conn.execute_batch(sql).expect("an old schema");
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
fn a_file_of_an_older_schema_is_migrated_once() {
    for (sql, check) in FILES {
        let dir = scratch();
        let path = dir.path().join(FILE);
        make_old(&path, sql);
        let store = SqliteStore::open(&path).expect("it opens");
        check(&dump(&store));
        assert_eq!(store.verify(), Ok(Vec::new()));
        drop(store);
        assert_eq!(version(&path), 12);
        check(&dump(&SqliteStore::open(&path).expect("it opens again")));
    }
}

#[test]
fn jobs_of_an_older_schema_are_found_by_every_filter() {
    let dir = scratch();
    let path = dir.path().join(FILE);
    make_old(&path, THIRD);
    let store = SqliteStore::open(&path).expect("it opens");
    let mut reader = store.reader().expect("a reader");
    let mut found = |filter: &Filter| -> Vec<u64> {
        let page = reader.list(filter, None, 10).expect("it reads");
        page.jobs.iter().map(|job| job.id.get()).collect()
    };
    let all = Filter::default();
    let (queue, kind) = (QueueName::new("rare").ok(), Kind::new("rare").ok());
    assert_eq!(found(&Filter { queue: queue.clone(), ..all.clone() }), [6, 5, 4]);
    assert_eq!(found(&Filter { kind: kind.clone(), ..all.clone() }), [5, 4, 3]);
    for (view, id) in View::ALL.into_iter().zip(1..) {
        assert_eq!(found(&Filter { view: Some(view), ..all.clone() }), [id]);
    }
    let failed = Filter { view: Some(View::Failed), queue, kind, ..all.clone() };
    assert_eq!(found(&failed), [5]);
    assert_eq!(found(&Filter { key: IdempotencyKey::new("k").ok(), ..all }), [4]);
}

fn holds_the_file(image: &Image) -> bool {
    image.files().any(|(name, content)| name == FILE && !content.is_empty())
}

#[test]
fn a_crash_anywhere_in_the_step_to_the_next_schema_leaves_a_file_that_opens() {
    for (sql, check) in FILES {
        let mut watched = Watched::closed();
        make_old(&watched.dir.path().join(FILE), sql);
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
}
