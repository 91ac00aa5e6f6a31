//! A WAL beside a file that it does not belong to: a copy was put in the place of a store by hand.
//! SQLite reads both as one database. What the files show is refused before they are opened; what
//! SQLite finds damaged is refused with the same advice.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use rusqlite::ErrorCode;

use crate::error::OpenError;
use crate::files::beside;
use crate::open::Place;

/// Held while a store is opened, until SQLite has the file: closing a file that was opened by other
/// means drops all locks of the process on it.
static OPENING: Mutex<()> = Mutex::new(());

/// Opens a store, and refuses one whose WAL belongs to another database.
pub(crate) fn checked<T>(
    place: &Place,
    open: impl FnOnce() -> Result<T, OpenError>,
) -> Result<T, OpenError> {
    if place.vfs.is_some() {
        // Its file may be in no directory.
        return open();
    }
    let _opening = OPENING.lock().unwrap_or_else(PoisonError::into_inner);
    refuse(&place.path)?;
    open().map_err(|error| match error {
        OpenError::Sqlite { path, source }
            if source.sqlite_error_code() == Some(ErrorCode::DatabaseCorrupt) && has_wal(&path) =>
        {
            stale(&path, &source.to_string())
        }
        other => other,
    })
}

/// The bytes of a header that say how the database is written: 2 with a WAL, 1 without.
const VERSIONS: [usize; 2] = [18, 19];

/// Refuses a copy that was never written with a WAL, as a backup makes it, if it has one. Not while
/// this process has the file open: then the WAL is its own, and the file must not be closed.
pub(crate) fn refuse(path: &Path) -> Result<(), OpenError> {
    if !has_wal(path) || is_open_here(path) {
        return Ok(());
    }
    let mut header = [0; 20];
    let mut read = || File::open(path)?.read_exact(&mut header);
    // If it cannot be read, opening it fails with the cause.
    if read().is_ok() && VERSIONS.iter().all(|at| header[*at] == 1) {
        return Err(stale(path, "it was never written with a WAL"));
    }
    Ok(())
}

fn stale(path: &Path, why: &str) -> OpenError {
    OpenError::StaleWal { path: path.display().to_string(), why: why.into() }
}

fn has_wal(path: &Path) -> bool {
    fs::metadata(beside(path, "-wal")).is_ok_and(|wal| wal.len() > 0)
}

/// Whether this process has the file open by any name, as far as the system tells.
fn is_open_here(path: &Path) -> bool {
    let (Ok(file), Ok(open)) = (fs::metadata(path), fs::read_dir("/dev/fd")) else { return false };
    open.flatten().any(|entry| {
        let other = fs::metadata(entry.path());
        other.is_ok_and(|other| (other.dev(), other.ino()) == (file.dev(), file.ino()))
    })
}
