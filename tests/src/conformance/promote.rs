//! Jobs that fall due: when, in which order, page by page, and what a clock set back cannot undo.

use windlass_core::store::{Admin, Next, Promoted};
use windlass_core::{JobId, Millis, NewJob, State, StateName, View, Wall, When};

use crate::fixture::{
    RETRY_WAIT, Subject, TICK, World, claim_for, delay, fail, main_work, queue, snooze, work,
    work_at, work_in,
};

const WAIT: Millis = Millis::seconds(10);
const NOTHING: Promoted = Promoted { count: 0, more: false };

fn later(wait: Millis) -> NewJob {
    NewJob { when: When::After(delay(wait)), ..work() }
}

/// Lets time pass until a moment before what waits from now on falls due.
fn almost_due<S: Subject>(world: &mut World<S>) {
    world.advance(Millis::new(WAIT.get() - TICK.get()));
}

fn ready_ids<S: Subject>(world: &mut World<S>, ids: &[JobId]) -> Vec<JobId> {
    let ready = |id: &JobId| world.job(*id).state.view() == View::Queued;
    ids.iter().copied().filter(ready).collect()
}

pub fn a_scheduled_job_does_not_fall_due_before_its_time<S: Subject>() {
    let mut world = World::<S>::new();
    let id = world.enqueue(later(WAIT));
    let before = world.job(id);
    almost_due(&mut world);
    assert_eq!(world.promote(10), NOTHING);
    assert_eq!(world.job(id), before);
    world.assert_nothing_to_claim();
}

pub fn a_scheduled_job_falls_due_at_the_very_instant<S: Subject>() {
    let mut world = World::<S>::new();
    let id = world.enqueue(later(WAIT));
    let due = world.now().plus(WAIT);
    world.advance(WAIT);
    assert_eq!(world.promote(10).count, 1);
    let job = world.job(id);
    assert_eq!(job.state, State::Queued { ready: true, last_verdict: None });
    assert_eq!(job.run_at, due);
    assert_eq!(world.claim_one("w1").job.id, id);
}

pub fn a_job_that_is_due_is_not_handed_out_before_it_was_promoted<S: Subject>() {
    let mut world = World::<S>::new();
    let id = world.enqueue(later(WAIT));
    world.advance(WAIT.plus(WAIT));
    world.assert_nothing_to_claim();
    assert_eq!(world.promote(10).count, 1);
    assert_eq!(world.claim_one("w1").job.id, id);
}

pub fn a_job_is_promoted_and_claimed_in_one_batch<S: Subject>() {
    let mut world = World::<S>::new();
    let id = world.enqueue(later(WAIT));
    world.advance(WAIT);
    let out = world.commit(|batch| {
        batch.promote = Some(10);
        batch.claims.push(claim_for(main_work(), "w1", 10));
    });
    let claimed: Vec<JobId> = out.claims[0].jobs.iter().map(|leased| leased.job.id).collect();
    assert_eq!(claimed, [id]);
}

pub fn jobs_fall_due_page_by_page_the_earliest_first<S: Subject>() {
    let mut world = World::<S>::new();
    let waits = [5, 3, 1, 3, 4].map(Millis::seconds);
    let ids = waits.map(|wait| world.enqueue(later(wait)));
    world.advance(WAIT);
    assert_eq!(world.promote(2), Promoted { count: 2, more: true });
    assert_eq!(ready_ids(&mut world, &ids), [ids[1], ids[2]], "of two at an instant the older");
    assert_eq!(world.promote(2), Promoted { count: 2, more: true });
    assert_eq!(ready_ids(&mut world, &ids), [ids[1], ids[2], ids[3], ids[4]]);
    assert_eq!(world.promote(2), Promoted { count: 1, more: false });
    assert_eq!(ready_ids(&mut world, &ids), ids);
    assert_eq!(world.promote(2), NOTHING);
}

pub fn a_page_of_jobs_that_fell_due_holds_none_that_did_not<S: Subject>() {
    let mut world = World::<S>::new();
    let due = world.enqueue(later(WAIT));
    let not_due = world.enqueue(later(WAIT.plus(TICK)));
    world.advance(WAIT);
    assert_eq!(world.promote(10), Promoted { count: 1, more: false });
    assert_eq!(ready_ids(&mut world, &[due, not_due]), [due]);
}

pub fn jobs_of_every_queue_fall_due_and_only_theirs_are_ready<S: Subject>() {
    let mut world = World::<S>::new();
    let in_queue = |name| NewJob { when: When::After(delay(WAIT)), ..work_in(name) };
    world.enqueue(in_queue("one"));
    world.enqueue(in_queue("two"));
    world.enqueue(work_in("three"));
    world.advance(WAIT);
    let out = world.commit(|batch| batch.promote = Some(10));
    assert_eq!(out.promoted, Some(Promoted { count: 2, more: false }));
    let mut ready_queues = out.ready_queues;
    ready_queues.sort();
    assert_eq!(ready_queues, [queue("one"), queue("two")]);
    assert_eq!(out.changes, [], "a job that falls due stays queued");
}

pub fn promoted_jobs_rank_by_when_they_were_due_not_by_when_they_were_promoted<S: Subject>() {
    let mut world = World::<S>::new();
    let later_due = world.enqueue(later(Millis::seconds(5)));
    let first_due = world.enqueue(later(Millis::seconds(1)));
    world.advance(Millis::seconds(3));
    let at_once = world.enqueue(work());
    let urgent = world.enqueue(NewJob { when: When::After(delay(WAIT)), ..work_at(1) });
    world.advance(WAIT);
    assert_eq!(world.promote(10).count, 3);
    let claimed = world.claim(main_work(), "w1", 10);
    let claimed: Vec<JobId> = claimed.iter().map(|leased| leased.job.id).collect();
    assert_eq!(claimed, [urgent, first_due, at_once, later_due]);
}

pub fn a_job_that_was_put_off_or_waits_for_its_retry_falls_due_again<S: Subject>() {
    let mut world = World::<S>::new();
    for verdict in [fail("once"), snooze(RETRY_WAIT)] {
        let token = world.running(work()).job.token();
        assert_eq!(world.settle(token, verdict), Ok(StateName::Queued));
        assert_eq!(world.job(token.job).state.view(), View::Scheduled);
        assert_eq!(world.promote(10), NOTHING);
        world.advance(RETRY_WAIT);
        assert_eq!(world.promote(10).count, 1);
        assert_eq!(world.claim_one("w1").job.id, token.job);
    }
}

pub fn a_cancelled_job_does_not_fall_due_not_even_in_the_same_batch<S: Subject>() {
    let mut world = World::<S>::new();
    let before = world.enqueue(later(WAIT));
    let within = world.enqueue(later(WAIT));
    world.admin(Admin::Cancel(before)).expect("a waiting job can be cancelled");
    world.advance(WAIT);
    let out = world.commit(|batch| {
        batch.admin.push(Admin::Cancel(within));
        batch.promote = Some(10);
    });
    assert_eq!(out.promoted, Some(NOTHING));
    for id in [before, within] {
        assert_eq!(world.job(id).state.name(), StateName::Cancelled);
    }
}

pub fn a_clock_set_back_does_not_hide_a_job_that_had_become_ready<S: Subject>() {
    let mut world = World::<S>::new();
    let start = world.now();
    let at_once = world.enqueue(work());
    let promoted = world.enqueue(later(WAIT));
    world.advance(WAIT);
    assert_eq!(world.promote(10).count, 1);
    world.set_clock(start.minus(Millis::hours(1)));
    let claimed = world.claim(main_work(), "w1", 10);
    let claimed: Vec<JobId> = claimed.iter().map(|leased| leased.job.id).collect();
    assert_eq!(claimed, [at_once, promoted]);
}

pub fn a_clock_set_back_lets_a_job_that_was_not_due_wait_for_its_instant<S: Subject>() {
    let mut world = World::<S>::new();
    let start = world.now();
    world.enqueue(NewJob { when: When::At(start.plus(WAIT)), ..work() });
    world.set_clock(start.minus(Millis::hours(1)));
    world.advance(WAIT);
    assert_eq!(world.promote(10), NOTHING);
    world.set_clock(start.plus(WAIT));
    assert_eq!(world.promote(10).count, 1);
}

pub fn a_promotion_tells_when_the_earliest_scheduled_job_falls_due<S: Subject>() {
    let mut world = World::<S>::alone();
    let next = |world: &mut World<S>| -> Option<Wall> {
        world.commit(|batch| batch.promote = Some(0)).next_due.at()
    };
    let start = world.now();
    let at = |seconds| Some(start.plus(Millis::seconds(seconds)));
    assert_eq!(next(&mut world), None);
    world.enqueue(work());
    assert_eq!(next(&mut world), None, "a ready job is due already");
    let last = world.enqueue(later(Millis::seconds(30)));
    assert_eq!(next(&mut world), at(30));
    let middle = world.enqueue(later(Millis::seconds(20)));
    world.enqueue(later(Millis::seconds(10)));
    assert_eq!(next(&mut world), at(10));
    world.advance(WAIT);
    assert_eq!(next(&mut world), at(10), "due, but not promoted");
    let out = world.commit(|batch| batch.promote = Some(10));
    assert_eq!(out.next_due, Next::Known(at(20)));
    world.admin(Admin::Cancel(middle)).expect("a waiting job can be cancelled");
    assert_eq!(next(&mut world), at(30));
    world.admin(Admin::Cancel(last)).expect("a waiting job can be cancelled");
    assert_eq!(next(&mut world), None);
}
