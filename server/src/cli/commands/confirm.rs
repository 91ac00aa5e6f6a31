//! Asking before something is gone for good.

use std::io::{BufRead, IsTerminal, Write};

use crate::cli::client::Failure;

/// Goes on if somebody says yes. Where nobody can be asked, it must have been said before.
pub(crate) fn ask(question: &str, yes: bool) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    let (stdin, mut stderr) = (std::io::stdin(), std::io::stderr());
    if !stdin.is_terminal() || !stderr.is_terminal() {
        let detail = format!("{question} Nobody can be asked here: say so with --yes");
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
