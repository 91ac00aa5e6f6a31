//! Figures as Prometheus reads them. They are always on; no job is looked at.
//!
//! Counters of jobs are those of the store, the same in every server on it. Requests, commits,
//! slots, the mailbox, and times by kind are those of this process.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use windlass_core::{Counts, FigureSet, Figures as JobFigures, QueueRow, Times, View, Wall};
use windlass_runtime_tokio::{self as runtime, Metrics, Queue};

use crate::api::hub::Hub;
use crate::api::problem::{self, Problem};
use crate::app::App;
use crate::http::limits::METRIC_QUEUES;
use crate::store::{OldestXmin, StoreBytes};

/// The label of all queues beyond the limit; no queue can have this name.
pub(crate) const OTHERS: &str = "_other";

/// Bounds of the time a request takes, in seconds; a poll may wait for 30.
const REQUEST_SECONDS: [f64; 13] =
    [0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0, 60.0];

/// What the HTTP side counts.
#[derive(Debug)]
pub(crate) struct Figures {
    requests: Family<Request, Counter>,
    seconds: Histogram,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Request {
    route: &'static str,
    code: u32,
    method: &'static str,
}

impl Default for Figures {
    fn default() -> Self {
        Self { requests: Family::default(), seconds: Histogram::new(REQUEST_SECONDS) }
    }
}

impl Figures {
    pub(crate) fn served(&self, method: &Method, route: &'static str, code: u16, took: Duration) {
        let method = known(method);
        self.requests.get_or_create(&Request { route, method, code: code.into() }).inc();
        self.seconds.observe(took.as_secs_f64());
    }
}

/// The method as a label: a client cannot make up new ones.
fn known(method: &Method) -> &'static str {
    let known = ["GET", "HEAD", "POST", "PUT", "DELETE"];
    known.into_iter().find(|name| *name == method.as_str()).unwrap_or("other")
}

/// All figures, as OpenMetrics. The queues are those of an instant of the store's clock.
pub(crate) fn open_metrics(
    app: &App,
    queues: (&[(QueueRow, Option<Wall>)], Wall),
    totals: FigureSet,
    bytes: StoreBytes,
    xmin: Option<OldestXmin>,
) -> Result<String, Problem> {
    let mut registry = Registry::default();
    registry.register(
        "windlass_http_requests",
        "Requests served, by route and status",
        app.figures.requests.clone(),
    );
    registry.register(
        "windlass_http_request_seconds",
        "Duration of requests",
        app.figures.seconds.clone(),
    );
    registry.register_collector(Box::new(Snapshot::of(app, app.queue()?, queues, totals, bytes)));
    registry.register_collector(Box::new(Xmin(xmin)));
    let mut text = String::new();
    encode(&mut text, &registry).map_err(|_| {
        Problem::new(problem::INTERNAL, "the figures could not be written; this is a bug")
    })?;
    Ok(text)
}

/// Everything that is looked up when `/metrics` is requested.
#[derive(Debug)]
struct Snapshot {
    queues: Vec<QueueFigures>,
    /// What happened to jobs, in any process.
    totals: FigureSet,
    hub: Arc<Hub>,
    runtime: Metrics,
    mailbox: usize,
    bytes: StoreBytes,
}

#[derive(Debug)]
struct QueueFigures {
    name: String,
    counts: Counts,
    oldest: Option<f64>,
    paused: bool,
}

impl Snapshot {
    fn of(
        app: &App,
        queue: &Queue,
        (rows, now): (&[(QueueRow, Option<Wall>)], Wall),
        totals: FigureSet,
        bytes: StoreBytes,
    ) -> Self {
        Self {
            queues: queue_figures(rows, now),
            totals,
            hub: Arc::clone(&app.hub),
            runtime: queue.metrics(),
            mailbox: queue.mailbox_depth(),
            bytes,
        }
    }
}

fn queue_figures(rows: &[(QueueRow, Option<Wall>)], now: Wall) -> Vec<QueueFigures> {
    let age = |oldest: &Wall| Duration::from_millis(now.since(*oldest).get()).as_secs_f64();
    let figures = |(row, oldest): &(QueueRow, Option<Wall>)| QueueFigures {
        name: row.queue.name.as_str().into(),
        counts: row.total(),
        oldest: oldest.as_ref().map(age),
        paused: row.queue.is_paused(),
    };
    let mut all: Vec<QueueFigures> = rows.iter().take(METRIC_QUEUES).map(figures).collect();
    let rest = rows.get(METRIC_QUEUES..).unwrap_or_default();
    if !rest.is_empty() {
        let counts = rest.iter().fold(Counts::default(), |sum, (row, _)| sum.plus(&row.total()));
        let oldest = rest.iter().filter_map(|(_, oldest)| oldest.as_ref()).min().map(age);
        all.push(QueueFigures { name: OTHERS.into(), counts, oldest, paused: false });
    }
    all
}

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
        self.queues(&mut encoder)?;
        self.counters(&mut encoder)?;
        self.times(&mut encoder)?;
        self.dispatcher(&mut encoder)?;
        let mut build = begin(&mut encoder, "windlass_build_info", "The build", MetricType::Gauge)?;
        let labels = [("version", env!("CARGO_PKG_VERSION"))];
        build.encode_family(&labels)?.encode_gauge(&1_u64)
    }
}

impl Snapshot {
    fn queues(&self, encoder: &mut DescriptorEncoder<'_>) -> std::fmt::Result {
        let mut jobs =
            begin(encoder, "windlass_jobs", "Jobs, by queue and state", MetricType::Gauge)?;
        for queue in &self.queues {
            for view in View::ALL {
                let labels = [("queue", queue.name.as_str()), ("state", view.as_str())];
                jobs.encode_family(&labels)?.encode_gauge(&queue.counts.get(view))?;
            }
        }
        let help = "Queued and scheduled jobs that wait for another attempt";
        let mut retrying = begin(encoder, "windlass_jobs_retrying", help, MetricType::Gauge)?;
        for queue in &self.queues {
            let labels = [("queue", queue.name.as_str())];
            retrying.encode_family(&labels)?.encode_gauge(&queue.counts.retrying())?;
        }
        let help = "Age of the oldest due job";
        let mut ages =
            begin(encoder, "windlass_queue_oldest_age_seconds", help, MetricType::Gauge)?;
        for queue in &self.queues {
            let labels = [("queue", queue.name.as_str())];
            ages.encode_family(&labels)?.encode_gauge(&queue.oldest.unwrap_or(0.0))?;
        }
        let help = "Whether the queue is paused";
        let mut paused = begin(encoder, "windlass_queue_paused", help, MetricType::Gauge)?;
        for queue in &self.queues {
            let labels = [("queue", queue.name.as_str())];
            paused.encode_family(&labels)?.encode_gauge(&u64::from(queue.paused))?;
        }
        Ok(())
    }

    /// What happened in each queue, and in all others together if anything did.
    fn figures(&self) -> impl Iterator<Item = (&str, &JobFigures)> {
        let named = self.totals.queues().map(|(name, figures)| (name.as_str(), figures));
        let other = Some(self.totals.other()).filter(|figures| !figures.is_empty());
        named.chain(other.map(|figures| (OTHERS, figures)))
    }

    fn counters(&self, encoder: &mut DescriptorEncoder<'_>) -> std::fmt::Result {
        type Of = fn(&JobFigures) -> u64;
        let counters: [(&str, &str, Of); 3] = [
            ("windlass_jobs_enqueued", "Jobs stored", |figures| figures.enqueued),
            ("windlass_jobs_deduplicated", "Repeated enqueues", |figures| figures.deduplicated),
            ("windlass_jobs_started", "Attempts started", |figures| figures.started),
        ];
        for (name, help, of) in counters {
            let mut counter = begin(encoder, name, help, MetricType::Counter)?;
            for (queue, figures) in self.figures() {
                count(&mut counter, &[("queue", queue)], of(figures))?;
            }
        }
        let help = "Ended attempts and jobs, by outcome";
        let mut finished = begin(encoder, "windlass_jobs_finished", help, MetricType::Counter)?;
        for (queue, figures) in self.figures() {
            for (outcome, number) in outcomes(figures) {
                count(&mut finished, &[("queue", queue), ("outcome", outcome)], number)?;
            }
        }
        let help = "Leases that expired";
        let mut expired = begin(encoder, "windlass_lease_expired", help, MetricType::Counter)?;
        expired.encode_counter::<NoLabelSet, _, u64>(&self.totals.sum().expired, None)
    }

    /// How long jobs waited and ran: those of the store by queue, those of this process by kind.
    fn times(&self, encoder: &mut DescriptorEncoder<'_>) -> std::fmt::Result {
        let help = "Time from due to claimed";
        let wait = begin(encoder, "windlass_job_wait_seconds", help, MetricType::Histogram)?;
        self.histogram(wait, |figures| &figures.wait)?;
        let help = "Run time of attempts that completed or failed";
        let run = begin(encoder, "windlass_job_run_seconds", help, MetricType::Histogram)?;
        self.histogram(run, |figures| &figures.run)?;
        let Some(times) = &self.hub.times else { return Ok(()) };
        let help = "Time from due to claimed, of jobs that this process saw claimed";
        let name = "windlass_job_wait_by_kind_seconds";
        times.wait.encode(&mut begin(encoder, name, help, MetricType::Histogram)?)?;
        let help = "Run time of attempts that this process saw complete or fail";
        let name = "windlass_job_run_by_kind_seconds";
        times.run.encode(&mut begin(encoder, name, help, MetricType::Histogram)?)
    }

    fn histogram(
        &self,
        mut histogram: MetricEncoder<'_>,
        of: fn(&JobFigures) -> &Times,
    ) -> std::fmt::Result {
        for (queue, figures) in self.figures() {
            let times = of(figures);
            let bound = |at| Times::bound(at).map_or(f64::INFINITY, seconds_of);
            let buckets = times.buckets().iter().enumerate();
            let buckets: Vec<(f64, u64)> = buckets.map(|(at, count)| (bound(at), *count)).collect();
            let (sum, count) = (seconds_of(times.sum()), times.count());
            let labels = [("queue", queue)];
            let mut of_queue = histogram.encode_family(&labels)?;
            of_queue.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
        }
        Ok(())
    }

    fn dispatcher(&self, encoder: &mut DescriptorEncoder<'_>) -> std::fmt::Result {
        let stats = &self.runtime.dispatcher;
        let help = "Reports refused for a lost lease";
        let mut stale = begin(encoder, "windlass_stale_reports", help, MetricType::Counter)?;
        stale.encode_counter::<NoLabelSet, _, u64>(&stats.stale_reports, None)?;
        let help = "Local worker slots";
        let mut slots = begin(encoder, "windlass_worker_slots", help, MetricType::Gauge)?;
        let (busy, all) = (self.runtime.running as u64, self.runtime.workers as u64);
        slots.encode_family(&[("state", "busy")])?.encode_gauge(&busy)?;
        slots.encode_family(&[("state", "free")])?.encode_gauge(&all.saturating_sub(busy))?;
        for (name, help, number) in [
            ("windlass_mailbox_depth", "Requests waiting for the dispatcher", self.mailbox as u64),
            ("windlass_store_bytes", "Size of the store's file", self.bytes.store),
            ("windlass_wal_bytes", "Size of the store's WAL", self.bytes.wal),
        ] {
            begin(encoder, name, help, MetricType::Gauge)?.encode_gauge(&number)?;
        }
        // From 64 µs to 17 s; from one command to 65 536.
        let help = "Duration of commits";
        let mut commits = begin(encoder, "windlass_commit_seconds", help, MetricType::Histogram)?;
        buckets(&mut commits, &self.runtime.commit, 1e6, (6, 24))?;
        let help = "Commands per commit";
        let mut batches =
            begin(encoder, "windlass_commit_batch_commands", help, MetricType::Histogram)?;
        buckets(&mut batches, &self.runtime.batch, 1.0, (1, 16))
    }
}

/// What keeps dead rows of a store on PostgreSQL.
#[derive(Debug)]
struct Xmin(Option<OldestXmin>);

impl Collector for Xmin {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
        let Some(oldest) = &self.0 else { return Ok(()) };
        let name = "windlass_postgres_oldest_xmin_seconds";
        let help = "Seconds for which the oldest transaction has kept dead rows";
        begin(&mut encoder, name, help, MetricType::Gauge)?.encode_gauge(&oldest.seconds)?;
        let name = "windlass_postgres_oldest_xmin_xids";
        let help = "Transactions begun since the oldest snapshot that keeps dead rows";
        begin(&mut encoder, name, help, MetricType::Gauge)?.encode_gauge(&oldest.xids)?;
        let Some(holder) = &oldest.holder else { return Ok(()) };
        let name = "windlass_postgres_oldest_xmin_holder";
        let help = "1 for the holder of the oldest snapshot, if it has been open for 10 s";
        let mut named = begin(&mut encoder, name, help, MetricType::Gauge)?;
        named.encode_family(&[("holder", holder.as_str())])?.encode_gauge(&1_u64)
    }
}

/// Ended attempts and jobs, by outcome. What was released or snoozed is no failure.
fn outcomes(figures: &JobFigures) -> [(&'static str, u64); 5] {
    [
        ("done", figures.done),
        ("failed", figures.failed),
        ("cancelled", figures.cancelled),
        ("retried", figures.retried),
        ("given_back", figures.released.saturating_add(figures.snoozed)),
    ]
}

fn seconds_of(length: windlass_core::Millis) -> f64 {
    Duration::from_millis(length.get()).as_secs_f64()
}

fn begin<'a>(
    encoder: &'a mut DescriptorEncoder<'_>,
    name: &'a str,
    help: &str,
    kind: MetricType,
) -> Result<MetricEncoder<'a>, std::fmt::Error> {
    encoder.encode_descriptor(name, help, None, kind)
}

fn count(
    counter: &mut MetricEncoder<'_>,
    labels: &impl EncodeLabelSet,
    number: u64,
) -> std::fmt::Result {
    counter.encode_family(labels)?.encode_counter::<NoLabelSet, _, u64>(&number, None)
}

/// Writes the buckets from `first` to `last`; what lies below the first counts there, and what lies
/// beyond the last is without bound.
fn buckets(
    histogram: &mut MetricEncoder<'_>,
    figures: &runtime::Histogram,
    unit: f64,
    (first, last): (usize, usize),
) -> std::fmt::Result {
    let bounded = bounded(figures, unit, (first, last));
    #[expect(clippy::cast_precision_loss, reason = "the sum need not be exact")]
    let (sum, count) = (figures.sum as f64 / unit, figures.count());
    histogram.encode_histogram::<NoLabelSet>(sum, count, &bounded, None)
}

#[expect(clippy::cast_precision_loss, reason = "bounds are powers of two")]
fn bounded(
    figures: &runtime::Histogram,
    unit: f64,
    (first, last): (usize, usize),
) -> Vec<(f64, u64)> {
    let mut bounded: Vec<(f64, u64)> = (first..=last)
        .map(|at| (runtime::Histogram::bound(at) as f64 / unit, 0))
        .chain([(f64::INFINITY, 0)])
        .collect();
    for (at, count) in figures.buckets.iter().enumerate() {
        let place = at.clamp(first, last + 1) - first;
        bounded[place].1 += count;
    }
    bounded
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::{Kind, Queue, QueueName};

    fn row(n: usize) -> (QueueRow, Option<Wall>) {
        let queue = Queue::new(QueueName::new(&format!("q{n}")).unwrap());
        let counts = Counts::new([1, 0, 0, 0, 0, 0]);
        let kinds = vec![(Kind::default(), counts)];
        (QueueRow { kinds, ..QueueRow::empty(queue) }, Some(Wall::new(1_000)))
    }

    #[test]
    fn queues_beyond_the_limit_are_counted_together() {
        let rows: Vec<_> = (0..METRIC_QUEUES + 3).map(row).collect();
        let figures = queue_figures(&rows, Wall::new(3_500));
        assert_eq!(figures.len(), METRIC_QUEUES + 1);
        let others = figures.last().unwrap();
        assert_eq!((others.name.as_str(), others.counts.get(View::Queued)), (OTHERS, 3));
        assert_eq!(others.oldest, Some(2.5));
        assert!(QueueName::new(OTHERS).is_err(), "no queue can have that name");
        assert_eq!(queue_figures(&rows[..METRIC_QUEUES], Wall::new(0)).len(), METRIC_QUEUES);
    }

    #[test]
    fn every_value_is_in_one_bucket_and_the_last_has_no_bound() {
        let mut figures = runtime::Histogram::default();
        for at in [0, 3, 5, 39] {
            figures.buckets[at] = 1;
        }
        let found = bounded(&figures, 1.0, (3, 5));
        assert_eq!(found, [(8.0, 2), (16.0, 0), (32.0, 1), (f64::INFINITY, 1)]);
    }

    #[test]
    fn a_method_that_a_client_made_up_makes_no_new_label() {
        assert_eq!(known(&Method::POST), "POST");
        assert_eq!(known(&Method::from_bytes(b"BREW").unwrap()), "other");
    }
}
