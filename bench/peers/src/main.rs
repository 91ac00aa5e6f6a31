//! Windlass beside other queues: the same work for each, in turn, round by round, shown as a table
//! with ratios, or as JSON lines. What an acknowledgement promises stands in every row.

mod beanstalkd;
mod contestant;
mod lives;
mod servers;
mod table;
mod windlass;

use std::path::PathBuf;

use clap::Parser;
use serde_json::{Map, Value};
use windlass_peers_plan::{Outcome, Task, run};
use windlass_store_sqlite::SqliteStore;

use crate::contestant::{CONTESTANTS, Contestant};
use crate::servers::Postgres;
use crate::windlass::Windlass;

/// In how many processes whole lives are measured.
const NODES: [usize; 2] = [1, 4];

/// Measures Windlass beside other queues.
#[derive(Debug, Parser)]
#[command(name = "windlass-peers")]
struct Cli {
    /// How many jobs each phase has.
    #[arg(long, default_value_t = 20_000)]
    jobs: usize,
    /// Rounds in which each contestant has a turn; the median is reported.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// How long a phase of enqueueing may take; drains and pickups have three times as long.
    #[arg(long, default_value_t = 4)]
    seconds: u64,
    /// Only these, as in `--only windlass,apalis`.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// The queues on PostgreSQL, all on one private server, with whole lives in 1 and 4 processes.
    #[arg(long)]
    postgres: bool,
    /// Where the stores lie; a directory in it is made and removed.
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Do not build the peers first.
    #[arg(long)]
    no_build: bool,
    /// Build the peers, and measure nothing.
    #[arg(long, conflicts_with = "no_build")]
    build_only: bool,
    /// One JSON line per queue and setting instead of a table.
    #[arg(long)]
    json: bool,
    /// One phase of a queue that lives in this program; what the rounds run.
    #[arg(hide = true)]
    task: Vec<String>,
}

#[expect(clippy::print_stdout, reason = "its output is the figures")]
fn main() -> Outcome<()> {
    let cli = Cli::parse();
    if !cli.task.is_empty() {
        let task = Task::from_arguments(cli.task.into_iter())?;
        let line = match task.peer.as_str() {
            "windlass" => run(&task, on_sqlite)?,
            "beanstalkd" => run(&task, beanstalkd::open)?,
            other => return Err(format!("{other} does not live here").into()),
        };
        println!("{line}");
        return Ok(());
    }
    let present = present(&cli);
    let server = if cli.postgres { Some(Postgres::start()?) } else { None };
    if cli.build_only {
        return Ok(());
    }
    let mut rounds: Vec<Vec<Map<String, Value>>> = vec![Vec::new(); present.len()];
    for round in 0..cli.rounds.max(1) {
        // None is always the first.
        for at in (0..present.len()).map(|at| (at + round) % present.len().max(1)) {
            if let Some(figures) = turn(&cli, server.as_ref(), present[at]) {
                rounds[at].push(figures);
            }
        }
    }
    let scenario = if cli.postgres { "peers-postgres" } else { "peers" };
    let rows = table::rows(scenario, &present, &rounds);
    println!("{}", if cli.json { table::json(&rows) } else { table::text(&rows) });
    Ok(())
}

/// The contestants that are wanted and can run; what the others lack is printed.
#[expect(clippy::print_stderr, reason = "standard output is for figures")]
fn present(cli: &Cli) -> Vec<&'static Contestant> {
    let wanted =
        |one: &&Contestant| cli.only.is_empty() || cli.only.iter().any(|name| name == one.name);
    let mut built = std::collections::BTreeMap::new();
    let mut present = Vec::new();
    let all = CONTESTANTS.iter().filter(|one| one.home.is_on_postgres() == cli.postgres);
    for one in all.filter(wanted) {
        let ready = built.entry(one.home).or_insert_with(|| one.prepare(!cli.no_build));
        match ready {
            Ok(()) => present.push(one),
            Err(error) => eprintln!("skipped: {} ({}): {error}", one.name, one.setting),
        }
    }
    present
}

async fn on_sqlite(task: Task) -> Outcome<Windlass<SqliteStore>> {
    let store = |task: &Task| Ok(SqliteStore::open(task.folder.join("jobs.db"))?);
    windlass::open(task, store, "WAL, synchronous=FULL")
}

/// All phases of one queue; nothing if it fails, which is printed.
#[expect(clippy::print_stderr, reason = "standard output is for figures")]
fn turn(cli: &Cli, server: Option<&Postgres>, one: &Contestant) -> Option<Map<String, Value>> {
    let mut figures = Map::new();
    for nodes in server.map_or(&[][..], |_| &NODES) {
        let lived = server.map(|server| lives::run(one, server, *nodes, cli.jobs, cli.seconds));
        match lived {
            Some(Ok(rate)) => drop(figures.insert(format!("lives_{nodes}_per_s"), rate.into())),
            Some(Err(error)) => {
                eprintln!("{} ({}) lives at {nodes}: {error}", one.name, one.setting);
            }
            None => (),
        }
    }
    for phase in ["load", "pickup"] {
        match one.run(phase, &cli.dir, server, cli.jobs, cli.seconds) {
            Ok(Value::Object(line)) => figures.extend(line),
            Ok(other) => eprintln!("{} ({}) {phase}: said {other}", one.name, one.setting),
            Err(error) => eprintln!("{} ({}) {phase}: {error}", one.name, one.setting),
        }
    }
    (!figures.is_empty()).then_some(figures)
}
