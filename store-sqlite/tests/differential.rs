//! The SQLite store against the naive model of the promises, and against the memory store: the same
//! random commands give the same answers and the same dump.

mod subject;

use windlass_store_memory::MemoryStore;
use windlass_tests::differential::{differential, same_dump};
use windlass_tests::on_disk::InDirectory;

type Scratch = InDirectory<subject::Sqlite>;

#[test]
fn sqlite_agrees_with_the_model_on_random_sequences() {
    differential(Scratch::new, 150);
}

#[test]
fn sqlite_and_memory_give_the_same_answers_and_the_same_dump() {
    same_dump(Scratch::new, MemoryStore::new, 150);
}
