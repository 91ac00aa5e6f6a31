//! Limits of queues: how many jobs may wait, and how many may run.

use windlass_core::store::{Admin, Settle};
use windlass_core::{EnqueueRefused, LeaseLength, Millis, NewJob, StateName, Verdict, When};

use super::queues::{NO_SETTINGS, claimable, full, later, running_at_most, set, waiting_at_most};
use crate::fixture::*;
// How many may wait.

pub fn a_full_queue_refuses_jobs_whether_they_are_due_or_not<S: Subject>() {
    let mut world = World::<S>::new();
    set(&mut world, "q", waiting_at_most(2));
    world.enqueue(work_in("q"));
    world.enqueue(later());
    let out = world.commit(|batch| batch.enqueues.extend([work_in("q"), later()]));
    assert_eq!(out.enqueues, [Err(full(2)), Err(full(2))]);
    assert!(!out.wrote, "a refused job leaves no trace");
    world.enqueue(work_in("other"));
}

pub fn within_one_batch_exactly_those_beyond_the_limit_are_refused<S: Subject>() {
    let mut world = World::<S>::new();
    set(&mut world, "q", waiting_at_most(3));
    world.enqueue(work_in("q"));
    let out = world.commit(|batch| {
        let keyed = |name| keyed(name, work_in("q"));
        batch.enqueues.extend([work_in("q"), keyed("k"), work_in("other")]);
        batch.enqueues.extend([work_in("q"), keyed("k"), keyed("j")]);
    });
    let accepted: Vec<bool> = out.enqueues.iter().map(Result::is_ok).collect();
    assert_eq!(accepted, [true, true, true, false, true, false]);
    assert_eq!(out.enqueues[3], Err(full(3)));
    assert!(out.enqueues[4].as_ref().is_ok_and(|receipt| receipt.duplicate), "it takes no room");
    let keys = world.dump().keys;
    assert!(keys.iter().all(|record| record.key.as_str() != "j"), "a refused job leaves no key");
}

pub fn a_full_queue_has_room_again_as_jobs_are_claimed_or_cancelled<S: Subject>() {
    let mut world = World::<S>::new();
    set(&mut world, "q", waiting_at_most(1));
    let first = world.enqueue(work_in("q"));
    assert_eq!(world.try_enqueue(work_in("q")), Err(full(1)));
    assert_eq!(claimable(&mut world, "q"), 1);
    let second = world.enqueue(work_in("q"));
    assert_eq!(world.try_enqueue(work_in("q")), Err(full(1)), "{first} runs, {second} waits");
    let out = world.commit(|batch| {
        batch.admin.push(Admin::Cancel(second));
        batch.enqueues.extend([work_in("q"), work_in("q")]);
    });
    assert!(out.enqueues[0].is_ok(), "the cancel made room in its own batch");
    assert_eq!(out.enqueues[1], Err(full(1)));
}

pub fn a_full_queue_takes_back_the_jobs_it_has<S: Subject>() {
    let mut world = World::<S>::new();
    let verdicts = [fail("once"), snooze(RETRY_WAIT), Verdict::Release];
    let tokens = verdicts.clone().map(|_| world.running(work_in("q")).job.token());
    let dead = world.dead(work_in("q"), "broken");
    let silent = world.running(work_in("q")).job.id;
    world.enqueue(work_in("q"));
    set(&mut world, "q", waiting_at_most(1));
    for (token, verdict) in tokens.into_iter().zip(verdicts) {
        assert_eq!(world.settle(token, verdict), Ok(StateName::Queued));
    }
    assert!(world.admin(Admin::Replay(dead)).is_ok());
    world.advance(LeaseLength::DEFAULT.millis());
    world.reap(reap_up_to(10));
    assert_eq!(world.job(silent).state.name(), StateName::Queued);
    assert_eq!(world.try_enqueue(work_in("q")), Err(full(1)));
}

/// Once, a job scheduled too far ahead left the queue it named behind.
pub fn a_refused_job_does_not_make_its_queue<S: Subject>() {
    let mut world = World::<S>::new();
    let too_far = world.now().plus(Millis::days(9_999));
    let new = NewJob { when: When::At(too_far), ..work_in("q") };
    let out = world.commit(|batch| batch.enqueues.push(new));
    assert!(matches!(out.enqueues[0], Err(EnqueueRefused::TooFarAhead { .. })));
    assert!(!out.wrote, "a refused job leaves no trace");
    assert!(world.dump().queues.iter().all(|row| row.queue.name != queue("q")));
}

// How many may run.

pub fn concurrency_counts_running_jobs_of_all_workers_and_kinds<S: Subject>() {
    let mut world = World::<S>::new();
    set(&mut world, "main", running_at_most(3));
    let ids = ["a", "b", "a", "b"].map(|name| world.enqueue(work_of(name)));
    // One bystander of the queue runs already.
    assert_eq!(world.claim_one("w1").job.id, ids[0]);
    assert_eq!(world.claim_one("w2").job.id, ids[1]);
    world.assert_nothing_to_claim();
}

pub fn concurrency_holds_among_the_claims_of_one_batch<S: Subject>() {
    let mut world = World::<S>::new();
    set(&mut world, "q", running_at_most(2));
    for _ in 0..4 {
        world.enqueue(work_in("q"));
    }
    let other = world.enqueue(work_in("other"));
    let out = world.commit(|batch| {
        batch.claims.push(claim_for(work_of_queues(&["q"]), "w1", 1));
        batch.claims.push(claim_for(work_of_queues(&["q", "other"]), "w2", 5));
        batch.claims.push(claim_for(work_of_queues(&["q"]), "w3", 5));
    });
    let counts: Vec<usize> = out.claims.iter().map(|claim| claim.jobs.len()).collect();
    assert_eq!(counts, [1, 2, 0]);
    let last = &out.claims[1].jobs[1].job;
    assert_eq!(last.id, other, "a full queue does not hide the jobs of another");
}

pub fn a_job_that_stops_running_makes_room_for_another<S: Subject>() {
    let mut world = World::<S>::new();
    set(&mut world, "q", running_at_most(1));
    let next = |world: &mut World<S>| {
        world.enqueue(work_in("q"));
        let mut found = world.claim(work_of_queues(&["q"]), "w1", 5);
        assert_eq!(found.len(), 1, "there is room for one");
        found.remove(0).job.token()
    };
    let verdicts = [complete(), fail_for_good("broken"), fail("once"), Verdict::Release];
    for verdict in verdicts {
        let token = next(&mut world);
        assert_eq!(claimable(&mut world, "q"), 0);
        world.settle(token, verdict).expect("the holder reports");
    }
    let token = next(&mut world);
    world.admin(Admin::Cancel(token.job)).expect("a running job can be cancelled");
    next(&mut world);
    world.advance(LeaseLength::DEFAULT.millis());
    assert_eq!(claimable(&mut world, "q"), 0, "an expired lease counts until it is reaped");
    world.reap(reap_up_to(10));
    next(&mut world);
}

pub fn room_made_in_a_batch_is_there_for_its_claims<S: Subject>() {
    let mut world = World::<S>::new();
    set(&mut world, "q", running_at_most(1));
    let token = world.running(work_in("q")).job.token();
    let waiting = world.enqueue(work_in("q"));
    let out = world.commit(|batch| {
        batch.settles.push(Settle { token, verdict: complete() });
        batch.claims.push(claim_for(work_of_queues(&["q"]), "w1", 5));
    });
    let [leased] = &out.claims[0].jobs[..] else { panic!("there is room for one") };
    assert_eq!(leased.job.id, waiting);
}

pub fn a_lowered_concurrency_stops_nothing_and_starts_nothing<S: Subject>() {
    let mut world = World::<S>::new();
    let tokens = [(); 3].map(|()| world.running(work_in("q")).job.token());
    world.enqueue(work_in("q"));
    set(&mut world, "q", running_at_most(2));
    assert_eq!(claimable(&mut world, "q"), 0, "three run, two may");
    for token in tokens {
        assert_eq!(world.job(token.job).state.name(), StateName::Processing);
    }
    world.settle(tokens[0], complete()).expect("the holder reports");
    assert_eq!(claimable(&mut world, "q"), 0, "two run, two may");
    world.settle(tokens[1], complete()).expect("the holder reports");
    assert_eq!(claimable(&mut world, "q"), 1, "one runs, two may");
    set(&mut world, "q", NO_SETTINGS);
    world.enqueue(work_in("q"));
    assert_eq!(claimable(&mut world, "q"), 1);
}
