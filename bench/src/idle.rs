//! The `idle` and `pickup` scenarios: the cost of an idle runtime, and the time until it starts a
//! job that is enqueued then, beside one sync of the same disk.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::time::Duration;

use clap::Args;
use tokio::sync::mpsc;
use windlass_core::When;
use windlass_core::store::Store;
use windlass_core::{Delay, NewJob};
use windlass_runtime_tokio::{Clock, Context, Runtime, SystemClock};

use crate::bare::{Bare, KIND, LOAD, Place, on_store};
use crate::measure::{Line, Outcome, quantile, rate};
use crate::postgres::Sql;
use crate::proc;

#[derive(Debug, Args)]
pub(crate) struct Idle {
    #[command(flatten)]
    place: Place,
    /// Time to measure, in seconds.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Number of jobs that are stored, scheduled for next year.
    #[arg(long, default_value_t = 0)]
    scheduled: usize,
    /// Open the store for this process alone, which then needs no change checks.
    #[arg(long)]
    alone: bool,
    /// Print one JSON line.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Pickup {
    #[command(flatten)]
    place: Place,
    /// Number of jobs, one after the other, each into an idle runtime.
    #[arg(long, default_value_t = 1_000)]
    jobs: usize,
    /// Print one JSON line.
    #[arg(long)]
    json: bool,
}

/// Runs an idle runtime, and returns what it took.
pub(crate) fn idle(options: &Idle) -> Outcome<String> {
    let folder = options.place.folder()?;
    let path = folder.path();
    let server = Sql::beside(&options.place)?;
    on_store!(options.place, path, |store| idle_on(options, store, server.as_ref()))
}

fn idle_on<S>(options: &Idle, store: S, server: Option<&Sql>) -> Outcome<String>
where
    S: Store + Send + 'static,
    S::Reader: Send + 'static,
{
    let mut bare = Bare::new(store)?;
    let later = NewJob { when: When::After(Delay::new(YEAR_MS)?), ..options.place.job()? };
    bare.enqueue(&later, options.scheduled, LOAD)?;
    let tokio = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let statements = || tokio::task::block_in_place(|| server.map(Sql::statements).transpose());
    let (before, after, asked) = tokio.block_on(async {
        let builder = Runtime::builder(bare.store).handler(KIND, |_: String, _: Context| async {});
        let queue = if options.alone { builder.alone() } else { builder }.start()?;
        // A job first, so that everything has been used once; then a moment for what it leaves.
        let id = queue.enqueue(options.place.job()?).await?.id;
        queue.wait(id).await?;
        queue.idle().await?;
        tokio::time::sleep(Duration::from_millis(500)).await;
        let asked_before = statements()?;
        let before = proc::usage()?;
        tokio::time::sleep(Duration::from_secs(options.seconds)).await;
        let after = proc::usage()?;
        let asked_after = statements()?;
        queue.shutdown(Duration::from_secs(10)).await;
        // The two statements of the count itself are left out.
        let asked = asked_after.zip(asked_before).map(|(after, before)| after - before - 2);
        Outcome::Ok((before, after, asked))
    })?;
    let on_core = Duration::from_nanos(after.on_core_ns - before.on_core_ns);
    let percent =
        100.0 * on_core.as_secs_f64() / Duration::from_secs(options.seconds).as_secs_f64();
    let line = Line::new(options.json, "idle")
        .word("store", options.place.name())
        .word("alone", if options.alone { "yes" } else { "no" })
        .count("scheduled", options.scheduled)
        .count("seconds", usize::try_from(options.seconds)?)
        .count("on_core_us", usize::try_from(on_core.as_micros())?)
        .ratio("core_percent", percent)
        .count("context_switches", usize::try_from(after.switches - before.switches)?)
        .count("rss_kib", usize::try_from(after.rss_kib)?);
    let line = match asked {
        Some(asked) => {
            let time = Duration::from_secs(options.seconds);
            line.ratio("statements_per_s", rate(usize::try_from(asked)?, time))
        }
        None => line,
    };
    Ok(line.finish())
}

const YEAR_MS: u64 = 31_536_000_000;

/// Enqueues into an idle runtime and returns the times until the handler starts.
pub(crate) fn pickup(options: &Pickup) -> Outcome<String> {
    let folder = options.place.folder()?;
    let path = folder.path();
    let disk = Disk::new(path)?;
    on_store!(options.place, path, |store| pickup_on(options, store, &disk))
}

fn pickup_on<S>(options: &Pickup, store: S, disk: &Disk) -> Outcome<String>
where
    S: Store + Send + 'static,
    S::Reader: Send + 'static,
{
    let tokio = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let (pickups, syncs) = tokio.block_on(async {
        let (tell, mut started) = mpsc::unbounded_channel();
        let queue = Runtime::builder(store)
            .handler(KIND, move |_: String, _: Context| {
                let _ = tell.send(SystemClock.micros());
                async {}
            })
            .start()?;
        let (mut pickups, mut syncs) = (Vec::new(), Vec::new());
        for at in 0..options.jobs + WARM_UP {
            queue.idle().await?;
            let sync = disk.sync()?;
            let began = SystemClock.micros();
            queue.enqueue(options.place.job()?).await?;
            let start = started.recv().await.ok_or("no handler runs any more")?;
            if at >= WARM_UP {
                pickups.push(start.saturating_sub(began));
                syncs.push(sync);
            }
        }
        queue.shutdown(Duration::from_secs(10)).await;
        Outcome::Ok((pickups, syncs))
    })?;
    let [p50, p99] = [500, 990].map(|part| quantile(&pickups, part));
    let [sync50, sync99] = [500, 990].map(|part| quantile(&syncs, part));
    let line = Line::new(options.json, "pickup")
        .word("store", options.place.name())
        .count("jobs", options.jobs)
        .count("p50_us", usize::try_from(p50)?)
        .count("p99_us", usize::try_from(p99)?)
        .count("sync_p50_us", usize::try_from(sync50)?)
        .count("sync_p99_us", usize::try_from(sync99)?)
        .ratio("p50_by_bound", ratio(p50, sync50 * 3 / 2 + 300))
        .ratio("p99_by_bound", ratio(p99, (sync50 * 3 / 2 + 300) * 5));
    Ok(line.finish())
}

/// Jobs before the measurement begins.
const WARM_UP: usize = 20;

#[expect(clippy::cast_precision_loss, reason = "figures are rounded anyway")]
fn ratio(one: u64, other: u64) -> f64 {
    one as f64 / other.max(1) as f64
}

/// A file that is overwritten and synced like a log.
struct Disk {
    file: File,
}

impl Disk {
    fn new(folder: &std::path::Path) -> Outcome<Self> {
        let file = File::create(folder.join("sync"))?;
        file.write_all_at(&vec![1; 65_536], 0)?;
        file.sync_all()?;
        Ok(Self { file })
    }

    /// Overwrites 4 KiB and syncs them; returns the time in microseconds.
    fn sync(&self) -> Outcome<u64> {
        let began = SystemClock.micros();
        self.file.write_all_at(&[2; 4_096], 8_192)?;
        self.file.sync_data()?;
        Ok(SystemClock.micros() - began)
    }
}
