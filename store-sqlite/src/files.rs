//! The files of an open database, looked at around every commit: see `windlass-store-file`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use windlass_store_file::{FileChanged, FileState, Watched};

use crate::open::{self, Place};

/// What every database begins with, in bytes.
const HEADER: u64 = 512;

/// The path of a file that SQLite keeps beside a database.
pub(crate) fn beside(database: &Path, end: &str) -> PathBuf {
    let mut name = OsString::from(database);
    name.push(end);
    name.into()
}

/// The files of a database as they were when it was opened.
#[derive(Debug)]
pub(crate) struct Files {
    database: Watched,
    /// The WAL and the shared memory, which exist as long as a process has the database open.
    others: [Watched; 2],
    /// How large the database was when it was last looked at, in bytes.
    size: u64,
}

impl Files {
    /// The files of a database that is open.
    pub(crate) fn of(path: &Path) -> Self {
        let size = FileState::of(path).map_or(0, |found| found.len);
        let others = ["-wal", "-shm"].map(|end| Watched::new(beside(path, end)));
        Self { database: Watched::new(path.into()), others, size }
    }

    /// Looks at all files of a database that is open.
    pub(crate) fn check(&mut self, place: &Place) -> Result<(), FileChanged> {
        self.check_database(place)?;
        self.others.iter().try_for_each(|file| file.find().map(drop))
    }

    /// Looks at the database alone, also if it is not open.
    pub(crate) fn check_database(&mut self, place: &Place) -> Result<(), FileChanged> {
        let Some(found) = self.database.find()? else { return Ok(()) };
        let (before, now) = (self.size, found.len);
        // A database shrinks by itself, when free pages are given back.
        if now < before && !is_whole(place, now) {
            return Err(self.database.cut(before, found));
        }
        self.size = now;
        self.database.check_writable(found)
    }
}

/// Whether a database of this size can be complete: pages may be in the WAL only.
fn is_whole(place: &Place, size: u64) -> bool {
    if size < HEADER {
        // Not to be opened: SQLite removes the WAL of an empty database.
        return false;
    }
    let Ok(conn) = open::reader(place) else { return false };
    let number = |sql: &str| conn.query_row(sql, [], |row| row.get::<_, i64>(0));
    let needed = number("PRAGMA page_count").and_then(|pages| {
        let page_size = number("PRAGMA page_size")?;
        Ok(pages.saturating_mul(page_size).cast_unsigned())
    });
    let checked = || conn.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0));
    needed.is_ok_and(|needed| needed <= size) || checked().is_ok_and(|found| found == "ok")
}
