//! The files of an open database: are they there, are they the same, may they be written?
//!
//! SQLite goes on writing into a file that was deleted or replaced, and commits would be
//! acknowledged that nobody finds again. So the files are looked at around every commit. They are
//! never opened for it: closing a file would drop the locks that SQLite holds on it.

use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use thiserror::Error;
use windlass_core::store::{Cause, CommitError, StoreError};

use crate::open::{self, Place};

/// What every database begins with, in bytes.
const HEADER: u64 = 512;

/// The path of a file that SQLite keeps beside a database.
pub(crate) fn beside(database: &Path, end: &str) -> PathBuf {
    let mut name = OsString::from(database);
    name.push(end);
    name.into()
}

/// What somebody did to the files.
#[derive(Debug, Error)]
pub(crate) enum Meddled {
    #[error("{0} was deleted or moved while it was in use")]
    Gone(PathBuf),
    #[error("{0} was replaced by another file while it was in use")]
    Replaced(PathBuf),
    #[error("{path} was cut from {before} to {now} bytes while it was in use")]
    Cut { path: PathBuf, before: u64, now: u64 },
    #[error("{0} was made read-only; make it writable again")]
    ReadOnly(PathBuf),
    #[error("cannot look at {path}: {source}")]
    Unseen { path: PathBuf, source: io::Error },
}

impl Meddled {
    /// Whether it can be undone without loss.
    fn can_pass(&self) -> bool {
        matches!(self, Self::ReadOnly(_) | Self::Unseen { .. })
    }

    /// Found before a commit: nothing was written.
    pub(crate) fn before_commit(&self) -> CommitError {
        let cause = Cause::new(&self.to_string());
        if self.can_pass() {
            return CommitError::Fatal { cause, outcomes: None };
        }
        CommitError::Corrupt(cause)
    }

    /// Found after a commit, which may be nowhere.
    pub(crate) fn after_commit(&self) -> Result<(), CommitError> {
        if self.can_pass() { Ok(()) } else { Err(self.before_commit()) }
    }

    /// Found while a store is not in use, or only read.
    pub(crate) fn of_read(&self) -> StoreError {
        let cause = Cause::new(&self.to_string());
        if self.can_pass() { StoreError::Busy(cause) } else { StoreError::Corrupt(cause) }
    }
}

/// The files of a database as they were when it was opened.
#[derive(Debug)]
pub(crate) struct Files {
    database: Watched,
    /// The log and the shared memory, which are there as long as anybody has the database open.
    others: [Watched; 2],
    /// How large the database was when it was last looked at, in bytes.
    size: u64,
}

#[derive(Debug)]
struct Watched {
    path: PathBuf,
    /// Device and number, which no two files share; none if there is no such file.
    identity: Option<(u64, u64)>,
}

impl Files {
    /// The files of a database that is open.
    pub(crate) fn of(path: &Path) -> Self {
        let size = fs::metadata(path).map_or(0, |found| found.len());
        let others = ["-wal", "-shm"].map(|end| Watched::new(beside(path, end)));
        Self { database: Watched::new(path.into()), others, size }
    }

    /// Looks at all files of a database that is open.
    pub(crate) fn check(&mut self, place: &Place) -> Result<(), Meddled> {
        self.check_database(place)?;
        self.others.iter().try_for_each(|file| file.find().map(drop))
    }

    /// Looks at the database alone, also if it is not open.
    pub(crate) fn check_database(&mut self, place: &Place) -> Result<(), Meddled> {
        let Some(found) = self.database.find()? else { return Ok(()) };
        let (before, now) = (self.size, found.len());
        // A database shrinks by itself, when free pages are given back.
        if now < before && !is_whole(place, now) {
            return Err(Meddled::Cut { path: place.path.clone(), before, now });
        }
        self.size = now;
        if found.permissions().readonly() {
            return Err(Meddled::ReadOnly(place.path.clone()));
        }
        Ok(())
    }
}

impl Watched {
    fn new(path: PathBuf) -> Self {
        let identity = fs::metadata(&path).ok().map(|found| (found.dev(), found.ino()));
        Self { path, identity }
    }

    /// The file, if it is the one that was there.
    fn find(&self) -> Result<Option<Metadata>, Meddled> {
        let Some(identity) = self.identity else { return Ok(None) };
        match fs::metadata(&self.path) {
            Ok(found) if (found.dev(), found.ino()) == identity => Ok(Some(found)),
            Ok(_) => Err(Meddled::Replaced(self.path.clone())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(Meddled::Gone(self.path.clone()))
            }
            Err(source) => Err(Meddled::Unseen { path: self.path.clone(), source }),
        }
    }
}

/// Whether a database of this size lacks nothing: pages may be in the log only.
fn is_whole(place: &Place, size: u64) -> bool {
    if size < HEADER {
        // Not to be opened: SQLite removes the log of an empty database.
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
