//! Rates: how many jobs may start per period, over all processes.
//!
//! The generic cell rate algorithm (GCRA). Its only state is one instant, the theoretical arrival
//! time: when the starts so far would be over if they were evenly spaced. It runs ahead of the
//! clock by the burst at most, so any window of length `w` holds at most `burst + w × limit / per`
//! starts.

use crate::limits::{CLOCK_STEP, MAX_BACKOFF};
use crate::{Millis, OutOfRange, RateBurst, RateLimit, RatePeriod, Wall};

/// How many jobs may start per period.
///
/// ```
/// use windlass_core::{Rate, Tat, Wall};
/// let rate = Rate::new(2, 1_000, None).unwrap();
/// let now = Wall::new(0);
/// let after_two = rate.take(rate.take(Tat::default(), now), now);
/// assert_eq!(rate.room(after_two, now), 0);
/// assert_eq!(rate.opens_at(after_two, now), Wall::new(500));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Number of starts per period.
    pub limit: RateLimit,
    /// The period.
    pub per: RatePeriod,
    /// Number of starts at once after a pause, but no more than a year earns; `None` for one
    /// second's worth, at least one.
    pub burst: Option<RateBurst>,
}

/// The theoretical arrival time of a rate, in nanoseconds since the Unix epoch. A rate that was
/// never used has the least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tat(i64);

impl Default for Tat {
    fn default() -> Self {
        Self(i64::MIN)
    }
}

impl Tat {
    /// The instant this many nanoseconds after the Unix epoch.
    pub const fn new(nanos: i64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the Unix epoch.
    pub const fn get(self) -> i64 {
        self.0
    }
}

const NANOS_PER_MILLI: i128 = 1_000_000;

impl Rate {
    /// A rate of `limit` starts per `per_ms` milliseconds.
    pub fn new(limit: u32, per_ms: u64, burst: Option<u32>) -> Result<Self, OutOfRange> {
        let (limit, per) = (RateLimit::new(limit)?, RatePeriod::new(per_ms)?);
        Ok(Self { limit, per, burst: burst.map(RateBurst::new).transpose()? })
    }

    /// Number of starts at once after a pause.
    pub fn burst(&self) -> u32 {
        let second = u64::from(self.limit.get()) * 1_000 / self.per.get();
        let most = RateBurst::MAX.get();
        let second = u32::try_from(second).unwrap_or(most).clamp(1, most);
        self.burst.map_or(second, RateBurst::get)
    }

    /// Number of jobs that may start now.
    pub fn room(&self, tat: Tat, now: Wall) -> u64 {
        let room = (self.tolerance() - self.ahead(tat, now)) / self.interval();
        u64::try_from(room).unwrap_or(0)
    }

    /// The first instant at which a job may start.
    pub fn opens_at(&self, tat: Tat, now: Wall) -> Wall {
        self.opens_for(1, tat, now)
    }

    /// The instant at which to look again: when the jobs of some milliseconds may start together,
    /// so that a high rate does not cost a commit per job.
    pub fn look_again_at(&self, tat: Tat, now: Wall) -> Wall {
        let pause = i128::from(LOOK_AGAIN.get()) * NANOS_PER_MILLI;
        let starts = (pause / self.interval()).clamp(1, i128::from(self.burst()));
        self.opens_for(starts, tat, now)
    }

    /// The state after one start.
    #[must_use]
    pub fn take(&self, tat: Tat, now: Wall) -> Tat {
        let next = nanos(now) + self.ahead(tat, now) + self.interval();
        Tat(i64::try_from(next).unwrap_or(i64::MAX))
    }

    fn opens_for(&self, starts: i128, tat: Tat, now: Wall) -> Wall {
        let wait = self.ahead(tat, now) + starts * self.interval() - self.tolerance();
        let millis = wait.max(0).div_euclid(NANOS_PER_MILLI)
            + i128::from(wait.max(0).rem_euclid(NANOS_PER_MILLI) > 0);
        now.plus(Millis::new(u64::try_from(millis).unwrap_or(u64::MAX)))
    }

    /// The time that one start takes up. Rounded up, so that the limit is never exceeded.
    fn interval(&self) -> i128 {
        let (per, limit) = (i128::from(self.per.get()), i128::from(self.limit.get()));
        (per * NANOS_PER_MILLI + limit - 1) / limit
    }

    /// How far the state may be ahead of the clock: by the burst, but by no more than a year, which
    /// is far from the last instant that can be written.
    fn tolerance(&self) -> i128 {
        let burst = i128::from(self.burst()) * self.interval();
        burst.min(i128::from(MAX_BACKOFF.get()) * NANOS_PER_MILLI)
    }

    /// How far the state is ahead of the clock, no further than it may be. One that is much further
    /// ahead was written before the clock was set back, or under another rate: it counts as never
    /// used, since it would keep jobs waiting for as long as the clock was set back.
    fn ahead(&self, tat: Tat, now: Wall) -> i128 {
        let ahead = i128::from(tat.0) - nanos(now);
        let step = i128::from(CLOCK_STEP.get()) * NANOS_PER_MILLI;
        if ahead > self.tolerance() + step { 0 } else { ahead.clamp(0, self.tolerance()) }
    }
}

/// See [`Rate::look_again_at`].
const LOOK_AGAIN: Millis = Millis::new(10);

fn nanos(at: Wall) -> i128 {
    i128::from(at.get()) * NANOS_PER_MILLI
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn rate(limit: u32, per: u64, burst: Option<u32>) -> Rate {
        Rate::new(limit, per, burst).expect("it is in bounds")
    }

    /// Starts as many as may, at each of these instants.
    fn starts(rate: Rate, instants: impl Iterator<Item = i64>) -> Vec<i64> {
        let (mut tat, mut all) = (Tat::default(), Vec::new());
        for at in instants {
            let now = Wall::new(at);
            let room = rate.room(tat, now);
            for left in (0..room).rev() {
                tat = rate.take(tat, now);
                assert_eq!(rate.room(tat, now), left, "{rate:?} at {at}");
                all.push(at);
            }
        }
        all
    }

    #[test]
    fn no_window_holds_more_starts_than_the_burst_and_what_it_earns() {
        for (limit, per, burst) in
            [(3, 1_000, None), (1_000, 1_000, Some(5)), (7, 60_000, Some(2)), (1, 86_400_000, None)]
        {
            let rate = rate(limit, per, burst);
            for every in [1_usize, 13, 999] {
                let all = starts(rate, (0..60_000).step_by(every));
                for (first, from) in all.iter().enumerate().step_by(17) {
                    for (last, to) in all.iter().enumerate().skip(first).step_by(29) {
                        let window = u64::try_from(to - from).expect("it grows");
                        let earned = (window * u64::from(limit)).div_ceil(per);
                        let most = u64::from(rate.burst()) + earned;
                        let held = (last - first + 1) as u64;
                        assert!(held <= most, "{held} of {most} in {window} ms, {rate:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_rate_that_is_looked_at_when_it_says_so_is_used_up() {
        for (limit, per, burst) in
            [(1_000, 1_000, None), (1_000, 1_000, Some(1)), (30, 60_000, None)]
        {
            let rate = rate(limit, per, burst);
            let (mut tat, mut now, mut count) = (Tat::default(), Wall::new(0), 0_u64);
            while now < Wall::new(120_000) {
                let room = rate.room(tat, now);
                for _ in 0..room {
                    tat = rate.take(tat, now);
                }
                count += room;
                let next = rate.look_again_at(tat, now);
                assert!(next > now && rate.opens_at(tat, now) <= next);
                assert!(rate.room(tat, next) > 0, "{rate:?} has room when it says so");
                now = next;
            }
            let earned = 120_000 * u64::from(limit) / per;
            assert!(count >= earned && count <= earned + u64::from(rate.burst()) + 12, "{count}");
        }
    }

    #[test]
    fn a_clock_that_is_set_back_lets_a_burst_start_and_holds_nothing_up() {
        let rate = rate(10, 1_000, Some(5));
        let tat = starts_at(rate, 1_000_000, 5);
        let room = |at| rate.room(tat, Wall::new(at));
        assert_eq!((room(1_000_000), room(1_000_100), room(1_000_500)), (0, 1, 5));
        assert_eq!(room(999_500), 0, "a small step back opens nothing");
        assert_eq!(room(998_900), 5, "a large one would keep it closed for too long");
        let after = rate.take(tat, Wall::new(998_900));
        assert_eq!(rate.room(after, Wall::new(998_900)), 4);
    }

    fn starts_at(rate: Rate, at: i64, count: usize) -> Tat {
        (0..count).fold(Tat::default(), |tat, _| rate.take(tat, Wall::new(at)))
    }

    #[test]
    fn no_instant_overflows() {
        let rate = rate(1, 86_400_000, Some(1_000_000));
        for at in [i64::MIN, -1, 0, i64::MAX] {
            let now = Wall::new(at);
            for tat in [Tat::default(), Tat::new(0), Tat::new(i64::MAX)] {
                assert!(rate.room(tat, now) <= 365 && rate.opens_at(tat, now) >= now);
                assert!(rate.look_again_at(rate.take(tat, now), now) >= now);
            }
        }
        let all = starts(rate, (0..3).map(|hour| hour * 3_600_000));
        assert_eq!(all.len(), 365, "what a year earns, and then one a day");
    }

    #[test]
    fn the_default_burst_is_one_second_s_worth_and_at_least_one() {
        assert_eq!(rate(100, 1_000, None).burst(), 100);
        assert_eq!(rate(100, 60_000, None).burst(), 1);
        assert_eq!(rate(1_000_000, 1, None).burst(), RateBurst::MAX.get());
    }
}
