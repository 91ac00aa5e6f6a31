//! How much a claim brings: as many jobs as have payloads that fit.

use windlass_core::limits::CLAIM_BYTES;
use windlass_core::store::{Admin, ClaimFor, Taker};
use windlass_core::{Demand, Kinds, NewJob, QueueSettings};

use super::ids;
use crate::fixture::*;
/// A payload of which two fill a claim.
fn large() -> NewJob {
    NewJob { payload: text(&"7".repeat(CLAIM_BYTES / 2)), ..work() }
}

pub fn a_claim_ends_before_its_payloads_exceed_their_limit<S: Subject>() {
    let mut world = World::<S>::alone();
    world.load(|batch| batch.enqueues.extend([large(), large(), large(), work()]));
    let before = world.dump();
    let demand = main_work();
    let takers = [("w1", 1), ("w2", 9), ("w3", 9)].map(|(name, max)| Taker {
        worker: worker(name),
        max,
        length: None,
    });
    let out = world.load(|batch| batch.claims.push(ClaimFor { demand, takers: takers.into() }));
    let claimed = &out.claims[0];
    let who: Vec<usize> = claimed.jobs.iter().map(|leased| leased.taker).collect();
    assert_eq!((who, claimed.dry, claimed.cut), (vec![0, 1], false, true));
    let after = world.dump();
    assert_eq!(after.jobs[2..], before.jobs[2..], "what does not fit is not touched");
    assert_eq!(out.changes.len(), 2);
    let out = world.load(|batch| batch.claims.push(claim_for(main_work(), "w3", 9)));
    assert_eq!(ids(&out.claims[0].jobs), [before.jobs[2].job.id, before.jobs[3].job.id]);
    assert_eq!((out.claims[0].dry, out.claims[0].cut), (true, false));
    world.check();
}

pub fn what_did_not_fit_is_claimed_in_its_rank_by_the_next_demand<S: Subject>() {
    let mut world = World::<S>::alone();
    let at = |rank: i16, new: NewJob| NewJob { priority: priority(rank), ..new };
    let other = NewJob { kind: kind("other"), ..work_at(1) };
    world.load(|batch| batch.enqueues.extend([at(5, large()), at(3, large()), other]));
    let out = world.load(|batch| {
        batch.enqueues.extend([at(4, large()), work_at(2)]);
        let only = Demand { kinds: Kinds::only(vec![kind("work")]), ..main_work() };
        batch.claims.push(claim_for(only, "w1", 9));
        batch.claims.push(claim_for(main_work(), "w2", 9));
    });
    let ranks = |at: usize| -> Vec<i16> {
        out.claims[at].jobs.iter().map(|leased| leased.job.priority.get()).collect()
    };
    assert_eq!((ranks(0), out.claims[0].cut), (vec![5, 4], true));
    assert_eq!((ranks(1), out.claims[1].cut, out.claims[1].dry), (vec![3, 2, 1], false, true));
    world.check();
}

pub fn what_did_not_fit_leaves_its_room_under_a_concurrency_limit<S: Subject>() {
    let mut world = World::<S>::alone();
    let settings = QueueSettings { concurrency: Some(max_running(3)), ..QueueSettings::default() };
    let out = world.load(|batch| {
        batch.admin.push(Admin::set_queue(queue("main"), settings));
        batch.enqueues.extend([large(), large(), large(), work()]);
        batch.claims.push(claim_for(main_work(), "w1", 9));
    });
    assert_eq!((out.claims[0].jobs.len(), out.claims[0].cut), (2, true));
    let out = world.load(|batch| batch.claims.push(claim_for(main_work(), "w1", 9)));
    assert_eq!((out.claims[0].jobs.len(), out.claims[0].cut), (1, false));
    world.check();
}
