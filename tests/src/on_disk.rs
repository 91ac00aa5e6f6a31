//! Stores that lie in a file: each suite that needs one makes it in a directory of its own.

use std::fmt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use windlass_core::store::{
    Batch, CommitError, CommitPoint, Disagreement, Outcomes, Store, StoreError,
};
use windlass_core::{BatchId, Wall};

use crate::concurrent::ConcurrentSubject;
use crate::fixture::Subject;

/// A kind of store that lies in a file.
pub trait OnDisk {
    /// The type under test.
    type Store: Store + fmt::Debug;

    /// Whether such a store can be made here.
    fn is_available() -> bool {
        true
    }

    /// The path of a new store in this directory. A store on a server has a URL instead.
    fn place(dir: &Path) -> PathBuf {
        dir.join("jobs.db")
    }

    /// Opens a file; it is made if it does not exist.
    fn open(path: &Path) -> Self::Store;

    /// What the store finds wrong with itself.
    fn verify(store: &Self::Store) -> Result<Vec<Disagreement>, StoreError>;
}

/// A kind of store whose file several handles write to at once.
pub trait SharedOnDisk: OnDisk<Store: Send + 'static> {
    /// Has this handle call `hook` at each point inside its commits.
    fn on_commit(store: &mut Self::Store, hook: impl FnMut(CommitPoint) + Send + 'static);
}

/// A store in a directory of its own, which goes with it. A crash leaves the file.
#[derive(Debug)]
pub struct InDirectory<D: OnDisk> {
    /// None while it is closed. Dropped before the directory.
    store: Option<D::Store>,
    dir: TempDir,
}

impl<D: OnDisk> InDirectory<D> {
    /// An empty store.
    pub fn new() -> Self {
        let dir = scratch();
        let store = Some(D::open(&file_in(&dir)));
        Self { store, dir }
    }

    fn open(&self) -> &D::Store {
        self.store.as_ref().expect("it is open")
    }
}

impl<D: OnDisk> Default for InDirectory<D> {
    fn default() -> Self {
        Self::new()
    }
}

impl<D: OnDisk> Subject for InDirectory<D> {
    type Store = D::Store;

    fn fresh() -> Self {
        Self::new()
    }

    fn store(&mut self) -> &mut D::Store {
        self.store.as_mut().expect("it is open")
    }

    fn reopen(&mut self) {
        self.store = None;
        self.store = Some(D::open(&file_in(&self.dir)));
    }

    fn verify(&mut self) -> Vec<String> {
        texts(D::verify(self.open()))
    }
}

impl<D: SharedOnDisk> ConcurrentSubject for InDirectory<D> {
    fn handle(&mut self) -> D::Store {
        D::open(&file_in(&self.dir))
    }

    fn on_commit(store: &mut D::Store, hook: impl FnMut(CommitPoint) + Send + 'static) {
        D::on_commit(store, hook);
    }
}

impl<D: OnDisk> Store for InDirectory<D> {
    type Reader = <D::Store as Store>::Reader;

    fn commit(&mut self, now: Wall, batch: &Batch) -> Result<Outcomes, CommitError> {
        self.store().commit(now, batch)
    }

    fn was_committed(&mut self, batch: BatchId) -> Result<bool, StoreError> {
        self.store().was_committed(batch)
    }

    fn reopen(&mut self) -> Result<(), StoreError> {
        self.store().reopen()
    }

    fn reader(&self) -> Result<Self::Reader, StoreError> {
        self.open().reader()
    }
}

/// Two stores on one file that take turns: whatever one has kept in memory, the other has made
/// stale.
#[derive(Debug)]
pub struct TakingTurns<D: OnDisk> {
    /// Whose turn it is stands first. Empty while they are closed.
    stores: Vec<D::Store>,
    dir: TempDir,
}

impl<D: OnDisk> TakingTurns<D> {
    fn open(dir: &TempDir) -> Vec<D::Store> {
        vec![D::open(&file_in(dir)), D::open(&file_in(dir))]
    }
}

impl<D: OnDisk> Subject for TakingTurns<D> {
    type Store = D::Store;

    fn fresh() -> Self {
        let dir = scratch();
        Self { stores: Self::open(&dir), dir }
    }

    fn store(&mut self) -> &mut D::Store {
        self.stores.swap(0, 1);
        &mut self.stores[0]
    }

    fn reopen(&mut self) {
        self.stores.clear();
        self.stores = Self::open(&self.dir);
    }

    fn verify(&mut self) -> Vec<String> {
        texts(D::verify(self.store()))
    }
}

/// A directory in memory where there is one, for files that are made by the thousand: suites that
/// use it do not depend on syncs.
pub fn scratch() -> TempDir {
    let memory = Path::new("/dev/shm");
    let dir = if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() };
    dir.expect("a directory can be made")
}

fn file_in(dir: &TempDir) -> PathBuf {
    dir.path().join("jobs.db")
}

fn texts(found: Result<Vec<Disagreement>, StoreError>) -> Vec<String> {
    let found = found.expect("it can be verified");
    found.into_iter().map(|Disagreement(text)| text).collect()
}
