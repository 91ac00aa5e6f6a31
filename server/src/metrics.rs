//! Figures as Prometheus reads them (OpenMetrics text). They are always on; no job is looked at.

use std::path::Path;
use std::time::Duration;

use http::Method;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use windlass_core::{Counts, QueueRow, View, Wall};
use windlass_runtime_tokio::{self as runtime, BUCKETS, Metrics};

use crate::app::{App, now};
use crate::hub::Tally;
use crate::limits::METRIC_QUEUES;
use crate::problem::{self, Problem};

/// What the text is.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The label of all queues beyond the limit; no queue can have this name.
pub(crate) const OTHERS: &str = "_other";

/// A histogram of seconds, from 100 µs to about an hour.
pub(crate) fn seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.000_1, 2.0, 26))
}

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
        Self { requests: Family::default(), seconds: seconds() }
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

/// The text of all figures.
pub(crate) fn text(app: &App, rows: &[(QueueRow, Option<Wall>)]) -> Result<String, Problem> {
    let mut registry = Registry::default();
    registry.register(
        "windlass_http_requests",
        "Requests served, by route and status",
        app.figures.requests.clone(),
    );
    registry.register(
        "windlass_http_request_seconds",
        "How long requests took",
        app.figures.seconds.clone(),
    );
    let help = "How long claimed jobs had waited since they were due";
    registry.register("windlass_job_wait_seconds", help, app.hub.wait.clone());
    registry.register("windlass_job_run_seconds", "How long attempts ran", app.hub.run.clone());
    registry.register_collector(Box::new(Snapshot::of(app, rows)));
    let mut text = String::new();
    encode(&mut text, &registry).map_err(|_| {
        Problem::new(problem::INTERNAL, "the figures could not be written; this is a bug")
    })?;
    Ok(text)
}

/// Everything that is looked up when somebody asks.
#[derive(Debug)]
struct Snapshot {
    queues: Vec<QueueFigures>,
    tallies: Vec<(String, Tally)>,
    runtime: Metrics,
    mailbox: usize,
    store_bytes: u64,
    wal_bytes: u64,
}

#[derive(Debug)]
struct QueueFigures {
    name: String,
    counts: Counts,
    oldest: Option<f64>,
    paused: bool,
}

impl Snapshot {
    fn of(app: &App, rows: &[(QueueRow, Option<Wall>)]) -> Self {
        let mut wal = app.store.clone().into_os_string();
        wal.push("-wal");
        Self {
            queues: queue_figures(rows, now()),
            tallies: app.hub.tallies(),
            runtime: app.queue.metrics(),
            mailbox: app.queue.mailbox_depth(),
            store_bytes: length(&app.store),
            wal_bytes: length(Path::new(&wal)),
        }
    }
}

/// The length of a file. It is not opened: that would drop the locks of SQLite.
pub(crate) fn length(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |metadata| metadata.len())
}

fn queue_figures(rows: &[(QueueRow, Option<Wall>)], now: Wall) -> Vec<QueueFigures> {
    let age = |oldest: &Wall| Duration::from_millis(now.since(*oldest).get()).as_secs_f64();
    let figures = |(row, oldest): &(QueueRow, Option<Wall>)| QueueFigures {
        name: row.queue.name.as_str().into(),
        counts: row.total(),
        oldest: oldest.as_ref().map(age),
        paused: row.queue.paused,
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
        self.tallies(&mut encoder)?;
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
        let help = "For how long the longest-waiting due job has been due";
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

    fn tallies(&self, encoder: &mut DescriptorEncoder<'_>) -> std::fmt::Result {
        type Of = fn(&Tally) -> u64;
        let counters: [(&str, &str, Of); 3] = [
            ("windlass_jobs_enqueued", "Jobs stored", |tally| tally.enqueued),
            ("windlass_jobs_deduplicated", "Repeated enqueues", |tally| tally.deduplicated),
            ("windlass_jobs_started", "Attempts started", |tally| tally.started),
        ];
        for (name, help, of) in counters {
            let mut counter = begin(encoder, name, help, MetricType::Counter)?;
            for (queue, tally) in &self.tallies {
                let labels = [("queue", queue.as_str())];
                count(&mut counter, &labels, of(tally))?;
            }
        }
        let help = "How attempts and jobs ended";
        let mut finished = begin(encoder, "windlass_jobs_finished", help, MetricType::Counter)?;
        for (queue, tally) in &self.tallies {
            for (outcome, number) in tally.finished() {
                let labels = [("queue", queue.as_str()), ("outcome", outcome)];
                count(&mut finished, &labels, number)?;
            }
        }
        Ok(())
    }

    fn dispatcher(&self, encoder: &mut DescriptorEncoder<'_>) -> std::fmt::Result {
        let stats = &self.runtime.dispatcher;
        for (name, help, number) in [
            ("windlass_lease_expired", "Leases that ran out", stats.leases_expired),
            ("windlass_stale_reports", "Reports refused for a lost lease", stats.stale_reports),
        ] {
            let mut counter = begin(encoder, name, help, MetricType::Counter)?;
            counter.encode_counter::<NoLabelSet, _, u64>(&number, None)?;
        }
        let help = "Local worker slots";
        let mut slots = begin(encoder, "windlass_worker_slots", help, MetricType::Gauge)?;
        let (busy, all) = (self.runtime.running as u64, self.runtime.workers as u64);
        slots.encode_family(&[("state", "busy")])?.encode_gauge(&busy)?;
        slots.encode_family(&[("state", "free")])?.encode_gauge(&all.saturating_sub(busy))?;
        for (name, help, number) in [
            (
                "windlass_mailbox_depth",
                "Requests that wait for the dispatcher",
                self.mailbox as u64,
            ),
            ("windlass_store_bytes", "Size of the store's file", self.store_bytes),
            ("windlass_wal_bytes", "Size of the store's log", self.wal_bytes),
        ] {
            begin(encoder, name, help, MetricType::Gauge)?.encode_gauge(&number)?;
        }
        for (name, help, figures, unit) in [
            ("windlass_commit_seconds", "How long commits took", &self.runtime.commit, 1e6),
            ("windlass_commit_batch_commands", "Commands in a commit", &self.runtime.batch, 1.0),
        ] {
            let mut histogram = begin(encoder, name, help, MetricType::Histogram)?;
            buckets(&mut histogram, figures, unit)?;
        }
        Ok(())
    }
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

#[expect(clippy::cast_precision_loss, reason = "bounds are powers of two, sums need not be exact")]
fn buckets(
    histogram: &mut MetricEncoder<'_>,
    figures: &runtime::Histogram,
    unit: f64,
) -> std::fmt::Result {
    let counted = figures.buckets.iter().enumerate().map(|(at, count)| {
        let last = at + 1 == BUCKETS;
        let bound = if last { f64::MAX } else { runtime::Histogram::bound(at) as f64 / unit };
        (bound, *count)
    });
    let counted: Vec<(f64, u64)> = counted.collect();
    let (sum, count) = (figures.sum as f64 / unit, figures.count());
    histogram.encode_histogram::<NoLabelSet>(sum, count, &counted, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::{Kind, Queue, QueueName};

    fn row(n: usize) -> (QueueRow, Option<Wall>) {
        let queue = Queue::new(QueueName::new(&format!("q{n}")).unwrap());
        let counts = Counts::new([1, 0, 0, 0, 0, 0]);
        (QueueRow { queue, kinds: vec![(Kind::default(), counts)] }, Some(Wall::new(1_000)))
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
    fn a_method_that_a_client_made_up_makes_no_new_label() {
        assert_eq!(known(&Method::POST), "POST");
        assert_eq!(known(&Method::from_bytes(b"BREW").unwrap()), "other");
    }
}
