//! How much time a row of figures covers, and how it is folded when it grows old.

use crate::{Millis, Wall};

/// How much time a row of figures covers.
///
/// A process adds its own figures to [`Live`](Self::Live) rows. A sweep adds these up for all
/// processes and folds them into longer spans as they grow old. What is folded for the first time
/// is added to the [`Total`](Self::Total) as well, so the figures of a store since it was made are
/// those of its total and of its live rows, at any moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Span {
    /// Ten seconds of one process.
    Live,
    /// Ten seconds of all processes.
    TenSeconds,
    /// 300 seconds of all processes.
    FiveMinutes,
    /// 1800 seconds of all processes.
    HalfHour,
    /// Everything since the store was made.
    Total,
}

impl Span {
    /// Every span, in the order of their stored codes.
    pub const ALL: [Self; 5] =
        [Self::Live, Self::TenSeconds, Self::FiveMinutes, Self::HalfHour, Self::Total];

    /// Its code in a store.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// The span with this code, if there is one.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }

    /// Its length; `None` for the total.
    pub fn length(self) -> Option<Millis> {
        match self {
            Self::Live | Self::TenSeconds => Some(Millis::seconds(10)),
            Self::FiveMinutes => Some(Millis::minutes(5)),
            Self::HalfHour => Some(Millis::minutes(30)),
            Self::Total => None,
        }
    }

    /// The start of the slot of this span that an instant falls into; zero for the total.
    pub fn slot(self, at: Wall) -> Wall {
        self.length().map_or(Wall::new(0), |length| slot(at, length))
    }

    /// How long after the start of its slot a row is folded into another span, or removed.
    /// `None` for the total, which stays.
    pub(crate) fn age(self) -> Option<Millis> {
        match self {
            // Its slot has been over for twice its length. A process that adds to it later makes
            // a new row, which is folded like the first.
            Self::Live => Some(Millis::seconds(30)),
            Self::TenSeconds => Some(Millis::minutes(70)),
            Self::FiveMinutes => Some(Millis::hours(25)),
            Self::HalfHour => Some(Millis::days(30)),
            Self::Total => None,
        }
    }

    /// The span that its rows are folded into; `None` if they are removed, or stay.
    pub(crate) fn folds_into(self) -> Option<Self> {
        match self {
            Self::Live => Some(Self::TenSeconds),
            Self::TenSeconds => Some(Self::FiveMinutes),
            Self::FiveMinutes => Some(Self::HalfHour),
            Self::HalfHour | Self::Total => None,
        }
    }
}

/// The start of the slot of this length that an instant falls into.
pub(crate) fn slot(at: Wall, length: Millis) -> Wall {
    let length = i64::try_from(length.get()).unwrap_or(i64::MAX).max(1);
    Wall::new(at.get().saturating_sub(at.get().rem_euclid(length)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_found_by_its_code() {
        for span in Span::ALL {
            assert_eq!(Span::from_code(span.code()), Some(span));
        }
        assert_eq!(Span::from_code(5), None);
    }

    #[test]
    fn an_instant_falls_into_the_slot_that_starts_at_or_before_it() {
        for (at, start) in [(0, 0), (9_999, 0), (10_000, 10_000), (-1, -10_000)] {
            assert_eq!(Span::Live.slot(Wall::new(at)), Wall::new(start), "{at}");
        }
        assert_eq!(Span::Total.slot(Wall::new(123_456)), Wall::new(0));
        assert_eq!(Span::HalfHour.slot(Wall::MAX).distance(Wall::MAX), Millis::new(775_807));
        assert_eq!(Span::HalfHour.slot(Wall::new(i64::MIN)), Wall::new(i64::MIN));
    }

    #[test]
    fn a_slot_is_made_of_whole_slots_of_the_span_that_is_folded_into_it() {
        for span in Span::ALL {
            let Some(into) = span.folds_into() else { continue };
            let (part, whole) = (span.length().unwrap().get(), into.length().unwrap().get());
            assert_eq!(whole % part, 0, "{span:?}");
            assert!(span < into && span.age() < into.age(), "{span:?}");
        }
    }
}
