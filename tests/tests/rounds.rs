//! How often a batch asks the store before it is decided: on a server each round of questions is a
//! round trip. One is the rule; where there are more than two, the batch does something that is
//! named here.

mod subject;

use std::cell::RefCell;
use std::collections::BTreeMap;

use windlass_core::store::{Admin, Batch, Dump, Heartbeat, Outcomes, Purge, Settle};
use windlass_core::{Millis, NewJob, View, When};
use windlass_store_memory::MemoryStore;
use windlass_tests::differential::count_rounds;
use windlass_tests::fixture::*;

use subject::Memory;

/// How many rounds this batch takes.
fn rounds(world: &mut World<Memory>, fill: impl FnOnce(&mut Batch)) -> u64 {
    let before = world.store().rounds();
    world.commit(fill);
    world.store().rounds() - before
}

fn claim(batch: &mut Batch, max: usize) {
    batch.claims.push(claim_for(main_work(), "w1", max));
}

fn backlog(world: &mut World<Memory>, count: usize) {
    world.commit(|batch| batch.enqueues.extend(std::iter::repeat_n(work(), count)));
}

#[test]
fn an_ordinary_batch_asks_once() {
    let mut world = World::new();
    let tokens = ["w1", "w2"].map(|name| world.running_by(name, work()).job.token());
    world.enqueue(work_keyed("k"));
    backlog(&mut world, 10);
    let asked = rounds(&mut world, |batch| {
        batch.settles.push(Settle { token: tokens[0], verdict: complete_with("1") });
        batch.heartbeats.push(Heartbeat {
            token: tokens[1],
            extend: None,
            progress: Some(text("2")),
        });
        batch.enqueues.extend([work(), work_keyed("k"), work_keyed("new"), work_in("new")]);
        batch.reap = Some(reap_up_to(10));
        batch.promote = Some(10);
        claim(batch, 5);
    });
    assert_eq!(asked, 1);
}

#[test]
fn a_claim_that_finds_less_than_it_wants_asks_once() {
    let mut world = World::new();
    assert_eq!(rounds(&mut world, |batch| claim(batch, 5)), 1);
    backlog(&mut world, 3);
    assert_eq!(rounds(&mut world, |batch| claim(batch, 5)), 1);
    let asked = rounds(&mut world, |batch| {
        batch.enqueues.extend([work(), work()]);
        claim(batch, 5);
    });
    assert_eq!(asked, 1, "new jobs are claimed without another look");
}

#[test]
fn a_promotion_with_a_claim_of_what_fell_due_asks_for_the_payloads_too() {
    let mut world = World::new();
    let later = NewJob { when: When::After(delay(TICK)), ..work() };
    world.commit(|batch| batch.enqueues.extend([later.clone(), later]));
    world.advance(TICK);
    let asked = rounds(&mut world, |batch| {
        batch.promote = Some(10);
        claim(batch, 5);
    });
    assert_eq!(asked, 2);
}

#[test]
fn a_purge_asks_a_second_time_for_the_keys_of_what_it_removes() {
    let age = Millis::hours(1);
    let purge = |batch: &mut Batch| {
        batch.purge = Some(Purge { retention: keep_all_for(age), limit: 10 });
    };
    for (new, expected) in [(work(), 1), (work_keyed("k"), 2)] {
        let mut world = World::new();
        world.done(new);
        world.advance(age);
        assert_eq!(rounds(&mut world, purge), expected);
    }
}

#[test]
fn a_claim_from_a_queue_that_the_batch_opened_asks_twice() {
    let mut world = World::new();
    backlog(&mut world, 3);
    world.admin(Admin::Pause(queue("main"))).expect("a queue can be paused");
    let asked = rounds(&mut world, |batch| {
        batch.admin.push(Admin::Resume(queue("main")));
        claim(batch, 2);
    });
    assert_eq!(asked, 2);
}

#[test]
fn claims_whose_demands_overlap_ask_twice() {
    let mut world = World::new();
    backlog(&mut world, 6);
    let asked = rounds(&mut world, |batch| {
        claim(batch, 2);
        claim(batch, 2);
    });
    assert_eq!(asked, 2);
}

/// Why a batch may ask more than twice.
const REASONS: [&str; 5] = [
    "several claims, each of which may ask",
    "a claim after the keys of jobs that may be removed",
    "a claim of jobs that the batch itself made ready",
    "a claim while the batch changes the gates of queues",
    "a claim that reaches a concurrency limit",
];

/// The reasons that this batch has.
fn reasons(batch: &Batch, out: &Outcomes, after: &Dump) -> Vec<&'static str> {
    let claims = batch.claims.iter().filter(|claim| claim.takers.iter().any(|one| one.max > 0));
    let claims = claims.count();
    let any = |wanted: fn(&Admin) -> bool| batch.admin.iter().any(wanted);
    let removes = |one: &Admin| {
        matches!(one, Admin::Delete(_) | Admin::DiscardDead { .. } | Admin::ReplayDead { .. })
    };
    let gates =
        |one: &Admin| matches!(one, Admin::Pause(_) | Admin::Resume(_) | Admin::SetQueue(..));
    let full = after.queues.iter().any(|row| {
        let running: u64 = row.kinds.iter().map(|(_, counts)| counts.get(View::Processing)).sum();
        let limit = row.queue.settings.concurrency;
        limit.is_some_and(|most| running >= u64::from(most.get()))
    });
    let holds = [
        claims > 1,
        batch.purge.is_some() || any(removes),
        !out.ready_queues.is_empty(),
        any(gates),
        full,
    ];
    let with_claim = REASONS.into_iter().zip(holds).filter(|(_, holds)| *holds && claims > 0);
    with_claim.map(|(reason, _)| reason).collect()
}

#[test]
#[expect(clippy::print_stdout, reason = "the distribution, for who asks with --nocapture")]
fn a_random_batch_asks_at_most_twice_but_for_named_reasons() {
    let found: RefCell<BTreeMap<u64, u64>> = RefCell::default();
    let why: RefCell<BTreeMap<&str, u64>> = RefCell::default();
    count_rounds(MemoryStore::new, 1_000, MemoryStore::rounds, |rounds, batch, out, after| {
        *found.borrow_mut().entry(rounds).or_default() += 1;
        let reasons = reasons(batch, out, after);
        if rounds > 2 {
            for one in &reasons {
                *why.borrow_mut().entry(one).or_default() += 1;
            }
        }
        let named = rounds <= 2 || !reasons.is_empty();
        named.then_some(()).ok_or_else(|| format!("{rounds} rounds for {batch:?}"))
    });
    let (found, why) = (found.into_inner(), why.into_inner());
    println!("batches by rounds: {found:?}\nof those with more than two: {why:#?}");
    let all: u64 = found.values().sum();
    let few: u64 = found.range(..=2).map(|(_, count)| count).sum();
    assert!(few * 100 >= all * 95, "only {few} of {all} batches ask at most twice: {found:?}");
}
