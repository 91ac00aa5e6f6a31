//! A commit that waits for the lock of another process counts from when it got the lock: `now` is
//! read after the rows are held (docs/ARCHITECTURE.md, *Layer C*).

use std::sync::{Arc, Mutex};

use rusqlite::Connection;
use tempfile::TempDir;
use windlass_core::store::{Batch, ClaimFor, CommitPoint, Heartbeat, Store, Taker};
use windlass_core::{
    BatchId, Demand, Kind, LeaseLength, Millis, NewJob, Payload, Policy, ProcessId, Wall, WorkerId,
};
use windlass_store_sqlite::SqliteStore;

/// After the first tries, each of which waits for 0.1 ms, a commit tries again every millisecond:
/// by this many tries it has waited for `WAITED`.
const TRIES: u32 = 70;
const WAITED: Millis = Millis::new(50);
const LEASE: Millis = Millis::seconds(5);

fn batch(seq: u64, fill: impl FnOnce(&mut Batch)) -> Batch {
    let id = BatchId { process: ProcessId(1), seq };
    let mut batch = Batch::new(id, Policy::default());
    fill(&mut batch);
    batch
}

#[test]
fn a_heartbeat_that_waited_for_the_lock_counts_from_when_it_got_it() {
    let dir = TempDir::new().expect("a directory");
    let path = dir.path().join("jobs.db");
    let mut store = SqliteStore::open(&path).expect("it opens");
    let now = Wall::new(1_700_000_000_000);
    let claimed = store.commit(
        now,
        &batch(1, |batch| {
            batch.enqueues.push(NewJob::new(Kind::default(), Payload::null()));
            let worker = WorkerId::new("w").expect("a fine name");
            let length = LeaseLength::new(LEASE.get()).ok();
            let takers = vec![Taker { worker, max: 1, length }];
            batch.claims.push(ClaimFor { demand: Demand::ALL, takers });
        }),
    );
    let token = claimed.expect("it commits").claims[0].jobs[0].job.token();

    let other = Connection::open(&path).expect("it opens");
    other.execute_batch("BEGIN IMMEDIATE").expect("the lock is free");
    let other = Mutex::new(Some(other));
    let tries = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&tries);
    store.on_commit(move |point| {
        if point == CommitPoint::Waiting {
            let mut tries = counted.lock().expect("no thread panics");
            *tries += 1;
            if *tries == TRIES {
                // Closed, it gives its lock back.
                drop(other.lock().expect("no thread panics").take());
            }
        }
    });
    let heartbeat = batch(2, |batch| {
        batch.heartbeats.push(Heartbeat { token, extend: None, progress: None });
    });
    let out = store.commit(now, &heartbeat).expect("it commits once the lock is free");
    assert!(*tries.lock().expect("no thread panics") >= TRIES, "it waited");
    let until = out.heartbeats[0].as_ref().expect("the lease is held").until;
    assert!(until >= now.plus(WAITED).plus(LEASE), "the lease ends at {until}");
    assert!(out.now >= now.plus(WAITED));
}
