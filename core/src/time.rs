//! Integer time: an instant of the wall clock, one of the monotonic clock, and a length.
//!
//! All arithmetic saturates, so no input overflows. Stored instants are [`Wall`]; timers inside a
//! process are [`Mono`]. The two never mix but in [`Now`].

use core::fmt;

/// A length of time in whole milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Millis(u64);

impl Millis {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// This many milliseconds.
    pub const fn new(millis: u64) -> Self {
        Self(millis)
    }

    /// This many seconds.
    pub const fn seconds(seconds: u64) -> Self {
        Self(seconds.saturating_mul(1_000))
    }

    /// This many minutes.
    pub const fn minutes(minutes: u64) -> Self {
        Self::seconds(minutes.saturating_mul(60))
    }

    /// This many hours.
    pub const fn hours(hours: u64) -> Self {
        Self::minutes(hours.saturating_mul(60))
    }

    /// This many days of 24 hours.
    pub const fn days(days: u64) -> Self {
        Self::hours(days.saturating_mul(24))
    }

    /// The number of milliseconds.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Both lengths together.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// This length multiplied; saturates.
    #[must_use]
    pub const fn times(self, times: u64) -> Self {
        Self(self.0.saturating_mul(times))
    }

    /// An integer part of this length: `part(3)` is a third.
    #[must_use]
    pub const fn part(self, of: u64) -> Self {
        Self(self.0 / if of == 0 { 1 } else { of })
    }
}

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.0)
    }
}

/// An instant of the wall clock: milliseconds since the Unix epoch, negative before it.
///
/// ```
/// use windlass_core::{Millis, Wall};
/// let noon = Wall::new(43_200_000);
/// assert_eq!(noon.plus(Millis::seconds(1)).since(noon), Millis::new(1_000));
/// assert_eq!(Wall::new(i64::MAX).plus(Millis::days(1)), Wall::new(i64::MAX));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Wall(i64);

impl Wall {
    /// The last instant that can be written.
    pub const MAX: Self = Self(i64::MAX);

    /// The instant this many milliseconds after the Unix epoch.
    pub const fn new(millis: i64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the Unix epoch.
    pub const fn get(self) -> i64 {
        self.0
    }

    /// The instant this much later.
    #[must_use]
    pub const fn plus(self, length: Millis) -> Self {
        Self(self.0.saturating_add_unsigned(length.0))
    }

    /// The instant this much earlier.
    #[must_use]
    pub const fn minus(self, length: Millis) -> Self {
        Self(self.0.saturating_sub_unsigned(length.0))
    }

    /// The time since `earlier`; zero if it is not earlier.
    pub const fn since(self, earlier: Self) -> Millis {
        if self.0 <= earlier.0 { Millis::ZERO } else { Millis(self.0.abs_diff(earlier.0)) }
    }

    /// How far apart the two instants are, whichever is later.
    pub const fn distance(self, other: Self) -> Millis {
        Millis(self.0.abs_diff(other.0))
    }
}

impl fmt::Display for Wall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An instant of the monotonic clock: milliseconds since some start of the process's choosing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Mono(u64);

impl Mono {
    /// The instant this many milliseconds after the clock's start.
    pub const fn new(millis: u64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the clock's start.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The instant this much later.
    #[must_use]
    pub const fn plus(self, length: Millis) -> Self {
        Self(self.0.saturating_add(length.0))
    }

    /// The time since `earlier`; zero if it is not earlier.
    pub const fn since(self, earlier: Self) -> Millis {
        Millis(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Display for Mono {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One reading of both clocks, taken together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Now {
    /// The wall clock: what stored instants are made of. It may step.
    pub wall: Wall,
    /// The monotonic clock: what timers are made of. It never goes back.
    pub mono: Mono,
}

impl Now {
    /// Both clocks at once.
    pub const fn new(wall: Wall, mono: Mono) -> Self {
        Self { wall, mono }
    }
}
