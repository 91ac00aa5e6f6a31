//! The command line of the simulation: run seeds, show one, put mutants in.

mod cli;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    // A panic of the code under test is a violation, reported as one.
    std::panic::set_hook(Box::new(|_| {}));
    cli::Cli::parse().go()
}
