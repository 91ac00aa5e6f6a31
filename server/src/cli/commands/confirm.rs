//! Asking before something is gone for good.

use std::io::{BufRead, IsTerminal, Write};

use crate::cli::client::Failure;

/// Asks for confirmation on a terminal. Without one, `--yes` must have been given.
pub(crate) fn ask(question: &str, yes: bool) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    let (stdin, mut stderr) = (std::io::stdin(), std::io::stderr());
    if !stdin.is_terminal() || !stderr.is_terminal() {
        let detail = format!("{question} There is no terminal to ask on; confirm with --yes");
        return Err(Failure::usage(detail));
    }
    let _ = write!(stderr, "{question} [y/N] ");
    let mut answer = String::new();
    let read = stdin.lock().read_line(&mut answer);
    if read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes") {
        return Ok(());
    }
    Err(Failure::failed("nothing was changed"))
}
