//! `GET /history`: counters, times, gauges and marks as the store keeps them, in steps. For the
//! shortest steps, the samples of this server are added.

use std::collections::{BTreeMap, BTreeSet};

use windlass_core::store::{Cause, FigureRange, FigureRow, Reader, StoreError};
use windlass_core::{FigureSet, Figures, Gauge, Millis, QueueName, Span, Wall};

use crate::api::history::{RANGES, Range, Sample};
use crate::api::problem::{self, Problem};
use crate::api::quantile::quantile;
use crate::api::wire::{History, HistoryMark, HistorySeries, Query, QueueHistory, Time};
use crate::app::now;
use crate::http::router::{self, Answer, Call};

/// The shortest steps in which the store keeps figures.
const STORED: Millis = Millis::seconds(10);
/// How long a gauge holds if no later one is known. A server writes one a minute at least.
const HOLD: Millis = Millis::seconds(75);
/// Marks this long before a failure are shown with it.
const COINCIDES: Millis = Millis::minutes(2);
/// Marks that are returned, the latest.
const MARKS: usize = 200;
/// Steps of each queue with `split=queue`.
const SPLIT: usize = 60;
/// Queues that are returned with `split=queue`.
const SPLIT_QUEUES: usize = 200;

/// `GET /history`
pub(crate) async fn history(call: Call) -> Answer {
    let query = call.query(&["range", "queue", "split"])?;
    let range = range(&query)?;
    let queue = query.get("queue").map(QueueName::new).transpose()?;
    let split = split(&query)?;
    let wanted = queue.clone();
    let read = move |reader: &mut dyn Reader| {
        let now = reader.now(now())?;
        Ok((range.from(now), Stored::read(reader, range, now, wanted.as_ref(), split)?))
    };
    let (from, stored) = call.app.reads.read(read).await?;
    let seen = call.app.history.samples(range, from, queue.as_ref());
    router::ok(&History {
        from: Time(from),
        step_ms: range.step.get(),
        covers: "store".into(),
        series: series(range, from, &stored, &seen),
        marks: stored.marks(),
        queues: stored.queues(),
    })
}

/// Marks shortly before an instant, at the resolution of the store.
pub(crate) fn marks_before(
    reader: &mut dyn Reader,
    at: Wall,
) -> Result<Vec<HistoryMark>, StoreError> {
    let spans = Span::ALL.into_iter().filter(|span| span.length().is_some());
    let range = |span: Span| {
        let from = span.slot(at.minus(COINCIDES));
        FigureRange { span, from, to: at.plus(Millis::new(1)) }
    };
    let mut stored = Stored::default();
    for row in reader.figures(&spans.map(range).collect::<Vec<_>>())? {
        stored.add_marks(row.key.slot, None, &set(&row)?);
    }
    Ok(stored.marks())
}

fn set(row: &FigureRow) -> Result<FigureSet, StoreError> {
    let corrupt = |bad| StoreError::Corrupt(Cause::new(&format!("{:?}: {bad}", row.key)));
    FigureSet::from_bytes(&row.data).map_err(corrupt)
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

/// The words for what was done, in the order in which they are listed within a slot.
const DONE: [&str; 4] = ["started", "paused", "resumed", "settings"];

/// What was done: when, its place in [`DONE`], and to which queue.
type Mark = (Wall, usize, Option<QueueName>);

/// What the store has kept of a range.
#[derive(Default)]
struct Stored {
    /// The start of the first step, and the length of each.
    from: Wall,
    step: Millis,
    steps: Vec<Figures>,
    gauges: Vec<Gauge>,
    marks: BTreeSet<Mark>,
    /// What was done in each queue, if that was asked.
    split: BTreeMap<QueueName, Vec<u64>>,
}

impl Stored {
    /// Reads rows one by one, so that no more is held than is returned.
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
        let steps = vec![Figures::default(); count];
        let mut stored = Self { from, step, steps, ..Self::default() };
        let spans = Span::ALL.into_iter().filter(|span| span.length().is_some());
        let earlier = from.minus(HOLD);
        let ranges: Vec<FigureRange> =
            spans.map(|span| FigureRange { span, from: earlier, to }).collect();
        for row in reader.figures(&ranges)? {
            stored.add(&row, queue, split.then(|| to.since(from)))?;
        }
        Ok(stored)
    }

    /// Adds a row. With `split`, the length of the range, also to the queues by themselves.
    fn add(
        &mut self,
        row: &FigureRow,
        queue: Option<&QueueName>,
        split: Option<Millis>,
    ) -> Result<(), StoreError> {
        let set = set(row)?;
        self.gauges.extend(set.gauges().of(queue));
        let slot = row.key.slot;
        if slot < self.from {
            return Ok(());
        }
        let since = slot.since(self.from).get();
        if let Some(split) = split {
            let part = since.saturating_mul(SPLIT as u64) / split.get().max(1);
            self.add_split(usize::try_from(part).unwrap_or(usize::MAX), &set);
        }
        self.add_marks(slot, queue, &set);
        let at = usize::try_from(since / self.step.get()).unwrap_or(usize::MAX);
        let Some(sum) = self.steps.get_mut(at) else { return Ok(()) };
        match queue {
            None => sum.add(&set.sum()),
            Some(name) => set.queue(name).into_iter().for_each(|figures| sum.add(figures)),
        }
        Ok(())
    }

    /// Adds what was done within a slot to one queue or to all, and starts of processes.
    fn add_marks(&mut self, slot: Wall, queue: Option<&QueueName>, set: &FigureSet) {
        if set.other().starts > 0 {
            self.marks.insert((slot, 0, None));
        }
        let wanted = |name: &QueueName| queue.is_none_or(|queue| queue == name);
        let queues = set.queues().filter(|(name, _)| wanted(name));
        let queues = queues.map(|(name, figures)| (Some(name.clone()), figures));
        let other = queue.is_none().then_some((None, set.other()));
        for (name, figures) in queues.chain(other) {
            let done = [figures.paused, figures.resumed, figures.settings];
            let done = (1..).zip(done).filter(|(_, count)| *count > 0);
            self.marks.extend(done.map(|(what, _)| (slot, what, name.clone())));
        }
        while self.marks.len() > MARKS {
            self.marks.pop_first();
        }
    }

    fn marks(&self) -> Vec<HistoryMark> {
        let mark = |(at, what, queue): &Mark| {
            let queue = queue.as_ref().map(|name| name.as_str().into());
            HistoryMark { at: Time(*at), what: DONE[*what].into(), queue }
        };
        self.marks.iter().map(mark).collect()
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
        let of_queue = |(name, done): (&QueueName, &Vec<u64>)| QueueHistory {
            name: name.as_str().into(),
            done: done.clone(),
        };
        self.split.iter().map(of_queue).collect()
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

/// The latest gauge of each step; where there is none, the one before as long as it holds.
fn gauges(range: Range, from: Wall, mut known: Vec<Gauge>) -> Vec<Option<Gauge>> {
    known.sort_unstable();
    let mut known = known.into_iter().peekable();
    let mut last: Option<Gauge> = None;
    let mut found = Vec::with_capacity(range.steps);
    for place in 0..range.steps as u64 {
        let start = from.plus(range.step.times(place));
        let end = start.plus(range.step);
        while let Some(gauge) = known.next_if(|gauge| gauge.at < end) {
            last = Some(gauge);
        }
        let holds = |gauge: &Gauge| gauge.at >= start || start.since(gauge.at) < HOLD;
        found.push(last.filter(holds));
    }
    found
}

/// A value for each step. Steps that are shorter than the store's have what this server counted in
/// them, or an even part of the store's.
#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn series(range: Range, from: Wall, stored: &Stored, seen: &[Option<Sample>]) -> HistorySeries {
    let mut series = HistorySeries::default();
    let part = range.step.get() as f64 / stored.step.get() as f64;
    let known = stored.gauges.iter().copied();
    let known = known.chain(seen.iter().flatten().map(|sample| sample.gauge));
    let gauges = gauges(range, from, known.collect());
    for (place, (sample, gauge)) in seen.iter().zip(gauges).enumerate() {
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
        series.queued.push(gauge.map(|gauge| gauge.queued));
        series.processing.push(gauge.map(|gauge| gauge.processing));
        series.oldest_age_ms.push(gauge.map(|gauge| gauge.oldest_ms));
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
        Stored { from, step, steps: vec![figures; 60], ..Stored::default() }
    }

    fn gauge(seconds: i64, queued: u64) -> Gauge {
        Gauge { at: Wall::new(seconds * 1_000), queued, ..Gauge::default() }
    }

    fn sample(seconds: i64, done: u64) -> Sample {
        let totals = Totals { done, ..Totals::default() };
        Sample { gauge: gauge(seconds, 7), totals }
    }

    #[test]
    fn short_steps_have_what_was_counted_or_an_even_part_of_what_is_stored() {
        let seen = [None, Some(sample(2, 100)), Some(sample(4, 103)), None, Some(sample(8, 104))];
        let series = series(RANGES[0], Wall::new(0), &stored(10), &seen);
        let done: Vec<String> = series.done.iter().map(ToString::to_string).collect();
        assert_eq!(done, ["2", "2", "3", "2", "2"]);
        assert_eq!(series.queued, [None, Some(7), Some(7), Some(7), Some(7)]);
        assert_eq!(series.wait_p95_ms, [None; 5]);
    }

    #[test]
    fn long_steps_are_the_stores_own() {
        let seen = [Some(sample(0, 100)), Some(sample(10, 103))];
        let series = series(RANGES[1], Wall::new(0), &stored(10), &seen);
        let done: Vec<String> = series.done.iter().map(ToString::to_string).collect();
        assert_eq!(done, ["10", "10"]);
    }

    #[test]
    fn a_gauge_holds_until_the_next_one_and_no_longer_than_a_server_is_silent() {
        let range = Range { name: "test", step: Millis::seconds(10), steps: 12 };
        let known = vec![gauge(95, 4), gauge(-5, 1), gauge(11, 2), gauge(19, 3)];
        let queued: Vec<Option<u64>> = gauges(range, Wall::new(0), known)
            .into_iter()
            .map(|gauge| gauge.map(|gauge| gauge.queued))
            .collect();
        let mut wanted = vec![Some(1)];
        // That of second 19 holds until second 94; the step that begins at 90 has it and a later.
        wanted.extend([Some(3); 8]);
        wanted.extend([Some(4); 3]);
        assert_eq!(queued, wanted);
        let gap = gauges(range, Wall::new(0), vec![gauge(5, 1)]);
        assert_eq!(gap.iter().flatten().count(), 8, "from second 0, and up to second 80");
    }
}
