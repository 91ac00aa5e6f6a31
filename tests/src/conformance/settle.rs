//! Verdicts: what a report does to its job, and that only the holder's first one does anything.

use windlass_core::StaleReason::{Cancelled, Expired};
use windlass_core::limits::{ATTEMPTS_KEPT, ERROR_BYTES, OUTPUT_BYTES};
use windlass_core::store::{Admin, JobRefused, Leased, Settle};
use windlass_core::{
    Attempt, AttemptOutcome, Epoch, Excerpt, Failure, FailureKind, JobId, LeaseToken, Millis,
    NewJob, RetryPolicy, State, StateName, Strategy, Verdict, View,
};

use super::{commit_idle, stale};
use crate::fixture::*;

pub(super) const SNOOZE: Millis = Millis::minutes(3);

/// What a report that must write nothing is answered.
#[track_caller]
pub(super) fn answer<S: Subject>(
    world: &mut World<S>,
    token: LeaseToken,
    verdict: Verdict,
) -> Result<StateName, JobRefused> {
    let command = Settle { token, verdict };
    commit_idle(world, |batch| batch.settles.push(command)).settles.remove(0)
}

/// One verdict of each sort, with the state it brings a fresh job to.
pub(super) fn verdicts() -> [(Verdict, StateName); 5] {
    [
        (complete(), StateName::Done),
        (fail("broken"), StateName::Queued),
        (fail_for_good("no use"), StateName::Failed),
        (snooze(SNOOZE), StateName::Queued),
        (Verdict::Release, StateName::Queued),
    ]
}

// What each verdict does.

pub fn a_completed_job_is_done_and_keeps_its_result<S: Subject>() {
    let mut world = World::<S>::new();
    let token = world.running(work()).job.token();
    world.advance(Millis::seconds(5));
    assert_eq!(world.settle(token, complete_with("[1, 2]")), Ok(StateName::Done));
    let detail = world.detail(token.job);
    assert_eq!(detail.job.state, State::Done { finished_at: world.now() });
    assert_eq!(detail.result, Some(text("[1, 2]")));
    assert_eq!((detail.job.attempts, detail.last_error), (1, None));
    assert_eq!(world.attempts(token.job), [], "a good run leaves no record");
}

pub fn a_job_may_be_done_without_a_result<S: Subject>() {
    let mut world = World::<S>::new();
    let id = world.done(work());
    assert_eq!(world.detail(id).result, None);
}

pub fn a_result_comes_back_byte_for_byte<S: Subject>() {
    let mut world = World::<S>::new();
    for result in UNUSUAL_TEXTS {
        let token = world.running(work()).job.token();
        world.settle(token, complete_with(result)).expect("the holder's verdict counts");
        let stored = world.detail(token.job).result.expect("it has a result");
        assert_eq!(stored.as_str(), result);
    }
}

pub fn a_failed_job_waits_as_long_as_its_policy_says<S: Subject>() {
    let mut world = World::<S>::new();
    let policies = [
        RetryPolicy::default(),
        RetryPolicy::new(Strategy::Fixed, Millis::new(500), Millis::hours(1), 1_000)
            .expect("a fine policy"),
        RetryPolicy::new(Strategy::Linear, Millis::seconds(9), Millis::seconds(20), 0)
            .expect("a fine policy"),
    ];
    for retry in policies {
        let new = NewJob { retry: Some(retry), max_retries: Some(retries(5)), ..work() };
        let mut job = world.running(new).job;
        for attempt in 1..=5 {
            assert_eq!(job.attempts, attempt);
            assert_eq!(world.settle(job.token(), fail("broken")), Ok(StateName::Queued));
            let failed = world.job(job.id);
            let wait = failed.run_at.since(world.now());
            let (shortest, longest) = retry.bounds(attempt);
            assert!(shortest <= wait && wait <= longest, "{wait} after attempt {attempt}");
            assert_eq!(wait, retry.backoff(attempt, job.token()), "the same in every store");
            world.set_clock(failed.run_at);
            world.promote(9);
            job = world.claim_one("w1").job;
        }
        world.settle(job.token(), complete()).expect("the holder's verdict counts");
    }
}

pub fn a_failed_job_is_not_ready_before_its_wait_is_over<S: Subject>() {
    let mut world = World::<S>::new();
    let token = world.running(work()).job.token();
    world.advance(Millis::seconds(4));
    world.settle(token, fail("broken")).expect("the holder's verdict counts");
    let job = world.job(token.job);
    assert_eq!(job.state.view(), View::Scheduled);
    assert_eq!(job.run_at, world.now().plus(RETRY_WAIT));
    assert_eq!(job.attempts, 1, "a failed attempt is not given back");
    world.advance(Millis::new(RETRY_WAIT.get() - 1));
    world.promote(9);
    world.assert_nothing_to_claim();
    world.advance(TICK);
    world.promote(9);
    assert_eq!(world.claim_one("w1").job.attempts, 2);
}

pub fn a_wait_named_by_the_failure_goes_before_the_policy<S: Subject>() {
    let mut world = World::<S>::new();
    for wait in [Millis::ZERO, Millis::new(1), Millis::days(3)] {
        let token = world.running(work()).job.token();
        world.advance(Millis::seconds(4));
        world.settle(token, fail_for("busy", wait)).expect("the holder's verdict counts");
        let job = world.job(token.job);
        assert_eq!(job.run_at, world.now().plus(wait));
        let view = if wait == Millis::ZERO { View::Queued } else { View::Scheduled };
        assert_eq!(job.state.view(), view);
        world.admin(Admin::Cancel(token.job)).expect("a waiting job can be cancelled");
    }
}

pub fn a_failure_for_good_is_dead_at_once_whatever_retries_are_left<S: Subject>() {
    let mut world = World::<S>::new();
    let token = world.running(work()).job.token();
    let verdict = Failure { retry_in: Some(delay(SNOOZE)), ..Failure::new("no use").permanent() };
    let verdict = Verdict::Fail(Box::new(verdict));
    assert_eq!(world.settle(token, verdict), Ok(StateName::Failed));
    let detail = world.detail(token.job);
    assert_eq!(detail.job.finished_at(), Some(world.now()));
    assert_eq!(detail.job.attempts, 1);
    assert_eq!(detail.last_error.map(|error| error.as_str().to_owned()), Some("no use".into()));
}

pub fn a_job_without_attempts_left_is_dead_with_its_reason<S: Subject>() {
    let mut world = World::<S>::new();
    world.enqueue(NewJob { max_retries: Some(retries(2)), ..work() });
    let mut states = Vec::new();
    let mut id = JobId::FIRST;
    for error in ["first", "second", "third"] {
        let token = world.claim_one("w1").job.token();
        id = token.job;
        states.push(world.settle(token, fail_for(error, Millis::ZERO)));
    }
    assert_eq!(states, [Ok(StateName::Queued), Ok(StateName::Queued), Ok(StateName::Failed)]);
    world.assert_nothing_to_claim();
    let detail = world.detail(id);
    assert_eq!(detail.last_error, Some(Excerpt::head("third", ERROR_BYTES)));
    assert_eq!(detail.job.attempts, 3);
    let errors = world.attempts(id).into_iter().filter_map(|attempt| attempt.error);
    let errors: Vec<String> = errors.map(|error| error.as_str().to_owned()).collect();
    assert_eq!(errors, ["first", "second", "third"]);
}

pub fn a_job_without_retries_is_dead_after_one_failure<S: Subject>() {
    let mut world = World::<S>::new();
    let token = world.running(NewJob { max_retries: Some(retries(0)), ..work() }).job.token();
    assert_eq!(world.settle(token, fail("broken")), Ok(StateName::Failed));
}

pub fn a_released_job_gets_its_attempt_back_and_keeps_its_place<S: Subject>() {
    let mut world = World::<S>::new();
    let id = world.enqueue(work());
    let due = world.job(id).run_at;
    world.advance(Millis::minutes(1));
    let token = world.claim_one("w1").job.token();
    world.advance(Millis::minutes(1));
    assert_eq!(world.settle(token, Verdict::Release), Ok(StateName::Queued));
    let job = world.job(id);
    assert_eq!((job.attempts, job.run_at, job.state.view()), (0, due, View::Queued));
    assert_eq!(job.epoch, token.epoch, "the token is used up, not reused");
}

pub fn a_snoozed_job_gets_its_attempt_back_and_waits<S: Subject>() {
    let mut world = World::<S>::new();
    let token = world.running(work()).job.token();
    world.advance(Millis::minutes(1));
    assert_eq!(world.settle(token, snooze(SNOOZE)), Ok(StateName::Queued));
    let job = world.job(token.job);
    assert_eq!((job.attempts, job.state.view()), (0, View::Scheduled));
    assert_eq!(job.run_at, world.now().plus(SNOOZE));
    assert_eq!(world.attempts(token.job), [], "to put off is not to fail");
    world.assert_nothing_to_claim();
}

pub fn a_job_put_off_for_no_time_is_ready_again<S: Subject>() {
    let mut world = World::<S>::new();
    let token = world.running(work()).job.token();
    world.settle(token, snooze(Millis::ZERO)).expect("the holder's verdict counts");
    assert_eq!(world.claim_one("w1").job.id, token.job);
}

pub fn giving_back_costs_no_retry_however_often<S: Subject>() {
    let mut world = World::<S>::new();
    world.enqueue(NewJob { max_retries: Some(retries(0)), ..work() });
    for verdict in [Verdict::Release, snooze(Millis::ZERO), Verdict::Release] {
        let token = world.claim_one("w1").job.token();
        assert_eq!(world.settle(token, verdict), Ok(StateName::Queued));
    }
    assert_eq!(world.claim_one("w1").job.attempts, 1);
}

pub fn giving_back_returns_only_the_latest_attempt<S: Subject>() {
    let mut world = World::<S>::new();
    let token = world.running(work()).job.token();
    world.settle(token, fail_for("broken", Millis::ZERO)).expect("the holder's verdict counts");
    let token = world.claim_one("w1").job.token();
    world.settle(token, Verdict::Release).expect("the holder's verdict counts");
    assert_eq!(world.job(token.job).attempts, 1);
}

pub fn a_late_report_counts_as_long_as_no_process_took_the_lease_back<S: Subject>() {
    let mut world = World::<S>::new();
    for (verdict, state) in verdicts() {
        let token = world.running(work()).job.token();
        world.advance(Millis::days(2));
        assert_eq!(world.settle(token, verdict), Ok(state));
        if state == StateName::Queued {
            world.admin(Admin::Cancel(token.job)).expect("a waiting job can be cancelled");
        }
    }
}

// What is remembered.

pub fn the_record_of_a_failed_attempt_holds_all_that_was_reported<S: Subject>() {
    let mut world = World::<S>::new();
    let kinds = [
        (FailureKind::Failed, AttemptOutcome::Failed, Some(i32::MIN)),
        (FailureKind::TimedOut, AttemptOutcome::TimedOut, Some(0)),
        (FailureKind::Panicked, AttemptOutcome::Panicked, None),
    ];
    for (kind, outcome, exit_code) in kinds {
        let job = world.running_by("w8", work()).job;
        let started_at = world.now();
        world.advance(Millis::seconds(4));
        let (stdout, stderr) = ("o".repeat(OUTPUT_BYTES + 1), "e".repeat(OUTPUT_BYTES));
        let failure = Failure {
            exit_code,
            stdout: Some(Excerpt::tail(&stdout, OUTPUT_BYTES)),
            stderr: Some(Excerpt::tail(&stderr, OUTPUT_BYTES)),
            ..Failure::new("broken").of_kind(kind).permanent()
        };
        let verdict = Verdict::Fail(Box::new(failure.clone()));
        world.settle(job.token(), verdict).expect("the holder's verdict counts");
        let expected = Attempt {
            job: job.id,
            epoch: Epoch::new(1),
            worker: worker("w8"),
            started_at,
            ended_at: world.now(),
            outcome,
            error: Some(failure.error),
            exit_code,
            stdout: failure.stdout,
            stderr: failure.stderr,
        };
        assert_eq!(world.attempts(job.id), [expected]);
    }
}

pub fn an_error_comes_back_byte_for_byte<S: Subject>() {
    let mut world = World::<S>::new();
    let long = "ä".repeat(ERROR_BYTES);
    for error in UNUSUAL_TEXTS.into_iter().chain([long.as_str()]) {
        let id = world.dead(work(), error);
        let expected = Some(Excerpt::head(error, ERROR_BYTES));
        assert_eq!(world.detail(id).last_error, expected);
        assert_eq!(world.attempts(id)[0].error, expected);
    }
}

pub fn output_with_a_nul_is_remembered_as_it_was_reported<S: Subject>() {
    let mut world = World::<S>::new();
    let job = world.running_by("w8", work()).job;
    let failure = Failure {
        stdout: Some(Excerpt::tail("a\0b", OUTPUT_BYTES)),
        stderr: Some(Excerpt::tail("\0", OUTPUT_BYTES)),
        ..Failure::new("x\0y").permanent()
    };
    let verdict = Verdict::Fail(Box::new(failure.clone()));
    world.settle(job.token(), verdict).expect("the holder's verdict counts");
    let kept = &world.attempts(job.id)[0];
    assert_eq!((&kept.stdout, &kept.stderr), (&failure.stdout, &failure.stderr));
    assert_eq!(kept.error, Some(Excerpt::stored("x\u{1a}y", false)));
}

pub fn a_released_attempt_is_remembered_without_an_error<S: Subject>() {
    let mut world = World::<S>::new();
    let token = world.running_by("w8", work()).job.token();
    world.settle(token, Verdict::Release).expect("the holder's verdict counts");
    let attempts = world.attempts(token.job);
    assert_eq!(attempts.len(), 1);
    let attempt = &attempts[0];
    assert_eq!((attempt.outcome, &attempt.error), (AttemptOutcome::Released, &None));
    assert_eq!((attempt.epoch, &attempt.worker), (token.epoch, &worker("w8")));
    assert_eq!(world.detail(token.job).last_error, None);
}

pub fn the_last_error_of_a_job_stays_when_it_is_done_at_last<S: Subject>() {
    let mut world = World::<S>::new();
    let token = world.running(work()).job.token();
    world.settle(token, fail_for("once", Millis::ZERO)).expect("the holder's verdict counts");
    let token = world.claim_one("w1").job.token();
    world.settle(token, complete()).expect("the holder's verdict counts");
    let error = world.detail(token.job).last_error.expect("the error stays");
    assert_eq!(error.as_str(), "once");
    assert_eq!(world.attempts(token.job).len(), 1);
}

pub fn only_the_latest_attempts_are_remembered<S: Subject>() {
    let mut world = World::<S>::new();
    let other = world.running_by("w2", work_of("other")).job.token();
    world.settle(other, fail("its own")).expect("the holder's verdict counts");
    let id = world.enqueue(NewJob { max_retries: Some(retries(1_000)), ..work() });
    let rounds = ATTEMPTS_KEPT + 5;
    for _ in 0..rounds {
        let token = world.claim_one("w1").job.token();
        world.settle(token, fail_for("again", Millis::ZERO)).expect("the verdict counts");
        let kept = world.attempts(id);
        let last = token.epoch.get();
        let first = last.saturating_sub(ATTEMPTS_KEPT) + 1;
        let epochs: Vec<u64> = kept.iter().map(|attempt| attempt.epoch.get()).collect();
        assert_eq!(epochs, (first..=last).collect::<Vec<u64>>());
    }
    assert_eq!(u64::from(world.job(id).attempts), rounds);
    assert_eq!(world.attempts(other.job).len(), 1, "those of other jobs stay");
}

// Who may report.

/// A job whose first holder gave it back and whose second holds it now.
fn overtaken<S: Subject>() -> (World<S>, LeaseToken, Leased) {
    let mut world = World::<S>::new();
    let first = world.running_by("w1", work()).job.token();
    world.settle(first, Verdict::Release).expect("the holder's verdict counts");
    world.advance(Millis::seconds(1));
    let second = world.claim_one("w2");
    (world, first, second)
}

/// Shows that the first holder's verdict is refused and the second's counts.
fn check_stale<S: Subject>(verdict: Verdict) {
    let (mut world, first, second) = overtaken::<S>();
    assert_eq!(answer(&mut world, first, verdict), stale(Expired, StateName::Processing, 2));
    assert_eq!(world.job(first.job), second.job, "the new holder is untouched");
    let settled = world.settle(second.job.token(), complete());
    assert_eq!(settled, Ok(StateName::Done));
}

pub fn a_stale_token_does_not_complete<S: Subject>() {
    check_stale::<S>(complete_with("\"too late\""));
}

pub fn a_stale_token_does_not_fail<S: Subject>() {
    check_stale::<S>(fail("too late"));
    check_stale::<S>(fail_for_good("too late"));
}

pub fn a_stale_token_does_not_snooze<S: Subject>() {
    check_stale::<S>(snooze(SNOOZE));
}

pub fn a_stale_token_does_not_release<S: Subject>() {
    // Also: it repeats what it reported, but another worker holds the job since.
    check_stale::<S>(Verdict::Release);
}

pub fn a_token_that_was_never_given_out_reports_nothing<S: Subject>() {
    let mut world = World::<S>::new();
    let held = world.running(work()).job.token();
    let waiting = world.enqueue(work());
    for (verdict, _) in verdicts() {
        let ahead = LeaseToken { epoch: held.epoch.next(), ..held };
        assert_eq!(
            answer(&mut world, ahead, verdict.clone()),
            stale(Expired, StateName::Processing, 1)
        );
        let never = LeaseToken { job: waiting, epoch: Epoch::NEVER };
        assert_eq!(answer(&mut world, never, verdict), stale(Expired, StateName::Queued, 0));
    }
}

pub fn a_report_on_a_job_that_does_not_exist_is_refused_by_its_id<S: Subject>() {
    let mut world = World::<S>::new();
    let token = world.running(work()).job.token();
    let unknown = LeaseToken { job: world.dump().next_id, ..token };
    let deleted = LeaseToken { job: world.done(work()), ..token };
    world.admin(Admin::Delete(deleted.job)).expect("a finished job can be deleted");
    for token in [unknown, deleted] {
        for (verdict, _) in verdicts() {
            let refused = Err(JobRefused::NotFound(token.job));
            let found = world.commit(|batch| batch.settles.push(Settle { token, verdict }));
            assert_eq!((found.settles, found.wrote), (vec![refused], false));
        }
    }
}

pub fn a_report_after_the_lease_was_taken_back_is_refused<S: Subject>() {
    for (verdict, _) in verdicts() {
        let mut world = World::<S>::new();
        let token = world.running(work()).job.token();
        world.advance(Millis::hours(1));
        world.reap(reap_up_to(9));
        assert_eq!(answer(&mut world, token, verdict), stale(Expired, StateName::Queued, 1));
    }
}

pub fn a_report_on_a_job_cancelled_while_it_ran_is_refused<S: Subject>() {
    let mut world = World::<S>::new();
    let token = world.running(work()).job.token();
    world.admin(Admin::Cancel(token.job)).expect("a running job can be cancelled");
    for (verdict, _) in verdicts() {
        assert_eq!(answer(&mut world, token, verdict), stale(Cancelled, StateName::Cancelled, 1));
    }
}
