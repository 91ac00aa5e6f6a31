//! PostgreSQL as the shared store: a schema for each world, on a private server that is stopped
//! after the run. A crash drops the connection of its process; what it had not committed is rolled
//! back.

use windlass_core::JobId;
use windlass_core::store::{JobDetail, Reader, Store, StoreError};
use windlass_store_postgres::{Clock, PgOptions, PgStore, StoreUrl};
use windlass_tests::postgres_server::PostgresServer;

use super::real::Faulty;
use super::{Opened, Place};

/// The schema, and a store to read from.
pub(super) struct PostgresPlace {
    store: PgStore,
    url: String,
}

impl PostgresPlace {
    pub(super) fn new() -> Result<Self, String> {
        let server = PostgresServer::shared().ok_or("PostgreSQL is not installed")?;
        let url = server.url(&server.new_schema());
        Ok(Self { store: open(&url)?, url })
    }
}

impl Place for PostgresPlace {
    fn open(&mut self) -> Result<Box<dyn Opened>, String> {
        let url = self.url.clone();
        let store = open(&url)?;
        let reopen = Box::new(move || open(&url));
        Ok(Box::new(Faulty { store, reopen, notices: true, poisoned: false, asked: false }))
    }

    fn power_cut(&mut self) -> Result<(), String> {
        self.store = open(&self.url)?;
        Ok(())
    }

    fn read(&mut self, ask: &mut dyn FnMut(&mut dyn Reader)) -> Result<(), StoreError> {
        ask(&mut self.store.reader()?);
        Ok(())
    }

    fn durable(&mut self, ids: &[JobId]) -> Result<Vec<Option<JobDetail>>, StoreError> {
        self.store.reader()?.jobs(ids)
    }

    fn verify(&self) -> Vec<String> {
        match self.store.verify() {
            Ok(found) => found.iter().map(ToString::to_string).collect(),
            Err(error) => vec![error.to_string()],
        }
    }
}

/// Opens a store whose time is that of the world, and whose ids have no gaps.
fn open(url: &str) -> Result<PgStore, String> {
    let options = PgOptions { clock: Clock::Caller, id_block: 0, ..PgOptions::default() };
    let opened = StoreUrl::parse(url).and_then(|url| PgStore::open(url, options));
    opened.map_err(|error| error.to_string())
}
