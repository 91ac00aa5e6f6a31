//! `restore FILE`: a backup in the place of the store. It works on the store itself, which nothing
//! may have open.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::confirm;
use crate::cli::Target;
use crate::cli::client::Failure;
use crate::cli::out::{Out, escaped};
use crate::store::{CheckedCopy, RestoreError};

/// Replace the store with a backup.
///
/// The copy is checked first, as `doctor` does. The store must not be in use: stop its servers and
/// workers. The old store is kept beside the new one, with what its WAL holds; delete it when you
/// are sure.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windlass restore windlass-2026-01-02.db
  windlass --store redb:jobs.redb restore copy.redb --yes")]
pub(crate) struct RestoreArgs {
    /// Path of the backup.
    file: PathBuf,
    /// Do not ask for confirmation.
    #[arg(long)]
    yes: bool,
}

pub(crate) fn run(target: &Target, args: &RestoreArgs, out: &mut Out) -> Result<ExitCode, Failure> {
    if target.server.is_some() {
        return Err(Failure::usage(
            "restore works on the store itself: give --store instead of --server, on the machine \
             that has the file, while no server runs on it",
        ));
    }
    let (file, url) = (&args.file, &target.store);
    let shown = file.display().to_string();
    if !file.exists() {
        return Err(Failure::not_found(format!("there is no file {shown}")));
    }
    let copy = CheckedCopy::of(url, file).map_err(|error| refused(&error))?;
    if url.file().is_some_and(Path::exists) {
        let question = format!("Put {shown} in the place of {url}? The old store is kept.");
        confirm::ask(&question, args.yes)?;
    }
    let kept = copy.restore().map_err(|error| refused(&error))?;
    let kept = kept.map(|path| path.display().to_string());
    if out.json {
        let answer = json!({ "store": url.to_string(), "file": shown, "kept": kept });
        out.answer(answer.to_string().as_bytes())?;
    } else {
        out.line(&format!("restored {}", escaped(&url.to_string())))?;
        if let Some(kept) = kept {
            out.line(&format!("the old store is kept as {}", escaped(&kept)))?;
        }
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn refused(error: &RestoreError) -> Failure {
    match error {
        RestoreError::NotAFile => Failure::usage(error.to_string()),
        RestoreError::InUse { .. } => Failure::unreachable(error.to_string()),
        RestoreError::BadCopy { .. } | RestoreError::Failed(_) => {
            Failure::failed(error.to_string())
        }
    }
}
