//! The state of everything at one instant: what one read of the store finds, made into a snapshot.
//! Nothing here grows with the number of jobs.

use std::collections::{BTreeMap, VecDeque};

use windlass_core::bulk::Bulk;
use windlass_core::store::{Filter, Reader, StoreError, WorkerRow};
use windlass_core::{
    Counts, Demand, FigureSet, Gauge, MaxRunning, Millis, QueueName, QueueRow, View, Wall,
};
use windlass_runtime_tokio::{Health, Histogram, Queue};

use crate::api::groups::{Groups, GroupsRead, Known};
use crate::api::handlers::{bulk, queues};
use crate::api::history::{self, Sample, Samples, Totals};
use crate::api::quantile::quantile;
use crate::api::wire::{
    BulkLine, ErrorCounts, LateRates, QueueLine, Slots, Snapshot, StatusCounts, StoreFacts, Time,
    WorkerCounts,
};
use crate::app::{App, now};
use crate::http::ui;
use crate::store::{self, StoreBytes};

/// Maximum number of queues in a snapshot.
const SHOWN: usize = 200;
/// Maximum bytes of these queues as JSON. The rest of a snapshot has a few thousand: within 80 kB.
const QUEUE_BYTES: usize = 72_000;
/// Recent rates are over this time.
const RATE_WINDOW: Millis = Millis::seconds(10);

/// The rows of one read.
#[derive(Debug)]
pub(crate) struct Seen {
    /// Time of the read, by the store's clock.
    pub(crate) now: Wall,
    rows: Vec<(QueueRow, Option<Wall>)>,
    workers: Vec<WorkerRow>,
    next_due: Option<Wall>,
    last_done: Option<Wall>,
    totals: FigureSet,
    minute: FigureSet,
    /// `None` if none has changed.
    groups: Option<GroupsRead>,
    bulk: Vec<BulkLine>,
}

impl Seen {
    pub(crate) fn read(reader: &mut dyn Reader, known: &Known) -> Result<Self, StoreError> {
        let now = reader.now(now())?;
        let done = Filter { view: Some(View::Done), ..Filter::default() };
        let last = reader.list(&done, None, 1)?.jobs.pop();
        let recent =
            |bulk: &&Bulk| bulk.ended_at.is_none_or(|at| now.since(at) <= Millis::minutes(1));
        let (rows, totals) = (queues::all(reader)?, FigureSet::totals(reader)?);
        Ok(Self {
            now,
            groups: known.read(reader, rows.iter().map(|(row, _)| row), &totals, now)?,
            rows,
            workers: reader.workers()?,
            next_due: reader.next_due()?,
            last_done: last.and_then(|job| job.finished_at()),
            totals,
            minute: FigureSet::last_minute(reader, now)?.0,
            bulk: bulk::all(reader)?.iter().filter(recent).map(BulkLine::of).collect(),
        })
    }

    /// When jobs were last counted for the history, by any server, in the last minute.
    pub(crate) fn gauged_at(&self) -> Option<Wall> {
        self.minute.gauges().all.map(|gauge| gauge.at)
    }

    /// This instant as history samples.
    pub(crate) fn samples(&self) -> Samples {
        let now = self.now;
        let gauge = Gauge { at: now, ..Gauge::default() };
        let mut sum = Sample { gauge, totals: Totals::of(&self.totals.sum()) };
        let mut all = Vec::with_capacity(self.rows.len());
        for (row, oldest) in &self.rows {
            let counts = row.total();
            let totals = self.totals.queue(&row.queue.name).map(Totals::of).unwrap_or_default();
            let gauge = Gauge {
                at: now,
                queued: counts.get(View::Queued),
                processing: counts.get(View::Processing),
                oldest_ms: oldest.map_or(0, |oldest| now.since(oldest).get()),
            };
            sum.gauge.queued += gauge.queued;
            sum.gauge.processing += gauge.processing;
            sum.gauge.oldest_ms = sum.gauge.oldest_ms.max(gauge.oldest_ms);
            all.push((row.queue.name.clone(), Sample { gauge, totals }));
        }
        all.sort_by_key(|(_, sample)| std::cmp::Reverse(sample.totals.enqueued));
        all.truncate(history::QUEUES);
        Samples { sum, queues: all.into_iter().collect() }
    }
}

/// Makes snapshots, one after the other: rates and revisions compare with those before.
#[derive(Debug, Default)]
pub(crate) struct Maker {
    /// Counters of the last ten seconds, oldest first.
    lately: VecDeque<(Wall, BTreeMap<QueueName, Totals>, Totals)>,
    /// The queues in the snapshot before.
    sent: BTreeMap<String, Sent>,
    rev: u64,
    groups: Groups,
    /// The workers of the snapshot before, and whether each was alive.
    workers: Vec<(WorkerRow, bool)>,
    workers_rev: u64,
}

/// A queue as it was sent last.
#[derive(Debug, Clone)]
struct Sent {
    line: QueueLine,
    /// When its longest-waiting job became due.
    oldest: Option<Wall>,
}

impl Sent {
    /// Whether nothing but the age has changed.
    fn same(&self, line: &QueueLine, oldest: Option<Wall>) -> bool {
        let age = line.oldest_ready_age_ms;
        self.oldest == oldest
            && QueueLine { oldest_ready_age_ms: age, ..self.line.clone() } == *line
    }
}

/// A snapshot in both forms.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) full: Snapshot,
    /// Only the queues that changed since the one before.
    pub(crate) delta: Snapshot,
}

impl Maker {
    /// The groups of the snapshot before, which are read again only after a change.
    pub(crate) fn known(&self) -> Known {
        self.groups.known()
    }

    pub(crate) fn make(&mut self, app: &App, seen: &Seen, bytes: StoreBytes) -> Pair {
        let (earlier, window) = self.remember(seen);
        let mut lines = self.lines(seen, &earlier, window);
        lines.sort_by(|(a, _), (b, _)| importance(b).cmp(&importance(a)).then(a.name.cmp(&b.name)));
        let all = lines.len();
        fit(&mut lines);
        let changed: Vec<QueueLine> = lines
            .iter()
            .filter(|(line, oldest)| {
                self.sent.get(&line.name).is_none_or(|sent| !sent.same(line, *oldest))
            })
            .map(|(line, _)| line.clone())
            .collect();
        let sent: BTreeMap<String, Sent> = lines
            .iter()
            .map(|(line, oldest)| (line.name.clone(), Sent { line: line.clone(), oldest: *oldest }))
            .collect();
        let removed: Vec<String> =
            self.sent.keys().filter(|name| !sent.contains_key(*name)).cloned().collect();
        self.sent = sent;
        let sum = Totals::of(&seen.totals.sum()).since(&earlier.1);
        let workers_rev = self.rev_of_workers(seen);
        let mut full = Snapshot {
            queues: lines.into_iter().map(|(line, _)| line).collect(),
            more: all > self.sent.len(),
            rates: rates(&sum, window),
            errors: self.groups.count(seen.groups.as_ref(), seen.now),
            ..whole(app, seen, bytes)
        };
        full.workers.rev = workers_rev;
        // What changed and what was removed may together be more than all queues there are.
        if json_bytes(&changed) + json_bytes(&removed) > QUEUE_BYTES {
            return Pair { delta: full.clone(), full };
        }
        let delta = Snapshot { full: false, queues: changed, removed, ..full.clone() };
        Pair { full, delta }
    }

    /// The revision of the workers: the one before if they are as they were.
    fn rev_of_workers(&mut self, seen: &Seen) -> u64 {
        let last_seen = Wall::new(0);
        let rows = seen.workers.iter();
        let rows = rows.map(|row| (WorkerRow { last_seen, ..row.clone() }, row.is_alive(seen.now)));
        let workers: Vec<(WorkerRow, bool)> = rows.collect();
        if workers != self.workers {
            self.workers = workers;
            self.workers_rev += 1;
        }
        self.workers_rev
    }

    /// Keeps the counters of this instant, and says with which earlier ones to compare them, and
    /// how long ago those were.
    fn remember(&mut self, seen: &Seen) -> ((BTreeMap<QueueName, Totals>, Totals), Millis) {
        let now = seen.now;
        // A clock that was set back, or a long time without viewers.
        let stale = |at: Wall| now < at || now.since(at) > RATE_WINDOW.times(2);
        if self.lately.back().is_some_and(|(at, ..)| stale(*at)) {
            self.lately.clear();
        }
        let by_queue: BTreeMap<QueueName, Totals> = seen
            .totals
            .queues()
            .map(|(name, figures)| (name.clone(), Totals::of(figures)))
            .collect();
        self.lately.push_back((now, by_queue, Totals::of(&seen.totals.sum())));
        while self.lately.get(1).is_some_and(|(at, ..)| now.since(*at) >= RATE_WINDOW) {
            self.lately.pop_front();
        }
        let (at, queues, sum) = self
            .lately
            .front()
            .cloned()
            .unwrap_or_else(|| (now, BTreeMap::new(), Totals::default()));
        ((queues, sum), now.since(at))
    }

    fn lines(
        &mut self,
        seen: &Seen,
        (earlier, _): &(BTreeMap<QueueName, Totals>, Totals),
        window: Millis,
    ) -> Vec<(QueueLine, Option<Wall>)> {
        let now = seen.now;
        let demands: Vec<&Demand> =
            seen.workers.iter().filter_map(|worker| worker.demand(now)).collect();
        let mut lines = Vec::with_capacity(seen.rows.len());
        for (row, oldest) in &seen.rows {
            let name = &row.queue.name;
            let minute = seen.minute.queue(name);
            let totals = seen.totals.queue(name).map(Totals::of).unwrap_or_default();
            let recent = totals.since(&earlier.get(name).copied().unwrap_or_default());
            let rates = rates(&recent, window);
            let pause = row.queue.paused.as_ref();
            let mut line = QueueLine {
                name: name.as_str().into(),
                paused: pause.is_some(),
                paused_at: pause.and_then(|pause| pause.at).map(Time),
                paused_by: pause.and_then(|pause| pause.by.as_deref().map(Into::into)),
                counts: StatusCounts::of(&row.total()),
                oldest_ready_age_ms: oldest.map(|oldest| now.since(oldest).get()),
                concurrency: row.queue.settings.concurrency.map(MaxRunning::get),
                enqueued_per_s: rates.enqueued_per_s,
                done_per_s: rates.done_per_s,
                wait_p95_ms: minute.and_then(|figures| quantile(&figures.wait, 950)),
                run_p95_ms: minute.and_then(|figures| quantile(&figures.run, 950)),
                run_p50_ms: minute.and_then(|figures| quantile(&figures.run, 500)),
                starved: starved(row, &demands),
                rev: 0,
            };
            line.rev = self.rev_of(&line);
            lines.push((line, *oldest));
        }
        lines
    }

    /// The revision of a queue: the one before if nothing but ages and rates changed.
    fn rev_of(&mut self, line: &QueueLine) -> u64 {
        let before = self.sent.get(&line.name).map(|sent| &sent.line);
        let same = before.filter(|before| {
            before.counts == line.counts
                && before.paused == line.paused
                && before.concurrency == line.concurrency
                && before.starved == line.starved
        });
        if let Some(before) = same {
            return before.rev;
        }
        self.rev += 1;
        self.rev
    }
}

/// Keeps the first queues, as many as a snapshot may have.
fn fit(lines: &mut Vec<(QueueLine, Option<Wall>)>) {
    let (mut bytes, mut count) = (0, 0);
    for (line, _) in lines.iter().take(SHOWN) {
        let more = json_bytes(line) + 1;
        if bytes + more > QUEUE_BYTES {
            break;
        }
        (bytes, count) = (bytes + more, count + 1);
    }
    lines.truncate(count);
}

fn json_bytes(value: &impl serde::Serialize) -> usize {
    serde_json::to_vec(value).map_or(0, |json| json.len())
}

/// Starved queues first, then paused ones with jobs, then by the number of waiting jobs.
fn importance(line: &QueueLine) -> (bool, bool, u64) {
    let waits = line.oldest_ready_age_ms.is_some();
    (line.starved, line.paused && waits, line.counts.waiting())
}

/// Whether jobs are due that no worker takes.
fn starved(row: &QueueRow, demands: &[&Demand]) -> bool {
    !row.queue.is_paused()
        && row.kinds.iter().any(|(kind, counts)| {
            counts.get(View::Queued) > 0
                && !demands.iter().any(|demand| demand.wants(&row.queue.name, kind))
        })
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn rates(happened: &Totals, window: Millis) -> LateRates {
    if window.get() == 0 {
        return LateRates::default();
    }
    let rate = |count: u64| (count as f64 * 1e4 / window.get() as f64).round() / 10.0;
    LateRates {
        enqueued_per_s: rate(happened.enqueued),
        done_per_s: rate(happened.done),
        failed_per_s: (happened.failed as f64 * 1e6 / window.get() as f64).round() / 1e3,
    }
}

/// Everything but queues and rates.
fn whole(app: &App, seen: &Seen, bytes: StoreBytes) -> Snapshot {
    let now = seen.now;
    let counts = seen.rows.iter().fold(Counts::default(), |sum, (row, _)| sum.plus(&row.total()));
    let oldest = seen.rows.iter().filter_map(|(_, oldest)| *oldest).min();
    let (slots, workers) = workers(&seen.workers, now);
    Snapshot {
        at: Time(now),
        full: true,
        build: ui::build(),
        version: env!("CARGO_PKG_VERSION"),
        host: store::host_name(),
        label: app.label.clone(),
        health: health(&app.health()),
        started_at: Time(app.started_at),
        counts: StatusCounts::of(&counts),
        retrying: counts.retrying(),
        oldest_ready_age_ms: oldest.map(|oldest| now.since(oldest).get()),
        next_due: seen.next_due.map(Time),
        last_done_at: seen.last_done.map(Time),
        slots,
        workers,
        rates: LateRates::default(),
        queues: Vec::new(),
        removed: Vec::new(),
        more: false,
        queues_total: seen.rows.len(),
        errors: ErrorCounts::default(),
        bulk: seen.bulk.clone(),
        store: facts(app, bytes),
    }
}

/// `good`, or what is wrong.
pub(crate) fn health(health: &Health) -> String {
    match (health, health.cause()) {
        (Health::Good, _) => "good".into(),
        (_, Some(cause)) => cause.to_string(),
        (other, None) => format!("{other:?}"),
    }
}

fn workers(rows: &[WorkerRow], now: Wall) -> (Slots, WorkerCounts) {
    let (mut slots, mut workers) = (Slots::default(), WorkerCounts::default());
    for row in rows {
        if row.is_alive(now) {
            workers.alive += 1;
            slots.total += row.worker.slots;
            slots.busy += row.running.len();
        } else {
            workers.stale += 1;
            workers.stale_jobs += row.running.len();
        }
    }
    // A remote worker may hold more than it asked for last.
    slots.total = slots.total.max(slots.busy);
    (slots, workers)
}

fn facts(app: &App, bytes: StoreBytes) -> StoreFacts {
    let commit = app.queue.as_ref().map(Queue::metrics).map(|metrics| metrics.commit);
    let commit = commit.unwrap_or_default();
    let disk = app.store.file().and_then(store::disk_space);
    StoreFacts {
        kind: app.store.kind(),
        durability: app.durability(),
        bytes: bytes.store,
        wal_bytes: bytes.wal,
        free_bytes: disk.map(|disk| disk.free),
        total_bytes: disk.map(|disk| disk.total),
        commit_p50_ms: commit_ms(&commit, 500),
        commit_p95_ms: commit_ms(&commit, 950),
    }
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn commit_ms(commit: &Histogram, thousandths: u64) -> f64 {
    // The bound of a bucket is twice its start: the middle is nearer to what was measured.
    commit.quantile(thousandths) as f64 * 0.75 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::{Kind, Kinds, Pause, Queues};

    fn row(queued: u64, paused: bool) -> QueueRow {
        let mut queue = windlass_core::Queue::new(QueueName::default());
        queue.paused = paused.then(Pause::default);
        let counts = Counts::new([queued, 0, 0, 0, 0, 0]);
        QueueRow { kinds: vec![(Kind::new("email").unwrap(), counts)], ..QueueRow::empty(queue) }
    }

    #[test]
    fn a_queue_is_starved_if_a_job_is_due_that_no_worker_takes() {
        let other = Demand { queues: Queues::All, kinds: Kinds::only(vec![Kind::default()]) };
        assert!(starved(&row(1, false), &[]));
        assert!(starved(&row(1, false), &[&other]));
        assert!(!starved(&row(1, false), &[&other, &Demand::ALL]));
        assert!(!starved(&row(0, false), &[]), "nothing waits");
        assert!(!starved(&row(1, true), &[]), "it is paused, which is said as such");
    }

    #[test]
    fn rates_are_per_second_and_nothing_without_time() {
        let happened = Totals { enqueued: 20, done: 10, failed: 1, retried: 0 };
        let found = rates(&happened, Millis::seconds(10));
        assert_eq!(found.enqueued_per_s.to_string(), "2");
        assert_eq!((found.done_per_s * 10.0).round().to_string(), "10");
        assert_eq!(rates(&happened, Millis::ZERO), LateRates::default());
    }
}
