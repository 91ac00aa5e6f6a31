//! Retry policies: what is accepted, and the bounds every wait keeps.

use proptest::prelude::*;
use windlass_core::limits::MAX_BACKOFF;
use windlass_core::{LeaseToken, Millis, RetryError, RetryPolicy, Strategy as Growth};

use super::arbitrary::{config, epoch, job_id, millis, retry};

fn attempt() -> impl Strategy<Value = u32> {
    prop_oneof![0..20_u32, any::<u32>(), Just(u32::MAX)]
}

/// What the contract says attempt n waits before jitter, in real numbers.
#[expect(clippy::cast_precision_loss, reason = "the comparison allows for it")]
fn contract(policy: &RetryPolicy, attempt: u32) -> f64 {
    let initial = policy.initial().get() as f64;
    let n = f64::from(attempt.max(1));
    let wait = match policy.strategy() {
        Growth::Fixed => initial,
        Growth::Linear => initial * n,
        Growth::Exponential { factor } => initial * (f64::from(factor) / 1_000.0).powf(n - 1.0),
    };
    let cap = policy.cap().get() as f64;
    if initial == 0.0 { 0.0 } else { wait.min(cap) }
}

proptest! {
    #![proptest_config(config(512))]

    #[test]
    fn a_policy_is_taken_exactly_within_its_bounds(
        initial in prop_oneof![millis(), (0..100_u64).prop_map(Millis::new)],
        cap in prop_oneof![millis(), (0..100_u64).prop_map(Millis::new)],
        factor in prop_oneof![any::<u32>(), 900..1_100_u32, 99_900..100_100_u32],
        jitter in prop_oneof![any::<u32>(), 0..1_100_u32],
    ) {
        let made = RetryPolicy::new(Growth::Exponential { factor }, initial, cap, jitter);
        let short = initial <= MAX_BACKOFF && cap <= MAX_BACKOFF;
        let allowed = short && (1_000..=100_000).contains(&factor) && jitter <= 1_000;
        prop_assert_eq!(made.is_ok(), allowed);
        if let Err(error) = made {
            let named = match error {
                RetryError::TooLong { .. } => !short,
                RetryError::Factor { given } => given == factor,
                RetryError::Jitter { given } => given == jitter && jitter > 1_000,
            };
            prop_assert!(named, "{} is the wrong reason", error);
        }
        let linear = RetryPolicy::new(Growth::Linear, initial, cap, jitter);
        prop_assert_eq!(linear.is_ok(), short && jitter <= 1_000);
    }

    #[test]
    fn every_wait_lies_within_its_bounds_and_never_above_the_cap(
        policy in retry(),
        attempt in attempt(),
        job in job_id(),
        epoch in epoch(),
    ) {
        let wait = policy.backoff(attempt, LeaseToken { job, epoch });
        let (shortest, longest) = policy.bounds(attempt);
        prop_assert!(shortest <= wait && wait <= longest, "{shortest} {wait} {longest}");
        prop_assert!(longest <= policy.cap());
    }

    /// Rounding takes a millisecond of the wait and one of the jitter, and little of a long wait.
    #[test]
    #[expect(clippy::cast_precision_loss, reason = "the comparison allows for it")]
    fn the_bounds_are_those_of_the_contract(policy in retry(), attempt in attempt()) {
        let wait = contract(&policy, attempt);
        let jitter = f64::from(policy.jitter()) / 1_000.0;
        let cap = policy.cap().get() as f64;
        let (shortest, longest) = policy.bounds(attempt);
        let allow = 3.0 + wait * 1e-6;
        let off = (shortest.get() as f64 - wait * (1.0 - jitter)).abs();
        prop_assert!(off <= allow, "shortest {shortest}, contract {wait}");
        let off = (longest.get() as f64 - (wait * (1.0 + jitter)).min(cap)).abs();
        prop_assert!(off <= allow, "longest {longest}, contract {wait}");
    }

    #[test]
    fn a_later_attempt_never_waits_for_less(policy in retry(), attempt in attempt()) {
        let (earlier, later) = (policy.bounds(attempt), policy.bounds(attempt.saturating_add(1)));
        prop_assert!(earlier.0 <= later.0 && earlier.1 <= later.1);
    }

    #[test]
    fn without_jitter_every_job_waits_the_same(attempt in attempt(), a in job_id(), b in job_id()) {
        let hour = Millis::hours(1);
        let policy = RetryPolicy::new(Growth::Linear, Millis::new(700), hour, 0).unwrap();
        let token = |job| LeaseToken { job, epoch: windlass_core::Epoch::new(1) };
        prop_assert_eq!(policy.backoff(attempt, token(a)), policy.backoff(attempt, token(b)));
    }
}

/// Jitter exists to keep jobs that failed together from coming back together.
#[test]
fn jitter_spreads_jobs_and_epochs_over_the_whole_range() {
    let second = Millis::seconds(1);
    let policy = RetryPolicy::new(Growth::Fixed, second, Millis::seconds(2), 1_000).unwrap();
    let wait = |job: u64, epoch: u64| {
        let job = windlass_core::JobId::new(job).unwrap();
        policy.backoff(1, LeaseToken { job, epoch: windlass_core::Epoch::new(epoch) }).get()
    };
    let by_job: Vec<u64> = (1..=1_000).map(|job| wait(job, 1)).collect();
    let by_epoch: Vec<u64> = (1..=1_000).map(|epoch| wait(1, epoch)).collect();
    for waits in [by_job, by_epoch] {
        for decile in 0..10 {
            let range = decile * 200..(decile + 1) * 200;
            let count = waits.iter().filter(|wait| range.contains(*wait)).count();
            assert!((60..=140).contains(&count), "{count} of 1000 waits lie in {range:?}");
        }
    }
}
