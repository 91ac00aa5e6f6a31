//! A database that no process has open, read without a lock: it has no WAL beside it. If a process
//! opens it during a read, pages may have changed under the read, so its result is not used.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use crate::error::OpenError;
use crate::files::beside;
use crate::open::{self, Place};

/// The file of a database as it was found without a WAL.
#[derive(Debug)]
pub(crate) struct Quiet {
    path: PathBuf,
    seen: Seen,
}

/// Device, number, length, and when it was written and changed last.
type Seen = (u64, u64, u64, (i64, i64), (i64, i64));

impl Quiet {
    /// The database at this path, if it has no WAL.
    fn of(path: &Path) -> Option<Self> {
        Some(Self { path: path.into(), seen: seen(path)? })
    }

    /// Whether no process has opened the database since.
    pub(crate) fn holds(&self) -> bool {
        seen(&self.path).is_some_and(|now| now == self.seen)
    }
}

fn seen(path: &Path) -> Option<Seen> {
    let file = fs::metadata(path).ok()?;
    let seen = (
        file.dev(),
        file.ino(),
        file.len(),
        (file.mtime(), file.mtime_nsec()),
        (file.ctime(), file.ctime_nsec()),
    );
    // After the file: a process makes the WAL before it changes the file.
    fs::symlink_metadata(beside(path, "-wal")).is_err().then_some(seen)
}

/// Opens a database that this process does not write: without locks if no process has it open.
pub(crate) fn open(place: &Place) -> Result<(Connection, Option<Quiet>), OpenError> {
    if let Some(quiet) = Quiet::of(&place.path) {
        let opened = open::read_only(place, true);
        if quiet.holds() {
            return Ok((opened?, Some(quiet)));
        }
    }
    Ok((open::read_only(place, false)?, None))
}
