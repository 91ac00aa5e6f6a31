//! The waits between attempts as a text that a person checks by eye: of each policy attempt by
//! attempt, and at the extremes.

use std::fmt::Write;

use windlass_core::{Epoch, JobId, LeaseToken, Millis, RetryPolicy, Strategy};

/// One line per attempt: the bounds, and the wait of job 1.
fn progression(title: &str, policy: &RetryPolicy, attempts: &[u32]) -> String {
    let mut text = format!("{title}\n");
    for attempt in attempts {
        let (shortest, longest) = policy.bounds(*attempt);
        let token = LeaseToken { job: JobId::FIRST, epoch: Epoch::new(u64::from(*attempt)) };
        let wait = policy.backoff(*attempt, token);
        let bounds = format!("{}..={}", shortest.get(), longest.get());
        writeln!(text, "  attempt {attempt:>10}: {bounds:>24} ms, job 1 waits {}", wait.get())
            .expect("a string takes every text");
    }
    text
}

fn policy(strategy: Strategy, initial_ms: u64, cap_ms: u64, jitter: u32) -> RetryPolicy {
    RetryPolicy::new(strategy, Millis::new(initial_ms), Millis::new(cap_ms), jitter)
        .expect("the policy is within bounds")
}

const fn times(factor: u32) -> Strategy {
    Strategy::Exponential { factor }
}

const HOUR_MS: u64 = 3_600_000;
const YEAR_MS: u64 = 365 * 24 * HOUR_MS;

#[test]
fn each_policy_waits_longer_until_its_cap() {
    let attempts: Vec<u32> = (1..=12).collect();
    let policies = [
        ("default: exponential 1 s × 2, cap 1 h, jitter 25 %", RetryPolicy::default()),
        ("fixed 5 s, cap 1 h, no jitter", policy(Strategy::Fixed, 5_000, HOUR_MS, 0)),
        ("fixed 5 s, cap 1 h, jitter 10 %", policy(Strategy::Fixed, 5_000, HOUR_MS, 100)),
        ("linear 5 s, cap 40 s, no jitter", policy(Strategy::Linear, 5_000, 40_000, 0)),
        ("linear 5 s, cap 1 h, jitter 50 %", policy(Strategy::Linear, 5_000, HOUR_MS, 500)),
        ("exponential 3 s × 3, cap 1 h, no jitter", policy(times(3_000), 3_000, HOUR_MS, 0)),
        ("exponential 1 ms × 1.5, cap 1 h, no jitter", policy(times(1_500), 1, HOUR_MS, 0)),
        ("exponential 1 s × 2, cap 1 h, full jitter", policy(times(2_000), 1_000, HOUR_MS, 1_000)),
    ];
    let text: Vec<String> =
        policies.iter().map(|(title, policy)| progression(title, policy, &attempts)).collect();
    insta::assert_snapshot!("progressions", text.join("\n"));
}

#[test]
fn no_attempt_and_no_policy_waits_past_its_cap() {
    let attempts = [0, 1, 2, 1_000, u32::MAX];
    let policies = [
        ("default", RetryPolicy::default()),
        ("initial 0", policy(times(2_000), 0, HOUR_MS, 250)),
        ("linear, initial 0", policy(Strategy::Linear, 0, HOUR_MS, 250)),
        ("cap 0", policy(times(2_000), 1_000, 0, 250)),
        ("initial over cap", policy(times(2_000), HOUR_MS, 1_000, 0)),
        ("initial over cap, full jitter", policy(Strategy::Fixed, HOUR_MS, 1_000, 1_000)),
        ("factor 1", policy(times(1_000), 1_000, HOUR_MS, 0)),
        ("factor 1.001", policy(times(1_001), 1_000, HOUR_MS, 0)),
        ("factor 1.001 from 1 ms to a year", policy(times(1_001), 1, YEAR_MS, 0)),
        ("factor 100", policy(times(100_000), 1_000, YEAR_MS, 0)),
        ("linear to a year, full jitter", policy(Strategy::Linear, YEAR_MS, YEAR_MS, 1_000)),
        ("a year times 100, full jitter", policy(times(100_000), YEAR_MS, YEAR_MS, 1_000)),
    ];
    let text: Vec<String> =
        policies.iter().map(|(title, policy)| progression(title, policy, &attempts)).collect();
    insta::assert_snapshot!("extremes", text.join("\n"));
}
