//! A file in use: is it there, is it the same, may it be written?
//!
//! A database goes on writing into a file that was deleted or replaced, and commits would be
//! acknowledged that nobody finds again. So the files are looked at around every commit. They are
//! never opened for it: closing a file drops the locks that the process holds on it.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use thiserror::Error;
use windlass_core::store::{Cause, CommitError, StoreError};

/// What somebody did to a file.
#[derive(Debug, Error)]
pub enum Meddled {
    /// It has no such name any more.
    #[error("{0} was deleted or moved while it was in use")]
    Gone(PathBuf),
    /// Its name stands for another file.
    #[error("{0} was replaced by another file while it was in use")]
    Replaced(PathBuf),
    /// It is shorter than it was left.
    #[error("{path} was cut from {before} to {now} bytes while it was in use")]
    Cut {
        /// Which.
        path: PathBuf,
        /// Its size as it was left.
        before: u64,
        /// Its size as it was found.
        now: u64,
    },
    /// It may not be written.
    #[error("{0} was made read-only; make it writable again")]
    ReadOnly(PathBuf),
    /// It cannot be looked at.
    #[error("cannot look at {path}: {source}")]
    Unseen {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl Meddled {
    /// Whether it can be undone without loss.
    fn can_pass(&self) -> bool {
        matches!(self, Self::ReadOnly(_) | Self::Unseen { .. })
    }

    /// Found before a commit: nothing was written.
    pub fn before_commit(&self) -> CommitError {
        let cause = Cause::new(&self.to_string());
        if self.can_pass() {
            return CommitError::Fatal { cause, outcomes: None };
        }
        CommitError::Corrupt(cause)
    }

    /// Found after a commit, which may be nowhere.
    pub fn after_commit(&self) -> Result<(), CommitError> {
        if self.can_pass() { Ok(()) } else { Err(self.before_commit()) }
    }

    /// Found while a store is not in use, or only read.
    pub fn of_read(&self) -> StoreError {
        let cause = Cause::new(&self.to_string());
        if self.can_pass() { StoreError::Busy(cause) } else { StoreError::Corrupt(cause) }
    }
}

/// A file as it was when it was opened.
#[derive(Debug)]
pub struct Watched {
    path: PathBuf,
    /// Device and number, which no two files share; none if there was no such file.
    identity: Option<(u64, u64)>,
}

impl Watched {
    /// A file as it is now.
    pub fn new(path: PathBuf) -> Self {
        let identity = fs::metadata(&path).ok().map(|found| (found.dev(), found.ino()));
        Self { path, identity }
    }

    /// The file, if it is the one that was there; none if there was no such file.
    pub fn find(&self) -> Result<Option<Metadata>, Meddled> {
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

    /// Whether the file that was found may be written.
    pub fn check_writable(&self, found: &Metadata) -> Result<(), Meddled> {
        if found.permissions().readonly() {
            return Err(Meddled::ReadOnly(self.path.clone()));
        }
        Ok(())
    }

    /// That the file that was found is not as long as it was left.
    pub fn cut(&self, before: u64, found: &Metadata) -> Meddled {
        Meddled::Cut { path: self.path.clone(), before, now: found.len() }
    }
}
