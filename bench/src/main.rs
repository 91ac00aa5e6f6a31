//! `windlass-bench`: each scenario is measured beside its ceiling, in one run, and told as a ratio.
//! Machines are noisy; a ratio of two figures from one run is not.

mod across;
mod all;
mod backlog;
mod bare;
mod cancel;
mod contender;
mod flat;
mod held;
mod http;
mod idle;
mod instructions;
mod lifecycle;
mod machine;
mod measure;
mod nodes;
mod plot;
mod postgres;
mod postgres_ceiling;
mod proc;
mod queues;
mod redb_ceiling;
mod report;
mod restart;
mod sections;
mod server;
mod soak;
mod sqlite_ceiling;
mod store;
mod subject;
mod sweep;

use std::process::ExitCode;

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
    /// Measure how soon an idle process starts a job that another process enqueues.
    Across(across::Options),
    /// Enqueue jobs at given instants: the other process of `across`.
    #[command(hide = true)]
    EnqueueFrom(across::EnqueueFrom),
    /// Measure how soon a handler is asked to stop when another process cancels its job.
    Cancel(cancel::Options),
    /// Cancel jobs at given instants: the other process of `cancel`.
    #[command(hide = true)]
    CancelFrom(cancel::CancelFrom),
    /// What a runtime takes while nothing is to be done.
    Idle(idle::Idle),
    /// Claim and complete through the runtime beside many queued or done jobs, and beside few.
    Backlog(backlog::Options),
    /// Claim and complete the same number of jobs from one queue and from many, with one kind of
    /// job and with many, through `Store::commit`.
    Queues(queues::Options),
    /// Measure whole lives of jobs through several nodes on one store, beside one node.
    Nodes(nodes::Options),
    /// Measure claims while a transaction of another program keeps PostgreSQL from removing dead
    /// rows.
    Held(held::Options),
    /// Whole lives of jobs with payloads of 100 bytes to 1 MiB, beside the same commits.
    Payload(sweep::Payload),
    /// Claim and complete with 1 to 1024 jobs at once, beside the same commits.
    Workers(sweep::Workers),
    /// From `kill -9` of the real server to the first claim, and the same for the library.
    Restart(restart::Options),
    /// Minutes of mixed load: memory, log and file over time, and whether they stay flat.
    Soak(soak::Options),
    /// Enqueue, claim and report over HTTP, with the real binary; beside a trivial server that
    /// answers the same bytes.
    Http(http::Options),
    /// A short form of every scenario, written to `bench/RESULTS.md` with tables and drawings.
    All(all::Options),
    /// How many instructions the paths of a batch take, compared with `bench/instructions.json`.
    Instructions(instructions::Options),
}

#[expect(clippy::print_stdout, clippy::print_stderr, reason = "its output is the figures")]
fn main() -> ExitCode {
    let result = run(Cli::parse().scenario);
    let result = result.and_then(|lines| postgres::drop_schemas().map(|()| lines));
    match result {
        Ok(lines) => {
            println!("{lines}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(scenario: Scenario) -> measure::Outcome<String> {
    Ok(match scenario {
        Scenario::Store(options) => store::run(&options)?,
        Scenario::Lifecycle(options) => lifecycle::lifecycle(&options)?,
        Scenario::Drain(options) => lifecycle::drain(&options)?,
        Scenario::Pickup(options) => idle::pickup(&options)?,
        Scenario::Across(options) => across::run(&options)?,
        Scenario::EnqueueFrom(options) => across::from(&options)?,
        Scenario::Cancel(options) => cancel::run(&options)?,
        Scenario::CancelFrom(options) => cancel::from(&options)?,
        Scenario::Idle(options) => idle::idle(&options)?,
        Scenario::Backlog(options) => backlog::run(&options)?,
        Scenario::Queues(options) => queues::run(&options)?,
        Scenario::Nodes(options) => nodes::run(&options)?,
        Scenario::Held(options) => held::run(&options)?,
        Scenario::Payload(options) => sweep::payload(&options)?,
        Scenario::Workers(options) => sweep::workers(&options)?,
        Scenario::Restart(options) => restart::run(&options)?,
        Scenario::Soak(options) => soak::run(&options)?,
        Scenario::Http(options) => http::run(&options)?,
        Scenario::All(options) => all::run(&options)?,
        Scenario::Instructions(options) => instructions::run(&options)?,
    })
}
