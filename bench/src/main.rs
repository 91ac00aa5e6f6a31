//! `windlass-bench`: each scenario is measured beside its ceiling, in one run, and told as a ratio.
//! Machines are noisy; a ratio of two figures from one run is not.

mod contender;
mod flat;
mod http;
mod measure;
mod redb_ceiling;
mod sqlite_ceiling;
mod store;
mod subject;

use clap::{Parser, Subcommand};

/// Measures Windlass beside the limits of what it stands on.
#[derive(Debug, Parser)]
#[command(name = "windlass-bench")]
struct Cli {
    #[command(subcommand)]
    scenario: Scenario,
}

#[derive(Debug, Subcommand)]
enum Scenario {
    /// Enqueue, and claim with completion, through `Store::commit`; beside a bare loop on the same
    /// engine with the same rows, durability and batch size.
    Store(store::Options),
    /// Enqueue, claim and report over HTTP, with the real binary; beside a trivial server that
    /// answers the same bytes.
    Http(http::Options),
}

#[expect(clippy::print_stdout, reason = "its output is the figures")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let line = match Cli::parse().scenario {
        Scenario::Store(options) => store::run(&options)?,
        Scenario::Http(options) => http::run(&options).map_err(|error| error.to_string())?,
    };
    println!("{line}");
    Ok(())
}
