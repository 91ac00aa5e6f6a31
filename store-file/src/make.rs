//! Making files and directories, for their owner alone, so that a power cut does not undo it.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// Makes a directory, and those above it, if they do not exist. Their names are durable then.
pub fn make_directory(dir: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = dir.ancestors().take_while(|dir| !exists(dir)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    missing.into_iter().try_for_each(|dir| sync_directory(directory_of(dir)))
}

/// Makes a file, which must not exist yet. Its name is durable once its directory was
/// [synced](sync_directory).
pub fn make_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)
}

/// Makes the names in a directory durable.
pub fn sync_directory(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// The directory in which a file lies.
pub fn directory_of(path: &Path) -> &Path {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    dir.unwrap_or(Path::new("."))
}

/// The empty path is what `ancestors` says for the directory one is in.
fn exists(dir: &Path) -> bool {
    dir.as_os_str().is_empty() || dir.exists()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use tempfile::TempDir;

    use super::*;

    #[test]
    fn directories_and_files_are_made_for_their_owner_alone() {
        let top = TempDir::new().expect("a directory");
        let dir = top.path().join("a").join("b");
        make_directory(&dir).expect("it is made");
        make_directory(&dir).expect("it is there already");
        make_file(&dir.join("f")).expect("it is made");
        let mode = |path: &Path| path.metadata().expect("it exists").permissions().mode() & 0o777;
        assert_eq!([dir.parent(), Some(&*dir)].map(|dir| mode(dir.expect("a path"))), [0o700; 2]);
        assert_eq!(mode(&dir.join("f")), 0o600);
    }

    #[test]
    fn a_file_that_exists_is_not_made_again() {
        let top = TempDir::new().expect("a directory");
        let path = top.path().join("f");
        std::fs::write(&path, "something").expect("it is written");
        let error = make_file(&path).expect_err("it exists");
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
    }

    #[test]
    fn a_file_without_a_directory_in_its_path_lies_where_one_is() {
        assert_eq!(directory_of(Path::new("jobs.db")), Path::new("."));
        assert_eq!(directory_of(Path::new("data/jobs.db")), Path::new("data"));
        make_directory(Path::new(".")).expect("one is somewhere");
    }
}
