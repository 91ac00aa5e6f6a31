//! The SQLite store against the naive model of the promises, and against the memory store: the same
//! random commands give the same answers and the same dump.

use tempfile::TempDir;
use windlass_core::store::{Batch, CommitError, Outcomes, Store, StoreError};
use windlass_core::{BatchId, Wall};
use windlass_store_memory::MemoryStore;
use windlass_store_sqlite::{SqliteReader, SqliteStore};
use windlass_tests::differential::{differential, same_dump};

/// A store with a directory of its own, which goes with it.
#[derive(Debug)]
struct Scratch {
    store: SqliteStore,
    _dir: TempDir,
}

impl Scratch {
    fn new() -> Self {
        let dir = TempDir::new().expect("a directory");
        let store = SqliteStore::open(dir.path().join("jobs.db")).expect("the store opens");
        Self { store, _dir: dir }
    }
}

impl Store for Scratch {
    type Reader = SqliteReader;

    fn commit(&mut self, now: Wall, batch: &Batch) -> Result<Outcomes, CommitError> {
        self.store.commit(now, batch)
    }

    fn look(&mut self, batch: BatchId) -> Result<bool, StoreError> {
        self.store.look(batch)
    }

    fn reopen(&mut self) -> Result<(), StoreError> {
        self.store.reopen()
    }

    fn reader(&self) -> Result<SqliteReader, StoreError> {
        self.store.reader()
    }
}

#[test]
fn sqlite_agrees_with_the_model_on_random_sequences() {
    differential(Scratch::new, 150);
}

#[test]
fn sqlite_and_memory_give_the_same_answers_and_the_same_dump() {
    same_dump(Scratch::new, MemoryStore::new, 150);
}
