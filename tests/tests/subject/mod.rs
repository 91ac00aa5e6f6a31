//! The store in memory, as the suites take it.

use windlass_core::store::CommitPoint;
use windlass_store_memory::MemoryStore;
use windlass_tests::concurrent::ConcurrentSubject;
use windlass_tests::fixture::Subject;

/// A store in memory; a crash leaves its image.
#[derive(Debug)]
pub(crate) struct Memory(MemoryStore);

impl Subject for Memory {
    type Store = MemoryStore;

    fn fresh() -> Self {
        Self(MemoryStore::new())
    }

    fn store(&mut self) -> &mut MemoryStore {
        &mut self.0
    }

    fn reopen(&mut self) {
        self.0 = self.0.crash_image();
    }

    fn verify(&mut self) -> Vec<String> {
        self.0.verify()
    }
}

impl ConcurrentSubject for Memory {
    fn handle(&mut self) -> MemoryStore {
        self.0.another()
    }

    fn on_commit(store: &mut MemoryStore, hook: impl FnMut(CommitPoint) + Send + 'static) {
        store.on_commit(hook);
    }
}
