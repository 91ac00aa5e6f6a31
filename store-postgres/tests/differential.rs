//! The PostgreSQL store against the naive model of the promises, and against the memory store: the
//! same random commands give the same answers and the same dump.

mod subject;

use windlass_store_memory::MemoryStore;
use windlass_tests::differential::{differential, same_dump};
use windlass_tests::fixture::Subject;

use subject::{InSchema, fresh, fresh_url};

#[test]
fn postgres_agrees_with_the_model_on_random_sequences() {
    if InSchema::is_available() {
        differential(|| fresh(&fresh_url()), 40);
    }
}

#[test]
fn postgres_and_memory_give_the_same_answers_and_the_same_dump() {
    if InSchema::is_available() {
        same_dump(|| fresh(&fresh_url()), MemoryStore::new, 40);
    }
}
