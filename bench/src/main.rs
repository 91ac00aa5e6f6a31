//! `windlass-bench`: each scenario is measured beside its ceiling, in one run, and reported as a
//! ratio. Machines are noisy; a ratio of two figures from one run is not.
//!
//! In the book: [finding what is slow](../../book/PROFILING.html).

mod across;
mod all;
mod backlog;
mod bare;
mod cancel;
mod contender;
mod dice;
mod flat;
mod held;
mod http;
mod idle;
mod instructions;
mod lifecycle;
mod lists;
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
mod soak_nodes;
mod sqlite_ceiling;
mod store;
mod subject;
mod sweep;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Measure Windlass beside the limits of its storage engines.
#[derive(Debug, Parser)]
#[command(name = "windlass-bench")]
struct Cli {
    #[command(subcommand)]
    scenario: Scenario,
}

#[derive(Debug, Subcommand)]
enum Scenario {
    /// Measure enqueues, and claims with completions, through `Store::commit`; beside a bare loop
    /// on the same engine with the same rows, durability and batch size.
    Store(store::Options),
    /// Measure full job lifecycles through the runtime: producers enqueue one by one, each waiting
    /// for its durable receipt, until all are done; beside the same commits without a runtime.
    Lifecycle(lifecycle::WithProducers),
    /// Measure claims and completions of queued jobs through the runtime; beside the same commits.
    Drain(lifecycle::Options),
    /// Measure how soon an idle runtime starts a job, beside one sync of the same disk.
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
    /// Measure CPU time, wake-ups and memory of an idle runtime.
    Idle(idle::Idle),
    /// Measure claims and completions beside many queued or done jobs, and beside few.
    Backlog(backlog::Options),
    /// Measure claims and completions of the same number of jobs from one queue and from many, with
    /// one kind of job and with many, through `Store::commit`.
    Queues(queues::Options),
    /// Measure the first page of lists of few jobs that are older than many done ones.
    Lists(lists::Options),
    /// Measure full job lifecycles through several nodes on one store, beside one node.
    Nodes(nodes::Options),
    /// Measure claims while a transaction of another program keeps PostgreSQL from removing dead
    /// rows.
    Held(held::Options),
    /// Measure full job lifecycles with payloads of 100 bytes to 1 MiB, beside the same commits.
    Payload(sweep::Payload),
    /// Measure claims and completions with 1 to 1024 jobs at once, beside the same commits.
    Workers(sweep::Workers),
    /// Measure the time from `kill -9` of the real server to the first claim, and the same for the
    /// library.
    Restart(restart::Options),
    /// Run minutes of mixed load; report memory, log and file over time, and whether they stay
    /// flat.
    Soak(soak::Options),
    /// Run real servers on one PostgreSQL under random faults: no acknowledged job may be lost, and
    /// tables and indexes must not grow.
    SoakNodes(soak_nodes::Options),
    /// Measure enqueues, claims and reports over HTTP, with the real binary; beside a trivial
    /// server that sends the same bytes.
    Http(http::Options),
    /// Run a short form of every scenario, and write `bench/RESULTS.md` with tables and plots.
    All(all::Options),
    /// Count the instructions of the paths of a batch, and compare them with
    /// `bench/instructions.json`.
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
        Scenario::Lists(options) => lists::run(&options)?,
        Scenario::Nodes(options) => nodes::run(&options)?,
        Scenario::Held(options) => held::run(&options)?,
        Scenario::Payload(options) => sweep::payload(&options)?,
        Scenario::Workers(options) => sweep::workers(&options)?,
        Scenario::Restart(options) => restart::run(&options)?,
        Scenario::Soak(options) => soak::run(&options)?,
        Scenario::SoakNodes(options) => soak_nodes::run(&options)?,
        Scenario::Http(options) => http::run(&options)?,
        Scenario::All(options) => all::run(&options)?,
        Scenario::Instructions(options) => instructions::run(&options)?,
    })
}
