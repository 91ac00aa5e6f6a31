//! One bulk action, carried out through two handles at the same time.

use windlass_core::store::{Admin, Batch};
use windlass_core::{JobId, StateName};

use super::bulk::{bulk, dead_letters, planned, retry_dead, start};
use crate::concurrent::{ConcurrentSubject, Order, commit_both, in_both_orders};
use crate::fixture::*;

pub fn one_page_planned_by_two_handles_is_taken_once<S: ConcurrentSubject>() {
    in_both_orders(|order| {
        let mut world = World::<S>::new();
        let dead = dead_letters(&mut world, 3);
        let id = start(&mut world, retry_dead());
        let steps = planned(&mut world);
        let take = |batch: &mut Batch| batch.bulk.clone_from(&steps);
        let (a, b) = commit_both(&mut world, order, take, take);
        let changed = a.changes.iter().chain(&b.changes).map(|change| change.id);
        assert_eq!(changed.collect::<Vec<JobId>>(), dead, "one of them took the page");
        assert!(dead.iter().all(|id| world.job(*id).generation == 1));
        assert_eq!(bulk(&mut world, id).done, 3);
    });
}

pub fn a_stop_and_a_step_agree_on_what_was_taken<S: ConcurrentSubject>() {
    in_both_orders(|order| {
        let mut world = World::<S>::new();
        let dead = dead_letters(&mut world, 3);
        let id = start(&mut world, retry_dead());
        let steps = planned(&mut world);
        let stop = |batch: &mut Batch| batch.admin.push(Admin::StopBulk(id));
        let (stopped, _) = commit_both(&mut world, order, stop, |batch| batch.bulk = steps);
        let stopped = stopped.admin[0].is_ok();
        assert_eq!(stopped, order == Order::FirstLeads, "it is over, or it is stopped");
        let state = if stopped { StateName::Failed } else { StateName::Queued };
        assert!(dead.iter().all(|id| world.job(*id).state.name() == state));
        assert_eq!(bulk(&mut world, id).done, if stopped { 0 } else { 3 });
    });
}

pub fn actions_started_through_two_handles_have_different_ids<S: ConcurrentSubject>() {
    in_both_orders(|order| {
        let mut world = World::<S>::new();
        let begin = |batch: &mut Batch| batch.admin.push(Admin::StartBulk(Box::new(retry_dead())));
        let (a, b) = commit_both(&mut world, order, begin, begin);
        assert!(a.admin[0].is_ok() && b.admin[0].is_ok() && a.admin != b.admin);
        assert_eq!(planned(&mut world).len(), 2);
    });
}
