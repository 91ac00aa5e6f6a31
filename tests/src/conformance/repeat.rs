//! Reports sent again: the first answer for the same verdict, a refusal for any other.

use windlass_core::StaleReason::{Expired, Settled};
use windlass_core::store::{Admin, Settle};
use windlass_core::{Millis, NewJob, StateName, Verdict};

use super::settle::{SNOOZE, answer, verdicts};
use super::stale;
use crate::fixture::*;

/// Shows that this verdict, sent again, gets its first answer: at once, later, and in one batch.
fn check_repeated<S: Subject>(new: &NewJob, verdict: &Verdict, state: StateName) {
    let mut world = World::<S>::new();
    let token = world.running(new.clone()).job.token();
    let settle = Settle { token, verdict: verdict.clone() };
    let out = world.commit(|batch| batch.settles.extend([settle.clone(), settle]));
    assert_eq!(out.settles, [Ok(state), Ok(state)], "twice in one batch");
    assert_eq!(answer(&mut world, token, verdict.clone()), Ok(state), "in a batch of its own");
    world.advance(Millis::days(9));
    assert_eq!(answer(&mut world, token, verdict.clone()), Ok(state), "much later");
    let records = world.attempts(token.job).len();
    assert!(records <= 1, "one attempt is remembered {records} times");
}

pub fn a_completion_sent_again_gets_its_first_answer<S: Subject>() {
    check_repeated::<S>(&work(), &complete_with("1"), StateName::Done);
}

pub fn a_failure_sent_again_gets_its_first_answer<S: Subject>() {
    check_repeated::<S>(&work(), &fail("broken"), StateName::Queued);
    check_repeated::<S>(&work(), &fail_for("broken", Millis::ZERO), StateName::Queued);
    check_repeated::<S>(&work(), &fail_for_good("no use"), StateName::Failed);
    let last = NewJob { max_retries: Some(retries(0)), ..work() };
    check_repeated::<S>(&last, &fail("broken"), StateName::Failed);
}

pub fn a_release_sent_again_gets_its_first_answer<S: Subject>() {
    check_repeated::<S>(&work(), &Verdict::Release, StateName::Queued);
}

pub fn a_snooze_sent_again_gets_its_first_answer<S: Subject>() {
    check_repeated::<S>(&work(), &snooze(SNOOZE), StateName::Queued);
    check_repeated::<S>(&work(), &snooze(Millis::ZERO), StateName::Queued);
}

pub fn a_repetition_does_not_replace_what_was_stored_first<S: Subject>() {
    let mut world = World::<S>::new();
    let done = world.running(work()).job.token();
    world.settle(done, complete_with("1")).expect("the holder's verdict counts");
    assert_eq!(answer(&mut world, done, complete_with("2")), Ok(StateName::Done));
    assert_eq!(world.detail(done.job).result, Some(text("1")));
    let failed = world.running(work()).job.token();
    world.settle(failed, fail("first")).expect("the holder's verdict counts");
    assert_eq!(answer(&mut world, failed, fail("second")), Ok(StateName::Queued));
    let error = world.detail(failed.job).last_error.expect("it has failed");
    assert_eq!(error.as_str(), "first");
    let snoozed = world.running(work()).job.token();
    world.settle(snoozed, snooze(SNOOZE)).expect("the holder's verdict counts");
    assert_eq!(answer(&mut world, snoozed, snooze(Millis::ZERO)), Ok(StateName::Queued));
}

pub fn another_verdict_with_a_spent_token_is_refused<S: Subject>() {
    for (at, (first, state)) in verdicts().into_iter().enumerate() {
        let mut world = World::<S>::new();
        let token = world.running(work()).job.token();
        assert_eq!(world.settle(token, first), Ok(state));
        for (other_at, (other, _)) in verdicts().into_iter().enumerate() {
            let expected = if other_at == at { Ok(state) } else { stale(Settled, state, 1) };
            assert_eq!(answer(&mut world, token, other), expected, "{at}, then {other_at}");
        }
    }
}

pub fn of_two_verdicts_in_one_batch_the_first_counts<S: Subject>() {
    let mut world = World::<S>::new();
    let token = world.running(work()).job.token();
    let out = world.commit(|batch| {
        batch.settles.push(Settle { token, verdict: fail_for_good("no use") });
        batch.settles.push(Settle { token, verdict: complete_with("1") });
    });
    assert_eq!(out.settles, [Ok(StateName::Failed), stale(Settled, StateName::Failed, 1)]);
    assert_eq!(world.detail(token.job).result, None, "a refused verdict leaves no result");
}

pub fn a_report_sent_again_after_a_replay_gets_its_first_answer<S: Subject>() {
    let mut world = World::<S>::new();
    let token = world.running(work()).job.token();
    world.settle(token, fail_for_good("no use")).expect("the holder's verdict counts");
    world.admin(Admin::Replay(token.job)).expect("a failed job can be replayed");
    let repeated = answer(&mut world, token, fail_for_good("no use"));
    assert_eq!(repeated, Ok(StateName::Failed));
    assert_eq!(answer(&mut world, token, complete()), stale(Settled, StateName::Queued, 1));
}

pub fn the_last_failure_sent_again_after_a_replay_gets_its_first_answer<S: Subject>() {
    let mut world = World::<S>::new();
    let token = world.running(NewJob { max_retries: Some(retries(0)), ..work() }).job.token();
    world.settle(token, fail("broken")).expect("the holder's verdict counts");
    world.admin(Admin::Replay(token.job)).expect("a failed job can be replayed");
    assert_eq!(answer(&mut world, token, fail("broken")), Ok(StateName::Failed));
}

pub fn a_report_sent_again_after_a_cancellation_gets_its_first_answer<S: Subject>() {
    let given_back = [fail("broken"), snooze(SNOOZE), Verdict::Release];
    for verdict in given_back {
        let mut world = World::<S>::new();
        let token = world.running(work()).job.token();
        world.settle(token, verdict.clone()).expect("the holder's verdict counts");
        world.admin(Admin::Cancel(token.job)).expect("a waiting job can be cancelled");
        assert_eq!(answer(&mut world, token, verdict.clone()), Ok(StateName::Queued));
        world.admin(Admin::Replay(token.job)).expect("a cancelled job can be replayed");
        assert_eq!(answer(&mut world, token, verdict), Ok(StateName::Queued));
    }
}

pub fn a_report_sent_again_when_the_job_fell_due_gets_its_first_answer<S: Subject>() {
    for verdict in [fail("broken"), snooze(SNOOZE)] {
        let mut world = World::<S>::new();
        let token = world.running(work()).job.token();
        world.settle(token, verdict.clone()).expect("the holder's verdict counts");
        world.advance(SNOOZE);
        assert_eq!(world.promote(9).count, 1);
        assert_eq!(answer(&mut world, token, verdict), Ok(StateName::Queued));
    }
}

pub fn a_report_sent_again_after_the_next_claim_is_refused<S: Subject>() {
    for (verdict, state) in verdicts() {
        let mut world = World::<S>::new();
        let token = world.running(work()).job.token();
        world.settle(token, verdict.clone()).expect("the holder's verdict counts");
        match state {
            StateName::Done => continue,
            StateName::Failed => world.admin(Admin::Replay(token.job)).is_ok(),
            _ => true,
        };
        world.advance(SNOOZE);
        world.promote(9);
        let held = world.claim_one("w2").job;
        assert_eq!(answer(&mut world, token, verdict), stale(Expired, StateName::Processing, 2));
        assert_eq!(world.job(token.job), held, "the new holder is untouched");
    }
}

pub fn a_report_sent_again_in_the_batch_of_the_next_claim_gets_its_first_answer<S: Subject>() {
    let mut world = World::<S>::new();
    let token = world.running(work()).job.token();
    world.settle(token, Verdict::Release).expect("the holder's verdict counts");
    let out = world.commit(|batch| {
        batch.settles.push(Settle { token, verdict: Verdict::Release });
        batch.claims.push(claim_for(main_work(), "w2", 1));
    });
    assert_eq!(out.settles, [Ok(StateName::Queued)], "reports come before claims");
    assert_eq!(out.claims[0].jobs.len(), 1);
}
