//! The redb store against the model and against the memory store: the same random commands, the
//! same answers, the same rows. `WINDLASS_CASES` sets another number of sequences.

use redb::backends::InMemoryBackend;
use windlass_store_memory::MemoryStore;
use windlass_store_redb::RedbStore;
use windlass_tests::differential::{
    against_model, differential, grinding_trace, pinned, same_dump,
};

/// The number of sequences, unless the environment says otherwise.
#[expect(clippy::disallowed_methods, reason = "a longer run is asked for at the edge of the test")]
fn cases(default: u32) -> u32 {
    std::env::var("WINDLASS_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// A store without a disk: what a disk does is tested elsewhere.
fn store() -> RedbStore {
    RedbStore::open_with("memory", || Ok(InMemoryBackend::new())).expect("the store opens")
}

#[test]
fn redb_agrees_with_the_model_on_random_sequences() {
    let notes = differential(store, cases(300));
    assert!(!notes.is_empty(), "the model noted no rule at all");
}

#[test]
fn redb_agrees_with_the_model_on_every_pinned_trace() {
    for (what, trace) in pinned() {
        against_model(store, &trace).unwrap_or_else(|why| panic!("{what}: {why}"));
    }
}

#[test]
fn redb_keeps_the_newest_attempts_of_a_job_that_fails_a_hundred_times() {
    let notes = against_model(store, &grinding_trace()).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(notes["a failure is tried again"], 100);
}

#[test]
fn redb_and_memory_give_the_same_answers_and_the_same_dump() {
    same_dump(MemoryStore::new, store, cases(300));
}
