//! `windlass-bench`: each scenario is measured beside its ceiling, in one run, and told as a ratio.
//! Machines are noisy; a ratio of two figures from one run is not.

mod backlog;
mod bare;
mod contender;
mod flat;
mod http;
mod idle;
mod lifecycle;
mod measure;
mod proc;
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
    /// Whole lives of jobs through the runtime: producers enqueue one by one, each waiting for its
    /// durable receipt, until all are done; beside the same commits without a runtime.
    Lifecycle(lifecycle::WithProducers),
    /// Claim and complete through the runtime what was enqueued before; beside the same commits.
    Drain(lifecycle::Options),
    /// How soon an idle runtime starts a job, beside one sync of the same disk.
    Pickup(idle::Pickup),
    /// What a runtime takes while nothing is to be done.
    Idle(idle::Idle),
    /// Claim and complete through the runtime from a long queue, beside a short one.
    Backlog(backlog::Options),
    /// Enqueue, claim and report over HTTP, with the real binary; beside a trivial server that
    /// answers the same bytes.
    Http(http::Options),
}

#[expect(clippy::print_stdout, reason = "its output is the figures")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let line = match Cli::parse().scenario {
        Scenario::Store(options) => store::run(&options)?,
        Scenario::Lifecycle(options) => lifecycle::lifecycle(&options)?,
        Scenario::Drain(options) => lifecycle::drain(&options)?,
        Scenario::Pickup(options) => idle::pickup(&options)?,
        Scenario::Idle(options) => idle::idle(&options)?,
        Scenario::Backlog(options) => backlog::run(&options)?,
        Scenario::Http(options) => http::run(&options).map_err(|error| error.to_string())?,
    };
    println!("{line}");
    Ok(())
}
