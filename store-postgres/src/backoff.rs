//! When a connection that could not be made is tried again: later and later, and not by all nodes
//! at once.

use std::time::Duration;

use tokio::time::Instant;
use windlass_core::store::Cause;

/// The longest first pause.
const FIRST: Duration = Duration::from_millis(100);
/// The pause doubles this often.
const DOUBLINGS: u32 = 5;

/// Failed tries in a row.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
    until: Option<Instant>,
    why: String,
}

impl Backoff {
    /// Refuses a try that would be too early, with the reason of the last failure.
    pub(crate) fn check(&self, now: Instant) -> Result<(), Cause> {
        match self.until {
            Some(until) if now < until => Err(Cause::new(&self.why)),
            _ => Ok(()),
        }
    }

    /// A try has failed: returns how long to wait before the next one.
    pub(crate) fn failed(&mut self, now: Instant, why: String) -> Duration {
        // Without a random number the pause is the longest.
        let pause = jittered(longest(self.failures), getrandom::u64().unwrap_or(u64::MAX));
        self.failures = self.failures.saturating_add(1);
        (self.until, self.why) = (Some(now + pause), why);
        pause
    }

    /// A connection was made, or a caller asks for one at once.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

fn longest(failures: u32) -> Duration {
    FIRST * (1 << failures.min(DOUBLINGS))
}

/// Between the half and the whole of a pause.
fn jittered(longest: Duration, random: u64) -> Duration {
    let half = longest / 2;
    half + half * u32::from(random.to_le_bytes()[0]) / u32::from(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_limit_and_differ_within_their_upper_half() {
        assert!((0..9).map(longest).is_sorted());
        assert_eq!(longest(u32::MAX), longest(5));
        for random in [0, 1, 77, 255, u64::MAX] {
            let pause = jittered(FIRST, random);
            assert!((FIRST / 2..=FIRST).contains(&pause), "{pause:?}");
        }
        assert_ne!(jittered(FIRST, 0), jittered(FIRST, 255));
    }

    #[test]
    fn a_try_too_early_is_refused_with_the_reason_of_the_failure() {
        let (mut backoff, now) = (Backoff::default(), Instant::now());
        assert!(backoff.check(now).is_ok());
        let pause = backoff.failed(now, "no route".into());
        assert_eq!(backoff.check(now), Err(Cause::new("no route")));
        assert!(backoff.check(now + pause).is_ok());
        assert!(backoff.failed(now, String::new()) >= FIRST, "the second pause is longer");
        backoff.clear();
        assert!(backoff.check(now).is_ok());
    }
}
