//! Putting another file in the place of a store that no process has open. The old one is kept, and
//! at every instant one of the two has the name, or none.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, fcntl_lock, flock};
use rustix::io::Errno;

use crate::copy::{hold, remove_leftovers};
use crate::make::{directory_of, make_file, sync_directory};

/// The names of files that are to replace a store, before a random number.
const REPLACING: &str = ".restore-";

/// What databases keep beside their file: the first goes with the old store, the others are made
/// again from it.
const BESIDE: [&str; 2] = ["-wal", "-shm"];

/// A store that no other process has open, as long as this lives.
#[derive(Debug)]
pub struct Alone {
    path: PathBuf,
    /// Holds the locks; `None` if there is no store.
    file: Option<File>,
}

impl Alone {
    /// Takes the locks that any store has on its file while it is open. `None` if another process
    /// has one of them. No store of this process may have the file open.
    pub fn take(path: &Path) -> io::Result<Option<Self>> {
        let path = path.to_path_buf();
        let file = match OpenOptions::new().read(true).write(true).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Some(Self { path, file: None }));
            }
            opened => opened?,
        };
        // SQLite locks bytes, redb the whole file.
        let exclusive = FlockOperation::NonBlockingLockExclusive;
        let locked = fcntl_lock(&file, exclusive).and_then(|()| flock(&file, exclusive));
        match locked {
            Ok(()) => Ok(Some(Self { path, file: Some(file) })),
            Err(Errno::AGAIN | Errno::ACCESS) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Puts a copy of `new` in the place of the store, for its owner alone, and syncs it. Returns
    /// where the old store is kept with its WAL; `None` if there was none. `id` must be new.
    pub fn replace(self, new: &Path, id: u64) -> io::Result<Option<PathBuf>> {
        let dir = directory_of(&self.path);
        remove_leftovers(dir, REPLACING);
        let part = dir.join(format!("{REPLACING}{id:016x}"));
        let replaced = copy(new, &part).and_then(|()| {
            let kept = self.keep_old(id)?;
            fs::rename(&part, &self.path)?;
            sync_directory(dir)?;
            Ok(kept)
        });
        if replaced.is_err() {
            let _ = fs::remove_file(&part);
        }
        replaced
    }

    /// Gives the old store a second name, then takes away what must not lie beside the new one.
    fn keep_old(&self, id: u64) -> io::Result<Option<PathBuf>> {
        let dir = directory_of(&self.path);
        let kept = with_end(&self.path, &format!(".before-restore-{id:016x}"));
        let wal = with_end(&self.path, BESIDE[0]);
        if self.file.is_some() {
            second_name(&self.path, &kept)?;
            if fs::symlink_metadata(&wal).is_ok() {
                second_name(&wal, &with_end(&kept, BESIDE[0]))?;
            }
            sync_directory(dir)?;
        }
        for end in BESIDE {
            match fs::remove_file(with_end(&self.path, end)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        // SQLite would apply the old WAL to the new file.
        sync_directory(dir)?;
        Ok(self.file.is_some().then_some(kept))
    }
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let mut file = make_file(to)?;
    hold(&file);
    io::copy(&mut File::open(from)?, &mut file)?;
    file.sync_all()
}

/// A path with more at its end.
fn with_end(path: &Path, end: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(end);
    name.into()
}

/// Gives a file a second name; where a file system knows no links, a new one.
fn second_name(path: &Path, name: &Path) -> io::Result<()> {
    fs::hard_link(path, name).or_else(|_| fs::rename(path, name))
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    #[test]
    fn the_old_store_is_kept_with_its_wal_and_nothing_of_it_lies_beside_the_new_one() {
        let top = TempDir::new().expect("a directory");
        let path = |name: &str| top.path().join(name);
        for name in ["jobs", "jobs-wal", "jobs-shm", "copy"] {
            fs::write(path(name), name).expect("it is written");
        }
        let alone = Alone::take(&path("jobs")).expect("it opens").expect("no process has it");
        let kept = alone.replace(&path("copy"), 7).expect("it works").expect("there was one");
        let read = |path: &Path| fs::read_to_string(path).expect("it is there");
        assert_eq!(read(&path("jobs")), "copy");
        assert_eq!(read(&kept), "jobs");
        assert_eq!(read(&with_end(&kept, "-wal")), "jobs-wal");
        assert!(!path("jobs-wal").exists() && !path("jobs-shm").exists());
        assert_eq!(fs::read_dir(top.path()).expect("it is read").count(), 4);
    }

    #[test]
    fn a_store_that_is_not_there_is_made_and_a_wal_without_a_store_is_removed() {
        let top = TempDir::new().expect("a directory");
        let path = |name: &str| top.path().join(name);
        fs::write(path("copy"), "copy").expect("it is written");
        fs::write(path("jobs-wal"), "stale").expect("it is written");
        let alone = Alone::take(&path("jobs")).expect("it opens").expect("no process has it");
        assert_eq!(alone.replace(&path("copy"), 7).expect("it works"), None);
        assert!(path("jobs").exists() && !path("jobs-wal").exists());
    }

    #[test]
    fn a_copy_that_cannot_be_read_changes_nothing() {
        let top = TempDir::new().expect("a directory");
        let path = |name: &str| top.path().join(name);
        fs::write(path("jobs"), "jobs").expect("it is written");
        let alone = Alone::take(&path("jobs")).expect("it opens").expect("no process has it");
        assert!(alone.replace(&path("none"), 7).is_err());
        assert_eq!(fs::read_dir(top.path()).expect("it is read").count(), 1);
    }
}
