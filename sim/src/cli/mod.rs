//! The command line: arguments, and the function that runs each command.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command line prints")]

mod mutate;
mod seeds;

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Instant;

use clap::{Args, Parser, Subcommand, ValueEnum};
use windlass_sim::disk::StoreKind;
use windlass_sim::faults::FaultSet;
use windlass_sim::options::Overrides;

/// Deterministic simulation of Windlass.
#[derive(Debug, Parser)]
#[command(name = "windlass-sim", version, about)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run many seeds; shrink and show the first that fails.
    Run(Run),
    /// Run many seeds and count each fault, move and refusal.
    Report(Run),
    /// Run one seed and print its trace.
    #[command(alias = "replay")]
    Trace(Trace),
    /// Patch bugs into a copy of the workspace and check that each is found.
    Mutants(Mutants),
    /// Run seeds until one fails, and print it; used by `mutants`.
    #[command(hide = true)]
    Hunt(Hunt),
}

#[derive(Debug, Args)]
struct Run {
    /// Number of seeds to run, one after the other from the first.
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// First seed; without it one is drawn at random and printed.
    #[arg(long)]
    first: Option<u64>,
    /// Run only this seed.
    #[arg(long)]
    seed: Option<u64>,
    /// Run seeds for this many minutes, instead of a number of seeds.
    #[arg(long)]
    minutes: Option<u64>,
    #[command(flatten)]
    set: Set,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Trace {
    /// Seed to run.
    #[arg(long, required_unless_present = "number")]
    seed: Option<u64>,
    /// Seed to run.
    number: Option<u64>,
    #[command(flatten)]
    set: Set,
    /// Print only lines about this job.
    #[arg(long)]
    job: Option<u64>,
    /// Print only the result.
    #[arg(long)]
    quiet: bool,
}

#[derive(Debug, Args)]
struct Mutants {
    /// Mutant to try, like M7; may be given more than once. Default: all.
    #[arg(long)]
    only: Vec<String>,
    /// First seed of the first round.
    #[arg(long, default_value_t = 1)]
    first: u64,
    /// Number of rounds per mutant, each from another first seed; the median is shown.
    #[arg(long, default_value_t = 3)]
    rounds: u64,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Hunt {
    #[arg(long)]
    seeds: u64,
    #[arg(long)]
    first: u64,
}

/// Options that replace those of the seed.
#[derive(Debug, Args)]
struct Set {
    /// Store to run on.
    #[arg(long, value_enum, default_value_t = Store::Memory)]
    store: Store,
    /// Faults to turn off, separated by commas, or `all`.
    #[arg(long, default_value = "", value_parser = parse_faults)]
    off: FaultSet,
    /// Number of jobs, in place of the seed's.
    #[arg(long)]
    jobs: Option<u64>,
    /// Duration of the faults in milliseconds, in place of the seed's.
    #[arg(long)]
    millis: Option<u64>,
    /// Number of processes, in place of the seed's.
    #[arg(long)]
    processes: Option<u64>,
    /// Number of remote workers, in place of the seed's.
    #[arg(long)]
    remotes: Option<u64>,
    /// Make each commit at one instant, not interleaved with others.
    #[arg(long)]
    atomic: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Store {
    Memory,
    Sqlite,
    Redb,
    Postgres,
}

fn parse_faults(names: &str) -> Result<FaultSet, String> {
    if names == "all" { Ok(FaultSet::all()) } else { FaultSet::parse(names) }
}

impl Set {
    fn store(&self) -> StoreKind {
        match self.store {
            Store::Memory => StoreKind::Memory,
            Store::Sqlite => StoreKind::Sqlite,
            Store::Redb => StoreKind::Redb,
            Store::Postgres => StoreKind::Postgres,
        }
    }

    fn overrides(&self) -> Overrides {
        Overrides {
            off: self.off,
            jobs: self.jobs,
            millis: self.millis,
            processes: self.processes,
            remotes: self.remotes,
            atomic: self.atomic,
        }
    }
}

impl Cli {
    /// Runs the command.
    pub(crate) fn go(self) -> ExitCode {
        match self.command {
            Command::Run(run) => seeds::run(&run, false),
            Command::Report(run) => seeds::run(&run, true),
            Command::Trace(trace) => seeds::trace(&trace),
            Command::Mutants(mutants) => mutate::mutants(&mutants),
            Command::Hunt(hunt) => seeds::hunt(&hunt),
        }
    }
}

/// The real clock: for durations that are printed, never for the simulation.
#[expect(clippy::disallowed_methods, reason = "how long a batch took is printed, never used")]
fn real_now() -> Instant {
    Instant::now()
}

/// Quotes and escapes a text as JSON.
fn json_text(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out += "\\n",
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out + "\""
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_run_without_a_first_seed_parses() {
        for command in ["run", "report"] {
            assert!(Cli::try_parse_from(["windlass-sim", command]).is_ok());
        }
    }

    #[test]
    fn text_in_json_is_escaped() {
        assert_eq!(json_text("a\"b\\c\nd\u{1}"), "\"a\\\"b\\\\c\\nd\\u0001\"");
    }
}
