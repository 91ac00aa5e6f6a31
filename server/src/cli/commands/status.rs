//! `status`: one screen about a store and the process that answers for it.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use tokio::time::{Instant, MissedTickBehavior};

use super::Session;
use crate::api::wire::{Rates, Status, StatusCounts, StoreSize, WorkerSums};
use crate::cli::client::{Failure, Reply};
use crate::cli::duration;
use crate::cli::out::{Out, age, escaped, span};

/// Show counts, rates, workers, size and health on one screen.
///
/// Rates cover the last minute, over all processes. --watch adds the rate since the last refresh.
/// Exits with 1 if the store is not healthy.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windlass status
  windlass status --watch 5s")]
pub(crate) struct StatusArgs {
    /// Refresh, every 2 s unless another interval is given.
    #[arg(
        long,
        value_name = "EVERY",
        num_args = 0..=1,
        default_missing_value = "2s",
        value_parser = duration
    )]
    watch: Option<Duration>,
}

pub(crate) async fn run(session: &mut Session, args: &StatusArgs) -> Result<ExitCode, Failure> {
    let Some(every) = args.watch else {
        let reply = session.client.get("/status").await?;
        return show(&mut session.out, &reply, None);
    };
    let mut ticks = tokio::time::interval(every.max(Duration::from_millis(100)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut before: Option<(Instant, StatusCounts)> = None;
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = tokio::signal::ctrl_c() => return Ok(ExitCode::SUCCESS),
        }
        let reply = session.client.get("/status").await?;
        let seen = (Instant::now(), reply.json::<Status>()?.counts);
        if before.is_some() && !session.out.json {
            session.out.line("")?;
        }
        let pace = before.map(|before| pace(&before, &seen));
        let _ = show(&mut session.out, &reply, pace.as_deref())?;
        session.out.flush()?;
        before = Some(seen);
    }
}

/// Rates between two readings of the store's counters, over all processes.
fn pace(before: &(Instant, StatusCounts), now: &(Instant, StatusCounts)) -> String {
    let seconds = (now.0 - before.0).as_secs_f64().max(0.001);
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    let rate = |before: u64, now: u64| now.saturating_sub(before) as f64 / seconds;
    let (before, now) = (before.1, now.1);
    format!(
        "done {:.1}/s, failed {:.1}/s since the last refresh",
        rate(before.done, now.done),
        rate(before.failed, now.failed),
    )
}

fn show(out: &mut Out, reply: &Reply, pace: Option<&str>) -> Result<ExitCode, Failure> {
    let status: Status = reply.json()?;
    if out.json {
        out.answer(&reply.body)?;
    } else {
        print(out, &status, pace)?;
    }
    Ok(if status.health == "good" { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print(out: &mut Out, status: &Status, pace: Option<&str>) -> Result<(), Failure> {
    let StatusCounts { queued, scheduled, processing, done, failed, cancelled } = status.counts;
    let mut line = |name: &str, value: String| out.line(&format!("{name:<10} {value}"));
    line("windlass", escaped(&status.version))?;
    line("health", escaped(&status.health))?;
    let retrying = match status.retrying {
        0 => String::new(),
        jobs => format!(", of which {jobs} retrying"),
    };
    line("waiting", format!("{queued} queued, {scheduled} scheduled{retrying}"))?;
    line("running", format!("{processing} processing"))?;
    line("finished", format!("{done} done, {failed} failed, {cancelled} cancelled"))?;
    if let Some(millis) = status.oldest_ready_age_ms {
        line("oldest", format!("due for {}", span(millis)))?;
    }
    if let Some(next) = status.next_due {
        line("next due", age(next))?;
    }
    let paused = match status.queues.paused.as_slice() {
        [] => String::new(),
        names => format!(", paused: {}", escaped(&names.join(", "))),
    };
    line("queues", format!("{}{paused}", status.queues.total))?;
    let WorkerSums { alive, stale, running } = status.workers;
    line("workers", format!("{alive} alive, {stale} stale, running {running} jobs"))?;
    let Rates { enqueued_per_s, started_per_s, done_per_s, failed_per_s, window_ms } =
        &status.rates;
    let rates = format!(
        "enqueued {enqueued_per_s:.1}/s, started {started_per_s:.1}/s, done {done_per_s:.1}/s, \
         failed {failed_per_s:.1}/s over {}",
        span(*window_ms)
    );
    line("rates", rates)?;
    if let Some(pace) = pace {
        line("pace", pace.into())?;
    }
    let StoreSize { path, bytes, wal_bytes } = &status.store;
    line("store", format!("{}, {} and {} of WAL", escaped(path), size(*bytes), size(*wal_bytes)))
}

/// A size in its largest unit.
fn size(bytes: u64) -> String {
    let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    let in_unit = |unit: u64| bytes as f64 / unit as f64;
    let found = units.iter().find(|(unit, _)| bytes >= *unit);
    found.map_or_else(
        || format!("{bytes} B"),
        |(unit, name)| format!("{:.1} {name}", in_unit(*unit)),
    )
}
