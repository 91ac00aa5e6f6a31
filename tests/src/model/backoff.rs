//! The bounds of a wait, straight from the contract: attempt n waits `initial`, `initial × n` or
//! `initial × factor^(n−1)`; then the cap; then jitter to either side, never above the cap.

use windlass_core::{RetryPolicy, Strategy};

/// The shortest and the longest wait in milliseconds after the n-th failed attempt. A millisecond
/// to either side is left to rounding.
pub(super) fn bounds(policy: &RetryPolicy, attempt: u32) -> (u64, u64) {
    let initial = u128::from(policy.initial().get());
    let cap = u128::from(policy.cap().get());
    let wait = match policy.strategy() {
        Strategy::Fixed => initial,
        Strategy::Linear => initial * u128::from(attempt),
        Strategy::Exponential { factor } => power(initial, u128::from(factor), attempt, cap),
    };
    let wait = wait.min(cap);
    let jitter = u128::from(policy.jitter());
    let shortest = (wait * (1_000 - jitter) / 1_000).saturating_sub(1);
    let longest = (wait * (1_000 + jitter) / 1_000 + 1).min(cap);
    (narrow(shortest), narrow(longest))
}

/// In millionths, so that what is cut off stays far below a millisecond.
fn power(initial: u128, factor: u128, attempt: u32, cap: u128) -> u128 {
    let mut millionths = initial * 1_000_000;
    for _ in 1..attempt {
        if millionths > cap * 1_000_000 {
            return cap;
        }
        millionths = millionths * factor / 1_000;
    }
    millionths / 1_000_000
}

fn narrow(wide: u128) -> u64 {
    u64::try_from(wide).expect("a wait is at most a year")
}
