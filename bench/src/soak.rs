//! The `soak` scenario: minutes of mixed load at a steady rate, with samples of memory, log and
//! file. It reports whether they stay flat once the first jobs have been purged.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::Args;
use windlass_core::store::{Retention, Store};
use windlass_core::{Millis, RetryPolicy, Strategy};
use windlass_runtime_tokio::{Clock, Context, NewJob, Queue, Runtime, SystemClock};

use crate::bare::{KIND, Place, Which, on_store};
use crate::measure::{Line, Outcome};
use crate::proc;

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    place: Place,
    /// Time to measure, in seconds.
    #[arg(long, default_value_t = 300)]
    seconds: u64,
    /// Number of jobs to enqueue per second, if the machine keeps up.
    #[arg(long, default_value_t = 1_000)]
    per_second: u64,
    /// Time between two samples, in milliseconds; a 60th of the time if not given.
    #[arg(long)]
    sample_ms: Option<u64>,
    /// Time that done jobs are kept, in seconds; growth is judged after four times this.
    #[arg(long, default_value_t = 10)]
    keep_seconds: u64,
    /// Number of jobs that run at once.
    #[arg(long, default_value_t = 64)]
    workers: usize,
    /// Print one JSON line per sample, and one with the verdict.
    #[arg(long)]
    json: bool,
}

/// Sizes at one moment.
#[derive(Debug, Clone, Copy, Default)]
struct Sample {
    ms: u64,
    done: u64,
    rss_kib: u64,
    wal_kib: u64,
    file_kib: u64,
}

/// Runs the load; returns a line for each sample, and the verdict.
pub(crate) fn run(options: &Options) -> Outcome<String> {
    let folder = options.place.folder()?;
    let path = folder.path();
    let samples = on_store!(options.place, path, |store| load(options, store, path))?;
    let mut lines: Vec<String> =
        samples.iter().map(|sample| sample.line(options)).collect::<Outcome<_>>()?;
    lines.push(verdict(options, &samples)?);
    Ok(lines.join("\n"))
}

fn load<S>(options: &Options, store: S, folder: &Path) -> Outcome<Vec<Sample>>
where
    S: Store + Send + 'static,
    S::Reader: Send + 'static,
{
    let done = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&done);
    let tokio = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    tokio.block_on(async {
        let keep = Some(Millis::seconds(options.keep_seconds));
        let queue = Runtime::builder(store)
            .workers(options.workers)
            .retention(Retention { done: keep, failed: keep, cancelled: keep })
            .handler(KIND, move |text: String, context: Context| {
                let fails = text.starts_with(FAILS) && context.attempt() == 1;
                count.fetch_add(u64::from(!fails), Ordering::Relaxed);
                let fault = || std::io::Error::other("the first attempt fails");
                async move { if fails { Err(fault()) } else { Ok(()) } }
            })
            .start()?;
        let producer = tokio::spawn(produce(queue.clone(), options.seconds, options.per_second));
        let every = options.sample_ms.unwrap_or(options.seconds * 1_000 / 60).max(100);
        let began = SystemClock.micros();
        let mut samples = Vec::new();
        while let Some(next) = (samples.len() as u64 + 1).checked_mul(every)
            && next <= options.seconds * 1_000
        {
            let now = (SystemClock.micros() - began) / 1_000;
            tokio::time::sleep(Duration::from_millis(next.saturating_sub(now))).await;
            let seen = done.load(Ordering::Relaxed);
            let take = || Sample::take(&options.place, began, seen, folder);
            samples.push(tokio::task::block_in_place(take)?);
        }
        producer.await?.map_err(|error| error.to_string())?;
        queue.shutdown(Duration::from_secs(10)).await;
        Ok(samples)
    })
}

/// Payloads that begin with this fail at their first attempt.
const FAILS: &str = "fails";

type Produced = Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// Enqueues ten times a second, in requests of up to a hundred jobs, `per_second` in all.
async fn produce(queue: Queue, seconds: u64, per_second: u64) -> Produced {
    let mut ticks = tokio::time::interval(Duration::from_millis(100));
    let mut number = 0;
    for tick in 1..=seconds * 10 {
        ticks.tick().await;
        let due = per_second * tick / 10;
        while number < due {
            let until = due.min(number + 100);
            let jobs = (number..until).map(job).collect::<Result<Vec<_>, _>>()?;
            for receipt in queue.enqueue_many(jobs).await? {
                receipt?;
            }
            number = until;
        }
    }
    Ok(())
}

/// One job of the mix: most payloads are small, some have 1 kB and 10 kB; some jobs are delayed,
/// some fail at first; three priorities. It depends on the number alone.
fn job(number: u64) -> Result<NewJob, Box<dyn std::error::Error + Send + Sync>> {
    let bytes = match number % 50 {
        0 => 10_000,
        1..10 => 1_000,
        _ => 100,
    };
    let begin = if number % 20 == 3 { FAILS } else { "works" };
    let job = NewJob::of(KIND, &format!("{begin}{}", "x".repeat(bytes)))?;
    let soon = RetryPolicy::new(Strategy::Fixed, Millis::new(500), Millis::new(500), 0)?;
    let job = job.retry(soon).priority(i16::try_from(number % 3)?);
    Ok(if number % 10 == 7 { job.delay(Duration::from_secs(2)) } else { job })
}

impl Sample {
    fn take(place: &Place, began: u64, done: u64, folder: &Path) -> Outcome<Self> {
        let files = [folder.join("jobs.db"), folder.join("jobs.redb")];
        let file_kib = match place.store {
            // Its files belong to the server, which says how large tables and indexes are.
            Which::Postgres(_) => place.size_kib(folder)?,
            _ => files.iter().map(|file| proc::file_kib(file)).sum(),
        };
        Ok(Self {
            ms: (SystemClock.micros() - began) / 1_000,
            done,
            rss_kib: proc::usage()?.rss_kib,
            wal_kib: proc::file_kib(&folder.join("jobs.db-wal")),
            file_kib,
        })
    }

    fn line(self, options: &Options) -> Outcome<String> {
        let line = Line::new(options.json, "soak-sample")
            .word("store", options.place.name())
            .count("ms", usize::try_from(self.ms)?)
            .count("done", usize::try_from(self.done)?)
            .count("rss_kib", usize::try_from(self.rss_kib)?)
            .count("wal_kib", usize::try_from(self.wal_kib)?)
            .count("file_kib", usize::try_from(self.file_kib)?);
        Ok(line.finish())
    }
}

/// One figure of a sample.
type Figure = fn(&Sample) -> u64;

fn verdict(options: &Options, samples: &[Sample]) -> Outcome<String> {
    let settled = options.keep_seconds * 4 * 1_000;
    let judged: Vec<Sample> = samples.iter().filter(|one| one.ms >= settled).copied().collect();
    let last = samples.last().copied().unwrap_or_default();
    let mut line = Line::new(options.json, "soak")
        .word("store", options.place.name())
        .count("seconds", usize::try_from(options.seconds)?)
        .count("per_second", usize::try_from(options.per_second)?)
        .count("done", usize::try_from(last.done)?)
        .count("samples_judged", judged.len());
    let of: [(&str, Figure); 3] = [
        ("rss", |sample| sample.rss_kib),
        ("wal", |sample| sample.wal_kib),
        ("file", |sample| sample.file_kib),
    ];
    let mut flat = judged.len() >= MIN_SAMPLES;
    for (name, figure) in of {
        let figures: Vec<u64> = judged.iter().map(figure).collect();
        let (before, after) = halves(&figures);
        flat &= stays(before, after, ALLOWED_KIB);
        line = line
            .count(&format!("{name}_early_kib"), usize::try_from(before)?)
            .count(&format!("{name}_late_kib"), usize::try_from(after)?);
    }
    let word = if judged.len() < MIN_SAMPLES {
        "too short to say"
    } else if flat {
        "yes"
    } else {
        "no"
    };
    Ok(line.word("flat", word).finish())
}

/// Samples that are needed to judge growth.
pub(crate) const MIN_SAMPLES: usize = 8;

/// The largest figures of the earlier and of the later half.
pub(crate) fn halves(figures: &[u64]) -> (u64, u64) {
    let (early, late) = figures.split_at(figures.len() / 2);
    let most = |part: &[u64]| part.iter().max().copied().unwrap_or(0);
    (most(early), most(late))
}

/// Growth in KiB that is always allowed.
pub(crate) const ALLOWED_KIB: u64 = 4 * 1_024;

/// Whether the later half is larger by at most a tenth, or by `allowed` if that is more.
pub(crate) fn stays(early: u64, late: u64, allowed: u64) -> bool {
    late <= early + (early / 10).max(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_distinguished_from_wobble() {
        assert!(stays(100_000, 109_000, ALLOWED_KIB));
        assert!(!stays(100_000, 120_000, ALLOWED_KIB));
        assert!(stays(100, 4_000, ALLOWED_KIB));
        assert!(!stays(100, 4_000, 1_024));
        assert_eq!(halves(&[1, 5, 2, 9]), (5, 9));
        assert_eq!(halves(&[]), (0, 0));
    }

    #[derive(clap::Parser)]
    struct Asked {
        #[command(flatten)]
        options: Options,
    }

    #[test]
    fn a_short_soak_runs_its_jobs_and_dares_no_verdict() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().to_str().unwrap();
        let words = ["bench", "--json", "--seconds", "1", "--sample-ms", "250", "--dir", folder];
        let asked: Asked = clap::Parser::parse_from(words);
        let output = run(&asked.options).unwrap();
        let lines: Vec<serde_json::Value> =
            output.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let [samples @ .., verdict] = lines.as_slice() else { panic!("{output}") };
        assert_eq!(samples.len(), 4, "{output}");
        assert!(samples.iter().all(|line| line["scenario"] == "soak-sample"), "{output}");
        assert!(verdict["done"].as_u64() > Some(0), "{output}");
        assert_eq!(verdict["flat"], "too short to say");
    }

    #[test]
    fn on_postgres_the_size_is_that_of_tables_and_indexes() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().to_str().unwrap();
        let words = ["bench", "--json", "--seconds", "1", "--dir", folder, "--store", "postgres"];
        let asked: Asked = clap::Parser::parse_from(words);
        let output = match run(&asked.options) {
            Err(error) if error.to_string().contains("not installed") => return,
            output => output.unwrap(),
        };
        let first: serde_json::Value =
            serde_json::from_str(output.lines().next().unwrap()).unwrap();
        assert!(first["file_kib"].as_u64() > Some(0), "{output}");
    }

    #[test]
    fn what_grows_is_not_called_flat() {
        let asked: Asked = clap::Parser::parse_from(["bench", "--json", "--keep-seconds", "1"]);
        let sample = |ms: u64, rss_kib: u64| Sample { ms, rss_kib, ..Sample::default() };
        let verdict_of = |grows: u64| {
            let samples: Vec<Sample> =
                (0..40).map(|at| sample(at * 500, 50_000 + at * grows)).collect();
            verdict(&asked.options, &samples).unwrap()
        };
        assert!(verdict_of(0).contains(r#""flat":"yes""#), "{}", verdict_of(0));
        assert!(verdict_of(1_000).contains(r#""flat":"no""#), "{}", verdict_of(1_000));
    }

    #[test]
    fn the_mix_is_made_of_valid_jobs() {
        for number in 0..100 {
            job(number).unwrap().check().unwrap();
        }
    }
}
