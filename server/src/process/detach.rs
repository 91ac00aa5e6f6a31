//! Workers that live on when the terminal is closed: a supervisor in a session of its own, which
//! logs to a file for its owner alone.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{Ready, StartArgs, args_with_replacements, this_binary};
use crate::store::StoreUrl;

/// Starts the supervisor of `args.count` workers, and waits until each is registered. Returns them
/// and the path of their log.
pub(crate) fn detach(url: &StoreUrl, args: &StartArgs) -> Result<(Vec<Ready>, PathBuf), String> {
    let path = args.log_file.clone().unwrap_or_else(|| beside(url));
    let log =
        log(&path).map_err(|error| format!("{} cannot be written: {error}", path.display()))?;
    let failed = |error: std::io::Error| format!("no process could be started: {error}");
    let mut command = Command::new(this_binary().map_err(failed)?);
    command
        .args(args_with_replacements(std::env::args_os().skip(1), &[("--detach", "--detached")]));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
    let mut child = command.spawn().map_err(failed)?;
    let mut workers = Vec::new();
    for line in child.stdout.take().into_iter().flat_map(|out| BufReader::new(out).lines()) {
        let Ok(line) = line else { break };
        workers.extend(serde_json::from_str::<Ready>(&line));
        if workers.len() == usize::from(args.count) {
            return Ok((workers, path));
        }
    }
    let ended = child.wait().map(|status| status.to_string()).unwrap_or_default();
    Err(format!("the workers did not start ({ended}); {} says why", path.display()))
}

/// The log beside a store; in the current directory if that is no file.
fn beside(store: &StoreUrl) -> PathBuf {
    let name = "workers.log";
    store.file().map_or_else(|| PathBuf::from(name), |file| file.with_file_name(name))
}

/// Opens a log to add to, for its owner alone. One that exists keeps its mode.
fn log(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}
