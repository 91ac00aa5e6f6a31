//! How long to wait between two attempts.
//!
//! Pure integer arithmetic: fractions are thousandths, jitter is a hash of the lease token. Every
//! store, the runtime and the simulator compute the same instant for the same attempt.

use thiserror::Error;

use crate::limits::MAX_BACKOFF;
use crate::{LeaseToken, Millis};

/// Why a retry policy is not valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum RetryError {
    /// A time longer than the limit.
    #[error("retry.{field} must be at most {limit}, not {given}")]
    TooLong {
        /// `initial_ms` or `cap_ms`.
        field: &'static str,
        /// The time in the request.
        given: Millis,
        /// The longest allowed.
        limit: Millis,
    },
    /// A factor below 1 or above 100.
    #[error("retry.factor must be between 1 and 100, not {}.{:03}", given / 1_000, given % 1_000)]
    Factor {
        /// The given factor, in thousandths.
        given: u32,
    },
    /// A jitter above 1.
    #[error("retry.jitter must be between 0 and 1, not {}.{:03}", given / 1_000, given % 1_000)]
    Jitter {
        /// The given factor, in thousandths.
        given: u32,
    },
}

/// How the wait grows with the number of failed attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// Always the initial wait.
    Fixed,
    /// The initial wait times the number of failed attempts.
    Linear,
    /// The initial wait, multiplied by a factor for each further failed attempt.
    Exponential {
        /// In thousandths: 2000 doubles.
        factor: u32,
    },
}

impl Strategy {
    /// The name used in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fixed => "fixed",
            Self::Linear => "linear",
            Self::Exponential { .. } => "exponential",
        }
    }
}

/// The time until the next attempt of a failed job. The default is 1 s, doubled after each further
/// failure, up to 1 h, ± 25 %.
///
/// ```
/// use windlass_core::{LeaseToken, Millis, RetryPolicy, Strategy};
/// let token: LeaseToken = "1.3".parse().unwrap();
/// let policy = RetryPolicy::new(Strategy::Linear, Millis::seconds(5), Millis::minutes(1), 0)?;
/// assert_eq!(policy.backoff(3, token), Millis::seconds(15));
/// assert_eq!(policy.backoff(1_000, token), Millis::minutes(1));
/// # Ok::<(), windlass_core::RetryError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RetryPolicy {
    strategy: Strategy,
    initial: Millis,
    cap: Millis,
    jitter: u32,
}

impl RetryPolicy {
    /// Checks every part: `jitter` is in thousandths of the wait, to either side.
    pub fn new(
        strategy: Strategy,
        initial: Millis,
        cap: Millis,
        jitter: u32,
    ) -> Result<Self, RetryError> {
        for (field, given) in [("initial_ms", initial), ("cap_ms", cap)] {
            if given > MAX_BACKOFF {
                return Err(RetryError::TooLong { field, given, limit: MAX_BACKOFF });
            }
        }
        match strategy {
            Strategy::Exponential { factor } if !(1_000..=100_000).contains(&factor) => {
                Err(RetryError::Factor { given: factor })
            }
            _ if jitter > 1_000 => Err(RetryError::Jitter { given: jitter }),
            _ => Ok(Self { strategy, initial, cap, jitter }),
        }
    }

    /// The policy as stores keep it: strategy, factor, initial wait, cap, jitter. The codes never
    /// change.
    pub fn to_stored(&self) -> [u64; 5] {
        let (strategy, factor) = match self.strategy {
            Strategy::Fixed => (0, 0),
            Strategy::Linear => (1, 0),
            Strategy::Exponential { factor } => (2, factor),
        };
        [strategy, factor.into(), self.initial.get(), self.cap.get(), self.jitter.into()]
    }

    /// Decodes the form of [`to_stored`](Self::to_stored); `None` if it is not valid.
    pub fn from_stored([strategy, factor, initial, cap, jitter]: [u64; 5]) -> Option<Self> {
        let strategy = match strategy {
            0 => Strategy::Fixed,
            1 => Strategy::Linear,
            2 => Strategy::Exponential { factor: u32::try_from(factor).ok()? },
            _ => return None,
        };
        let jitter = u32::try_from(jitter).ok()?;
        Self::new(strategy, Millis::new(initial), Millis::new(cap), jitter).ok()
    }

    /// How the delay grows from attempt to attempt.
    pub fn strategy(&self) -> Strategy {
        self.strategy
    }

    /// The wait after the first failure.
    pub fn initial(&self) -> Millis {
        self.initial
    }

    /// The longest wait.
    pub fn cap(&self) -> Millis {
        self.cap
    }

    /// Spread of the wait to either side, in thousandths.
    pub fn jitter(&self) -> u32 {
        self.jitter
    }

    /// The wait after the failed attempt with this number and lease token.
    pub fn backoff(&self, attempt: u32, token: LeaseToken) -> Millis {
        let base = self.base(attempt.max(1));
        let spread = u64::try_from(u128::from(base) * u128::from(self.jitter) / 1_000);
        let spread = spread.unwrap_or(base);
        let offset = scale(hash(token), spread.saturating_mul(2).saturating_add(1));
        Millis::new((base - spread).saturating_add(offset).min(self.cap.get()))
    }

    /// The shortest and the longest wait after this many failed attempts.
    pub fn bounds(&self, attempt: u32) -> (Millis, Millis) {
        let base = u128::from(self.base(attempt.max(1)));
        let spread = base * u128::from(self.jitter) / 1_000;
        let longest = u64::try_from(base + spread).unwrap_or(u64::MAX);
        let shortest = u64::try_from(base - spread).unwrap_or(0);
        (Millis::new(shortest), Millis::new(longest.min(self.cap.get())))
    }

    /// The wait before jitter, capped.
    fn base(&self, attempt: u32) -> u64 {
        let (initial, cap) = (self.initial.get(), self.cap.get());
        match self.strategy {
            Strategy::Fixed => initial.min(cap),
            Strategy::Linear => initial.saturating_mul(u64::from(attempt)).min(cap),
            Strategy::Exponential { factor } => grow(initial, cap, factor, attempt - 1),
        }
    }
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            strategy: Strategy::Exponential { factor: 2_000 },
            initial: Millis::seconds(1),
            cap: Millis::hours(1),
            jitter: 250,
        }
    }
}

/// `initial × (factor/1000)^times`, capped. It stops at the cap, so it takes few steps unless the
/// factor is close to one, and never more than `times`.
fn grow(initial: u64, cap: u64, factor: u32, times: u32) -> u64 {
    if factor == 1_000 || initial == 0 {
        return initial.min(cap);
    }
    // Billionths are carried along, so that a factor of 1.001 grows a wait of 1 ms as well, and
    // what is cut off on the way stays below a millisecond.
    let cap_fine = u128::from(cap) * FINE;
    let mut wait = u128::from(initial) * FINE;
    for _ in 0..times {
        if wait >= cap_fine {
            break;
        }
        wait = wait * u128::from(factor) / 1_000;
    }
    u64::try_from(wait.min(cap_fine) / FINE).unwrap_or(cap)
}

/// The parts of a millisecond in which waits grow.
const FINE: u128 = 1_000_000_000;

/// A well-mixed number for a lease token, the same on every machine and in every version.
fn hash(token: LeaseToken) -> u64 {
    let seed = token.job.get() ^ token.epoch.get().rotate_left(32);
    let mut x = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Maps a number over the whole range of `u64` evenly to `0..below`.
fn scale(number: u64, below: u64) -> u64 {
    let product = u128::from(number) * u128::from(below);
    u64::try_from(product >> 64).unwrap_or(0)
}
