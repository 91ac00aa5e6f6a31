//! The store, as the suites take it: in a schema of its own on the server of this process.
#![allow(dead_code, reason = "each test file uses a part of it")]

pub(crate) mod commits;

use std::time::Duration;

use windlass_core::store::{CommitPoint, Disagreement};
use windlass_store_postgres::{Clock, PgOptions, PgStore, StoreUrl};
use windlass_tests::concurrent::ConcurrentSubject;
use windlass_tests::fixture::Subject;
use windlass_tests::postgres_server::PostgresServer;

/// A store in a schema of its own. A crash leaves the schema.
#[derive(Debug)]
pub(crate) struct InSchema {
    /// None while it is closed.
    store: Option<PgStore>,
    url: String,
}

/// Opens a store whose time is that of the test. No id is kept for later, so that a crash leaves no
/// gap.
pub(crate) fn open(url: &str) -> PgStore {
    open_with(url, 0)
}

/// The same with ids in blocks, which leave no gap while the store is open.
pub(crate) fn fresh(url: &str) -> PgStore {
    open_with(url, 1_000)
}

fn open_with(url: &str, id_block: usize) -> PgStore {
    let url = StoreUrl::parse(url).expect("it is a URL");
    let deadline = Duration::from_secs(30);
    let options = PgOptions { clock: Clock::Caller, id_block, deadline, ..PgOptions::default() };
    PgStore::open(url, options).expect("the store opens")
}

pub(crate) fn verify(store: &PgStore) -> Vec<String> {
    let found = store.verify().expect("it can be verified");
    found.into_iter().map(|Disagreement(text)| text).collect()
}

pub(crate) fn fresh_url() -> String {
    let server = PostgresServer::shared().expect("PostgreSQL is installed");
    server.url(&server.new_schema())
}

/// The number of the newest schema, as a store that was just opened has it.
pub(crate) fn schema_number(server: &PostgresServer, schema: &str) -> usize {
    let sql = format!("SELECT value FROM {schema}.meta WHERE key = 'schema'");
    server.run(&sql).parse().expect("it is a number")
}

/// What takes back each migration, as far as the next one to run needs it.
const UNDO: [&str; 8] = [
    "",
    "DROP TABLE error_groups; ALTER TABLE done DROP COLUMN error_group",
    "DROP TABLE bulk",
    // It makes indexes again that it drops before.
    "",
    "ALTER TABLE counts DROP COLUMN retrying; \
     ALTER TABLE queues DROP COLUMN paused_at, DROP COLUMN paused_by",
    // It only sets what autovacuum goes by.
    "",
    "ALTER TABLE workers DROP COLUMN version, DROP COLUMN server",
    "ALTER TABLE queues DROP COLUMN flow; DROP TABLE rates",
];

/// Takes a store of the newest schema back to an older one.
pub(crate) fn take_back(server: &PostgresServer, schema: &str, number: usize) {
    let newest = schema_number(server, schema);
    assert_eq!(newest, UNDO.len(), "a new migration needs a line that takes it back");
    let steps = UNDO[number..].iter().rev();
    let steps: Vec<&str> = steps.copied().filter(|sql| !sql.is_empty()).collect();
    server.run(&format!(
        "BEGIN; SET search_path = {schema}; {}; \
         UPDATE meta SET value = {number} WHERE key = 'schema'; COMMIT",
        steps.join("; ")
    ));
}

impl Subject for InSchema {
    type Store = PgStore;

    fn is_available() -> bool {
        PostgresServer::shared().is_some()
    }

    fn fresh() -> Self {
        let url = fresh_url();
        Self { store: Some(open(&url)), url }
    }

    fn store(&mut self) -> &mut PgStore {
        self.store.as_mut().expect("it is open")
    }

    fn reopen(&mut self) {
        self.store = None;
        self.store = Some(open(&self.url));
    }

    fn verify(&mut self) -> Vec<String> {
        verify(self.store())
    }
}

impl ConcurrentSubject for InSchema {
    fn handle(&mut self) -> PgStore {
        open(&self.url)
    }

    fn on_commit(store: &mut PgStore, hook: impl FnMut(CommitPoint) + Send + 'static) {
        store.on_commit(hook);
    }
}
