//! `backup FILE`: a copy of the store as it is at one instant. It never overwrites, and a file of
//! that name is either absent or whole.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::Session;
use crate::client::Failure;
use crate::out::escaped;

/// Copy the store, as it is at one instant, to a file that does not exist yet.
///
/// Others may go on writing meanwhile. The copy is a store: open it with --store, or put it in the
/// place of the first one while nothing runs on it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windlass backup windlass-$(date +%F).db
  windlass --server http://127.0.0.1:8080 backup copy.db")]
pub(crate) struct BackupArgs {
    /// Where the copy is to lie.
    file: PathBuf,
}

pub(crate) async fn run(session: &mut Session, args: &BackupArgs) -> Result<ExitCode, Failure> {
    let file = &args.file;
    if file.symlink_metadata().is_ok() {
        return Err(exists(file));
    }
    let part = part_of(file)?;
    let result = session.client.backup(&part).await.and_then(|()| named(&part, file));
    if result.is_err() {
        // Half a copy is worse than none.
        let _ = std::fs::remove_file(&part);
    }
    let bytes = result?;
    let shown = file.display().to_string();
    if session.out.json {
        session.out.answer(json!({ "file": shown, "bytes": bytes }).to_string().as_bytes())?;
    } else {
        session.out.line(&format!("{} {bytes} bytes", escaped(&shown)))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn exists(file: &Path) -> Failure {
    let file = file.display();
    Failure::conflict(format!("{file} exists, and is not overwritten; choose another name"))
}

/// The name under which the copy grows.
fn part_of(file: &Path) -> Result<PathBuf, Failure> {
    let name = file.file_name().ok_or_else(|| Failure::usage("name a file for the copy"))?;
    let random = getrandom::u64().map_err(|error| Failure::failed(error.to_string()))?;
    let mut part = std::ffi::OsString::from(".");
    part.push(name);
    part.push(format!(".part-{random:016x}"));
    Ok(file.with_file_name(part))
}

/// Makes a file for its owner alone.
pub(crate) fn create(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Gives a whole and synced copy its name, unless somebody else has taken it meanwhile. Returns
/// its size.
fn named(part: &Path, file: &Path) -> Result<u64, Failure> {
    let failed = |error: std::io::Error| {
        Failure::failed(format!("{} cannot be written: {error}", file.display()))
    };
    let bytes = std::fs::metadata(part).map_err(failed)?.len();
    // A link is made only where there is nothing; a rename would replace what is there.
    match std::fs::hard_link(part, file) {
        Ok(()) => std::fs::remove_file(part).map_err(failed)?,
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            return Err(exists(file));
        }
        Err(_) => std::fs::rename(part, file).map_err(failed)?,
    }
    let directory = file.parent().filter(|directory| !directory.as_os_str().is_empty());
    let directory = File::open(directory.unwrap_or(Path::new("."))).map_err(failed)?;
    directory.sync_all().map_err(failed)?;
    Ok(bytes)
}
