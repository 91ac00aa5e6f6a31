//! The store, as the suites take it.

use std::path::Path;

use windlass_core::store::{Disagreement, StoreError};
use windlass_store_sqlite::SqliteStore;
use windlass_tests::on_disk::OnDisk;

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
