//! `transition` on arbitrary jobs, events and instants.

use proptest::option;
use proptest::prelude::*;
use windlass_core::{
    Attempt, Claim, Epoch, Event, Job, LeaseLength, Millis, Rank, State, StateName, Step, Verdict,
    Wall, transition,
};

use super::arbitrary::{claim, config, epoch, job, lease_length, verdict, wall};

/// An event that owns what it refers to.
#[derive(Debug, Clone)]
enum Owned {
    FallDue,
    Claim(Claim),
    Settle(Epoch, Verdict),
    Heartbeat(Epoch, Option<LeaseLength>),
    Expire(Option<Wall>),
    Cancel,
    Replay,
}

impl Owned {
    fn event(&self) -> Event<'_> {
        match self {
            Self::FallDue => Event::FallDue,
            Self::Claim(claim) => Event::Claim(claim),
            Self::Settle(epoch, verdict) => Event::Settle { epoch: *epoch, verdict },
            Self::Heartbeat(epoch, extend) => {
                let (epoch, extend, stop_grace) = (*epoch, *extend, Millis::ZERO);
                Event::Heartbeat { epoch, extend, stop_grace, trusted_since: None }
            }
            Self::Expire(trusted_since) => {
                Event::Expire { trusted_since: *trusted_since, dead: false }
            }
            Self::Cancel => Event::Cancel,
            Self::Replay => Event::Replay,
        }
    }
}

fn event() -> impl Strategy<Value = Owned> {
    prop_oneof![
        1 => Just(Owned::FallDue),
        2 => claim().prop_map(Owned::Claim),
        5 => (epoch(), verdict()).prop_map(|(epoch, verdict)| Owned::Settle(epoch, verdict)),
        2 => (epoch(), option::of(lease_length()))
            .prop_map(|(epoch, extend)| Owned::Heartbeat(epoch, extend)),
        2 => option::of(wall()).prop_map(Owned::Expire),
        1 => Just(Owned::Cancel),
        1 => Just(Owned::Replay),
    ]
}

/// What no event may change, and what it may change in one direction only.
fn check_moved(before: &Job, after: &Job, now: Wall) -> Result<(), TestCaseError> {
    let same = Job {
        state: after.state.clone(),
        attempts: after.attempts,
        epoch: after.epoch,
        generation: after.generation,
        run_at: after.run_at,
        rank: Rank::of(after),
        updated_at: after.updated_at,
        started_at: after.started_at,
        ..before.clone()
    };
    prop_assert_eq!(&same, after, "an event changed what is fixed");
    prop_assert_eq!(after.updated_at, now);
    prop_assert!(after.epoch >= before.epoch, "the epoch shrank");
    prop_assert!(after.generation >= before.generation);
    let most = before.max_retries.get() + 1;
    if before.attempts <= most {
        prop_assert!(after.attempts <= most, "more attempts than allowed");
    }
    match &after.state {
        State::Queued { ready, .. } if before.state.name() != StateName::Queued => {
            prop_assert_eq!(*ready, after.run_at <= now, "ready and due disagree");
            let within = before.attempts <= most;
            prop_assert!(!within || after.attempts < most, "it waits, but no attempt is left");
        }
        State::Processing(lease) => {
            // A timeout may end it sooner; what was promised before, later.
            let usual = now.plus(lease.length.millis());
            let promised = before.lease().map(|lease| lease.until);
            let later = Some(lease.until) == promised;
            prop_assert!(lease.until == usual || later || after.timeout.is_some());
        }
        _ => {}
    }
    if let Some(finished_at) = after.finished_at() {
        prop_assert_eq!(finished_at, now);
    }
    Ok(())
}

proptest! {
    #![proptest_config(config(2_048))]

    #[test]
    fn an_event_moves_a_job_rightly_or_leaves_it_alone(
        job in job(),
        event in event(),
        now in wall(),
    ) {
        let copy = job.clone();
        let answer = transition(&job, event.event(), now);
        prop_assert_eq!(&job, &copy);
        prop_assert_eq!(&transition(&job, event.event(), now), &answer, "the answer changed");
        if let Ok(Step::Moved(after)) = answer {
            // A running job has an attempt that can be given back.
            prop_assume!(job.attempts > 0 || job.lease().is_none());
            check_moved(&job, &after, now)?;
        }
    }

    /// A claim is the only event that raises the epoch, and it always does.
    #[test]
    fn the_epoch_grows_with_claims_alone(job in job(), event in event(), now in wall()) {
        if let Ok(Step::Moved(after)) = transition(&job, event.event(), now) {
            if matches!(event, Owned::Claim(_)) {
                prop_assert_eq!(after.epoch, job.epoch.next());
                prop_assert_eq!(after.attempts, job.attempts + 1);
            } else {
                prop_assert_eq!(after.epoch, job.epoch);
            }
        }
    }

    /// Only the holder of the latest token can end a run or prolong it.
    #[test]
    fn a_token_that_is_not_the_latest_changes_nothing(
        job in job(),
        epoch in epoch(),
        verdict in verdict(),
        extend in option::of(lease_length()),
        now in wall(),
    ) {
        prop_assume!(epoch != job.epoch);
        let settled = transition(&job, Event::Settle { epoch, verdict: &verdict }, now);
        prop_assert!(settled.is_err(), "{settled:?}");
        let (stop_grace, trusted_since) = (Millis::ZERO, None);
        let heartbeat = Event::Heartbeat { epoch, extend, stop_grace, trusted_since };
        let answered = transition(&job, heartbeat, now);
        prop_assert!(answered.is_err(), "{answered:?}");
    }

    /// A report that is repeated gets the same answer again, and changes nothing.
    #[test]
    fn a_report_sent_twice_gets_the_same_answer(
        job in job(),
        verdict in verdict(),
        now in wall(),
        later in wall(),
    ) {
        let report = Event::Settle { epoch: job.epoch, verdict: &verdict };
        if let Ok(Step::Moved(after)) = transition(&job, report, now) {
            let again = transition(&after, report, later);
            prop_assert_eq!(again, Ok(Step::Repeated(after.state.name())));
        }
    }

    /// What is remembered of an attempt is made without a panic, and only of one that was held.
    #[test]
    fn only_a_held_job_leaves_an_attempt(job in job(), verdict in verdict(), now in wall()) {
        let expired = Attempt::reaped(&job, &job, false, now);
        prop_assert_eq!(expired.is_some(), job.lease().is_some());
        let settled = Attempt::settled(&job, &verdict, now);
        let ends_badly = matches!(verdict, Verdict::Fail(_) | Verdict::Release);
        prop_assert_eq!(settled.is_some(), job.lease().is_some() && ends_badly);
    }
}
