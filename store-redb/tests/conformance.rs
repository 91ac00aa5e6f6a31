//! The redb store takes the conformance suite.

use tempfile::TempDir;
use windlass_core::store::Disagreement;
use windlass_store_redb::RedbStore;
use windlass_tests::fixture::Subject;

/// A store in a directory of its own; a crash leaves the file.
#[derive(Debug)]
struct Redb {
    dir: TempDir,
    store: Option<RedbStore>,
}

impl Redb {
    fn open(dir: &TempDir) -> RedbStore {
        RedbStore::open(dir.path().join("jobs.redb")).expect("the store opens")
    }
}

impl Subject for Redb {
    type Store = RedbStore;

    fn fresh() -> Self {
        let dir = TempDir::new().expect("a directory");
        let store = Some(Self::open(&dir));
        Self { dir, store }
    }

    fn store(&mut self) -> &mut RedbStore {
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

windlass_tests::conformance!(Redb);
