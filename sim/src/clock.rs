//! Clocks. True time is known to the world only. Processes read one wall clock with a small skew
//! each, as processes on one machine do, and a monotonic clock of their own. Where the store has
//! its own clock, that is the wall clock, and the skew of processes is hours.

use windlass_core::{Millis, Mono, Now, Wall};

/// The wall clock of the machine all processes run on.
#[derive(Debug, Default)]
pub struct WallClock {
    /// Sum of all steps, in ms.
    offset: i64,
    /// Temporary offset in ms, set by strobing, beside `offset`.
    wobble: i64,
    /// When it was last set, in true time.
    pub stepped: Option<u64>,
    /// When it was last set back, by steps or strobing, in true time.
    pub set_back: Option<u64>,
    /// Sum of the absolute lengths of all steps, in ms.
    pub moved: u64,
}

/// The wall clock when the world begins.
const BEGIN: i64 = 1_700_000_000_000;

impl WallClock {
    /// Steps the clock by `by` ms.
    pub fn step(&mut self, by: i64, at: u64) {
        self.offset += by;
        self.stepped = Some(at);
        self.set_back = if by < 0 { Some(at) } else { self.set_back };
        self.moved += by.unsigned_abs();
    }

    /// Sets the temporary offset.
    pub fn strobe(&mut self, by: i64, at: u64) {
        self.set_back = if by < self.wobble { Some(at) } else { self.set_back };
        self.wobble = by;
    }

    /// Milliseconds since the epoch at this true time, with offset and wobble.
    pub fn read(&self, at: u64) -> i64 {
        BEGIN + at.cast_signed() + self.offset + self.wobble
    }
}

/// The clocks of a process.
#[derive(Debug, Clone)]
pub struct ProcessClock {
    booted: u64,
    /// Difference of its reading from the wall clock, in ms.
    skew: i64,
    /// Rate error of its monotonic clock, in millionths; negative is too slow.
    drift: i64,
    /// Time for which its monotonic clock was stopped, in ms.
    slept: u64,
}

impl ProcessClock {
    /// The clocks of a process that boots now.
    pub fn new(booted: u64, skew: i64, drift: i64) -> Self {
        Self { booted, skew, drift, slept: 0 }
    }

    /// Stops the monotonic clock for `length` ms.
    pub fn sleep(&mut self, length: u64) {
        self.slept += length;
    }

    /// Ends a [`sleep`](Self::sleep) `sooner` ms before its end.
    pub fn wake(&mut self, sooner: u64) {
        self.slept = self.slept.saturating_sub(sooner);
    }

    /// Both readings at this true time.
    pub fn now(&self, wall: &WallClock, at: u64) -> Now {
        let read = wall.read(at) + self.skew;
        Now::new(Wall::new(read), Mono::new(self.mono(at)))
    }

    fn mono(&self, at: u64) -> u64 {
        let passed = at.saturating_sub(self.booted).saturating_sub(self.slept);
        let drifted = passed.cast_signed().saturating_mul(self.drift) / 1_000_000;
        1_000 + passed.saturating_add_signed(drifted)
    }

    /// The true time at which its monotonic clock will read this, or a moment before.
    pub fn when(&self, mono: Mono, at: u64) -> u64 {
        let left = mono.since(Mono::new(self.mono(at))).get();
        let less = left / 1_000;
        at + if self.drift > 0 { (left - less).max(1) } else { left.max(1) }
    }
}

/// Detects steps of the wall clock as a process can: by the difference between two readings of both
/// its clocks.
#[derive(Debug, Clone, Copy, Default)]
pub struct StepDetector {
    /// The wall clock minus the monotonic one at the last reading; none before the first commit.
    apart: Option<i64>,
    /// When a reading last showed a step, in true time.
    pub step_seen: Option<u64>,
}

impl StepDetector {
    /// The first commit has read the clock: from here on steps show.
    pub fn begin(&mut self, read: Now) {
        self.apart.get_or_insert(apart(read));
    }

    /// Whether there was a first commit.
    pub fn has_begun(&self) -> bool {
        self.apart.is_some()
    }

    /// The clocks are read at this true time.
    pub fn read(&mut self, read: Now, at: u64) {
        let Some(before) = &mut self.apart else { return };
        let apart = apart(read);
        if before.abs_diff(apart) > CLOCK_PLAY.get() {
            self.step_seen = Some(at);
        }
        *before = apart;
    }

    /// When a step was last seen, as a commit at this true time has it: the batch, made when the
    /// wall clock read `made`, says what the store's clock should read, and the commit compares.
    pub fn step_seen_by_commit(&self, made: Wall, read: Wall, at: u64) -> Option<u64> {
        let differs = self.has_begun() && made.distance(read) > CLOCK_PLAY;
        if differs { Some(at) } else { self.step_seen }
    }
}

fn apart(read: Now) -> i64 {
    read.wall.get() - read.mono.get().cast_signed()
}

/// Largest difference of two readings of the wall clock without a step: the skew of two processes,
/// the wobble, and the smallest step that is detected.
pub const CLOCK_PLAY: Millis = Millis::new(1_000 + 2 * MAX_SKEW + 2 * MAX_WOBBLE);
/// The largest skew of processes on one machine, in ms.
pub const MAX_SKEW: u64 = 60;
/// The largest skew of processes whose store has its own clock, in ms.
pub const FAR_SKEW: u64 = 3 * 3_600_000;
/// The largest temporary offset, in ms.
pub const MAX_WOBBLE: u64 = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_moves_the_wall_clock_and_leaves_the_monotonic_one() {
        let mut wall = WallClock::default();
        let clock = ProcessClock::new(0, 0, 0);
        let before = clock.now(&wall, 10);
        wall.step(5_000, 10);
        let after = clock.now(&wall, 10);
        assert_eq!(after.wall.since(before.wall), Millis::seconds(5));
        assert_eq!(after.mono, before.mono);
    }

    #[test]
    fn a_step_is_seen_only_between_two_readings_after_the_first_commit() {
        let (mut wall, mut step_detector) = (WallClock::default(), StepDetector::default());
        let clock = ProcessClock::new(0, 0, 0);
        step_detector.read(clock.now(&wall, 10), 10);
        wall.step(5_000, 10);
        step_detector.read(clock.now(&wall, 20), 20);
        assert_eq!(
            (step_detector.has_begun(), step_detector.step_seen),
            (false, None),
            "before its first commit"
        );
        step_detector.begin(clock.now(&wall, 20));
        wall.step(-5_000, 30);
        wall.step(5_000, 31);
        step_detector.read(clock.now(&wall, 40), 40);
        assert_eq!(step_detector.step_seen, None, "set and set back between two readings");
        wall.step(2_000, 50);
        step_detector.read(clock.now(&wall, 60), 60);
        step_detector.read(clock.now(&wall, 70), 70);
        assert_eq!(step_detector.step_seen, Some(60));
    }

    #[test]
    fn a_clock_that_drifts_is_woken_no_later_than_it_wants() {
        let wall = WallClock::default();
        for drift in [-500, 0, 500] {
            let clock = ProcessClock::new(0, 0, drift);
            let wanted = Mono::new(101_000);
            let at = clock.when(wanted, 0);
            assert!(clock.now(&wall, at).mono.since(wanted) <= Millis::new(60), "{drift}");
        }
    }
}
