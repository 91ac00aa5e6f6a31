//! Waiting for a lock that another connection holds.
//!
//! SQLite can only try again. By itself it does so at growing intervals, up to a tenth of a second,
//! while a commit of another process takes less than a millisecond: processes that share a file
//! would mostly sleep.

use std::cell::Cell;
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode};
use windlass_core::Millis;

use crate::hook;

/// Number of the first tries, which expect a commit of another process, and the pause after each.
const SOON: (u32, Duration) = (20, Duration::from_micros(100));
/// The pause after each later try.
const LATER: Duration = Duration::from_millis(1);

thread_local! {
    /// Whether a connection of this thread has waited for a lock since this was last reset.
    static WAITED: Cell<bool> = const { Cell::new(false) };
}

/// Does something that may wait for a lock, and returns how long it took if it had to wait.
pub(crate) fn timed<T>(act: impl FnOnce() -> T) -> (T, Millis) {
    WAITED.set(false);
    #[expect(clippy::disallowed_methods, reason = "only the store knows how long it waited")]
    let started = Instant::now();
    let done = act();
    let waited = if WAITED.get() { started.elapsed() } else { Duration::ZERO };
    (done, Millis::new(u64::try_from(waited.as_millis()).unwrap_or(u64::MAX)))
}

/// How long a connection waits for a lock before it gives up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LockWait {
    /// Not at all.
    None,
    /// 500 ms, for readers of the WAL.
    Readers,
    /// 1 s, until all other connections are closed.
    Exclusive,
    /// 5 s, for the transaction of another process.
    Writer,
}

impl LockWait {
    /// Makes a connection wait this long. The handler is a plain function without state.
    pub(crate) fn set(self, conn: &Connection) -> rusqlite::Result<()> {
        conn.busy_handler(match self {
            Self::None => None,
            Self::Readers => Some(wait::<500>),
            Self::Exclusive => Some(wait::<1_000>),
            Self::Writer => Some(wait::<5_000>),
        })
    }
}

/// Does something again while it ends with a busy error for which SQLite calls no handler, for up
/// to 5 s: two connections that both read cannot both go on to write, so SQLite fails one at once.
pub(crate) fn retried<T>(mut act: impl FnMut() -> rusqlite::Result<T>) -> rusqlite::Result<T> {
    let mut tried = 0;
    loop {
        match act() {
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                    && wait::<5_000>(tried) =>
            {
                tried = tried.saturating_add(1);
            }
            done => return done,
        }
    }
}

/// Waits after this many failed tries; false once the pauses add up to `MILLIS`.
fn wait<const MILLIS: u64>(tried: i32) -> bool {
    WAITED.set(true);
    hook::waiting();
    let pause = next(tried.unsigned_abs(), Duration::from_millis(MILLIS));
    if let Some(pause) = pause {
        #[expect(clippy::disallowed_methods, reason = "SQLite does not announce a free lock")]
        thread::sleep(pause);
    }
    pause.is_some()
}

/// The pause after this many failed tries; `None` once the pauses add up to `limit`.
fn next(tried: u32, limit: Duration) -> Option<Duration> {
    let (soon, pause) = SOON;
    let waited = pause * tried.min(soon) + LATER * tried.saturating_sub(soon);
    let pause = if tried < soon { pause } else { LATER };
    (waited < limit).then(|| pause.min(limit.saturating_sub(waited)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_add_up_to_the_limit_and_no_more() {
        for limit in [Duration::ZERO, Duration::from_micros(250), Duration::from_millis(500)] {
            let pauses = (0..).map_while(|tried| next(tried, limit));
            assert_eq!(pauses.sum::<Duration>(), limit);
        }
        assert_eq!(next(0, LATER), Some(SOON.1));
        assert_eq!(next(u32::MAX, Duration::from_secs(5)), None);
    }
}
