//! Two handles that count in one error group at the same time: nothing is lost.

use windlass_core::store::{Admin, Batch, Reader, Settle};
use windlass_core::{ErrorGroup, ErrorText, LeaseToken};

use crate::concurrent::{ConcurrentSubject, commit_both, in_both_orders};
use crate::fixture::*;

fn live<S: Subject>(world: &mut World<S>) -> Option<u64> {
    let group = ErrorGroup::of(&kind("work"), &ErrorText::of_message("broken")).id;
    world.reader().error_group(group).expect("it reads").map(|row| row.live)
}

fn fails(token: LeaseToken) -> impl Fn(&mut Batch) {
    move |batch| batch.settles.push(Settle { token, verdict: fail_for_good("broken") })
}

pub fn dead_letters_made_through_two_handles_are_counted_in_one_group<S: ConcurrentSubject>() {
    in_both_orders(|order| {
        let mut world = World::<S>::new();
        let tokens = [0, 1].map(|_| world.running(work()).job.token());
        commit_both(&mut world, order, fails(tokens[0]), fails(tokens[1]));
        assert_eq!(live(&mut world), Some(2));
        world.check();
    });
}

pub fn a_dead_letter_and_a_replay_through_two_handles_are_both_counted<S: ConcurrentSubject>() {
    in_both_orders(|order| {
        let mut world = World::<S>::new();
        let dead = world.dead(work(), "broken");
        let token = world.running(work()).job.token();
        let replay = |batch: &mut Batch| batch.admin.push(Admin::Replay(dead));
        commit_both(&mut world, order, fails(token), replay);
        assert_eq!(live(&mut world), Some(1));
        world.check();
    });
}
