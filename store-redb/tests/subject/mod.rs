//! The store, as the suites take it.

use std::path::Path;

use windlass_core::store::{Disagreement, StoreError};
use windlass_store_redb::RedbStore;
use windlass_tests::on_disk::OnDisk;

/// Stores in files.
#[derive(Debug)]
pub(crate) struct Redb;

impl OnDisk for Redb {
    type Store = RedbStore;

    fn open(path: &Path) -> RedbStore {
        RedbStore::open(path).expect("the store opens")
    }

    fn verify(store: &RedbStore) -> Result<Vec<Disagreement>, StoreError> {
        store.verify()
    }
}
