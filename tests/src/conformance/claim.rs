//! Claims: who gets which job, in which order, and for how long.

use windlass_core::limits::PAGE_ROWS;
use windlass_core::store::{Admin, ClaimFor, Heartbeat, Settle, Taker};
use windlass_core::{
    Delay, Demand, Epoch, JobId, Kinds, Millis, NewJob, Priority, Queues, State, StateName,
    Verdict, View, When,
};

use super::{commit_idle, ids};
use crate::fixture::*;

// Demand.

pub fn only_the_kinds_asked_for_are_claimed<S: Subject>() {
    let mut world = World::<S>::new();
    let made = ["a", "b", "c", "a"].map(|name| world.enqueue(work_of(name)));
    let only = |names: &[&str]| Demand {
        queues: Queues::only(vec![queue("main")]),
        kinds: Kinds::only(names.iter().map(|name| kind(name)).collect()),
    };
    assert_eq!(world.claim(only(&["unknown"]), "w1", 9), []);
    assert_eq!(world.claim(only(&[]), "w1", 9), []);
    assert_eq!(ids(&world.claim(only(&["c", "a"]), "w1", 9)), [made[0], made[2], made[3]]);
    assert_eq!(world.job(made[1]).state.name(), StateName::Queued);
}

pub fn the_kinds_excepted_are_not_claimed<S: Subject>() {
    let mut world = World::<S>::new();
    let made = ["a", "b", "c", "a"].map(|name| world.enqueue(work_of(name)));
    let except = |names: &[&str]| Demand {
        queues: Queues::only(vec![queue("main")]),
        kinds: Kinds::except(names.iter().map(|name| kind(name)).collect()),
    };
    let found = world.claim(except(&["c", BYSTANDER_KIND, "a", "unknown"]), "w1", 9);
    assert_eq!(ids(&found), [made[1]]);
    let found = world.claim(except(&[BYSTANDER_KIND, "c"]), "w1", 9);
    assert_eq!(ids(&found), [made[0], made[3]]);
}

pub fn only_the_queues_asked_for_are_claimed_from<S: Subject>() {
    let mut world = World::<S>::new();
    let made = ["q1", "q2", "q3"].map(|name| world.enqueue(work_in(name)));
    assert_eq!(world.claim(work_of_queues(&["unknown"]), "w1", 9), []);
    assert_eq!(world.claim(work_of_queues(&[]), "w1", 9), []);
    let found = world.claim(work_of_queues(&["q3", "unknown", "q1"]), "w1", 9);
    assert_eq!(ids(&found), [made[0], made[2]]);
    assert_eq!(world.job(made[1]).state.name(), StateName::Queued);
}

pub fn a_claim_that_finds_nothing_writes_nothing<S: Subject>() {
    let mut world = World::<S>::new();
    let out = commit_idle(&mut world, |batch| batch.claims.push(claim_for(main_work(), "w1", 9)));
    assert!(out.claims[0].dry);
}

pub fn a_claim_is_dry_only_if_it_found_less_than_it_asked_for<S: Subject>() {
    let mut world = World::<S>::new();
    let mut dry = |max| {
        world.enqueue(work());
        world.enqueue(work());
        let mut claims = world.commit(|batch| {
            batch.claims.push(claim_for(main_work(), "w1", max));
            batch.claims.push(claim_for(main_work(), "w2", 99));
        });
        let rest = claims.claims.pop().expect("there are two answers");
        let first = claims.claims.pop().expect("there are two answers");
        assert_eq!(first.jobs.len() + rest.jobs.len(), 2);
        assert!(rest.dry);
        (first.jobs.len(), first.dry)
    };
    assert_eq!(dry(0), (0, false));
    assert_eq!(dry(1), (1, false));
    assert_eq!(dry(2), (2, false));
    assert_eq!(dry(3), (2, true));
}

// The lease.

pub fn a_claim_is_charged_and_dated_when_it_is_made<S: Subject>() {
    let mut world = World::<S>::new();
    let id = world.enqueue(work());
    world.advance(Millis::minutes(1));
    let before = world.job(id);
    let job = world.claim_one("w7").job;
    assert_eq!((job.attempts, job.epoch), (1, Epoch::new(1)));
    assert_eq!((job.started_at, job.updated_at), (Some(world.now()), world.now()));
    assert_eq!(job.run_at, before.run_at, "when it was due is not rewritten");
    let lease = job.lease().expect("a claimed job is leased");
    assert_eq!(lease.worker, worker("w7"));
}

pub fn each_claim_of_a_job_has_a_token_of_its_own<S: Subject>() {
    let mut world = World::<S>::new();
    world.enqueue(work());
    for epoch in 1..=3 {
        world.advance(TICK);
        let job = world.claim_one("w1").job;
        assert_eq!((job.epoch, job.attempts), (Epoch::new(epoch), 1));
        assert_eq!(job.started_at, Some(world.now()), "each attempt has its own start");
        world.settle(job.token(), Verdict::Release).expect("it is given back");
    }
}

pub fn a_lease_lasts_as_long_as_the_job_says<S: Subject>() {
    let mut world = World::<S>::new();
    let length = lease(Millis::seconds(77));
    let leased = world.running(NewJob { visibility_timeout: Some(length), ..work() });
    let found = leased.job.lease().expect("a claimed job is leased");
    assert_eq!((found.until, found.length), (world.now().plus(length.millis()), length));
}

pub fn a_taker_may_ask_for_leases_of_its_own_length<S: Subject>() {
    let mut world = World::<S>::new();
    world.enqueue(work());
    world.enqueue(work());
    let longer = lease(Millis::hours(2));
    let takers = vec![
        Taker { worker: worker("w1"), max: 1, length: Some(longer) },
        Taker { worker: worker("w2"), max: 1, length: None },
    ];
    let out = world.commit(|batch| batch.claims.push(ClaimFor { demand: main_work(), takers }));
    let leases = out.claims[0].jobs.iter().map(|leased| leased.job.lease().expect("leased"));
    let lengths: Vec<_> = leases.map(|lease| (lease.until, lease.length)).collect();
    let own = world.policy.visibility_timeout;
    let now = world.now();
    let expected = [(now.plus(longer.millis()), longer), (now.plus(own.millis()), own)];
    assert_eq!(lengths, expected);
    let job = &out.claims[0].jobs[0].job;
    assert_eq!(job.visibility_timeout, own, "the job's own length stays");
    world.advance(Millis::minutes(1));
    let until =
        world.heartbeat(job.token(), None).expect("the heartbeat of the holder counts").until;
    assert_eq!(until, world.now().plus(longer.millis()), "heartbeats keep to that length");
}

pub fn a_claimed_job_is_not_claimed_again<S: Subject>() {
    let mut world = World::<S>::new();
    world.running(work());
    world.assert_nothing_to_claim();
    world.advance(Millis::days(1));
    world.assert_nothing_to_claim();
}

pub fn a_finished_job_is_not_claimed<S: Subject>() {
    let mut world = World::<S>::new();
    world.done(work());
    world.dead(work(), "no use");
    world.cancelled(work());
    world.assert_nothing_to_claim();
}

// Several at once.

pub fn takers_are_filled_in_their_order<S: Subject>() {
    let mut world = World::<S>::new();
    let made: Vec<JobId> = (0..6).map(|_| world.enqueue(work())).collect();
    let taker = |name, max| Taker { worker: worker(name), max, length: None };
    let takers = vec![taker("w1", 2), taker("w2", 0), taker("w3", 3), taker("w4", 5)];
    let out = world.commit(|batch| batch.claims.push(ClaimFor { demand: main_work(), takers }));
    let claimed = &out.claims[0];
    assert_eq!(ids(&claimed.jobs), made);
    let places: Vec<usize> = claimed.jobs.iter().map(|leased| leased.taker).collect();
    assert_eq!(places, [0, 0, 2, 2, 2, 3]);
    let holder = |at: usize| claimed.jobs[at].job.lease().map(|lease| lease.worker.clone());
    assert_eq!([holder(0), holder(2), holder(5)], ["w1", "w3", "w4"].map(|w| Some(worker(w))));
    assert!(claimed.dry, "the last one wanted more");
}

pub fn claims_in_one_batch_are_served_in_order_and_share_no_job<S: Subject>() {
    let mut world = World::<S>::new();
    let made = ["a", "b", "a", "b", "a", "c"].map(|name| world.enqueue(work_of(name)));
    let of = |name: &str| demand_for(&work_of(name));
    let out = world.commit(|batch| {
        batch.claims.push(claim_for(of("b"), "w1", 1));
        batch.claims.push(claim_for(main_work(), "w2", 2));
        batch.claims.push(claim_for(of("b"), "w3", 5));
        batch.claims.push(claim_for(main_work(), "w4", 5));
        batch.claims.push(claim_for(main_work(), "w5", 1));
    });
    let found: Vec<Vec<JobId>> = out.claims.iter().map(|claim| ids(&claim.jobs)).collect();
    assert_eq!(found[0], [made[1]]);
    assert_eq!(found[1], [made[0], made[2]]);
    assert_eq!(found[2], [made[3]]);
    assert_eq!(found[3], [made[4], made[5]]);
    assert_eq!(found[4], []);
    let dry: Vec<bool> = out.claims.iter().map(|claim| claim.dry).collect();
    assert_eq!(dry, [false, false, true, true, true]);
}

// A batch that changes what is ready.

pub fn new_jobs_are_claimed_in_their_own_batch_among_the_stored_ones<S: Subject>() {
    let mut world = World::<S>::new();
    let stored = [5, 3, 1].map(|rank| world.enqueue(work_at(rank)));
    let out = world.commit(|batch| {
        batch.enqueues.extend([0, 4, 3, 9, 2].map(work_at));
        batch.enqueues.push(NewJob { kind: kind("other"), ..work_at(3) });
        batch.claims.push(claim_for(main_work(), "w1", 99));
    });
    let new: Vec<JobId> = out.enqueues.into_iter().flatten().map(|receipt| receipt.id).collect();
    let [five, three, one] = stored;
    let expected = [new[3], five, new[1], three, new[2], new[5], new[4], one, new[0]];
    assert_eq!(ids(&out.claims[0].jobs), expected);
}

pub fn stored_and_new_jobs_are_each_claimed_with_their_own_payload<S: Subject>() {
    let mut world = World::<S>::new();
    let numbered = |rank: i16| NewJob { payload: text(&rank.to_string()), ..work_at(rank) };
    world.commit(|batch| batch.enqueues.extend([2, 6, 4].map(numbered)));
    let out = world.commit(|batch| {
        batch.enqueues.extend([3, 1, 7, 5].map(numbered));
        batch.claims.push(claim_for(main_work(), "w1", 3));
        batch.claims.push(claim_for(main_work(), "w2", 9));
    });
    let payloads = |at: usize| -> Vec<&str> {
        out.claims[at].jobs.iter().map(|leased| leased.payload.as_str()).collect()
    };
    assert_eq!(payloads(0), ["7", "6", "5"]);
    assert_eq!(payloads(1), ["4", "3", "2", "1"]);
}

pub fn new_jobs_left_over_are_claimed_later<S: Subject>() {
    let mut world = World::<S>::new();
    let out = world.commit(|batch| {
        batch.enqueues.extend([1, 2, 3].map(work_at));
        batch.claims.push(claim_for(main_work(), "w1", 2));
    });
    let new: Vec<JobId> = out.enqueues.into_iter().flatten().map(|receipt| receipt.id).collect();
    assert_eq!(ids(&out.claims[0].jobs), [new[2], new[1]]);
    assert_eq!(ids(&world.claim(main_work(), "w1", 2)), [new[0]]);
}

pub fn a_new_job_for_later_is_not_claimed_in_its_own_batch<S: Subject>() {
    let mut world = World::<S>::new();
    let out = world.commit(|batch| {
        batch.enqueues.push(NewJob { when: When::After(delay(TICK)), ..work_at(9) });
        batch.claims.push(claim_for(main_work(), "w1", 1));
    });
    assert_eq!(out.claims[0].jobs, []);
}

pub fn jobs_cancelled_or_settled_in_the_batch_are_not_claimed<S: Subject>() {
    let mut world = World::<S>::new();
    let token = world.running(work()).job.token();
    let stored: Vec<JobId> = (0..5).map(|_| world.enqueue(work())).collect();
    let out = world.commit(|batch| {
        batch.settles.push(Settle { token, verdict: complete() });
        batch.admin.extend([stored[0], stored[1], stored[3]].map(Admin::Cancel));
        batch.claims.push(claim_for(main_work(), "w1", 2));
        batch.claims.push(claim_for(main_work(), "w2", 2));
    });
    assert_eq!(ids(&out.claims[0].jobs), [stored[2], stored[4]]);
    assert_eq!(out.claims[1].jobs, []);
}

pub fn a_job_given_back_in_the_batch_is_claimed_again_at_its_place<S: Subject>() {
    let mut world = World::<S>::new();
    let before = world.enqueue(work());
    let held = world.enqueue(work());
    let behind = world.enqueue(work());
    let tokens: Vec<_> =
        world.claim(main_work(), "w1", 2).iter().map(|leased| leased.job.token()).collect();
    world.settle(tokens[0], Verdict::Release).expect("it is given back");
    world.advance(TICK);
    let out = world.commit(|batch| {
        let verdict = Verdict::Release;
        batch.settles.push(Settle { token: tokens[1], verdict });
        batch.claims.push(claim_for(main_work(), "w2", 9));
    });
    assert_eq!(ids(&out.claims[0].jobs), [before, held, behind]);
    let job = &out.claims[0].jobs[1].job;
    assert_eq!((job.epoch, job.attempts), (Epoch::new(2), 1));
}

pub fn a_job_that_failed_in_the_batch_is_claimed_again_if_it_need_not_wait<S: Subject>() {
    let mut world = World::<S>::new();
    let at_once = world.running(work()).job.token();
    let later = world.running(work()).job.token();
    let out = world.commit(|batch| {
        let verdict = fail_for("again", Millis::ZERO);
        batch.settles.push(Settle { token: at_once, verdict });
        batch.settles.push(Settle { token: later, verdict: fail("again") });
        batch.claims.push(claim_for(main_work(), "w2", 9));
    });
    assert_eq!(ids(&out.claims[0].jobs), [at_once.job]);
    assert_eq!(out.claims[0].jobs[0].job.attempts, 2);
}

pub fn a_job_cancelled_and_replayed_in_the_batch_is_claimed_at_its_new_place<S: Subject>() {
    let mut world = World::<S>::new();
    let first = world.enqueue(work());
    let second = world.enqueue(work());
    world.advance(TICK);
    let out = world.commit(|batch| {
        batch.admin.extend([Admin::Cancel(first), Admin::Replay(first)]);
        batch.claims.push(claim_for(main_work(), "w1", 9));
    });
    assert_eq!(ids(&out.claims[0].jobs), [second, first]);
}

pub fn a_job_replayed_within_its_own_instant_is_claimed_once<S: Subject>() {
    let mut world = World::<S>::new();
    let id = world.enqueue(work());
    let out = world.commit(|batch| {
        batch.admin.extend([Admin::Cancel(id), Admin::Replay(id)]);
        batch.claims.push(claim_for(main_work(), "w1", 9));
        batch.claims.push(claim_for(main_work(), "w2", 9));
    });
    assert_eq!(ids(&out.claims[0].jobs), [id]);
    assert_eq!(out.claims[1].jobs, []);
}

pub fn a_job_with_a_heartbeat_in_the_batch_is_not_claimed<S: Subject>() {
    let mut world = World::<S>::new();
    let token = world.running(work()).job.token();
    world.advance(Millis::hours(1));
    let out = world.commit(|batch| {
        batch.heartbeats.push(Heartbeat { token, extend: None, progress: None });
        batch.reap = Some(reap_up_to(9));
        batch.claims.push(claim_for(main_work(), "w2", 9));
    });
    assert_eq!(out.claims[0].jobs, []);
}

// Time.

pub fn a_job_for_later_is_never_claimed_early<S: Subject>() {
    let mut world = World::<S>::new();
    let due = world.now().plus(Millis::minutes(1));
    let id = world.enqueue(NewJob { when: When::At(due), ..work_at(1_000) });
    world.set_clock(due.minus(TICK));
    world.promote(99);
    world.assert_nothing_to_claim();
    world.set_clock(due);
    world.promote(99);
    assert_eq!(world.claim_one("w1").job.id, id);
}

pub fn urgent_jobs_for_later_do_not_hide_a_ready_one<S: Subject>() {
    let mut world = World::<S>::new();
    let far = NewJob { when: When::After(Delay::MAX), priority: Priority::MAX, ..work() };
    world.load(|batch| batch.enqueues.extend(vec![far; 300]));
    let ready = world.enqueue(NewJob { priority: Priority::MIN, ..work() });
    assert_eq!(world.claim_one("w1").job.id, ready);
    world.assert_nothing_to_claim();
}

pub fn a_ready_job_stays_ready_when_the_clock_is_set_back<S: Subject>() {
    let mut world = World::<S>::new();
    let id = world.enqueue(work());
    world.set_clock(START.minus(Millis::hours(5)));
    let job = world.claim_one("w1").job;
    assert_eq!(job.id, id);
    assert_eq!(job.started_at, Some(world.now()));
}

// Many.

/// More jobs than a store finds in one page, and one kind that holds all the best.
pub fn a_large_claim_comes_in_order_without_gap_or_repetition<S: Subject>() {
    let mut world = World::<S>::alone();
    let many = PAGE_ROWS + PAGE_ROWS / 2;
    let job = |number: usize| {
        let rank = if number < many { 2 } else { i16::try_from(number % 2).unwrap_or(0) };
        let kinds = ["a", "b", "c"];
        NewJob {
            kind: kind(if number < many { "best" } else { kinds[number % 3] }),
            ..work_at(rank)
        }
    };
    world.load(|batch| batch.enqueues.extend((0..many + 300).map(job)));
    let dump = world.dump();
    let mut expected: Vec<_> = dump.jobs.iter().map(|row| row.job.rank).collect();
    expected.sort();
    let expected: Vec<JobId> = expected.into_iter().map(|rank| rank.id).collect();
    let out = world.load(|batch| {
        batch.claims.push(claim_for(main_work(), "w1", many + 50));
        batch.claims.push(claim_for(main_work(), "w2", 100));
        batch.claims.push(claim_for(main_work(), "w3", 1_000));
    });
    let found: Vec<JobId> = out.claims.iter().flat_map(|claim| ids(&claim.jobs)).collect();
    assert!(found == expected, "claimed out of order, twice, or not at all");
    let dry: Vec<bool> = out.claims.iter().map(|claim| claim.dry).collect();
    assert_eq!(dry, [false, false, true]);
    let left = world.dump().jobs.iter().filter(|row| is_waiting(&row.job.state)).count();
    assert_eq!(left, 0);
}

fn is_waiting(state: &State) -> bool {
    matches!(state.view(), View::Queued | View::Scheduled)
}

pub fn a_claim_finds_what_stands_behind_many_jobs_cancelled_in_its_batch<S: Subject>() {
    let mut world = World::<S>::alone();
    world.load(|batch| batch.enqueues.extend(vec![work(); 150]));
    let last = world.enqueue(work());
    let gone: Vec<JobId> = world.dump().jobs.iter().map(|row| row.job.id).collect();
    let out = world.load(|batch| {
        batch.admin.extend(gone.iter().filter(|id| **id != last).map(|id| Admin::Cancel(*id)));
        batch.claims.push(claim_for(main_work(), "w1", 1));
    });
    assert_eq!(ids(&out.claims[0].jobs), [last]);
}
