//! SQLite as the shared store: a file in a temporary folder of the run. A crash drops the handle
//! of its process; what it had not committed is gone, as when a process is killed.

use std::path::{Path, PathBuf};

use tempfile::TempDir;
use windlass_core::JobId;
use windlass_core::store::{JobDetail, Reader, Store, StoreError};
use windlass_store_sqlite::SqliteStore;

use super::real::Faulty;
use super::{Opened, Place};

/// The folder with the file, and a store to read from.
pub(super) struct SqlitePlace {
    store: Option<SqliteStore>,
    folder: TempDir,
}

impl SqlitePlace {
    pub(super) fn new() -> Result<Self, String> {
        let folder = tempfile::tempdir().map_err(|error| format!("no folder: {error}"))?;
        let store = Some(open(&path(&folder))?);
        Ok(Self { store, folder })
    }

    fn store(&self) -> &SqliteStore {
        self.store.as_ref().expect("it is open but for the moment of a power cut")
    }
}

impl Place for SqlitePlace {
    fn open(&mut self) -> Result<Box<dyn Opened>, String> {
        let path = path(&self.folder);
        let store = open(&path)?;
        let reopen = Box::new(move || open(&path));
        Ok(Box::new(Faulty { store, reopen, notices: true, poisoned: false, asked: false }))
    }

    fn power_cut(&mut self) -> Result<(), String> {
        self.store = None;
        self.store = Some(open(&path(&self.folder))?);
        Ok(())
    }

    fn read(&mut self, ask: &mut dyn FnMut(&mut dyn Reader)) -> Result<(), StoreError> {
        ask(&mut self.store().reader()?);
        Ok(())
    }

    fn durable(&mut self, ids: &[JobId]) -> Result<Vec<Option<JobDetail>>, StoreError> {
        self.store().reader()?.jobs(ids)
    }

    fn verify(&self) -> Vec<String> {
        match self.store().verify() {
            Ok(found) => found.iter().map(ToString::to_string).collect(),
            Err(error) => vec![error.to_string()],
        }
    }
}

fn path(folder: &TempDir) -> PathBuf {
    folder.path().join("jobs.db")
}

fn open(path: &Path) -> Result<SqliteStore, String> {
    SqliteStore::open(path).map_err(|error| error.to_string())
}
