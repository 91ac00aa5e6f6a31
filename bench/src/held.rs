//! The `held` scenario: the time of a claim while a transaction of another program stays open, so
//! that PostgreSQL can remove no dead row. Each commit enqueues, claims from a backlog, and
//! completes the jobs that the previous commit claimed.

use std::task::Waker;
use std::time::Duration;

use clap::Args;
use windlass_core::store::Store;
use windlass_runtime_tokio::{Clock as _, SystemClock};

use crate::bare::{Bare, LOAD, Place, on_store};
use crate::measure::{Line, Outcome, quantile};
use crate::postgres::Sql;

/// Options of `held`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    place: Place,
    /// Number of jobs that each commit enqueues, claims and completes.
    #[arg(long, default_value_t = 64)]
    batch: usize,
    /// Number of jobs that wait all the time.
    #[arg(long, default_value_t = 10_000)]
    waiting: usize,
    /// Time that the other transaction stays open, in seconds.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Time to measure before it is opened, at its end, and after it has ended, in seconds.
    #[arg(long, default_value_t = 10)]
    window: u64,
    /// Print one JSON line.
    #[arg(long)]
    json: bool,
}

/// Measures the scenario; returns one line.
pub(crate) fn run(options: &Options) -> Outcome<String> {
    let folder = options.place.folder()?;
    let Some(other) = Sql::beside(&options.place)? else {
        return Err("only PostgreSQL keeps dead rows for others: use --store postgres".into());
    };
    on_store!(options.place, folder.path(), |store| run_on(options, store, &other))
}

fn run_on<S: Store>(options: &Options, mut store: S, other: &Sql) -> Outcome<String> {
    // Starts the upkeep of the store, as a runtime does: it vacuums.
    store.wake_on_news(Waker::noop().clone());
    let (mut bare, job) = (Bare::new(store)?, options.place.job()?);
    bare.enqueue(&job, options.waiting, LOAD)?;
    let mut commits = |seconds: u64| {
        let end = SystemClock.micros() + seconds * 1_000_000;
        let mut times_us = Vec::new();
        let mut began = SystemClock.micros();
        while began < end {
            bare.live_once(&job, options.batch)?;
            let now = SystemClock.micros();
            times_us.push(now - began);
            began = now;
        }
        Outcome::Ok(times_us)
    };
    commits(options.window.min(3))?;
    let before = commits(options.window)?;
    other.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class")?;
    commits(options.seconds.saturating_sub(options.window))?;
    let held = commits(options.window)?;
    other.run("COMMIT")?;
    let after = commits(options.window)?;
    let mut line = Line::new(options.json, "held")
        .word("store", options.place.name())
        .count("batch", options.batch)
        .count("waiting", options.waiting)
        .count("seconds", usize::try_from(options.seconds)?);
    let window = Duration::from_secs(options.window.max(1));
    for (name, times) in [("before", &before), ("held", &held), ("after", &after)] {
        let [p50, p99] = [500, 990].map(|part| quantile(times, part));
        line = line
            .rate(
                &format!("{name}_jobs_per_s"),
                crate::measure::rate(times.len() * options.batch, window),
            )
            .count(&format!("{name}_p50_us"), usize::try_from(p50)?)
            .count(&format!("{name}_p99_us"), usize::try_from(p99)?);
    }
    let ratio = Duration::from_micros(quantile(&held, 500)).as_secs_f64()
        / Duration::from_micros(quantile(&before, 500).max(1)).as_secs_f64();
    Ok(line.ratio("p50_ratio", ratio).finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_without_a_server_is_refused() {
        let place = Place::temporary("sqlite", 100).unwrap();
        let options = Options { place, batch: 1, waiting: 1, seconds: 1, window: 1, json: false };
        assert!(run(&options).unwrap_err().to_string().contains("--store postgres"));
    }
}
