//! The store in memory takes the conformance suite.

use windlass_store_memory::MemoryStore;
use windlass_tests::fixture::Subject;

/// A store in memory; a crash leaves its image.
#[derive(Debug)]
struct Memory(MemoryStore);

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

windlass_tests::conformance!(Memory);
