//! `backup FILE`: a copy of the store as it is at one instant. It never overwrites, and a file of
//! that name is either absent or whole.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::Session;
use crate::cli::client::Failure;
use crate::cli::out::escaped;
use crate::store::file::{directory_of, hold, make_file, remove_leftovers, sync_directory};

/// Copy the store, as of one instant, to a new file.
///
/// Servers and workers may write meanwhile. The copy is a store: open it with --store, or restore
/// it with `windlass restore`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windlass backup windlass-$(date +%F).db
  windlass --server http://127.0.0.1:8080 backup copy.db")]
pub(crate) struct BackupArgs {
    /// Path of the copy.
    file: PathBuf,
}

pub(crate) async fn run(session: &mut Session, args: &BackupArgs) -> Result<ExitCode, Failure> {
    let file = &args.file;
    if file.symlink_metadata().is_ok() {
        return Err(exists(file));
    }
    let prefix = part_prefix(file)?;
    remove_leftovers(directory_of(file), &prefix);
    let part = part_of(file, &prefix)?;
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

/// The names under which copies grow that are to have this name, before a random number.
fn part_prefix(file: &Path) -> Result<String, Failure> {
    let name = file.file_name().ok_or_else(|| Failure::usage("name a file for the copy"))?;
    let name = name.to_str().ok_or_else(|| Failure::usage("name the copy in UTF-8"))?;
    Ok(format!(".{name}.part-"))
}

/// The name under which the copy grows.
fn part_of(file: &Path, prefix: &str) -> Result<PathBuf, Failure> {
    let random = getrandom::u64().map_err(|error| Failure::failed(error.to_string()))?;
    Ok(file.with_file_name(format!("{prefix}{random:016x}")))
}

/// Makes a file for its owner alone, which is no leftover as long as it is open.
pub(crate) fn create(path: &Path) -> std::io::Result<File> {
    let file = make_file(path)?;
    hold(&file);
    Ok(file)
}

/// Gives a whole and synced copy its name, unless another process has taken it meanwhile. Returns
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
    sync_directory(directory_of(file)).map_err(failed)?;
    Ok(bytes)
}
