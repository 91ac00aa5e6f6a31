//! A file in use: is it there, is it the same, may it be written?
//!
//! A database goes on writing into a file that was deleted or replaced, and commits would be
//! acknowledged that cannot be found again. So the files are checked around every commit. They are
//! never opened for it: closing a file drops the locks that the process holds on it.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use thiserror::Error;
use windlass_core::store::{Cause, CommitError, StoreError};

/// What was done to a file in use.
#[derive(Debug, Error)]
pub enum FileChanged {
    /// It has no such name any more.
    #[error("{0} was deleted or moved while it was in use")]
    Gone(PathBuf),
    /// Its name refers to another file.
    #[error("{0} was replaced by another file while it was in use")]
    Replaced(PathBuf),
    /// It is shorter than it was left.
    #[error("{path} was cut from {before} to {now} bytes while it was in use")]
    Cut {
        /// The file.
        path: PathBuf,
        /// Its size as it was left.
        before: u64,
        /// Its size as it was found.
        now: u64,
    },
    /// It may not be written.
    #[error("{0} was made read-only; make it writable again")]
    ReadOnly(PathBuf),
    /// Its metadata cannot be read.
    #[error("cannot read the metadata of {path}: {source}")]
    Unseen {
        /// The file.
        path: PathBuf,
        /// The error of the file system.
        source: io::Error,
    },
}

impl FileChanged {
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

/// A file as it is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileState {
    /// Device and number, which no two files share.
    identity: (u64, u64),
    /// How long it is, in bytes.
    pub len: u64,
    writable: bool,
}

impl FileState {
    /// Looks at a file, but not at its times: on Linux, a file whose times were asked for gets new
    /// ones with its next write, and the sync of that write has to write them too. That made every
    /// commit a quarter slower.
    #[cfg(target_os = "linux")]
    pub fn of(path: &Path) -> io::Result<Self> {
        use rustix::fs::{AtFlags, CWD, StatxFlags, makedev, statx};
        use rustix::io::Errno;

        let wanted = StatxFlags::INO | StatxFlags::MODE | StatxFlags::SIZE;
        match statx(CWD, path, AtFlags::empty(), wanted) {
            Ok(found) => Ok(Self {
                identity: (makedev(found.stx_dev_major, found.stx_dev_minor), found.stx_ino),
                len: found.stx_size,
                writable: u32::from(found.stx_mode) & ANYBODY_WRITES != 0,
            }),
            // A kernel, or a sandbox, that does not know the call.
            Err(Errno::NOSYS | Errno::PERM) => Self::with_times(path),
            Err(error) => Err(error.into()),
        }
    }

    /// Looks at a file.
    #[cfg(not(target_os = "linux"))]
    pub fn of(path: &Path) -> io::Result<Self> {
        Self::with_times(path)
    }

    fn with_times(path: &Path) -> io::Result<Self> {
        let found = fs::metadata(path)?;
        Ok(Self {
            identity: (found.dev(), found.ino()),
            len: found.len(),
            writable: found.mode() & ANYBODY_WRITES != 0,
        })
    }
}

/// The bits of a mode that let its owner, its group or others write.
const ANYBODY_WRITES: u32 = 0o222;

/// A file as it was when it was opened.
#[derive(Debug)]
pub struct Watched {
    path: PathBuf,
    /// None if there was no such file.
    identity: Option<(u64, u64)>,
}

impl Watched {
    /// A file as it is now.
    pub fn new(path: PathBuf) -> Self {
        let identity = FileState::of(&path).ok().map(|found| found.identity);
        Self { path, identity }
    }

    /// The file, if it is the one that was there; none if there was no such file.
    pub fn find(&self) -> Result<Option<FileState>, FileChanged> {
        let Some(identity) = self.identity else { return Ok(None) };
        match FileState::of(&self.path) {
            Ok(found) if found.identity == identity => Ok(Some(found)),
            Ok(_) => Err(FileChanged::Replaced(self.path.clone())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(FileChanged::Gone(self.path.clone()))
            }
            Err(source) => Err(FileChanged::Unseen { path: self.path.clone(), source }),
        }
    }

    /// Whether the file that was found may be written.
    pub fn check_writable(&self, found: FileState) -> Result<(), FileChanged> {
        if !found.writable {
            return Err(FileChanged::ReadOnly(self.path.clone()));
        }
        Ok(())
    }

    /// That the file that was found is not as long as it was left.
    pub fn cut(&self, before: u64, found: FileState) -> FileChanged {
        FileChanged::Cut { path: self.path.clone(), before, now: found.len }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_is_seen_does_not_depend_on_how_it_is_looked_at() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("file");
        assert_eq!(
            FileState::of(&path).map_err(|error| error.kind()),
            Err(io::ErrorKind::NotFound)
        );
        for (text, mode, writable) in [("", 0o600, true), ("four", 0o400, false)] {
            fs::write(&path, text).expect("it is written");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("it is ours");
            let seen = FileState::of(&path).expect("it is there");
            assert_eq!(seen, FileState::with_times(&path).expect("it is there"));
            assert_eq!((seen.len, seen.writable), (text.len() as u64, writable));
        }
    }
}
