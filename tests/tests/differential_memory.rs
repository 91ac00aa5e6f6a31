//! The memory store against the model: thousands of random command sequences, every answer and
//! every row compared. `WINDLASS_CASES` sets another number of sequences.

use windlass_store_memory::MemoryStore;
use windlass_tests::differential::{
    against_model, differential, grinding_trace, pinned, same_dump,
};
use windlass_tests::model::RULES;

/// The number of sequences, unless the environment says otherwise.
#[expect(clippy::disallowed_methods, reason = "a longer run is asked for at the edge of the test")]
fn cases(default: u32) -> u32 {
    std::env::var("WINDLASS_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn memory_agrees_with_the_model_on_random_sequences_that_reach_every_rule() {
    let cases = cases(2_000);
    let notes = differential(MemoryStore::new, cases);
    let missed: Vec<&&str> = RULES.iter().filter(|rule| !notes.contains_key(*rule)).collect();
    assert!(missed.is_empty() || cases < 2_000, "no sequence reached {missed:?}");
}

#[test]
fn memory_agrees_with_the_model_on_every_pinned_trace() {
    for (what, trace) in pinned() {
        against_model(MemoryStore::new, &trace).unwrap_or_else(|why| panic!("{what}: {why}"));
    }
}

#[test]
fn memory_keeps_the_newest_attempts_of_a_job_that_fails_a_hundred_times() {
    let notes =
        against_model(MemoryStore::new, &grinding_trace()).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(notes["a failure is tried again"], 100);
}

#[test]
fn two_memory_stores_give_the_same_answers_and_the_same_dump() {
    same_dump(MemoryStore::new, MemoryStore::new, cases(200));
}
