//! The store, as the suites take it.

use std::path::Path;

use windlass_core::store::{CommitPoint, Disagreement, StoreError};
use windlass_store_sqlite::SqliteStore;
use windlass_tests::on_disk::{OnDisk, SharedOnDisk};

/// Stores in files.
#[derive(Debug)]
pub(crate) struct Sqlite;

impl OnDisk for Sqlite {
    type Store = SqliteStore;

    fn open(path: &Path) -> SqliteStore {
        SqliteStore::open(path).expect("the store opens")
    }

    fn verify(store: &SqliteStore) -> Result<Vec<Disagreement>, StoreError> {
        store.verify()
    }
}

impl SharedOnDisk for Sqlite {
    fn on_commit(store: &mut SqliteStore, hook: impl FnMut(CommitPoint) + Send + 'static) {
        store.on_commit(hook);
    }
}
