//! Numbers with named bounds: checked once, when made, and trusted ever after.

use thiserror::Error;

use crate::limits::MAX_AHEAD;
use crate::{Millis, Wall};

/// A number outside its bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{field} must be between {min} and {max}, not {given}")]
pub struct OutOfRange {
    /// The field as users know it.
    pub field: &'static str,
    /// What was given.
    pub given: i128,
    /// The least that is allowed.
    pub min: i128,
    /// The most that is allowed.
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
            /// The least that is allowed.
            pub const MIN: Self = Self($min);
            /// The most that is allowed.
            pub const MAX: Self = Self($max);
            $(/// What a caller gets who does not say.
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
    /// Rank of a job among the ready ones: the higher number runs first.
    Priority(i16), "priority", -1_000, 1_000, 0
}
bounded! {
    /// How many times a job is run again after its first attempt failed.
    MaxRetries(u32), "max_retries", 0, 1_000, 3
}
bounded! {
    /// How long a lease lasts without a heartbeat: the visibility timeout.
    LeaseLength(u64), "visibility_timeout_ms", 1_000, 43_200_000, 30_000
}
bounded! {
    /// How long one attempt may run before it is stopped.
    JobTimeout(u64), "timeout_ms", 1, 604_800_000
}
bounded! {
    /// How far ahead a job is put off.
    Delay(u64), "delay_ms", 0, MOST_AHEAD
}
bounded! {
    /// How many jobs a queue holds waiting before it refuses more.
    MaxQueued(u64), "max_queued", 1, 1_000_000_000_000
}
bounded! {
    /// How many jobs of a queue run at once, over all workers.
    MaxRunning(u32), "concurrency", 1, 1_000_000
}

impl MaxRetries {
    /// How many times a job may be claimed in one generation.
    pub const fn attempts(self) -> u32 {
        self.0 + 1
    }
}

impl LeaseLength {
    /// For how long the store may fail before holders of such a lease have to stop. The dispatcher
    /// extends leases at a third of their length, so two thirds were left when the trouble began.
    pub const fn bears_trouble(self) -> Millis {
        self.millis().part(2)
    }

    /// How long a holder has to end once it was told that its lease cannot be extended: the
    /// dispatcher tells it with a tenth left, and it must be gone before the rest is.
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
    fn a_holder_that_is_told_in_time_is_gone_before_its_lease_ends() {
        for length in [LeaseLength::MIN, LeaseLength::DEFAULT, LeaseLength::MAX] {
            let (whole, third) = (length.millis(), length.millis().part(3));
            let told_late = third.plus(length.bears_trouble());
            assert!(told_late <= whole.part(10).times(9), "{length:?}");
            assert!(length.time_to_end() < whole.part(10), "{length:?}");
        }
    }
}
