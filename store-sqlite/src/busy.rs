//! Waiting for a lock that another connection holds.
//!
//! SQLite can only ask again. By itself it does so at ever longer intervals, up to a tenth of a
//! second, while whoever holds the lock is done in less than a millisecond: processes that share a
//! file would mostly sleep.

use std::thread;
use std::time::Duration;

use rusqlite::Connection;
use windlass_core::store::CommitPoint;

use crate::hook::Hook;

/// The first questions, while a commit of another is the likely reason.
const SOON: (u32, Duration) = (20, Duration::from_micros(100));
/// The questions after them.
const LATER: Duration = Duration::from_millis(1);

/// Has this connection wait for locks so long, and then give up.
pub(crate) fn wait_for_locks(conn: &mut Connection, patience: Duration) -> rusqlite::Result<()> {
    conn.busy_handler(Some(move |asked: i32| wait(asked, patience)))
}

/// The same; `hook` is called before each wait.
pub(crate) fn wait_for_locks_with(
    conn: &mut Connection,
    patience: Duration,
    hook: Hook,
) -> rusqlite::Result<()> {
    conn.busy_handler(Some(move |asked: i32| {
        hook.call(CommitPoint::Waiting);
        wait(asked, patience)
    }))
}

/// Waits after so many questions in vain; false once patience is at its end.
fn wait(asked: i32, patience: Duration) -> bool {
    let pause = next(asked.unsigned_abs(), patience);
    if let Some(pause) = pause {
        #[expect(clippy::disallowed_methods, reason = "SQLite tells nobody of a free lock")]
        thread::sleep(pause);
    }
    pause.is_some()
}

/// How long to wait after so many questions in vain; nothing once patience is at its end.
fn next(asked: u32, patience: Duration) -> Option<Duration> {
    let (soon, pause) = SOON;
    let waited = pause * asked.min(soon) + LATER * asked.saturating_sub(soon);
    let pause = if asked < soon { pause } else { LATER };
    (waited < patience).then(|| pause.min(patience.saturating_sub(waited)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_add_up_to_the_patience_and_no_more() {
        for patience in [Duration::ZERO, Duration::from_micros(250), Duration::from_millis(500)] {
            let pauses = (0..).map_while(|asked| next(asked, patience));
            assert_eq!(pauses.sum::<Duration>(), patience);
        }
        assert_eq!(next(0, LATER), Some(SOON.1));
        assert_eq!(next(u32::MAX, Duration::from_secs(5)), None);
    }
}
