//! How long the jobs that this process claims and ends wait and run, by queue and kind. The store
//! keeps these times by queue only. The number of series is bounded: pairs beyond it are counted
//! together.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::histogram::Histogram;
use windlass_core::{Kind, QueueName};

use crate::api::metrics::OTHERS;
use crate::http::limits::METRIC_TIMINGS;

/// Bounds in seconds: from a millisecond to an hour.
const BOUNDS: [f64; 14] =
    [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0, 3_600.0];

type Series = (QueueName, Kind);

/// One histogram per queue and kind.
#[derive(Debug)]
pub(crate) struct Timings {
    series: Mutex<BTreeMap<Series, Histogram>>,
    others: Histogram,
}

impl Default for Timings {
    fn default() -> Self {
        Self { series: Mutex::default(), others: Histogram::new(BOUNDS) }
    }
}

impl Timings {
    fn series(&self) -> MutexGuard<'_, BTreeMap<Series, Histogram>> {
        self.series.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn observe(&self, queue: &QueueName, kind: &Kind, seconds: f64) {
        let of = (queue.clone(), kind.clone());
        let mut series = self.series();
        if series.len() >= METRIC_TIMINGS && !series.contains_key(&of) {
            self.others.observe(seconds);
            return;
        }
        series.entry(of).or_insert_with(|| Histogram::new(BOUNDS)).observe(seconds);
    }

    /// Writes the series of all pairs of queue and kind.
    pub(crate) fn encode(&self, metric: &mut MetricEncoder<'_>) -> std::fmt::Result {
        let series = self.series();
        for ((queue, kind), histogram) in series.iter() {
            write(metric, queue.as_str(), kind.as_str(), histogram)?;
        }
        if series.len() >= METRIC_TIMINGS {
            write(metric, OTHERS, OTHERS, &self.others)?;
        }
        Ok(())
    }
}

fn write(
    metric: &mut MetricEncoder<'_>,
    queue: &str,
    kind: &str,
    histogram: &Histogram,
) -> std::fmt::Result {
    histogram.encode(metric.encode_family(&[("queue", queue), ("kind", kind)])?)
}

#[cfg(test)]
mod tests {
    use prometheus_client::collector::Collector;
    use prometheus_client::encoding::DescriptorEncoder;
    use prometheus_client::encoding::text::encode;
    use prometheus_client::metrics::MetricType;
    use prometheus_client::registry::Registry;

    use super::*;

    impl Collector for Timings {
        fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
            let mut metric = encoder.encode_descriptor("t", "T", None, MetricType::Histogram)?;
            Self::encode(self, &mut metric)
        }
    }

    fn counts(timings: Timings) -> Vec<String> {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(timings));
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        text.lines().filter(|line| line.starts_with("t_count")).map(Into::into).collect()
    }

    #[test]
    fn each_pair_of_queue_and_kind_has_a_series_and_those_beyond_the_limit_are_one() {
        let kinds: Vec<Kind> = ["a", "b"].map(|name| Kind::new(name).unwrap()).into();
        let fill = |queues: usize| {
            let timings = Timings::default();
            for n in 0..queues {
                let queue = QueueName::new(&format!("q{n:05}")).unwrap();
                for kind in &kinds {
                    timings.observe(&queue, kind, 0.2);
                }
            }
            counts(timings)
        };
        let both =
            ["t_count{queue=\"q00000\",kind=\"a\"} 1", "t_count{queue=\"q00000\",kind=\"b\"} 1"];
        assert_eq!(fill(1), both);
        let many = fill(METRIC_TIMINGS / 2 + 3);
        assert_eq!(many.len(), METRIC_TIMINGS + 1);
        assert_eq!(many.last().unwrap(), "t_count{queue=\"_other\",kind=\"_other\"} 6");
    }
}
