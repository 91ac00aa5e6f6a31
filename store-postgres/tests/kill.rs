//! Real processes on one PostgreSQL: killed at random moments, and two that share a schema.

mod subject;

use std::path::{Path, PathBuf};

use windlass_core::store::{Disagreement, StoreError};
use windlass_store_postgres::PgStore;
use windlass_tests::kill;
use windlass_tests::on_disk::OnDisk;
use windlass_tests::postgres_server::PostgresServer;

/// Stores whose "file" names a schema: children find the server of their parent by it.
#[derive(Debug)]
struct Schema;

impl OnDisk for Schema {
    type Store = PgStore;

    fn is_available() -> bool {
        PostgresServer::shared().is_some()
    }

    fn place(_: &Path) -> PathBuf {
        subject::fresh_url().into()
    }

    fn open(path: &Path) -> PgStore {
        subject::open(path.to_str().expect("a URL is text"))
    }

    fn verify(store: &PgStore) -> Result<Vec<Disagreement>, StoreError> {
        store.verify()
    }
}

windlass_tests::kill!(Schema);

#[test]
fn two_processes_on_one_schema_never_hold_one_job_at_once() {
    kill::share_a_file::<Schema>();
}
