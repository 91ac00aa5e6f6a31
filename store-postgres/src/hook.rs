//! A hook that tests set on a handle to stop its commits at certain points.
//!
//! That a statement waits for a lock is asked of the server through a connection of its own.

use std::fmt;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use windlass_core::store::CommitPoint;

use crate::open::Opener;
use crate::session::params;

/// Is called at points inside [`commit`](windlass_core::store::Store::commit).
#[derive(Clone)]
pub(crate) struct Hook {
    call: Arc<Mutex<dyn FnMut(CommitPoint) + Send>>,
    /// Asks whether the server process with this number waits.
    asked: Sender<(i32, Sender<bool>)>,
}

impl Hook {
    pub(crate) fn new(opener: Opener, hook: impl FnMut(CommitPoint) + Send + 'static) -> Self {
        let (asked, questions) = channel::<(i32, Sender<bool>)>();
        thread::spawn(move || {
            let Ok(mut session) = opener.session() else { return };
            let sql = "SELECT 1 FROM pg_stat_activity WHERE pid = $1 AND wait_event_type = 'Lock'";
            while let Ok((pid, answer)) = questions.recv() {
                let waits = session.query(sql, params![pid]).is_ok_and(|rows| !rows.is_empty());
                // One that no longer listens has its answer.
                let _ = answer.send(waits);
            }
        });
        Self { call: Arc::new(Mutex::new(hook)), asked }
    }

    pub(crate) fn call(&self, point: CommitPoint) {
        let mut hook = self.call.lock().unwrap_or_else(PoisonError::into_inner);
        hook(point);
    }

    /// Calls the hook if this server process waits for a lock.
    pub(crate) fn check(&self, pid: i32) {
        let (answer, waits) = channel();
        if self.asked.send((pid, answer)).is_ok() && waits.recv() == Ok(true) {
            self.call(CommitPoint::Waiting);
        }
    }
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hook")
    }
}
