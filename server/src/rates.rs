//! How much was done in the last minute: one bucket per second, filled as things happen. Nothing
//! ticks, and nothing is scanned.

use windlass_core::Wall;

/// Seconds that are remembered.
const SECONDS: u16 = 60;

/// What happened in one second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    pub(crate) enqueued: u64,
    pub(crate) started: u64,
    pub(crate) done: u64,
    pub(crate) failed: u64,
}

/// The last minute.
#[derive(Debug)]
pub(crate) struct Minute {
    /// By second modulo their number: which second it is, and what happened.
    seconds: Box<[(i64, Sum); SECONDS as usize]>,
    since: Wall,
}

impl Minute {
    pub(crate) fn new(now: Wall) -> Self {
        Self { seconds: Box::new([(i64::MIN, Sum::default()); SECONDS as usize]), since: now }
    }

    /// What happens in this second.
    pub(crate) fn now(&mut self, now: Wall) -> &mut Sum {
        let second = now.get().div_euclid(1_000);
        let place = usize::try_from(second.rem_euclid(SECONDS.into())).unwrap_or(0);
        let bucket = &mut self.seconds[place];
        if bucket.0 != second {
            *bucket = (second, Sum::default());
        }
        &mut bucket.1
    }

    /// What happened in the last minute, and over how many milliseconds that is.
    pub(crate) fn sum(&self, now: Wall) -> (Sum, u64) {
        let second = now.get().div_euclid(1_000);
        let recent = second - i64::from(SECONDS) + 1..=second;
        let mut sum = Sum::default();
        for (_, one) in self.seconds.iter().filter(|(second, _)| recent.contains(second)) {
            sum.enqueued += one.enqueued;
            sum.started += one.started;
            sum.done += one.done;
            sum.failed += one.failed;
        }
        // The present second is not over yet.
        let window = (u64::from(SECONDS) - 1) * 1_000 + now.get().rem_euclid(1_000).cast_unsigned();
        (sum, window.min(now.since(self.since).get()).max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happened_more_than_a_minute_ago_does_not_count() {
        let mut minute = Minute::new(Wall::new(0));
        for second in 0..200 {
            minute.now(Wall::new(second * 1_000)).done += 2;
        }
        let (sum, window) = minute.sum(Wall::new(199_500));
        assert_eq!((sum.done, window), (120, 59_500));
        let (sum, _) = minute.sum(Wall::new(229_000));
        assert_eq!(sum.done, 60);
        assert_eq!(minute.sum(Wall::new(400_000)).0, Sum::default());
    }

    #[test]
    fn a_start_a_moment_ago_is_the_window() {
        let mut minute = Minute::new(Wall::new(10_000));
        minute.now(Wall::new(10_500)).enqueued += 3;
        assert_eq!(minute.sum(Wall::new(12_000)).1, 2_000);
        assert_eq!(minute.sum(Wall::new(10_000)).1, 1, "never by nothing");
    }

    #[test]
    fn a_clock_that_was_set_back_loses_figures_and_nothing_else() {
        let mut minute = Minute::new(Wall::new(1_000_000));
        minute.now(Wall::new(1_000_000)).done += 1;
        let (sum, window) = minute.sum(Wall::new(-5_000));
        assert_eq!((sum.done, window), (0, 1));
    }
}
