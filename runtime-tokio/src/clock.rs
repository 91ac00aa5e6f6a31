//! Clocks: the system's, and one that tests move by hand.
//!
//! Everything in this crate that waits uses a [`Clock`], so a test can advance three days at once
//! with a [`ManualClock`]. The rules about time are in core; this file reads clocks and sleeps.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};
use tokio::sync::watch;
use windlass_core::{Millis, Mono, Now, Wall};

/// A future that is ready at a given instant.
pub type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A source of time, and a way to sleep by it.
pub trait Clock: Send + Sync + fmt::Debug + 'static {
    /// The wall clock and the monotonic clock, read together. The monotonic part never goes back.
    fn now(&self) -> Now;

    /// The monotonic clock in microseconds, for measuring durations.
    fn micros(&self) -> u64;

    /// How long a thread has to wait until `at`. `None` if the clock is moved by hand: the thread
    /// is then woken through [`notify`](Clock::notify).
    fn wait(&self, at: Mono) -> Option<Duration>;

    /// Sleeps until `at`.
    fn sleep(&self, at: Mono) -> Sleep;

    /// Registers a waker to be called each time the clock is moved by hand.
    fn notify(&self, waker: Waker) {
        drop(waker);
    }
}

/// The clocks of the operating system. On Linux the monotonic clock includes time in suspend, so
/// that a lease expires while the machine sleeps.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

#[cfg(target_os = "linux")]
const MONOTONIC: ClockId = ClockId::Boottime;
#[cfg(not(target_os = "linux"))]
const MONOTONIC: ClockId = ClockId::Monotonic;

impl Clock for SystemClock {
    fn now(&self) -> Now {
        let wall = millis(clock_gettime(ClockId::Realtime));
        let mono = millis(clock_gettime(MONOTONIC));
        Now::new(Wall::new(wall), Mono::new(mono.unsigned_abs()))
    }

    fn micros(&self) -> u64 {
        let Timespec { tv_sec, tv_nsec } = clock_gettime(MONOTONIC);
        tv_sec.saturating_mul(1_000_000).saturating_add(tv_nsec / 1_000).unsigned_abs()
    }

    fn wait(&self, at: Mono) -> Option<Duration> {
        // The clock has a resolution of 1 ms: add one, so as not to wake just before `at`.
        let left = at.since(self.now().mono);
        Some(Duration::from_millis(left.get()).saturating_add(Duration::from_millis(1)))
    }

    fn sleep(&self, at: Mono) -> Sleep {
        let clock = *self;
        Box::pin(async move {
            while clock.now().mono < at {
                let left = clock.wait(at).unwrap_or_default();
                tokio::time::sleep(left.min(LONGEST_SLEEP)).await;
            }
        })
    }
}

/// Timers of tokio stop while the machine is suspended: read the clock again after this time.
const LONGEST_SLEEP: Duration = Duration::from_mins(1);

fn millis(time: Timespec) -> i64 {
    time.tv_sec.saturating_mul(1_000).saturating_add(time.tv_nsec / 1_000_000)
}

/// A clock that changes only when a test moves it.
///
/// Clones share one time. Moving the clock wakes everything that sleeps by it.
///
/// ```
/// use std::time::Duration;
/// use windlass_runtime_tokio::{Clock, ManualClock};
///
/// let clock = ManualClock::new();
/// let before = clock.now();
/// clock.advance(Duration::from_secs(3 * 24 * 60 * 60));
/// assert_eq!(clock.now().wall.since(before.wall).get(), 3 * 24 * 60 * 60 * 1_000);
/// ```
#[derive(Debug, Clone)]
pub struct ManualClock {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    now: watch::Sender<Now>,
    wakers: Mutex<Vec<Waker>>,
}

impl ManualClock {
    /// A clock that starts on 1 January 2030, at noon.
    pub fn new() -> Self {
        Self::starting_at(Wall::new(1_893_499_200_000))
    }

    /// A clock that starts at this instant.
    pub fn starting_at(wall: Wall) -> Self {
        let now = watch::Sender::new(Now::new(wall, Mono::new(1)));
        Self { shared: Arc::new(Shared { now, wakers: Mutex::new(Vec::new()) }) }
    }

    /// Moves both clocks forward, and wakes everything that sleeps by this clock.
    ///
    /// It returns at once; to also wait until what fell due has run, use
    /// [`TestQueue::advance`](crate::testing::TestQueue::advance).
    pub fn advance(&self, time: Duration) {
        let by = Millis::new(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        self.change(|now| *now = Now::new(now.wall.plus(by), now.mono.plus(by)));
    }

    /// Steps the wall clock, as an operator or a time server would. The monotonic clock stays.
    pub fn set_wall(&self, wall: Wall) {
        self.change(|now| now.wall = wall);
    }

    fn change(&self, change: impl FnOnce(&mut Now)) {
        self.shared.now.send_modify(change);
        let wakers = self.wakers().clone();
        wakers.into_iter().for_each(Waker::wake);
    }

    fn wakers(&self) -> MutexGuard<'_, Vec<Waker>> {
        self.shared.wakers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Now {
        *self.shared.now.borrow()
    }

    fn micros(&self) -> u64 {
        self.now().mono.get().saturating_mul(1_000)
    }

    fn wait(&self, at: Mono) -> Option<Duration> {
        (at <= self.now().mono).then_some(Duration::ZERO)
    }

    fn sleep(&self, at: Mono) -> Sleep {
        let mut now = self.shared.now.subscribe();
        Box::pin(async move {
            // An error means that the clock was dropped: the instant never comes.
            if now.wait_for(|now| now.mono >= at).await.is_err() {
                std::future::pending::<()>().await;
            }
        })
    }

    fn notify(&self, waker: Waker) {
        self.wakers().push(waker);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_clock_reads_this_century_and_does_not_go_back() {
        let first = SystemClock.now();
        let second = SystemClock.now();
        assert!(first.wall > Wall::new(1_700_000_000_000), "{first:?}");
        assert!(second.mono >= first.mono);
        assert!(SystemClock.micros() / 1_000 >= second.mono.get());
    }

    #[test]
    fn a_wait_for_an_instant_never_ends_before_it() {
        let at = SystemClock.now().mono.plus(Millis::new(5));
        let wait = SystemClock.wait(at).expect("the system clock moves by itself");
        assert!(wait >= Duration::from_millis(5), "{wait:?}");
    }

    #[test]
    fn setting_the_wall_clock_lets_no_time_pass() {
        let clock = ManualClock::new();
        let before = clock.now();
        clock.set_wall(Wall::new(7));
        assert_eq!(clock.now(), Now::new(Wall::new(7), before.mono));
    }

    #[tokio::test]
    async fn a_sleep_by_a_manual_clock_ends_when_it_is_moved_far_enough_and_not_before() {
        let clock = ManualClock::new();
        let mut sleep = clock.sleep(clock.now().mono.plus(Millis::hours(1)));
        clock.advance(Duration::from_secs(3_599));
        assert!(!ends(&mut sleep).await);
        clock.advance(Duration::from_secs(1));
        assert!(ends(&mut sleep).await);
    }

    async fn ends(sleep: &mut Sleep) -> bool {
        tokio::select! { biased; () = sleep => true, () = std::future::ready(()) => false }
    }
}
