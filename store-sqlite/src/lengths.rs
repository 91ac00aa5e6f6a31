//! The row of a job keeps its length from its enqueue to the end of its first lease: SQLite changes
//! it in its place, and no page of jobs is split.

use rusqlite::types::Value;
use tempfile::TempDir;
use windlass_core::store::{Batch, ClaimFor, Reader, Settle, Store, Taker};
use windlass_core::{
    BatchId, Demand, JobId, Kind, NewJob, Payload, Policy, ProcessId, Verdict, Wall, WorkerId,
};

use crate::SqliteStore;

/// How many bytes a value takes in a row, but for its type, by SQLite's file format.
fn bytes(value: &Value) -> usize {
    match value {
        Value::Null | Value::Integer(0 | 1) => 0,
        Value::Integer(number) => match number.unsigned_abs() {
            0..128 => 1,
            128..0x8000 => 2,
            0x8000..0x80_0000 => 3,
            0x80_0000..0x8000_0000 => 4,
            0x8000_0000..0x8000_0000_0000 => 6,
            _ => 8,
        },
        Value::Real(_) => 8,
        Value::Text(text) => text.len(),
        Value::Blob(blob) => blob.len(),
    }
}

fn row_length(store: &SqliteStore) -> usize {
    let conn = store.conn.as_ref().expect("it is open");
    let mut statement = conn.prepare("SELECT * FROM jobs WHERE id = 1").expect("it is a query");
    let columns = statement.column_count();
    let sum = |row: &rusqlite::Row<'_>| {
        (1..columns).map(|at| Ok(bytes(&row.get(at)?))).sum::<rusqlite::Result<usize>>()
    };
    statement.query_row([], sum).expect("there is a job")
}

#[test]
fn a_row_keeps_its_length_from_its_enqueue_to_the_end_of_its_first_lease() {
    let dir = TempDir::new().expect("a directory");
    for worker in ["w", "host-1234-5678", "twenty-four-bytes-long-1"] {
        let path = dir.path().join(format!("{worker}.db"));
        let mut store = SqliteStore::open(path).expect("it opens");
        let worker = WorkerId::new(worker).expect("a name");
        let mut commit = |seq: u64, fill: &dyn Fn(&mut Batch)| {
            let id = BatchId { process: ProcessId(1), seq };
            let mut batch = Batch::new(id, Policy::default());
            fill(&mut batch);
            let now = Wall::new(1_700_000_000_000 + seq.cast_signed());
            let out = store.commit(now, &batch).expect("it commits");
            (out, row_length(&store))
        };
        let new = NewJob::new(Kind::default(), Payload::null());
        let (_, queued) = commit(1, &|batch| batch.enqueues.push(new.clone()));
        let takers = vec![Taker { worker: worker.clone(), max: 1, length: None }];
        let claim = ClaimFor { demand: Demand::ALL, takers };
        let (out, leased) = commit(2, &|batch| batch.claims.push(claim.clone()));
        let job = &out.claims[0].jobs[0].job;
        let settle = Settle { token: job.token(), verdict: Verdict::Complete { result: None } };
        let (_, done) = commit(3, &|batch| batch.settles.push(settle.clone()));
        assert_eq!([leased, done], [queued; 2], "{worker}");
        assert_eq!(job.lease().map(|lease| &lease.worker), Some(&worker));
        let mut reader = store.reader().expect("it reads");
        let stored = reader.jobs(&[JobId::FIRST]).expect("it reads");
        let stored = stored[0].as_ref().expect("there is a job");
        assert!(stored.job.lease().is_none(), "what the lease leaves behind is no lease");
    }
}
