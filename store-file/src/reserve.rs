//! The last space on a disk is not for new jobs: those that are stored need it to be run.

use std::path::Path;

use windlass_core::store::{Batch, Cause, CommitError};

/// How many bytes of a disk new jobs leave free: more than a store writes, before it notices, to
/// put away what it has already taken.
const RESERVE: u64 = 32 * 1024 * 1024;

/// Refuses a batch that brings new jobs when the disk of this file has little space left.
pub fn leave_reserve(file: &Path, batch: &Batch) -> Result<(), CommitError> {
    if batch.enqueues.is_empty() {
        return Ok(());
    }
    // A file system that cannot say is written until it refuses.
    let Ok(disk) = rustix::fs::statvfs(file) else { return Ok(()) };
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    if free >= RESERVE {
        return Ok(());
    }
    Err(CommitError::Full(Cause::new(&format!(
        "the disk has {} MiB left, and the last {} MiB are kept for jobs that are stored already",
        free >> 20,
        RESERVE >> 20,
    ))))
}
