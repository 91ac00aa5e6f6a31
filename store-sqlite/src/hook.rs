//! A hook that tests set on a handle to stop its commits at certain points.
//!
//! SQLite calls a busy handler on the thread that waits, so the hook of that thread is the one to
//! call from there.

use std::cell::RefCell;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use windlass_core::store::CommitPoint;

/// Is called at points inside [`commit`](windlass_core::store::Store::commit).
#[derive(Clone)]
pub(crate) struct Hook(Arc<Mutex<dyn FnMut(CommitPoint) + Send>>);

thread_local! {
    static WHILE_WAITING: RefCell<Option<Hook>> = const { RefCell::new(None) };
}

impl Hook {
    pub(crate) fn new(hook: impl FnMut(CommitPoint) + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(hook)))
    }

    pub(crate) fn call(&self, point: CommitPoint) {
        let mut hook = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        hook(point);
    }

    /// Calls this hook before each wait for a lock on this thread, until the guard is dropped.
    pub(crate) fn while_waiting(&self) -> Watched {
        WHILE_WAITING.with_borrow_mut(|hook| *hook = Some(self.clone()));
        Watched
    }
}

/// Removes the hook of this thread when it is dropped.
#[must_use]
pub(crate) struct Watched;

impl Drop for Watched {
    fn drop(&mut self) {
        WHILE_WAITING.with_borrow_mut(|hook| *hook = None);
    }
}

/// Calls the hook of this thread, if it has one, before a wait for a lock.
pub(crate) fn waiting() {
    let hook = WHILE_WAITING.with_borrow(Clone::clone);
    if let Some(hook) = hook {
        hook.call(CommitPoint::Waiting);
    }
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hook")
    }
}
