//! The `soak-nodes` scenario: real servers on one private PostgreSQL, with clients that keep a
//! ledger, while faults from a seed are injected one after the other. In the end faults stop and
//! all jobs are worked off: no acknowledged job may be missing, none may have two verdicts, and
//! tables and indexes must not have grown in the second half.

mod clients;
mod faults;
mod ledger;
mod watch;

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clap::Args;
use tokio::runtime::Builder;
use tokio::task::block_in_place;
use tokio::time::sleep;
use windlass_runtime_tokio::{Clock as _, SystemClock};
use windlass_tests::postgres_server::PostgresServer;

use self::clients::{Caller, Clients, receive};
use self::faults::{Cluster, Fault, LEASE};
use self::ledger::Sums;
use self::watch::{Sample, judge};
use crate::dice::Dice;
use crate::measure::{Line, Outcome};
use crate::server;

/// Options of `soak-nodes`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Time under faults, in seconds.
    #[arg(long, default_value_t = 1_800)]
    seconds: u64,
    /// Seed of faults and clients; a clock if not given.
    #[arg(long)]
    seed: Option<u64>,
    /// Number of servers.
    #[arg(long, default_value_t = 3)]
    nodes: usize,
    /// Number of jobs enqueued per second, if the machine keeps up.
    #[arg(long, default_value_t = 200)]
    per_second: u64,
    /// Retention of done jobs, in seconds; sizes are compared after four times this.
    #[arg(long, default_value_t = 60)]
    keep_seconds: u64,
    /// Longest pause between two faults, in seconds.
    #[arg(long, default_value_t = 15)]
    pause: u64,
    /// Interval of samples of sizes, in seconds.
    #[arg(long, default_value_t = 10)]
    sample: u64,
    /// The binary of the servers; the one beside this program if not given.
    #[arg(long)]
    binary: Option<PathBuf>,
    /// Print JSON lines: one per sample, table and index, and one with the verdict.
    #[arg(long)]
    json: bool,
}

/// Number of producers, and of workers.
const CLIENTS: u64 = 8;
/// Time limit to work off all jobs at the end.
const DRAIN: Duration = Duration::from_mins(3);

/// Results of a run.
struct Results {
    samples: Vec<Sample>,
    faults: Vec<Fault>,
    sums: Sums,
    /// Jobs that are not done, as the store counts them.
    left: u64,
    doctor: Result<(), String>,
}

/// Runs the scenario; an error if jobs are lost or the store is not consistent.
#[expect(clippy::print_stderr, reason = "it takes minutes, and the seed is needed if it fails")]
pub(crate) fn run(options: &Options) -> Outcome<String> {
    let seed = options.seed.unwrap_or_else(|| SystemClock.micros());
    eprintln!("seed {seed}");
    let settings = ["shared_buffers = 256MB", "deadlock_timeout = 1s"];
    let database = PostgresServer::start(&settings).ok_or("PostgreSQL is not installed")?;
    let keep = format!("{}s", options.keep_seconds);
    let lease = format!("{}s", LEASE.as_secs());
    let flags = [
        ("--keep-done", keep.as_str()),
        ("--idempotency-window", &keep),
        ("--visibility-timeout", &lease),
        ("--max-retries", "100"),
        ("--retry-strategy", "fixed"),
        ("--retry-initial", "200ms"),
        ("--worker-heartbeat", "1s"),
    ];
    let mut flags: Vec<String> =
        flags.iter().flat_map(|(name, value)| [(*name).to_owned(), (*value).to_owned()]).collect();
    flags.push("--webhook-allow-private".to_owned());
    let cluster = Arc::new(Cluster {
        database,
        binary: server::binary(options.binary.as_deref())?,
        settings: flags,
        nodes: Mutex::new((0..options.nodes.max(1)).map(|_| None).collect()),
        clients: Arc::new(Clients::default()),
    });
    cluster.start()?;
    let tokio = Builder::new_multi_thread().worker_threads(4).enable_all().build()?;
    let results = tokio.block_on(soak(options, seed, &cluster))?;
    drop(tokio);
    report(options, seed, &results)
}

async fn soak(options: &Options, seed: u64, cluster: &Arc<Cluster>) -> Outcome<Results> {
    let clients = &cluster.clients;
    let webhooks = receive(clients).await?;
    let mut dice = Dice(seed);
    let every = Duration::from_millis(CLIENTS * 1_000 / options.per_second.max(1));
    let (mut producers, mut workers) = (Vec::new(), Vec::new());
    for _ in 0..CLIENTS {
        let caller = Caller::new(clients, dice.roll());
        producers.push(tokio::spawn(caller.produce(every.max(Duration::from_millis(1)), webhooks)));
        workers.push(tokio::spawn(Caller::new(clients, dice.roll()).work()));
    }
    let samples = Arc::new(Mutex::new(Vec::new()));
    let began = SystemClock.micros();
    let sample = Duration::from_secs(options.sample.max(1));
    let sampling =
        tokio::spawn(take_samples(Arc::clone(cluster), Arc::clone(&samples), began, sample));
    let mut faults = Vec::new();
    let elapsed = || Duration::from_micros(SystemClock.micros() - began);
    while elapsed() < Duration::from_secs(options.seconds) {
        sleep(Duration::from_secs(1 + dice.below(options.pause))).await;
        let fault = Fault::ALL[usize::try_from(dice.below(Fault::ALL.len() as u64))?];
        let before = elapsed();
        cluster.inflict(fault, &mut dice).await?;
        progress(before, fault, cluster.clients.ledger.sums());
        faults.push(fault);
    }
    clients.enough.store(true, Ordering::Relaxed);
    sampling.abort();
    for producer in producers {
        producer.await?;
    }
    let left = drain(cluster).await?;
    clients.ended.store(true, Ordering::Relaxed);
    for worker in workers {
        worker.await?;
    }
    let doctor = block_in_place(|| windlass(cluster, &["doctor"]));
    let doctor = doctor.map(drop).map_err(|error| error.to_string());
    let samples = std::mem::take(&mut *samples.lock().map_err(|_| "taking a sample failed")?);
    Ok(Results { samples, faults, sums: clients.ledger.sums(), left, doctor })
}

#[expect(clippy::print_stderr, reason = "it takes minutes, and says how far it is")]
fn progress(at: Duration, fault: Fault, sums: Sums) {
    let (name, seconds) = (fault.name(), at.as_secs());
    eprintln!("{seconds} s: {name}; {} acknowledged, {} done", sums.acknowledged, sums.settled);
}

/// Takes samples until it is aborted, except while the database cannot be reached.
async fn take_samples(
    cluster: Arc<Cluster>,
    samples: Arc<Mutex<Vec<Sample>>>,
    began: u64,
    every: Duration,
) {
    loop {
        sleep(every).await;
        let ms = (SystemClock.micros() - began) / 1_000;
        if let Ok(sample) = block_in_place(|| Sample::take(&cluster, ms))
            && let Ok(mut samples) = samples.lock()
        {
            samples.push(sample);
        }
    }
}

/// Waits, up to a limit, until clients and store agree that all jobs are done; returns the number
/// of jobs that the store still has.
async fn drain(cluster: &Cluster) -> Outcome<u64> {
    let until = SystemClock.micros() + u64::try_from(DRAIN.as_micros())?;
    loop {
        let sums = cluster.clients.ledger.sums();
        let left = block_in_place(|| left(cluster))?;
        let done = left == 0 && sums.settled == sums.acknowledged;
        if done || SystemClock.micros() > until {
            return Ok(left);
        }
        sleep(Duration::from_millis(500)).await;
    }
}

/// Number of jobs that are neither done nor purged.
fn left(cluster: &Cluster) -> Outcome<u64> {
    let said: serde_json::Value = serde_json::from_str(&windlass(cluster, &["status", "--json"])?)?;
    let counts = said["counts"].as_object().ok_or_else(|| format!("no counts in {said}"))?;
    let open = counts.iter().filter(|(view, _)| *view != "done");
    Ok(open.filter_map(|(_, count)| count.as_u64()).sum())
}

/// Runs a command of the binary and returns its output; an error if its exit code is not 0.
fn windlass(cluster: &Cluster, words: &[&str]) -> Outcome<String> {
    let mut command = Command::new(&cluster.binary);
    let said = command.args(["--store", &cluster.store()]).args(words).output()?;
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    if said.status.success() {
        return Ok(text);
    }
    let error = String::from_utf8_lossy(&said.stderr);
    Err(format!("windlass {}: {}: {text}{error}", words.join(" "), said.status).into())
}

fn report(options: &Options, seed: u64, results: &Results) -> Outcome<String> {
    let mut lines: Vec<String> =
        results.samples.iter().map(|sample| sample.line(options.json)).collect::<Outcome<_>>()?;
    let (sizes, flat) = judge(options.json, &results.samples, options.keep_seconds * 4_000)?;
    lines.extend(sizes);
    let sums = results.sums;
    let lost = sums.acknowledged.saturating_sub(sums.settled) + results.left;
    let mut line = Line::new(options.json, "soak-nodes").word("seed", &seed.to_string());
    for fault in Fault::ALL {
        let times = results.faults.iter().filter(|one| **one == fault).count();
        line = line.count(fault.name(), times);
    }
    for (name, count) in [
        ("seconds", options.seconds),
        ("nodes", options.nodes as u64),
        ("acknowledged", sums.acknowledged),
        ("done", sums.settled),
        ("lost", lost),
        ("unexpected", sums.unexpected),
        ("verdicts_twice", sums.verdicts_twice),
        ("tokens_twice", sums.tokens_twice),
        ("webhooks_again", sums.calls_again),
        ("dropped_by_workers", sums.dropped),
        ("refused_reports", sums.refused),
        ("unanswered", sums.unanswered),
        ("odd_answers", sums.odd),
    ] {
        line = line.count(name, usize::try_from(count)?);
    }
    let flat = flat.map_or("too short to say", |flat| if flat { "yes" } else { "no" });
    let doctor = if results.doctor.is_ok() { "clean" } else { "problems" };
    lines.push(line.word("doctor", doctor).word("flat", flat).finish());
    let lines = lines.join("\n");
    let wrong = lost + sums.unexpected + sums.verdicts_twice + sums.tokens_twice + sums.odd;
    match &results.doctor {
        Ok(()) if wrong == 0 => Ok(lines),
        Ok(()) => Err(format!("{lines}\njobs are lost, unexpected or settled twice").into()),
        Err(problems) => Err(format!("{lines}\n{problems}").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Asked {
        #[command(flatten)]
        options: Options,
    }

    fn output(results: &Results) -> Outcome<String> {
        let asked: Asked = clap::Parser::parse_from(["bench", "--json"]);
        report(&asked.options, 7, results)
    }

    fn results(sums: Sums) -> Results {
        let faults = vec![Fault::Kill, Fault::Crash, Fault::Kill];
        Results { samples: Vec::new(), faults, sums, left: 0, doctor: Ok(()) }
    }

    #[test]
    fn all_done_and_consistent_is_success() {
        let line =
            output(&results(Sums { acknowledged: 5, settled: 5, ..Sums::default() })).unwrap();
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(
            (&line["lost"], &line["kill"], &line["crash"]),
            (&0.into(), &2.into(), &1.into())
        );
        assert_eq!((&line["seed"], &line["flat"]), (&"7".into(), &"too short to say".into()));
    }

    #[test]
    fn what_must_not_happen_fails_the_run_and_is_reported() {
        let whole = Sums { acknowledged: 5, settled: 5, ..Sums::default() };
        let lost = output(&results(Sums { settled: 4, ..whole })).unwrap_err().to_string();
        assert!(lost.contains("\"lost\":1"), "{lost}");
        let left = output(&Results { left: 2, ..results(whole) }).unwrap_err().to_string();
        assert!(left.contains("\"lost\":2"), "{left}");
        for wrong in [
            Sums { unexpected: 1, ..whole },
            Sums { verdicts_twice: 1, ..whole },
            Sums { tokens_twice: 1, ..whole },
            Sums { odd: 1, ..whole },
        ] {
            assert!(output(&results(wrong)).is_err(), "{wrong:?}");
        }
        let doctor = Err("counters differ".to_owned());
        let problems = output(&Results { doctor, ..results(whole) }).unwrap_err().to_string();
        assert!(problems.ends_with("counters differ"), "{problems}");
    }
}
