//! Rank: the order in which ready jobs are claimed.

use windlass_core::store::{CopyRows, JobDetail};
use windlass_core::{Demand, Job, JobId, Millis, NewJob, Priority, Rank, Verdict, When};

use super::ids;
use crate::fixture::*;
/// Jobs of three kinds in three queues, in rank order: by priority, then by when they are due,
/// then by id.
fn ranked<S: Subject>(world: &mut World<S>) -> Vec<JobId> {
    let job = |rank, kind_name: &str, queue_name: &str| NewJob {
        priority: priority(rank),
        kind: kind(kind_name),
        ..work_in(queue_name)
    };
    let wait = When::After(delay(Millis::new(5)));
    let due_last = world.enqueue(NewJob { when: wait, ..job(0, "b", "q2") });
    let low = world.enqueue(job(-1, "a", "q1"));
    let low_too = world.enqueue(job(-1, "b", "q2"));
    let middle = world.enqueue(job(0, "c", "q3"));
    let lowest = world.enqueue(NewJob { priority: Priority::MIN, ..job(0, "a", "q1") });
    world.advance(TICK);
    let middle_later = world.enqueue(job(0, "a", "q1"));
    let middle_too = world.enqueue(job(0, "c", "q2"));
    let high = world.enqueue(job(7, "b", "q3"));
    world.advance(TICK);
    let high_later = world.enqueue(job(7, "a", "q2"));
    let highest = world.enqueue(NewJob { priority: Priority::MAX, ..job(0, "b", "q1") });
    world.advance(Millis::new(3));
    assert_eq!(world.promote(9).count, 1);
    let middle = [middle, middle_later, middle_too, due_last];
    [vec![highest, high, high_later], middle.to_vec(), vec![low, low_too, lowest]].concat()
}

pub fn jobs_are_claimed_by_priority_then_by_when_they_are_due_then_by_id<S: Subject>() {
    let mut world = World::<S>::new();
    let expected = ranked(&mut world);
    let demand = work_of_queues(&["q1", "q2", "q3"]);
    assert_eq!(ids(&world.claim(demand, "w1", 99)), expected);
}

pub fn jobs_claimed_one_by_one_come_in_the_same_order<S: Subject>() {
    let mut world = World::<S>::new();
    for expected in ranked(&mut world) {
        let demand = work_of_queues(&["q3", "q1", "q2"]);
        assert_eq!(ids(&world.claim(demand, "w1", 1)), [expected]);
    }
}

pub fn a_demand_for_everything_takes_from_every_queue_by_rank<S: Subject>() {
    let mut world = World::<S>::alone();
    let expected = ranked(&mut world);
    assert_eq!(ids(&world.claim(Demand::ALL, "w1", 4)), expected[..4]);
    assert_eq!(ids(&world.claim(Demand::ALL, "w1", 99)), expected[4..]);
}

pub fn a_retried_job_ranks_by_when_it_is_due_again<S: Subject>() {
    let mut world = World::<S>::new();
    let token = world.running(work()).job.token();
    world.advance(TICK);
    let waiting = world.enqueue(work());
    world.advance(TICK);
    world.settle(token, fail_for("later", Millis::ZERO)).expect("the holder's verdict counts");
    assert_eq!(ids(&world.claim(main_work(), "w1", 2)), [waiting, token.job]);
}

pub fn a_job_given_back_is_claimed_before_those_that_came_after_it<S: Subject>() {
    let mut world = World::<S>::new();
    let token = world.running(work()).job.token();
    world.advance(TICK);
    let waiting = world.enqueue(work());
    world.advance(TICK);
    world.settle(token, Verdict::Release).expect("the holder's verdict counts");
    assert_eq!(ids(&world.claim(main_work(), "w1", 2)), [token.job, waiting]);
}

/// Ranks are computed by core, and the rule may change: a store keeps what it is given.
pub fn a_rank_comes_back_as_it_was_whatever_rule_computed_it<S: Subject>() {
    let mut world = World::<S>::alone();
    let made = [world.enqueue(work()), world.enqueue(work())].map(|id| world.detail(id));
    let ranked = |row: &JobDetail, class, turn| {
        let due = world.now().plus(Millis::hours(1));
        let job = Job { rank: Rank { class, turn, due, id: row.job.id }, ..row.job.clone() };
        JobDetail { job, ..row.clone() }
    };
    let jobs = vec![ranked(&made[0], -7, 3), ranked(&made[1], -7, 2)];
    let ranks = [jobs[1].job.rank, jobs[0].job.rank];
    // Not checked: a job that is not ranked as core does it today is taken for damage.
    let mut other = World::<S>::alone();
    let next_id = Some(jobs[1].job.id.plus(1));
    let rows = CopyRows { jobs, next_id, ..CopyRows::default() };
    other.load(|batch| batch.import = Some(Box::new(rows)));
    let stored = [made[1].job.id, made[0].job.id].map(|id| other.job(id).rank);
    assert_eq!(stored, ranks);
    let out = other.load(|batch| batch.claims.push(claim_for(main_work(), "w1", 9)));
    let claimed: Vec<Rank> = out.claims[0].jobs.iter().map(|leased| leased.job.rank).collect();
    assert_eq!(claimed, ranks, "the least rank is claimed first");
    assert_eq!([made[1].job.id, made[0].job.id].map(|id| other.job(id).rank), ranks);
}
