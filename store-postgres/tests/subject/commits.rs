//! Commits of one job each, by a store whose answers have a short deadline.

use std::time::Duration;

use windlass_core::store::{Batch, CommitError, Outcomes, Reader, Store};
use windlass_core::{BatchId, Kind, NewJob, Payload, Policy, ProcessId, Wall};
use windlass_store_postgres::{PgOptions, PgStore, StoreUrl};

/// How long an answer may take here.
pub(crate) const DEADLINE: Duration = Duration::from_millis(1_500);

/// The same where every call takes all of it.
pub(crate) const SHORT: Duration = Duration::from_millis(500);

pub(crate) fn open(url: &str) -> PgStore {
    open_with(url, DEADLINE)
}

pub(crate) fn open_with(url: &str, deadline: Duration) -> PgStore {
    let url = StoreUrl::parse(url).expect("it is a URL");
    let options = PgOptions { deadline, ..PgOptions::default() };
    PgStore::open(url, options).expect("the store opens")
}

pub(crate) fn enqueue(seq: u64) -> Batch {
    let mut batch = Batch::new(BatchId { process: ProcessId(9), seq }, Policy::default());
    batch.enqueues.push(NewJob::new(Kind::default(), Payload::null()));
    batch
}

pub(crate) fn commit(store: &mut PgStore, seq: u64) -> Result<Outcomes, CommitError> {
    store.commit(Wall::new(0), &enqueue(seq))
}

/// Commits once the connection is made again: after a failed try the next one is put off.
pub(crate) fn commit_at_last(store: &mut PgStore, seq: u64) -> Outcomes {
    let end = tokio::time::Instant::now() + Duration::from_secs(30);
    loop {
        match commit(store, seq) {
            Ok(outcomes) => return outcomes,
            Err(CommitError::NotCommitted(_)) if tokio::time::Instant::now() < end => {
                std::thread::yield_now();
            }
            Err(error) => panic!("it does not go on by itself: {error}"),
        }
    }
}

pub(crate) fn jobs(url: &str) -> usize {
    let store = open(url);
    assert_eq!(super::verify(&store), Vec::<String>::new());
    store.reader().and_then(|mut reader| reader.dump()).expect("it can be read").jobs.len()
}
