//! `explain` on arbitrary jobs and surroundings: it always has a reason, each with its sentence.

use std::cell::RefCell;
use std::collections::BTreeSet;

use proptest::option;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use windlass_core::{
    Demand, Explanation, Gate, InUse, Job, Kind, KindConcurrency, KindLimits, Kinds, MaxRunning,
    Pause, Queue, QueueName, Queues, Rate, Reason, StateName, Surroundings, Tat, View, Wall,
    explain,
};

use super::arbitrary::{config, job, wall};

/// Every code of the contract.
const CODES: [&str; 12] = [
    "ready",
    "delayed",
    "queue_paused",
    "no_worker",
    "concurrency_full",
    "kind_full",
    "rate_limited",
    "behind",
    "leased",
    "done",
    "failed",
    "cancelled",
];

#[derive(Debug, Clone)]
struct Around {
    queue: Queue,
    in_use: InUse,
    /// Whether rates were just used.
    just_used: bool,
    before_it: u64,
    demands: Vec<Demand>,
}

fn around() -> impl Strategy<Value = Around> {
    let others = Demand { queues: Queues::All, kinds: Kinds::except(vec![Kind::default()]) };
    let demand = prop_oneof![
        2 => Just(vec![Demand::ALL]),
        1 => Just(Vec::new()),
        1 => Just(vec![others]),
    ];
    let numbers = || prop_oneof![0..3_u64, Just(u64::MAX)];
    let limits = (option::of(1..3_u32), option::of(0..3_u32), rate(), rate());
    let queue = (any::<bool>(), limits).prop_map(|(paused, (most, of_kind, rate, kind_rate))| {
        let mut queue = Queue::new(QueueName::default());
        queue.paused = paused.then(Pause::default);
        queue.settings.concurrency = most.and_then(|most| MaxRunning::new(most).ok());
        queue.settings.flow.rate = rate;
        let concurrency = of_kind.and_then(|most| KindConcurrency::new(most).ok());
        let limits = KindLimits { concurrency, rate: kind_rate };
        queue.settings.flow.kinds = vec![(Kind::default(), limits)];
        queue
    });
    let tat = || prop_oneof![any::<i64>(), Just(i64::MIN)].prop_map(Tat::new);
    let in_use = (numbers(), numbers(), tat(), tat())
        .prop_map(|(running, of_kind, tat, kind_tat)| InUse { running, of_kind, tat, kind_tat });
    (queue, in_use, any::<bool>(), numbers(), demand).prop_map(
        |(queue, in_use, just_used, before_it, demands)| Around {
            queue,
            in_use,
            just_used,
            before_it,
            demands,
        },
    )
}

fn rate() -> impl Strategy<Value = Option<Rate>> {
    let rate = (1..5_u32, 1..2_000_u64, option::of(1..5_u32));
    option::of(
        rate.prop_map(|(limit, per, burst)| Rate::new(limit, per, burst).expect("in bounds")),
    )
}

fn ask(job: &Job, around: &Around, now: Wall) -> Explanation {
    let Around { queue, in_use, before_it, demands, .. } = around;
    explain(job, &Surroundings { queue, in_use: *in_use, before_it: *before_it, demands }, now)
}

fn check(job: &Job, around: &Around, now: Wall) -> Result<BTreeSet<&'static str>, TestCaseError> {
    let mut around = around.clone();
    if around.just_used {
        let at = Tat::new(now.get().saturating_mul(1_000_000).saturating_add(1));
        (around.in_use.tat, around.in_use.kind_tat) = (at, at);
    }
    let around = &around;
    let answer = ask(job, around, now);
    let codes: BTreeSet<&str> = answer.reasons.iter().map(Reason::code).collect();
    prop_assert!(!codes.is_empty(), "no reason at all");
    prop_assert_eq!(codes.len(), answer.reasons.len(), "a reason is given twice");
    for reason in &answer.reasons {
        let sentence = reason.detail(|at| format!("<{at}>"));
        prop_assert!(!sentence.is_empty() && !sentence.contains("Wall("), "{}", sentence);
    }
    let state = job.state.name();
    let waits = state == StateName::Queued;
    prop_assert_eq!(codes.contains(state.as_str()), state.is_finished());
    prop_assert_eq!(codes.contains("leased"), state == StateName::Processing);
    prop_assert_eq!(codes.contains("queue_paused"), waits && around.queue.is_paused());
    let gate = around.queue.gate_of(&job.kind, &around.in_use, now);
    let delayed = job.state.view() == View::Scheduled && job.run_at > now;
    prop_assert_eq!(codes.contains("concurrency_full"), waits && gate == Gate::Full);
    prop_assert_eq!(codes.contains("kind_full"), waits && gate == Gate::KindFull);
    let limited = waits && !delayed && gate.until().is_some();
    prop_assert_eq!(codes.contains("rate_limited"), limited);
    if limited {
        prop_assert_eq!(answer.next_change_at, gate.until());
    }
    prop_assert_eq!(codes.contains("delayed"), delayed);
    prop_assert_eq!(codes.contains("behind"), waits && !delayed && around.before_it > 0);
    let wanted = |demand: &Demand| demand.kinds == Kinds::All;
    let no_worker = !around.demands.iter().any(wanted);
    prop_assert_eq!(codes.contains("no_worker"), waits && no_worker);
    prop_assert!(!codes.contains("ready") || codes.len() == 1, "ready, and yet {codes:?}");
    prop_assert!(answer.next_change_at.is_none() || !state.is_finished());
    if codes.contains("delayed") {
        prop_assert_eq!(answer.next_change_at, Some(job.run_at));
        prop_assert!(job.run_at > now);
    }
    Ok(codes)
}

#[test]
fn every_job_has_a_reason_and_every_code_of_the_contract_is_given() {
    let seen = RefCell::new(BTreeSet::new());
    let mut runner = TestRunner::new(config(2_000));
    let result = runner.run(&(job(), around(), wall()), |(job, around, now)| {
        seen.borrow_mut().extend(check(&job, &around, now)?);
        Ok(())
    });
    result.unwrap_or_else(|why| panic!("{why}"));
    assert_eq!(seen.into_inner(), CODES.into_iter().collect());
}
