//! The same random commands on a store and on the model, or on two stores: the same answers, the
//! same rows.
//!
//! A [`Trace`] is a list of steps that name jobs by their place ("the second running one"), so
//! that it still hits something after proptest has made it smaller.

mod bulk;
mod compare;
mod generate;
mod pinned;
mod plan;

use std::cell::RefCell;
use std::collections::BTreeMap;

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, TestCaseError, TestError, TestRunner};
use windlass_core::store::{Batch, Dump, Outcomes, Reader, Store, audit};
use windlass_core::{BatchId, Policy, ProcessId, Wall};

use crate::model::{Chosen, Model};
use compare::Differences;

pub use generate::{grinding_trace, trace};
pub use pinned::pinned;
use plan::{Memory, resolve};
pub use plan::{Step, Trace};

/// How often each rule of the model was used over all sequences.
pub type Notes = BTreeMap<&'static str, u64>;

/// The instant at which every trace starts.
pub const START: Wall = Wall::new(1_700_000_000_000);

/// Runs `cases` random sequences on a fresh store and on the model. Panics with the smallest
/// sequence found on which they disagree; returns which rules were used, and how often.
pub fn differential<S: Store>(make: impl Fn() -> S, cases: u32) -> Notes {
    let notes = RefCell::new(Notes::new());
    run_traces(cases, |trace| {
        for (what, times) in against_model(&make, trace)? {
            *notes.borrow_mut().entry(what).or_default() += times;
        }
        Ok(())
    });
    notes.into_inner()
}

/// Runs one sequence on a fresh store and on the model.
pub fn against_model<S: Store>(make: impl Fn() -> S, trace: &Trace) -> Result<Notes, String> {
    let mut store = make();
    let mut model = Model::new();
    let mut memory = Memory::new(dump(&store)?);
    for (number, step) in trace.steps.iter().enumerate() {
        let (now, batch) = resolve(trace, step, &mut memory);
        let outcomes = store.commit(now, &batch).map_err(|error| format!("{error}"))?;
        let after = dump(&store)?;
        let chosen = Chosen { outcomes: &outcomes, after: &after };
        let expected = model.run(now, &batch, chosen);
        let mut differences = Differences::new();
        differences.answers(&batch, &expected, &outcomes);
        differences.rows(&model.dump(), &Model::without_fingerprints(after.clone()));
        differences.wrote(outcomes.wrote, &memory.dump, &after);
        differences.audit(&audit(&after));
        differences.reads(&store, &after)?;
        differences.report(number, now, &batch)?;
        memory.learn(&outcomes, after);
    }
    compare::lists(&store, &memory.dump)?;
    Ok(model.notes().clone())
}

/// Runs `cases` random sequences on two fresh stores: the same answers after each batch, and the
/// same dump to the letter.
pub fn same_dump<A: Store, B: Store>(make_a: impl Fn() -> A, make_b: impl Fn() -> B, cases: u32) {
    run_traces(cases, |trace| side_by_side(make_a(), make_b(), trace));
}

/// Runs `cases` random sequences on fresh stores. `judge` gets, for each batch, how many rounds of
/// questions it took, its outcomes, and what is stored before and afterwards. `asked` counts the
/// rounds of a store so far.
pub fn count_rounds<S: Store>(
    make: impl Fn() -> S,
    cases: u32,
    asked: impl Fn(&S) -> u64,
    judge: impl Fn(u64, &Batch, &Outcomes, [&Dump; 2]) -> Result<(), String>,
) {
    run_traces(cases, |trace| {
        let mut store = make();
        let mut memory = Memory::new(dump(&store)?);
        for step in &trace.steps {
            let (now, batch) = resolve(trace, step, &mut memory);
            let before = asked(&store);
            let outcomes = store.commit(now, &batch).map_err(|error| format!("{error}"))?;
            let after = dump(&store)?;
            judge(asked(&store) - before, &batch, &outcomes, [&memory.dump, &after])?;
            memory.learn(&outcomes, after);
        }
        Ok(())
    });
}

/// Runs random sequences one after the other on one store, the same ones each time, until what it
/// holds is `enough`.
pub fn fill<S: Store>(store: &mut S, enough: impl Fn(&Dump) -> bool) -> Result<(), String> {
    let mut runner = TestRunner::deterministic();
    let mut memory = Memory::new(dump(store)?);
    while !enough(&memory.dump) {
        let tree = trace().new_tree(&mut runner).map_err(|why| why.to_string())?;
        let trace = tree.current();
        for step in &trace.steps {
            let (now, batch) = resolve(&trace, step, &mut memory);
            let outcomes = store.commit(now, &batch).map_err(|error| error.to_string())?;
            memory.learn(&outcomes, dump(store)?);
        }
    }
    Ok(())
}

/// Every list and every narrow read of a store agree with its dump.
pub fn reads_agree<S: Store>(store: &S) -> Result<(), String> {
    let all = dump(store)?;
    let mut differences = Differences::new();
    differences.audit(&audit(&all));
    differences.reads(store, &all)?;
    differences.report(0, START, &Batch::new(NO_BATCH, Policy::default()))?;
    compare::lists(store, &all)
}

const NO_BATCH: BatchId = BatchId { process: ProcessId(0), seq: 0 };

fn side_by_side<A: Store, B: Store>(mut a: A, mut b: B, trace: &Trace) -> Result<(), String> {
    let mut memory = Memory::new(dump(&a)?);
    for (number, step) in trace.steps.iter().enumerate() {
        let (now, batch) = resolve(trace, step, &mut memory);
        let from_a = a.commit(now, &batch).map_err(|error| format!("the first store: {error}"))?;
        let from_b = b.commit(now, &batch).map_err(|error| format!("the second store: {error}"))?;
        let (dump_a, dump_b) = (dump(&a)?, dump(&b)?);
        let mut differences = Differences::new();
        differences.same("answers", &sorted(&from_a), &sorted(&from_b));
        differences.same_text(&dump_a.to_string(), &dump_b.to_string());
        differences.audit(&audit(&dump_b));
        differences.report(number, now, &batch)?;
        memory.learn(&from_a, dump_a);
    }
    Ok(())
}

/// The order of queues means nothing where it is not that of the commands.
fn sorted(outcomes: &Outcomes) -> Outcomes {
    let mut outcomes = outcomes.clone();
    outcomes.ready_queues.sort();
    outcomes.figures.sort_by(|(a, _), (b, _)| a.cmp(b));
    outcomes
}

fn dump<S: Store>(store: &S) -> Result<Dump, String> {
    let reader = store.reader().and_then(|mut reader| reader.dump());
    reader.map_err(|error| format!("the store cannot be read: {error}"))
}

/// Runs random traces; panics with the smallest one that fails.
///
/// `PROPTEST_*` variables apply, but for the number of cases.
fn run_traces(cases: u32, check: impl Fn(&Trace) -> Result<(), String>) {
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new(config);
    let strategy = trace().prop_map(std::rc::Rc::new);
    let result = runner.run(&strategy, |trace| check(&trace).map_err(TestCaseError::fail));
    match result {
        Ok(()) => {}
        Err(TestError::Fail(why, trace)) => {
            let steps = trace.steps.iter().map(|step| format!("\n  {step:?}"));
            let steps: String = steps.collect();
            panic!("{why}\nthe smallest trace, under {:?}:{steps}", trace.policy)
        }
        Err(TestError::Abort(why)) => panic!("no traces were made: {why}"),
    }
}
