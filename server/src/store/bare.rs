//! An open store with nothing running on it: no dispatcher, no workers.

use windlass_core::store::{Disagreement, Reader as _, Store as _, StoreError};
use windlass_core::{Counts, View};
use windlass_store_postgres::PgStore;
use windlass_store_redb::RedbStore;
use windlass_store_sqlite::SqliteStore;

use super::{OpenError, Schema, StoreUrl, aside, open_postgres, open_redb, open_sqlite};

pub(crate) enum BareStore {
    Sqlite(Box<SqliteStore>),
    Redb(Box<RedbStore>),
    Postgres(Box<PgStore>),
}

impl BareStore {
    pub(crate) fn open(url: &StoreUrl) -> Result<Self, OpenError> {
        Self::open_with(url, Schema::Keep)
    }

    /// Opens a store that is made if there is none.
    pub(super) fn open_or_make(url: &StoreUrl) -> Result<Self, OpenError> {
        Self::open_with(url, Schema::Make)
    }

    fn open_with(url: &StoreUrl, schema: Schema) -> Result<Self, OpenError> {
        Ok(match url {
            StoreUrl::Sqlite(path) => Self::Sqlite(Box::new(open_sqlite(url, path)?)),
            StoreUrl::Redb(path) => Self::Redb(Box::new(open_redb(url, path)?)),
            StoreUrl::Postgres(url) => Self::Postgres(Box::new(open_postgres(url, schema)?)),
        })
    }

    /// Everything in the store that contradicts something else in it.
    pub(crate) fn verify(&self) -> Result<Vec<Disagreement>, StoreError> {
        match self {
            Self::Sqlite(store) => store.verify(),
            Self::Redb(store) => store.verify(),
            Self::Postgres(store) => aside(|| store.verify()),
        }
    }

    /// Derives counters, keys and indexes again from the jobs.
    pub(crate) fn repair(&mut self) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(store) => store.repair(),
            Self::Redb(store) => store.repair(),
            Self::Postgres(store) => aside(|| store.repair()),
        }
    }

    /// How many jobs there are, by the counters.
    pub(crate) fn jobs(&self) -> Result<u64, StoreError> {
        let queues = match self {
            Self::Sqlite(store) => store.reader().and_then(|mut reader| reader.queues()),
            Self::Redb(store) => store.reader().and_then(|mut reader| reader.queues()),
            Self::Postgres(store) => {
                aside(|| store.reader().and_then(|mut reader| reader.queues()))
            }
        }?;
        let sum = queues.iter().fold(Counts::default(), |sum, row| sum.plus(&row.total()));
        Ok(View::ALL.iter().map(|view| sum.get(*view)).sum())
    }
}
