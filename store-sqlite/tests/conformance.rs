//! The SQLite store takes the conformance suite.

use tempfile::TempDir;
use windlass_core::store::Disagreement;
use windlass_store_sqlite::SqliteStore;
use windlass_tests::fixture::Subject;

/// A store in a directory of its own; a crash leaves the file.
#[derive(Debug)]
struct Sqlite {
    dir: TempDir,
    store: Option<SqliteStore>,
}

impl Sqlite {
    fn open(dir: &TempDir) -> SqliteStore {
        SqliteStore::open(dir.path().join("jobs.db")).expect("the store opens")
    }
}

impl Subject for Sqlite {
    type Store = SqliteStore;

    fn fresh() -> Self {
        let dir = TempDir::new().expect("a directory");
        let store = Some(Self::open(&dir));
        Self { dir, store }
    }

    fn store(&mut self) -> &mut SqliteStore {
        self.store.as_mut().expect("it is open")
    }

    fn reopen(&mut self) {
        self.store = None;
        self.store = Some(Self::open(&self.dir));
    }

    fn verify(&mut self) -> Vec<String> {
        let found = self.store().verify().expect("it can be verified");
        found.into_iter().map(|Disagreement(text)| text).collect()
    }
}

windlass_tests::conformance!(Sqlite);
