//! The `cancel` scenario: the time from an acknowledged cancel in one process to the moment at
//! which the job's handler in another process is asked to stop. The process that cancels is this
//! program again, with the hidden command `cancel-from`. Both read the same monotonic clock.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::task::Waker;
use std::time::Duration;

use clap::Args;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use windlass_core::machine::StopReason;
use windlass_core::store::{Admin, Batch, CommitError, Outcomes, Store};
use windlass_core::{BatchId, JobId, LeaseLength, Mono, NewJob, Policy, ProcessId, Wall};
use windlass_runtime_tokio::{Clock as _, Context, Runtime, SystemClock};
use windlass_store_postgres::PgStore;
use windlass_store_sqlite::SqliteStore;

use crate::bare::{KIND, Place, on_store};
use crate::dice::Dice;
use crate::measure::{Line, Outcome, quantile};

/// Options of `cancel`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    place: Place,
    /// Lease lengths to measure, in seconds; the heartbeat interval is a third of the lease.
    #[arg(long, value_delimiter = ',', default_values_t = [30, 120])]
    leases: Vec<u64>,
    /// Number of jobs that run at once. Each is cancelled at a random moment of one heartbeat
    /// interval.
    #[arg(long, default_value_t = 200)]
    jobs: usize,
    /// Number of measurements per lease length, each with a new store.
    #[arg(long, default_value_t = 1)]
    rounds: usize,
    /// Print one JSON line per lease length.
    #[arg(long)]
    json: bool,
}

/// Options of the process that cancels.
#[derive(Debug, Args)]
pub(crate) struct CancelFrom {
    /// The SQLite file or the URL of the store.
    address: String,
}

/// A job, and an instant by the monotonic clock.
pub(crate) type Instants = Vec<(JobId, u64)>;

/// Measures every lease length; returns a line for each.
pub(crate) fn run(options: &Options) -> Outcome<String> {
    let (jobs, rounds) = (options.jobs.max(1), options.rounds.max(1));
    let mut lines = Vec::new();
    for seconds in &options.leases {
        let lease = LeaseLength::new(seconds.saturating_mul(1_000))?;
        let mut delays_us = Vec::new();
        for round in 0..rounds {
            delays_us.extend(measure(&options.place, jobs, lease, round as u64)?);
        }
        let ms = |thousandths| usize::try_from(quantile(&delays_us, thousandths) / 1_000);
        let line = Line::new(options.json, "cancel")
            .word("store", options.place.name())
            .count("lease_s", usize::try_from(*seconds)?)
            .count("jobs", jobs)
            .count("rounds", rounds)
            .count("p50_ms", ms(500)?)
            .count("p99_ms", ms(990)?)
            .count("max_ms", ms(1_000)?);
        lines.push(line.finish());
    }
    Ok(lines.join("\n"))
}

/// The delay of each cancel, in microseconds.
fn measure(place: &Place, jobs: usize, lease: LeaseLength, seed: u64) -> Outcome<Vec<u64>> {
    let folder = place.folder()?;
    let other = Other { address: place.store.address(folder.path())?, seed };
    on_store!(place, folder.path(), |store| measure_on(place, store, jobs, lease, other))
}

/// The process that cancels: what it opens, and the seed of its moments.
struct Other {
    address: String,
    seed: u64,
}

fn measure_on<S>(
    place: &Place,
    store: S,
    jobs: usize,
    lease: LeaseLength,
    other: Other,
) -> Outcome<Vec<u64>>
where
    S: Store + Send + 'static,
    S::Reader: Send + 'static,
{
    let Other { address, seed } = other;
    let job = NewJob { visibility_timeout: Some(lease), ..place.job()? };
    let tokio = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    tokio.block_on(async {
        let (start, mut started) = unbounded_channel();
        let (stop, mut stopped) = unbounded_channel();
        let queue = Runtime::builder(store)
            .workers(jobs)
            .handler(KIND, move |_: String, context: Context| {
                let (start, stop) = (start.clone(), stop.clone());
                async move {
                    let _ = start.send(context.id());
                    let reason = context.stopping().await;
                    let _ = stop.send((context.id(), reason, SystemClock.micros()));
                }
            })
            .start()?;
        for receipt in queue.enqueue_many(vec![job; jobs]).await? {
            receipt?;
        }
        let mut ids = Vec::new();
        while ids.len() < jobs {
            ids.push(started.recv().await.ok_or("no handler runs any more")?);
        }
        let interval_ms = lease.millis().part(3).get();
        let plan = plan(&ids, SystemClock.now().mono.get() + START_MS, interval_ms, seed);
        let other = move || in_other_process("cancel-from", &address, &plan);
        let acknowledged = tokio::task::spawn_blocking(other).await??;
        let limit = Duration::from_millis(lease.millis().get());
        let stops = tokio::time::timeout(limit, all_stopped(&mut stopped, jobs)).await;
        let stops = stops.map_err(|_| "a handler was not asked to stop within one lease")??;
        queue.shutdown(Duration::from_secs(10)).await;
        delays(&acknowledged, &stops)
    })
}

/// Time for the other process to start, in milliseconds.
const START_MS: u64 = 300;

/// When to cancel each job, in milliseconds of the monotonic clock: at random moments of the
/// interval, so at random phases of the change check and of the heartbeats. Ordered by time; one
/// seed always gives the same moments.
pub(crate) fn plan(ids: &[JobId], from_ms: u64, interval_ms: u64, seed: u64) -> Instants {
    let mut dice = Dice(seed);
    let mut plan: Instants =
        ids.iter().map(|id| (*id, from_ms + dice.below(interval_ms))).collect();
    plan.sort_unstable_by_key(|(_, at_ms)| *at_ms);
    plan
}

/// Waits until this many handlers were asked to stop; returns when each of them was, in
/// microseconds.
async fn all_stopped(
    stopped: &mut UnboundedReceiver<(JobId, StopReason, u64)>,
    jobs: usize,
) -> Outcome<BTreeMap<JobId, u64>> {
    let mut stops = BTreeMap::new();
    while stops.len() < jobs {
        let (id, reason, at_us) = stopped.recv().await.ok_or("no handler runs any more")?;
        if reason != StopReason::Cancelled {
            return Err(format!("job {id} was stopped, but not by its cancel: {reason:?}").into());
        }
        stops.insert(id, at_us);
    }
    Ok(stops)
}

/// From each acknowledged cancel to the moment at which its handler was asked to stop. A handler
/// may be asked before the acknowledgement has been returned: that is a delay of zero.
fn delays(acknowledged: &Instants, stops: &BTreeMap<JobId, u64>) -> Outcome<Vec<u64>> {
    let delay = |(id, at_us): &(JobId, u64)| {
        let stop_us = stops.get(id).ok_or_else(|| format!("job {id} was not stopped"))?;
        Ok(stop_us.saturating_sub(*at_us))
    };
    acknowledged.iter().map(delay).collect()
}

/// Has another process run this command of ours on a store, with these instants; returns those it
/// prints: for `cancel-from`, when each cancel was acknowledged, in microseconds.
pub(crate) fn in_other_process(command: &str, address: &str, plan: &Instants) -> Outcome<Instants> {
    let mut child = Command::new(std::env::current_exe()?)
        .arg(command)
        .arg(address)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    // Dropped at once: the other process reads to the end before it does anything.
    let written = child.stdin.take().ok_or("no input")?.write_all(written(plan).as_bytes());
    let output = child.wait_with_output()?;
    if !output.status.success() {
        return Err(format!("the process of {command} ended with {}", output.status).into());
    }
    written?;
    read(&String::from_utf8(output.stdout)?)
}

/// Commits batches to a store.
pub(crate) type Commit = dyn FnMut(Wall, &Batch) -> Result<Outcomes, CommitError>;

/// Opens a store that another process has open too, by [`Which::address`](crate::bare::Which).
pub(crate) fn committer(address: &str) -> Outcome<Box<Commit>> {
    Ok(if address.starts_with("postgres") {
        let mut store = PgStore::connect(address)?;
        // As a node does: without this it sends no hints.
        store.wake_on_news(Waker::noop().clone());
        Box::new(move |now, batch: &Batch| store.commit(now, batch))
    } else {
        let mut store = SqliteStore::open(address)?;
        Box::new(move |now, batch: &Batch| store.commit(now, batch))
    })
}

/// The process that cancels: reads jobs and instants from standard input, cancels each job at its
/// instant, and returns what is printed: when each cancel was acknowledged.
pub(crate) fn from(options: &CancelFrom) -> Outcome<String> {
    let mut commit = committer(&options.address)?;
    let plan = read(&std::io::read_to_string(std::io::stdin())?)?;
    let tokio = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let mut acknowledged = Instants::new();
    for (seq, (id, at_ms)) in (1..).zip(plan) {
        tokio.block_on(SystemClock.sleep(Mono::new(at_ms)));
        acknowledged.push((id, cancel(&mut *commit, seq, id)?));
    }
    Ok(written(&acknowledged).trim_end().to_owned())
}

/// Cancels a job; returns when that was acknowledged, in microseconds.
fn cancel(commit: &mut Commit, seq: u64, job: JobId) -> Outcome<u64> {
    let id = BatchId { process: ProcessId(u64::from(std::process::id())), seq };
    let mut batch = Batch::new(id, Policy::default());
    batch.admin.push(Admin::Cancel(job));
    let out = commit(SystemClock.now().wall, &batch)?;
    let acknowledged_us = SystemClock.micros();
    out.admin.into_iter().try_for_each(|done| done.map(drop))?;
    Ok(acknowledged_us)
}

/// One line per job: its id and its instant.
pub(crate) fn written(instants: &Instants) -> String {
    let mut text = String::new();
    for (id, at) in instants {
        let _ = writeln!(text, "{id} {at}");
    }
    text
}

/// Reads what [`written`] returns.
pub(crate) fn read(text: &str) -> Outcome<Instants> {
    let line = |line: &str| {
        let (id, at) = line.split_once(' ').ok_or_else(|| format!("no instant: {line}"))?;
        Ok((id.parse()?, at.parse()?))
    };
    text.lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(count: u64) -> Vec<JobId> {
        (1..=count).map(|number| JobId::new(number).unwrap()).collect()
    }

    #[test]
    fn every_job_is_cancelled_once_at_random_phases_of_the_interval() {
        let ids = ids(400);
        let plan = plan(&ids, 5_000, 1_000, 0);
        let planned: std::collections::BTreeSet<JobId> = plan.iter().map(|(id, _)| *id).collect();
        assert!(planned.iter().eq(&ids));
        assert!(plan.is_sorted_by_key(|(_, at_ms)| *at_ms));
        for quarter in [5_000..5_250, 5_250..5_500, 5_500..5_750, 5_750..6_000] {
            let count = plan.iter().filter(|(_, at_ms)| quarter.contains(at_ms)).count();
            assert!((50..=150).contains(&count), "{count} of 400 in {quarter:?}");
        }
    }

    #[test]
    fn what_is_sent_to_the_other_process_is_read_as_it_was_written() {
        let instants = plan(&ids(3), 7, 100, 1);
        assert_eq!(read(&written(&instants)).unwrap(), instants);
        assert!(read("1\n").is_err());
        assert!(read("0 5\n").is_err(), "no job has the id 0");
    }

    #[test]
    fn a_delay_counts_from_the_acknowledgement_and_is_never_negative() {
        let [one, two, three] = ids(3).try_into().unwrap();
        let stops = BTreeMap::from([(one, 1_500), (two, 900)]);
        assert_eq!(delays(&vec![(two, 1_000), (one, 1_000)], &stops).unwrap(), [0, 500]);
        assert!(delays(&vec![(three, 1_000)], &stops).is_err());
    }

    #[test]
    fn a_store_for_one_process_is_refused() {
        let place = Place::temporary("redb", 100).unwrap();
        let options = Options { place, leases: vec![30], jobs: 1, rounds: 1, json: false };
        assert!(run(&options).unwrap_err().to_string().contains("--store sqlite"));
    }
}
