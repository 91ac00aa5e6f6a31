//! A bounded run of the simulation as part of the tests: green on memory, alike on every store, the
//! same twice; and the seeds that failed once. `.ci/run` and the command line run more.

use windlass_sim::coverage::{CONTENTION, EDGES, REFUSALS};
use windlass_sim::disk::StoreKind;
use windlass_sim::faults::{Fault, FaultSet};
use windlass_sim::options::{Options, Overrides};
use windlass_sim::run::{Batch, Plan, run_many, run_seed};

fn plan(store: StoreKind, seeds: u64) -> Plan {
    Plan { store, set: Overrides::default(), first: 1, seeds, twice_every: 16 }
}

#[track_caller]
fn assert_green(batch: &Batch, seeds: u64) {
    assert!(batch.failure.is_none(), "{:?}", batch.failure);
    assert_eq!(batch.seeds, seeds);
}

#[test]
fn hundreds_of_seeds_are_green_on_the_store_in_memory() {
    let batch = run_many(&plan(StoreKind::Memory, 400), |_| ());
    assert_green(&batch, 400);
    let all = Fault::ALL.len() + EDGES.len() + REFUSALS.len() + CONTENTION.len();
    let missing = batch.coverage.missing(true);
    assert!(missing.len() * 20 < all, "much never came up: {missing:?}");
}

/// Seeds that failed once, with what was wrong. A seed shows its failure only until the simulation
/// draws something else from it; where the core was wrong, `tests/tests/pinned/` has a scenario.
const PINNED: [(u64, &str); 13] = [
    (3_541, "core: a slow commit hid a clock step of its own length"),
    (506_123, "I13: a store slow to answer and to reopen counted as overlooking a job"),
    (525_652, "I14: a step before the process started was dropped for a later one"),
    (560_693, "core: a clock set back and forward between two commits went unnoticed"),
    (601_213, "I13: a store slow to say whether a batch was committed"),
    (1_174_328, "I13: a pass of the reaper over more leases than live holders have"),
    (
        60_004_636,
        "I14: a reaping was compared with the clock as later answers of its batch read it",
    ),
    (7_100_008_198, "I14: the same"),
    (8_100_003_165, "core: a clock set back between two answers of a batch went unnoticed"),
    (3_046_084, "core: a pass of the reaper went on behind a clock step"),
    (
        9_600_109_621,
        "I7: the clock was set back while the commit of a claim was under way, which landed later",
    ),
    (9_600_155_397, "I20: a job was requeued by another process while a limit was being set"),
    (
        42_114_624_121_958,
        "a rate that opened between two questions of a batch let a worse job go first",
    ),
];

#[test]
fn seeds_that_failed_once_are_green() {
    for (seed, story) in PINNED {
        let outcome = run_seed(seed, &Overrides::default(), StoreKind::Memory, false);
        assert!(outcome.violation.is_none(), "{seed}, {story}: {:?}", outcome.violation);
    }
}

#[cfg(feature = "stores")]
#[test]
fn the_same_trace_gives_the_same_answers_and_the_same_rows_on_sqlite_and_redb() {
    for store in [StoreKind::Sqlite, StoreKind::Redb] {
        let set = Overrides { jobs: Some(30), millis: Some(8_000), ..Overrides::default() };
        let plan = Plan { set, ..plan(store, 8) };
        assert_green(&run_many(&plan, |_| ()), 8);
    }
}

#[cfg(feature = "stores")]
#[test]
fn the_same_trace_gives_the_same_answers_and_the_same_rows_on_postgresql() {
    if windlass_tests::postgres_server::PostgresServer::shared().is_none() {
        return;
    }
    let set = Overrides { jobs: Some(12), millis: Some(4_000), ..Overrides::default() };
    let plan = Plan { set, ..plan(StoreKind::Postgres, 4) };
    assert_green(&run_many(&plan, |_| ()), 4);
}

#[test]
fn a_seed_gives_the_same_trace_with_and_without_its_text() {
    for seed in [3, 17, 99] {
        let bare = run_seed(seed, &Overrides::default(), StoreKind::Memory, false);
        let traced = run_seed(seed, &Overrides::default(), StoreKind::Memory, true);
        assert_eq!(bare.hash, traced.hash, "seed {seed}");
        assert!(bare.lines.is_empty() && traced.lines.len() > 100, "seed {seed}");
    }
}

#[test]
fn two_seeds_give_two_traces() {
    let hash = |seed| run_seed(seed, &Overrides::default(), StoreKind::Memory, false).hash;
    assert_ne!(hash(1), hash(2));
}

#[test]
fn without_faults_every_job_that_was_taken_runs_once() {
    let set = Overrides { off: FaultSet::all(), ..Overrides::default() };
    for seed in 1..20 {
        let outcome = run_seed(seed, &set, StoreKind::Memory, false);
        assert!(outcome.violation.is_none(), "seed {seed}: {:?}", outcome.violation);
        let (ran, stored) = (outcome.coverage.executions, outcome.coverage.jobs);
        assert_eq!(ran, stored, "seed {seed}: {}", Options::draw(seed, &set));
    }
}
