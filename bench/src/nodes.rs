//! The `nodes` scenario: full job lifecycles through several runtimes on one store, each with its
//! own producers, workers and connections, beside one runtime. All run in this process.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use clap::Args;
use windlass_core::View;
use windlass_core::store::Store;
use windlass_runtime_tokio::{Clock as _, Context, Queue, Runtime, SystemClock};
use windlass_store_postgres::PgStore;
use windlass_store_sqlite::SqliteStore;

use crate::bare::{KIND, Place, Which};
use crate::lifecycle::produce;
use crate::measure::{Line, Outcome, median, rate};

/// Options of `nodes`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    place: Place,
    /// Numbers of nodes to measure; ratios compare with the first.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 4])]
    nodes: Vec<usize>,
    /// Number of tasks at each node that enqueue, each one job after the other.
    #[arg(long, default_value_t = 64)]
    producers: usize,
    /// Number of jobs of all nodes together.
    #[arg(long, default_value_t = 100_000)]
    jobs: usize,
    /// Number of measurements, each with new stores; medians are reported.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Print one JSON line per number of nodes.
    #[arg(long)]
    json: bool,
}

/// Measures every number of nodes in turn; returns a line for each.
pub(crate) fn run(options: &Options) -> Outcome<String> {
    let mut rates: Vec<Vec<f64>> = vec![Vec::new(); options.nodes.len()];
    for _ in 0..options.rounds.max(1) {
        for (nodes, rates) in options.nodes.iter().zip(&mut rates) {
            let folder = options.place.folder()?;
            rates.push(round(options, folder.path(), (*nodes).max(1))?);
        }
    }
    let mut lines = Vec::new();
    for (nodes, of) in options.nodes.iter().zip(&rates) {
        let base = rates.first().unwrap_or(of);
        let ratios = of.iter().zip(base).map(|(rate, base)| rate / base);
        let line = Line::new(options.json, "nodes")
            .word("store", options.place.name())
            .count("nodes", (*nodes).max(1))
            .count("producers", options.producers)
            .count("jobs", options.jobs)
            .count("rounds", options.rounds.max(1))
            .rate("jobs_per_s", median(of.clone()))
            .ratio("ratio", median(ratios.collect()));
        lines.push(line.finish());
    }
    Ok(lines.join("\n"))
}

fn round(options: &Options, folder: &Path, nodes: usize) -> Outcome<f64> {
    let address = options.place.store.address(folder)?;
    if options.place.store == Which::Sqlite {
        let open = |_| Ok(SqliteStore::open(&address)?);
        round_on(options, (0..nodes).map(open).collect::<Outcome<_>>()?)
    } else {
        let open = |_| Ok(PgStore::connect(&address)?);
        round_on(options, (0..nodes).map(open).collect::<Outcome<_>>()?)
    }
}

/// Runs one round; returns jobs per second of all nodes together.
fn round_on<S>(options: &Options, stores: Vec<S>) -> Outcome<f64>
where
    S: Store + Send + 'static,
    S::Reader: Send + 'static,
{
    let tokio = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let (jobs, producers) = (options.jobs, options.producers.max(1));
    tokio.block_on(async {
        let mut queues = Vec::new();
        for store in stores {
            let queue = Runtime::builder(store)
                .workers(2 * producers)
                .handler(KIND, |_: String, _: Context| async {})
                .start()?;
            queues.push(queue);
        }
        let began = SystemClock.micros();
        let next = Arc::new(AtomicUsize::new(0));
        let mut tasks = Vec::new();
        for queue in &queues {
            tasks.extend(produce(queue, &options.place, &next, jobs, producers)?);
        }
        for task in tasks {
            task.await??;
        }
        all_done(&queues, jobs).await?;
        let took = Duration::from_micros(SystemClock.micros() - began);
        for queue in queues {
            queue.shutdown(Duration::from_secs(10)).await;
        }
        Ok(rate(jobs, took))
    })
}

/// Waits until every job is done, at whichever node.
async fn all_done(queues: &[Queue], jobs: usize) -> Outcome<()> {
    let [first, ..] = queues else { return Err("there is no node".into()) };
    loop {
        for queue in queues {
            queue.idle().await?;
        }
        let counts = first.counts().await?;
        if counts.get(View::Done) == jobs as u64 {
            return Ok(());
        }
        if counts.get(View::Failed) > 0 {
            return Err("a job has failed".into());
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_nodes_is_one_line_beside_the_first() {
        let place = Place::temporary("sqlite", 100).unwrap();
        let nodes = vec![1, 2];
        let options = Options { place, nodes, producers: 2, jobs: 20, rounds: 1, json: true };
        let lines = run(&options).unwrap();
        let lines: Vec<&str> = lines.lines().collect();
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[0].contains("\"ratio\":1.000"), "{lines:?}");
        assert!(lines[1].contains("\"nodes\":2"), "{lines:?}");
    }

    #[test]
    fn a_store_for_one_process_is_refused() {
        let place = Place::temporary("redb", 100).unwrap();
        let options =
            Options { place, nodes: vec![1], producers: 1, jobs: 1, rounds: 1, json: false };
        assert!(run(&options).unwrap_err().to_string().contains("--store sqlite"));
    }
}
