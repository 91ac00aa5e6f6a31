//! Rates, limits of kinds, and aging.

use windlass_core::store::{Admin, AdminRefused, Batch, Leased, Outcomes, Reader, Settle};
use windlass_core::{
    Aging, Flow, Gate, JobId, Kind, KindConcurrency, KindLimits, Millis, NewJob, QueueSettings,
    Rate, Tats, TooManyKindLimits, Verdict, Wall,
};

use super::ids;
use crate::fixture::*;

const QUEUE: &str = "flow";

pub(super) fn rate(limit: u32, per: Millis, burst: Option<u32>) -> Rate {
    Rate::new(limit, per.get(), burst).expect("a fine rate")
}

pub(super) fn limited(flow: Flow) -> QueueSettings {
    QueueSettings { flow, ..QueueSettings::default() }
}

pub(super) fn running_of_kind(name: &str, most: u32) -> (Kind, KindLimits) {
    let concurrency = Some(KindConcurrency::new(most).expect("a fine limit"));
    (kind(name), KindLimits { concurrency, rate: None })
}

fn set<S: Subject>(world: &mut World<S>, flow: Flow) {
    let command = Admin::set_queue(queue(QUEUE), limited(flow));
    world.admin(command).expect("the settings are fine");
}

fn work_of_kind(name: &str) -> NewJob {
    NewJob { kind: kind(name), ..work_in(QUEUE) }
}

fn claim(batch: &mut Batch, max: usize) {
    batch.claims.push(claim_for(work_of_queues(&[QUEUE]), "w1", max));
}

fn claimed<S: Subject>(world: &mut World<S>, max: usize) -> Vec<JobId> {
    ids(&world.claim(work_of_queues(&[QUEUE]), "w1", max))
}

pub fn no_more_jobs_of_a_kind_run_than_its_limit_and_others_go_on<S: Subject>() {
    let mut world = World::<S>::new();
    set(&mut world, Flow { kinds: vec![running_of_kind("slow", 2)], ..Flow::NONE });
    // Far more of the kind than a claim asks for, all of them before the others.
    let slow: Vec<JobId> = (0..40).map(|_| world.enqueue(work_of_kind("slow"))).collect();
    let quick: Vec<JobId> = (0..3).map(|_| world.enqueue(work_of_kind("quick"))).collect();
    assert_eq!(claimed(&mut world, 4), [slow[0], slow[1], quick[0], quick[1]]);
    assert_eq!(claimed(&mut world, 4), [quick[2]]);
    assert_eq!(claimed(&mut world, 4), []);
}

pub fn a_kind_with_the_limit_zero_is_paused_alone<S: Subject>() {
    let mut world = World::<S>::new();
    set(&mut world, Flow { kinds: vec![running_of_kind("off", 0)], ..Flow::NONE });
    let off = world.enqueue(work_of_kind("off"));
    let on = world.enqueue(work_of_kind("on"));
    assert_eq!(claimed(&mut world, 9), [on]);
    set(&mut world, Flow::NONE);
    assert_eq!(claimed(&mut world, 9), [off]);
}

pub fn a_job_that_ends_lets_the_next_of_its_kind_start_in_the_same_batch<S: Subject>() {
    let mut world = World::<S>::new();
    set(&mut world, Flow { kinds: vec![running_of_kind("one", 1)], ..Flow::NONE });
    let jobs = [world.enqueue(work_of_kind("one")), world.enqueue(work_of_kind("one"))];
    let first = world.claim(work_of_queues(&[QUEUE]), "w1", 9);
    assert_eq!(ids(&first), [jobs[0]]);
    let out = world.commit(|batch| {
        let token = first[0].job.token();
        batch.settles.push(Settle { token, verdict: complete() });
        claim(batch, 9);
    });
    assert_eq!(ids(&out.claims[0].jobs), [jobs[1]]);
    assert_eq!(out.ready_queues, [queue(QUEUE)], "others may have been closed as well");
}

pub fn a_limit_that_is_raised_in_a_batch_lets_its_claims_through<S: Subject>() {
    let mut world = World::<S>::new();
    set(&mut world, Flow { kinds: vec![running_of_kind("one", 1)], ..Flow::NONE });
    let jobs = [world.enqueue(work_of_kind("one")), world.enqueue(work_of_kind("one"))];
    assert_eq!(claimed(&mut world, 9), [jobs[0]]);
    let out = world.commit(|batch| {
        let flow = Flow { kinds: vec![running_of_kind("one", 2)], ..Flow::NONE };
        let command = Admin::set_queue(queue(QUEUE), limited(flow));
        batch.admin.push(command);
        claim(batch, 9);
    });
    assert_eq!(ids(&out.claims[0].jobs), [jobs[1]]);
}

pub fn no_more_jobs_start_than_the_burst_and_then_as_the_rate_allows<S: Subject>() {
    let mut world = World::<S>::new();
    set(&mut world, Flow { rate: Some(rate(10, Millis::seconds(1), Some(3))), ..Flow::NONE });
    let jobs: Vec<JobId> = (0..9).map(|_| world.enqueue(work_in(QUEUE))).collect();
    assert_eq!(claimed(&mut world, 9), jobs[..3]);
    assert_eq!(claimed(&mut world, 9), []);
    world.advance(Millis::new(99));
    assert_eq!(claimed(&mut world, 9), []);
    world.advance(Millis::new(1));
    assert_eq!(claimed(&mut world, 9), [jobs[3]]);
    world.advance(Millis::seconds(60));
    assert_eq!(claimed(&mut world, 9), jobs[4..7], "a pause earns no more than the burst");
}

pub fn a_claim_that_a_rate_keeps_from_jobs_says_when_to_look_again<S: Subject>() {
    let mut world = World::<S>::new();
    let opens = |out: &Outcomes| out.next_open;
    let out = world.commit(|batch| claim(batch, 9));
    assert_eq!(opens(&out), None, "nothing waits");
    set(&mut world, Flow { rate: Some(rate(1, Millis::seconds(2), None)), ..Flow::NONE });
    for _ in 0..3 {
        world.enqueue(work_in(QUEUE));
    }
    let out = world.commit(|batch| claim(batch, 9));
    assert_eq!(out.claims[0].jobs.len(), 1);
    let next: Wall = world.now().plus(Millis::seconds(2));
    assert_eq!(opens(&out), Some(next), "said by the claim that used it up");
    world.advance(Millis::new(500));
    let out = world.commit(|batch| claim(batch, 9));
    assert_eq!((out.claims[0].jobs.len(), opens(&out)), (0, Some(next)), "and by later ones");
    world.set_clock(next);
    assert_eq!(claimed(&mut world, 9).len(), 1, "then a job may start");
}

pub fn a_retry_counts_against_the_rate_and_a_release_gives_nothing_back<S: Subject>() {
    for verdict in [fail_for("again", Millis::ZERO), Verdict::Release] {
        let mut world = World::<S>::new();
        set(&mut world, Flow { rate: Some(rate(1, Millis::seconds(1), None)), ..Flow::NONE });
        let job = world.enqueue(work_in(QUEUE));
        let leased: Vec<Leased> = world.claim(work_of_queues(&[QUEUE]), "w1", 1);
        world.settle(leased[0].job.token(), verdict).expect("the holder's verdict counts");
        assert_eq!(claimed(&mut world, 1), []);
        world.advance(Millis::seconds(1));
        assert_eq!(claimed(&mut world, 1), [job]);
    }
}

pub fn the_rate_of_a_kind_leaves_other_kinds_alone<S: Subject>() {
    let mut world = World::<S>::new();
    let limits = KindLimits { rate: Some(rate(1, Millis::seconds(1), None)), concurrency: None };
    set(&mut world, Flow { kinds: vec![(kind("api"), limits)], ..Flow::NONE });
    let api = [world.enqueue(work_of_kind("api")), world.enqueue(work_of_kind("api"))];
    let other = [world.enqueue(work_of_kind("other")), world.enqueue(work_of_kind("other"))];
    assert_eq!(claimed(&mut world, 9), [api[0], other[0], other[1]]);
    world.advance(Millis::seconds(1));
    assert_eq!(claimed(&mut world, 9), [api[1]]);
}

pub fn the_state_of_a_rate_survives_a_reopen_and_goes_with_its_rate<S: Subject>() {
    let mut world = World::<S>::new();
    let flow = Flow { rate: Some(rate(1, Millis::minutes(1), None)), ..Flow::NONE };
    set(&mut world, flow.clone());
    for _ in 0..2 {
        world.enqueue(work_in(QUEUE));
    }
    assert_eq!(claimed(&mut world, 9).len(), 1);
    world.reopen();
    let row = world.reader().queue(&queue(QUEUE)).expect("it can be read").expect("it exists");
    assert!(!row.tats.is_empty(), "a reader sees it");
    assert_eq!(claimed(&mut world, 9), []);
    let in_use = row.usage().of(&Kind::default());
    let gate = row.queue.gate_of(&Kind::default(), &in_use, world.now());
    assert_eq!(gate, Gate::RateLimited { until: world.now().plus(Millis::minutes(1)) });
    set(&mut world, Flow::NONE);
    let rows = world.dump().queues;
    assert!(rows.iter().all(|row| row.tats == Tats::default()), "it goes with its rate");
    set(&mut world, flow);
    assert_eq!(claimed(&mut world, 9).len(), 1, "a new rate begins unused");
}

pub fn limits_of_kinds_are_kept_in_order_and_too_many_are_refused<S: Subject>() {
    let mut world = World::<S>::new();
    let nothing = (kind("c"), KindLimits::default());
    let given = ["b", "a", "b"].map(|name| running_of_kind(name, 3));
    let kinds = given.into_iter().chain([nothing, running_of_kind("b", 2)]).collect();
    set(&mut world, Flow { kinds, ..Flow::NONE });
    let row = world.reader().queue(&queue(QUEUE)).expect("it can be read").expect("it exists");
    let kept = vec![running_of_kind("a", 3), running_of_kind("b", 2)];
    assert_eq!(row.queue.settings.flow.kinds, kept);
    let many = |count: u32| (0..count).map(|n| running_of_kind(&format!("k{n}"), 1)).collect();
    let command =
        |count| Admin::set_queue(queue(QUEUE), limited(Flow { kinds: many(count), ..Flow::NONE }));
    let refused = TooManyKindLimits { given: 101 };
    assert_eq!(world.admin(command(101)), Err(AdminRefused::TooManyKindLimits(refused)));
    world.reopen();
    assert!(world.admin(command(100)).is_ok(), "what was refused has changed nothing");
}

pub fn a_job_that_has_waited_long_enough_goes_before_one_of_a_higher_priority<S: Subject>() {
    let mut world = World::<S>::new();
    let aging = Some(Aging::new(1_000).expect("a fine aging"));
    set(&mut world, Flow { aging, ..Flow::NONE });
    let of = |rank| NewJob { priority: priority(rank), ..work_in(QUEUE) };
    let low = world.enqueue(of(0));
    world.advance(Millis::new(1_999));
    let high = world.enqueue(of(2));
    world.advance(Millis::new(2));
    let late = world.enqueue(of(2));
    assert_eq!(claimed(&mut world, 9), [high, low, late]);
}

pub fn aging_holds_for_jobs_that_become_ready_after_it_was_set<S: Subject>() {
    let mut world = World::<S>::new();
    let of = |rank| NewJob { priority: priority(rank), ..work_in(QUEUE) };
    let before = [world.enqueue(of(5)), world.enqueue(of(-5))];
    let retried = world.running(NewJob { kind: kind("retried"), ..of(3) }).job;
    let aging = Some(Aging::new(60_000).expect("a fine aging"));
    set(&mut world, Flow { aging, ..Flow::NONE });
    let ranks = |world: &mut World<S>| before.map(|id| world.job(id).rank.class);
    assert_eq!(ranks(&mut world), [-5, 5], "what is ready keeps its rank");
    world.settle(retried.token(), Verdict::Release).expect("the holder's verdict counts");
    assert_eq!(world.job(retried.id).rank.class, 0, "what is ready again gets a new one");
}
