//! Runs of seeds: one, or many on all cores. Every failing seed and some of the passing ones run
//! twice, and both runs must have the same trace.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::coverage::Coverage;
use crate::disk::StoreKind;
use crate::invariants::Violation;
use crate::options::{Options, Overrides};
use crate::world::{Outcome, World};

/// The seeds to run, and on which store.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// The store of every seed.
    pub store: StoreKind,
    /// Options of the command line, which replace those drawn from the seed.
    pub set: Overrides,
    /// The first seed.
    pub first: u64,
    /// Number of seeds, from the first on.
    pub seeds: u64,
    /// One of this number of passing seeds runs twice.
    pub twice_every: u64,
}

/// A seed that failed.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The seed whose run violated an invariant.
    pub seed: u64,
    /// The first violation of the run.
    pub violation: Violation,
}

/// Totals of the runs of a range of seeds.
#[derive(Debug, Default)]
pub struct Batch {
    /// Number of seeds that were run.
    pub seeds: u64,
    /// Faults, states and refusals that occurred in them.
    pub coverage: Coverage,
    /// The lowest seed that failed.
    pub failure: Option<Failure>,
}

impl Batch {
    /// Adds the totals of another batch.
    pub fn join(&mut self, other: Self) {
        self.seeds += other.seeds;
        self.coverage.add(&other.coverage);
        self.failure = self.failure.take().or(other.failure);
    }
}

/// Runs one seed. A panic is a violation like any other.
pub fn run_seed(seed: u64, set: &Overrides, store: StoreKind, with_text: bool) -> Outcome {
    // Only the store in memory can interleave commits.
    let set = Overrides { atomic: set.atomic || store != StoreKind::Memory, ..*set };
    let options = Options::draw(seed, &set);
    let run = || World::new(options, store, with_text).map(World::run);
    let what = match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(outcome)) => return outcome,
        Ok(Err(error)) => error,
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().map(ToString::to_string);
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
            format!("panicked: {}", text.unwrap_or_default())
        }
    };
    Outcome::failed(Violation { rule: "no panic", what })
}

/// Runs one seed and returns its violation, or that of a second run or another store that differs.
pub fn judge_seed(seed: u64, plan: &Plan) -> Outcome {
    let mut outcome = run_seed(seed, &plan.set, plan.store, false);
    let twice = outcome.violation.is_some() || seed.is_multiple_of(plan.twice_every.max(1));
    if twice && run_seed(seed, &plan.set, plan.store, false).hash != outcome.hash {
        let what = "two runs of one seed differ".to_owned();
        outcome.violation = Some(Violation { rule: "E6 same seed, same trace", what });
    }
    if outcome.violation.is_none() && plan.store != StoreKind::Memory {
        outcome.violation = compare(seed, plan, &outcome);
    }
    outcome
}

/// E7: a trace gives the same answers and the same rows on every store.
fn compare(seed: u64, plan: &Plan, real: &Outcome) -> Option<Violation> {
    let set = Overrides { atomic: true, ..plan.set };
    let memory = run_seed(seed, &set, StoreKind::Memory, false);
    let rule = "E7 every store alike";
    let store = plan.store.word();
    if memory.hash != real.hash {
        let what = format!("the trace on {store} is not the one on memory");
        return Some(Violation { rule, what });
    }
    let (left, right) = (memory.dump.to_string(), real.dump.to_string());
    let differs = left.lines().zip(right.lines()).find(|(left, right)| left != right);
    let what = match differs {
        Some((left, right)) => format!("memory: {left}\n  {store}: {right}"),
        None if left.len() != right.len() => format!("{store} holds more or less than memory"),
        None => return None,
    };
    Some(Violation { rule, what })
}

/// Runs many seeds on every core, until one fails.
pub fn run_many(plan: &Plan, progress: impl Fn(u64) + Sync) -> Batch {
    let next = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let done = Mutex::new(Batch::default());
    let work = || {
        let mut coverage = Coverage::default();
        let mut ran = 0;
        while !stop.load(Ordering::Relaxed) {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= plan.seeds {
                break;
            }
            let seed = plan.first.wrapping_add(at);
            let outcome = judge_seed(seed, plan);
            coverage.add(&outcome.coverage);
            ran += 1;
            if let Some(violation) = outcome.violation {
                stop.store(true, Ordering::Relaxed);
                let failure = Failure { seed, violation };
                let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                let first = done.failure.as_ref().is_none_or(|known| known.seed > seed);
                if first {
                    done.failure = Some(failure);
                }
            }
            progress(at + 1);
        }
        let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
        done.coverage.add(&coverage);
        done.seeds += ran;
    };
    let cores = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(work);
        }
    });
    done.into_inner().unwrap_or_else(PoisonError::into_inner)
}
