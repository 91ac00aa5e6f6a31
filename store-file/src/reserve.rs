//! The last space on a disk is not for new jobs: those that are stored need it to be run.

use std::path::Path;

use windlass_core::store::{Batch, Cause, CommitError};

/// How many bytes of a disk new jobs leave free: more than a store writes, before it notices, to
/// put away what it has already taken.
pub(crate) const RESERVE: u64 = 32 * 1024 * 1024;

/// Refuses a batch that brings new jobs when the disk of this file has little space left.
pub fn leave_reserve(file: &Path, batch: &Batch) -> Result<(), CommitError> {
    if batch.enqueues.is_empty() {
        return Ok(());
    }
    short_of_space(file).map_or(Ok(()), |cause| Err(CommitError::Full(cause)))
}

/// Why the disk of this file has no space for new jobs, if it has none.
pub fn short_of_space(file: &Path) -> Option<Cause> {
    // A file system that cannot say is written until it refuses.
    let free = free(file)?;
    let cause = || {
        Cause::new(&format!(
            "the disk has {} MiB left, and the last {} MiB are kept for jobs that are stored \
             already",
            free >> 20,
            RESERVE >> 20,
        ))
    };
    (free < RESERVE).then(cause)
}

/// The free and all bytes of the file system of this file; `None` if it cannot be asked.
pub fn free(file: &Path) -> Option<u64> {
    Some(space(file)?.free)
}

/// The disk of this file, if the file system says.
pub fn space(file: &Path) -> Option<Space> {
    let disk = rustix::fs::statvfs(file).ok()?;
    let bytes = |blocks: u64| blocks.saturating_mul(disk.f_frsize);
    Some(Space { free: bytes(disk.f_bavail), total: bytes(disk.f_blocks) })
}

/// A disk in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Left for processes without privileges.
    pub free: u64,
    /// The size of the file system, reserved blocks included.
    pub total: u64,
}
