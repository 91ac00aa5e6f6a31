//! Copies of a store on the way to their names: the disk must have room for them, they never take
//! its last space, and those that a killed process left are removed.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use windlass_core::store::Cause;

use crate::make::directory_of;
use crate::reserve::{RESERVE, free};

/// Why there is no room for a copy of at most this many bytes at this path, if there is none.
pub fn no_room_for(path: &Path, bytes: u64) -> Option<Cause> {
    // A file system that cannot say is written until it refuses.
    let free = free(directory_of(path))?;
    let needed = bytes.saturating_add(RESERVE);
    let cause = || {
        Cause::new(&format!(
            "the copy takes up to {} MiB and the last {} MiB of a disk are left free, but the disk \
             of {} has {} MiB left; free some space, or copy to another disk",
            bytes.div_ceil(1 << 20),
            RESERVE >> 20,
            directory_of(path).display(),
            free >> 20,
        ))
    };
    (free < needed).then(cause)
}

/// Marks a copy as being written, until the file is closed: [`remove_leftovers`] leaves it.
pub fn hold(copy: &File) {
    // On a file system without locks, copies are swept by hand.
    let _ = flock(copy, FlockOperation::NonBlockingLockExclusive);
}

/// The end of the name of the journal with which SQLite writes a copy.
const JOURNAL: &str = "-journal";

/// Removes copies that a killed process left half-written, with their journals: files of a
/// directory whose names are the prefix and 16 hexadecimal digits, and that no process
/// [holds](hold). Returns the number of files.
pub fn remove_leftovers(dir: &Path, prefix: &str) -> usize {
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    let is_copy = |name: &str| {
        let digits = name.strip_prefix(prefix).unwrap_or_default();
        digits.len() == 16 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let files = entries.filter_map(|entry| {
        let entry =
            entry.ok().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()))?;
        let name = entry.file_name();
        let copy = name.to_str().map(|name| name.strip_suffix(JOURNAL).unwrap_or(name))?;
        is_copy(copy).then(|| (entry.path(), dir.join(copy)))
    });
    files.filter(|(file, copy)| remove_unless_held(file, copy)).count()
}

/// Removes a file of this copy; returns whether it did.
fn remove_unless_held(file: &Path, copy: &Path) -> bool {
    match File::open(copy) {
        Ok(held) => {
            let free = flock(&held, FlockOperation::NonBlockingLockExclusive).is_ok();
            free && fs::remove_file(file).is_ok()
        }
        Err(error) => error.kind() == ErrorKind::NotFound && fs::remove_file(file).is_ok(),
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::make_file;

    #[test]
    fn a_copy_is_refused_unless_the_disk_keeps_its_reserve() {
        let top = TempDir::new().expect("a directory");
        let path = top.path().join("copy");
        assert_eq!(no_room_for(&path, 1), None);
        let free = free(top.path()).expect("the disk says what is free");
        let cause = no_room_for(&path, free).expect("it would take the last byte").to_string();
        assert!(cause.contains("free some space"), "{cause}");
    }

    #[test]
    fn copies_that_no_process_holds_are_removed_and_nothing_else_is() {
        let top = TempDir::new().expect("a directory");
        let make = |name: &str| make_file(&top.path().join(name)).expect("it is made");
        let held = make(".backup-00000000000000aa");
        hold(&held);
        make(".backup-00000000000000ab");
        for journal in ["aa", "ab", "ad"] {
            make(&format!(".backup-00000000000000{journal}-journal"));
        }
        make(".backup-mine");
        make("jobs.db");
        fs::create_dir(top.path().join(".backup-00000000000000ac")).expect("it is made");
        // Of the copies, one is held, one is not, and of one only the journal is left.
        assert_eq!(remove_leftovers(top.path(), ".backup-"), 3);
        assert!(!top.path().join(".backup-00000000000000ab").exists());
        assert_eq!(fs::read_dir(top.path()).expect("it is read").count(), 5);
        drop(held);
        assert_eq!(remove_leftovers(top.path(), ".backup-"), 2);
        assert_eq!(remove_leftovers(&top.path().join("none"), ".backup-"), 0);
    }
}
