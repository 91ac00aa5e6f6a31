//! The pieces where threads and tasks meet, small enough to be modelled: every one of them is a
//! mutex around plain data, with wakers that are called after the lock is given up.
//!
//! The facade is the standard library, or loom under `cfg(windlass_loom)`. Nothing in here knows
//! the rest of the crate, so that `sim/tests/loom.rs` can take it as it is.

mod mailbox;
mod outbox;
mod reply;
mod slots;

pub(crate) use mailbox::{Admission, Mailbox, NoEntry, Weight};
pub(crate) use outbox::Outbox;
pub(crate) use reply::Reply;
pub(crate) use slots::Slots;

use std::sync::PoisonError;

#[cfg(not(windlass_loom))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};

#[cfg(windlass_loom)]
pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard};

/// Locks. Nobody who holds one of these locks runs anybody else's code, so a poisoned lock still
/// guards whole data.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
