//! `GET /history`: counters and times as the store keeps them, and what this server has seen wait
//! and run, in the same steps.

use std::collections::BTreeMap;

use windlass_core::store::{Cause, FigureRange, Reader, StoreError};
use windlass_core::{FigureSet, Figures, Millis, QueueName, Span, Wall};

use crate::api::history::{Past, RANGES, Range, Sample};
use crate::api::problem::{self, Problem};
use crate::api::quantile::quantile;
use crate::api::wire::{History, HistorySeries, Query, QueueHistory, Time};
use crate::app::now;
use crate::http::router::{self, Answer, Call};

/// The shortest steps in which the store keeps figures.
const STORED: Millis = Millis::seconds(10);
/// Steps of each queue with `split=queue`.
const SPLIT: usize = 60;
/// Queues that are told with `split=queue`.
const SPLIT_QUEUES: usize = 200;

/// `GET /history`
pub(crate) async fn history(call: Call) -> Answer {
    let query = call.query(&["range", "queue", "split"])?;
    let range = range(&query)?;
    let queue = query.get("queue").map(QueueName::new).transpose()?;
    let split = split(&query)?;
    let now = now();
    let from = range.from(now);
    let wanted = queue.clone();
    let stored =
        call.app.reads.read(move |reader| Stored::read(reader, range, now, wanted.as_ref(), split));
    let stored = stored.await?;
    let seen = call.app.history.samples(range, from, queue.as_ref());
    router::ok(&History {
        from: Time(from),
        step_ms: range.step.get(),
        covers: "store",
        series: series(range, from, &stored, &seen),
        marks: call.app.history.marks(from, queue.as_ref()),
        queues: stored.queues(),
    })
}

fn range(query: &Query) -> Result<Range, Problem> {
    let name = query.get("range").unwrap_or("1h");
    RANGES.into_iter().find(|range| range.name == name).ok_or_else(|| {
        let names: Vec<&str> = RANGES.iter().map(|range| range.name).collect();
        let detail = format!("`range` must be one of {}", names.join(", "));
        Problem::new(problem::INVALID, detail)
    })
}

fn split(query: &Query) -> Result<bool, Problem> {
    match query.get("split") {
        None => Ok(false),
        Some("queue") => Ok(true),
        Some(_) => Err(Problem::new(problem::INVALID, "`split` must be `queue`, or absent")),
    }
}

/// What the store has kept of a range.
struct Stored {
    /// The start of the first step, and the length of each.
    from: Wall,
    step: Millis,
    steps: Vec<Figures>,
    /// What was done in each queue, if that was asked.
    split: BTreeMap<QueueName, Vec<u64>>,
}

impl Stored {
    /// Reads rows one by one, so that no more is held than is told.
    fn read(
        reader: &mut dyn Reader,
        range: Range,
        now: Wall,
        queue: Option<&QueueName>,
        split: bool,
    ) -> Result<Self, StoreError> {
        let step = range.step.max(STORED);
        let from = range.from(now);
        let from = from.minus(Millis::new(from.get().rem_euclid(as_i64(step)).unsigned_abs()));
        let to = now.plus(Millis::new(1));
        let count = usize::try_from(to.since(from).get().div_ceil(step.get())).unwrap_or(0);
        let mut stored =
            Self { from, step, steps: vec![Figures::default(); count], split: BTreeMap::new() };
        let spans = Span::ALL.into_iter().filter(|span| span.length().is_some());
        let ranges: Vec<FigureRange> = spans.map(|span| FigureRange { span, from, to }).collect();
        let span = to.since(from).get().max(1);
        for row in reader.figures(&ranges)? {
            let set = FigureSet::from_bytes(&row.data)
                .map_err(|bad| StoreError::Corrupt(Cause::new(&format!("{:?}: {bad}", row.key))))?;
            let since = row.key.slot.since(from).get();
            if split {
                let part = since.saturating_mul(SPLIT as u64) / span;
                stored.add_split(usize::try_from(part).unwrap_or(usize::MAX), &set);
            }
            let at = usize::try_from(since / step.get()).unwrap_or(usize::MAX);
            let Some(sum) = stored.steps.get_mut(at) else { continue };
            match queue {
                None => sum.add(&set.sum()),
                Some(name) => set.queue(name).into_iter().for_each(|figures| sum.add(figures)),
            }
        }
        Ok(stored)
    }

    fn add_split(&mut self, at: usize, set: &FigureSet) {
        for (name, figures) in set.queues().filter(|(_, figures)| figures.done > 0) {
            if self.split.len() >= SPLIT_QUEUES && !self.split.contains_key(name) {
                continue;
            }
            let line = self.split.entry(name.clone()).or_insert_with(|| vec![0; SPLIT]);
            if let Some(sum) = line.get_mut(at) {
                *sum += figures.done;
            }
        }
    }

    fn queues(&self) -> Vec<QueueHistory> {
        let told = |(name, done): (&QueueName, &Vec<u64>)| QueueHistory {
            name: name.as_str().into(),
            done: done.clone(),
        };
        self.split.iter().map(told).collect()
    }

    /// What happened in the stored step that an instant falls into.
    fn at(&self, at: Wall) -> Option<&Figures> {
        let place = at.since(self.from).get() / self.step.get();
        self.steps.get(usize::try_from(place).unwrap_or(usize::MAX))
    }
}

fn as_i64(length: Millis) -> i64 {
    i64::try_from(length.get()).unwrap_or(i64::MAX).max(1)
}

/// A value for each step. Steps that are shorter than the store's have what this server counted in
/// them, or an even part of the store's.
#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn series(range: Range, from: Wall, stored: &Stored, seen: &[Option<Sample>]) -> HistorySeries {
    let mut series = HistorySeries::default();
    let part = range.step.get() as f64 / stored.step.get() as f64;
    let held = Past::held(range, seen);
    for (place, (sample, held)) in seen.iter().zip(held).enumerate() {
        let figures = stored.at(from.plus(range.step.times(place as u64)));
        let before = place.checked_sub(1).and_then(|before| seen[before]);
        let counted = match (sample, before) {
            (Some(now), Some(before)) if part < 1.0 => Some(now.totals.since(&before.totals)),
            _ => None,
        };
        let count = |seen: Option<u64>, of: fn(&Figures) -> u64| -> f64 {
            let even = figures.map_or(0.0, |figures| of(figures) as f64 * part);
            seen.map_or((even * 100.0).round() / 100.0, |seen| seen as f64)
        };
        series.enqueued.push(count(counted.map(|c| c.enqueued), |f| f.enqueued));
        series.done.push(count(counted.map(|c| c.done), |f| f.done));
        series.failed.push(count(counted.map(|c| c.failed), |f| f.failed));
        series.retried.push(count(counted.map(|c| c.retried), |f| f.retried));
        series.queued.push(held.map(|sample| sample.queued));
        series.processing.push(held.map(|sample| sample.processing));
        series.oldest_age_ms.push(held.map(|sample| sample.oldest_ms));
        let times = |of: fn(&Figures) -> &windlass_core::Times, thousandths| {
            figures.and_then(|figures| quantile(of(figures), thousandths))
        };
        series.wait_p50_ms.push(times(|f| &f.wait, 500));
        series.wait_p95_ms.push(times(|f| &f.wait, 950));
        series.run_p50_ms.push(times(|f| &f.run, 500));
        series.run_p95_ms.push(times(|f| &f.run, 950));
    }
    series
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::history::Totals;

    fn stored(done: u64) -> Stored {
        let figures = Figures { done, ..Figures::default() };
        let (from, step) = (Wall::new(0), Millis::seconds(10));
        Stored { from, step, steps: vec![figures; 60], split: BTreeMap::new() }
    }

    fn sample(done: u64) -> Sample {
        let totals = Totals { done, ..Totals::default() };
        Sample { queued: 7, totals, ..Sample::default() }
    }

    #[test]
    fn short_steps_have_what_was_counted_or_an_even_part_of_what_is_stored() {
        let seen = [None, Some(sample(100)), Some(sample(103)), None, Some(sample(104))];
        let series = series(RANGES[0], Wall::new(0), &stored(10), &seen);
        let done: Vec<String> = series.done.iter().map(ToString::to_string).collect();
        assert_eq!(done, ["2", "2", "3", "2", "2"]);
        assert_eq!(series.queued, [None, Some(7), Some(7), Some(7), Some(7)]);
        assert_eq!(series.wait_p95_ms, [None; 5]);
    }

    #[test]
    fn long_steps_are_the_stores_own() {
        let seen = [Some(sample(100)), Some(sample(103))];
        let series = series(RANGES[1], Wall::new(0), &stored(10), &seen);
        let done: Vec<String> = series.done.iter().map(ToString::to_string).collect();
        assert_eq!(done, ["10", "10"]);
    }
}
