//! Numbers with bounds, checked when they are constructed.

use thiserror::Error;

use crate::limits::MAX_AHEAD;
use crate::{Millis, Wall};

/// A number out of range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{field} must be between {min} and {max}, not {given}")]
pub struct OutOfRange {
    /// The name of the field in the API.
    pub field: &'static str,
    /// The refused value.
    pub given: i128,
    /// The least allowed value.
    pub min: i128,
    /// The greatest allowed value.
    pub max: i128,
}

const MOST_AHEAD: u64 = MAX_AHEAD.get();

macro_rules! bounded {
    (
        $(#[$doc:meta])* $name:ident($raw:ty), $field:literal,
        $min:literal, $max:tt $(, $default:expr)?
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name($raw);

        impl $name {
            /// The least allowed value.
            pub const MIN: Self = Self($min);
            /// The greatest allowed value.
            pub const MAX: Self = Self($max);
            $(/// The value if none is set.
            pub const DEFAULT: Self = Self($default);)?

            /// Checks the bounds.
            pub const fn new(given: $raw) -> Result<Self, OutOfRange> {
                if !matches!(given, $min..=$max) {
                    return Err(OutOfRange {
                        field: $field,
                        given: given as i128,
                        min: $min as i128,
                        max: $max as i128,
                    });
                }
                Ok(Self(given))
            }

            /// The number.
            pub const fn get(self) -> $raw {
                self.0
            }
        }
    };
}

bounded! {
    /// The priority of a job: higher numbers are claimed first.
    Priority(i16), "priority", -1_000, 1_000, 0
}
bounded! {
    /// Maximum number of attempts after the first failed one.
    MaxRetries(u32), "max_retries", 0, 1_000, 3
}
bounded! {
    /// The visibility timeout in milliseconds: the length of a lease without heartbeats.
    LeaseLength(u64), "visibility_timeout_ms", 1_000, 43_200_000, 30_000
}
bounded! {
    /// Maximum duration of one attempt, in milliseconds.
    JobTimeout(u64), "timeout_ms", 1, 604_800_000
}
bounded! {
    /// Time until a job is due, in milliseconds.
    Delay(u64), "delay_ms", 0, MOST_AHEAD
}
bounded! {
    /// Maximum number of waiting jobs of a queue, scheduled ones included.
    MaxQueued(u64), "max_queued", 1, 1_000_000_000_000
}
bounded! {
    /// Maximum number of jobs of a queue that run at the same time, over all workers.
    MaxRunning(u32), "concurrency", 1, 1_000_000
}

bounded! {
    /// Maximum number of jobs of a kind in a queue that run at the same time; zero pauses the kind.
    KindConcurrency(u32), "concurrency", 0, 1_000_000
}
bounded! {
    /// Number of starts per period.
    RateLimit(u32), "rate.limit", 1, 1_000_000
}
bounded! {
    /// The period of a rate, in milliseconds.
    RatePeriod(u64), "rate.per_ms", 1, 86_400_000
}
bounded! {
    /// Number of starts at once after a pause.
    RateBurst(u32), "rate.burst", 1, 1_000_000
}
bounded! {
    /// How long a job has to wait, in milliseconds, to overtake one of the next higher priority.
    Aging(u64), "aging_ms", 1, 86_400_000
}

bounded! {
    /// How many jobs a bulk action takes per second.
    JobsPerSecond(u32), "per_s", 1, 100_000
}

impl MaxRetries {
    /// Maximum number of charged claims in one generation.
    pub const fn attempts(self) -> u32 {
        self.0 + 1
    }
}

impl LeaseLength {
    /// How long a holder may take to stop once its lease cannot be extended: a twentieth of its
    /// length. The dispatcher stops holders with a tenth left, so they end before the lease does.
    pub const fn time_to_end(self) -> Millis {
        self.millis().part(20)
    }

    /// The length of time.
    pub const fn millis(self) -> Millis {
        Millis::new(self.0)
    }
}

impl JobTimeout {
    /// The length of time.
    pub const fn millis(self) -> Millis {
        Millis::new(self.0)
    }
}

impl Delay {
    /// The length of time.
    pub const fn millis(self) -> Millis {
        Millis::new(self.0)
    }

    /// The instant this far after `now`.
    pub const fn from(self, now: Wall) -> Wall {
        now.plus(self.millis())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_outside_its_bounds_is_refused_by_name_with_the_limits() {
        let refused = Priority::new(1_001).unwrap_err();
        assert_eq!(refused.field, "priority");
        assert_eq!((refused.given, refused.min, refused.max), (1_001, -1_000, 1_000));
        assert_eq!(Priority::new(-1_000), Ok(Priority::MIN));
        assert_eq!(LeaseLength::new(999).unwrap_err().field, "visibility_timeout_ms");
        assert_eq!(Delay::new(u64::MAX).unwrap_err().max, i128::from(MAX_AHEAD.get()));
    }

    #[test]
    fn a_holder_that_is_stopped_in_time_ends_before_its_lease() {
        for length in [LeaseLength::MIN, LeaseLength::DEFAULT, LeaseLength::MAX] {
            assert!(length.time_to_end() < length.millis().part(10), "{length:?}");
        }
    }
}
