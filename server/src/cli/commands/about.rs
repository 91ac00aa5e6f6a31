//! What needs neither a store nor a server: `completions` and `version`.

use std::process::ExitCode;

use clap::{Args, CommandFactory};
use clap_complete::Shell;
use serde_json::json;

use crate::cli::Cli;
use crate::cli::client::Failure;
use crate::cli::out::Out;

/// Print shell completions.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windlass completions bash > ~/.local/share/bash-completion/completions/windlass
  windlass completions fish > ~/.config/fish/completions/windlass.fish")]
pub(crate) struct CompletionsArgs {
    /// Shell to print completions for.
    shell: Shell,
}

pub(crate) fn completions(out: &mut Out, args: &CompletionsArgs) -> Result<ExitCode, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "windlass", &mut text);
    out.bytes(&text)?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn version(out: &mut Out) -> Result<ExitCode, Failure> {
    let version = env!("CARGO_PKG_VERSION");
    if out.json {
        out.line(&json!({ "version": version }).to_string())?;
    } else {
        out.line(&format!("windlass {version}"))?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
