//! The data structures shared between threads and tasks, small enough for loom models. Each is a
//! mutex around plain data; wakers are called after the lock is released.
//!
//! `Mutex` and `Condvar` are those of std, or of loom under `cfg(windlass_loom)`. This module does
//! not use the rest of the crate, so that `sim/tests/loom.rs` can include it unchanged.

mod mailbox;
mod outbox;
mod reply;
mod slots;

pub(crate) use mailbox::{Admission, Mailbox, NotAdmitted, Weight};
pub(crate) use outbox::Outbox;
pub(crate) use reply::Reply;
pub(crate) use slots::Slots;

use std::sync::PoisonError;

#[cfg(not(windlass_loom))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};

#[cfg(windlass_loom)]
pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard};

/// Locks, ignoring poison. No foreign code runs under these locks, so the data behind a poisoned
/// one is consistent.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
