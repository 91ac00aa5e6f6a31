//! The one reader of the runtime's events. It numbers them, keeps the latest for clients that come
//! back, counts per queue, and writes the log line of each attempt.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus_client::metrics::histogram::Histogram;
use tokio::sync::watch;
use windlass_core::store::Change;
use windlass_core::{QueueName, StateName, Wall};
use windlass_runtime_tokio::{Clock, Event, EventStream, SystemClock};

use crate::limits::{EVENT_WINDOW, METRIC_QUEUES};
use crate::metrics::{OTHERS, seconds};
use crate::rates::{Minute, Sum};

/// How many events are taken at once, at most: clients wait for the lock meanwhile.
const AT_ONCE: usize = 1_024;

/// What has happened lately, and how often.
#[derive(Debug)]
pub(crate) struct Hub {
    inner: Mutex<Inner>,
    /// How long claimed jobs had waited since they were due.
    pub(crate) wait: Histogram,
    /// How long attempts ran.
    pub(crate) run: Histogram,
    /// The number of the latest event.
    latest: watch::Sender<u64>,
}

#[derive(Debug)]
struct Inner {
    /// The latest events, ending with number `next - 1`.
    window: VecDeque<Event>,
    next: u64,
    minute: Minute,
    queues: BTreeMap<QueueName, Tally>,
    /// All queues beyond the limit.
    others: Tally,
}

/// What has happened in one queue since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) enqueued: u64,
    pub(crate) deduplicated: u64,
    pub(crate) started: u64,
    pub(crate) done: u64,
    pub(crate) failed: u64,
    pub(crate) cancelled: u64,
    pub(crate) retried: u64,
}

impl Tally {
    /// How attempts and jobs ended, by outcome.
    pub(crate) fn finished(&self) -> [(&'static str, u64); 4] {
        [
            ("done", self.done),
            ("failed", self.failed),
            ("cancelled", self.cancelled),
            ("retried", self.retried),
        ]
    }

    fn count(&mut self, change: &Change) {
        if change.from.is_none() {
            self.enqueued += 1;
        }
        if change.to == Some(StateName::Processing) {
            self.started += 1;
        }
        match (change.from, change.to) {
            (from, Some(StateName::Done)) if from != change.to => self.done += 1,
            (from, Some(StateName::Failed)) if from != change.to => self.failed += 1,
            (from, Some(StateName::Cancelled)) if from != change.to => self.cancelled += 1,
            (Some(StateName::Processing), Some(StateName::Queued | StateName::Processing)) => {
                self.retried += 1;
            }
            _ => {}
        }
    }
}

fn count(sum: &mut Sum, change: &Change) {
    let mut tally = Tally::default();
    tally.count(change);
    sum.enqueued += tally.enqueued;
    sum.started += tally.started;
    sum.done += tally.done;
    sum.failed += tally.failed;
}

/// A part of the window, for one client.
#[derive(Debug)]
pub(crate) enum Part {
    /// These events, the first with this number.
    Events(u64, Vec<Event>),
    /// The window does not reach back that far any more; it would go on with this number.
    Lost(u64),
}

impl Hub {
    /// Numbers go on from the clock, so that those of an earlier start are not taken for ours.
    pub(crate) fn new(now: Wall) -> Arc<Self> {
        let first = now.get().max(1).cast_unsigned().saturating_mul(1_000);
        let inner = Inner {
            window: VecDeque::new(),
            next: first,
            minute: Minute::new(now),
            queues: BTreeMap::new(),
            others: Tally::default(),
        };
        Arc::new(Self {
            inner: Mutex::new(inner),
            wait: seconds(),
            run: seconds(),
            latest: watch::Sender::new(first - 1),
        })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads all events until the runtime ends.
    pub(crate) async fn follow(self: Arc<Self>, mut events: EventStream) {
        let mut some = Vec::new();
        while events.next_many(&mut some, AT_ONCE).await > 0 {
            self.take(&mut some, SystemClock.now().wall);
        }
    }

    /// Takes some events, and leaves none of them.
    fn take(&self, events: &mut Vec<Event>, now: Wall) {
        for event in events.iter() {
            match event {
                Event::Job(change) => {
                    self.attempt_started(change);
                    self.attempt_ended(change, now);
                }
                Event::Lagged(lost @ 1..) => {
                    tracing::warn!(lost, "events came too fast: the counters of queues miss some");
                }
                Event::Queue(_) | Event::Lagged(0) => {}
            }
        }
        let latest = {
            let mut inner = self.inner();
            for event in events.drain(..) {
                inner.take(event, now);
            }
            inner.next - 1
        };
        self.latest.send_replace(latest);
    }

    fn attempt_started(&self, change: &Change) {
        let started = change.started_at.filter(|_| change.to == Some(StateName::Processing));
        if let Some(started) = started {
            let waited = Duration::from_millis(started.since(change.run_at).get());
            self.wait.observe(waited.as_secs_f64());
        }
    }

    fn attempt_ended(&self, change: &Change, now: Wall) {
        if change.from != Some(StateName::Processing) {
            return;
        }
        // The instant of an attempt that replaced this one says nothing about this one.
        let same = change.to != Some(StateName::Processing);
        let ran = change.started_at.filter(|_| same).map(|started| now.since(started).get());
        if let Some(millis) = ran {
            self.run.observe(Duration::from_millis(millis).as_secs_f64());
        }
        tracing::info!(
            job = change.id.get(),
            queue = %change.queue,
            kind = %change.kind,
            became = change.to.map_or("removed", StateName::as_str),
            ran_ms = ran,
            "attempt ended"
        );
    }

    /// A repeated enqueue was answered with the job of the first.
    pub(crate) fn deduplicated(&self, queue: &QueueName, count: u64) {
        self.inner().tally(queue).deduplicated += count;
    }

    /// What happened in the last minute, and over how many milliseconds that is.
    pub(crate) fn last_minute(&self, now: Wall) -> (Sum, u64) {
        self.inner().minute.sum(now)
    }

    /// To be woken when something happens.
    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.latest.subscribe()
    }

    /// Up to `limit` events behind number `after`.
    pub(crate) fn behind(&self, after: u64, limit: usize) -> Part {
        let inner = self.inner();
        let first = inner.next - inner.window.len() as u64;
        if after >= inner.next || after + 1 < first {
            return Part::Lost(inner.next - 1);
        }
        let skip = usize::try_from(after + 1 - first).unwrap_or(usize::MAX);
        let events = inner.window.iter().skip(skip).take(limit).cloned().collect();
        Part::Events(after + 1, events)
    }

    /// What has happened per queue.
    pub(crate) fn tallies(&self) -> Vec<(String, Tally)> {
        let inner = self.inner();
        let named = inner.queues.iter().map(|(name, tally)| (name.as_str().into(), *tally));
        let mut tallies: Vec<(String, Tally)> = named.collect();
        if inner.others != Tally::default() {
            tallies.push((OTHERS.into(), inner.others));
        }
        tallies
    }
}

impl Inner {
    fn take(&mut self, event: Event, now: Wall) {
        if let Event::Job(change) = &event {
            self.tally(&change.queue).count(change);
            count(self.minute.now(now), change);
        }
        if self.window.len() == EVENT_WINDOW {
            self.window.pop_front();
        }
        self.window.push_back(event);
        self.next += 1;
    }

    fn tally(&mut self, queue: &QueueName) -> &mut Tally {
        if !self.queues.contains_key(queue) && self.queues.len() >= METRIC_QUEUES {
            return &mut self.others;
        }
        self.queues.entry(queue.clone()).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::{JobId, Kind};

    fn change(from: Option<StateName>, to: Option<StateName>) -> Event {
        let (queue, kind) = (QueueName::default(), Kind::default());
        let (id, run_at, started_at) = (JobId::FIRST, Wall::new(0), Some(Wall::new(0)));
        Event::Job(Change { id, queue, kind, from, to, run_at, started_at })
    }

    #[test]
    fn a_client_that_comes_back_gets_what_it_missed_and_one_too_late_is_told() {
        let hub = Hub::new(Wall::new(1));
        let first = *hub.watch().borrow() + 1;
        for _ in 0..EVENT_WINDOW + 5 {
            hub.take(&mut vec![change(None, Some(StateName::Queued))], Wall::new(0));
        }
        let last = *hub.watch().borrow();
        assert_eq!(last, first + EVENT_WINDOW as u64 + 4);
        let Part::Events(number, events) = hub.behind(last - 3, 100) else { panic!("lost") };
        assert_eq!((number, events.len()), (last - 2, 3));
        let Part::Events(_, events) = hub.behind(last, 100) else { panic!("lost") };
        assert!(events.is_empty());
        assert!(matches!(hub.behind(first, 100), Part::Lost(at) if at == last));
        assert!(matches!(hub.behind(last + 1, 100), Part::Lost(_)));
        assert!(
            matches!(hub.behind(first + 4, 100), Part::Events(_, events) if events.len() == 100)
        );
    }

    #[test]
    fn numbers_of_an_earlier_start_are_behind_the_window() {
        let (old, new) = (Hub::new(Wall::new(1_000)), Hub::new(Wall::new(2_000)));
        for hub in [&old, &new] {
            hub.take(&mut vec![change(None, Some(StateName::Queued))], Wall::new(0));
        }
        let last = *old.watch().borrow();
        assert!(matches!(new.behind(last, 10), Part::Lost(_)));
    }

    #[test]
    fn queues_beyond_the_limit_are_counted_together() {
        let hub = Hub::new(Wall::new(1));
        for n in 0..METRIC_QUEUES + 3 {
            let queue = QueueName::new(&format!("q{n}")).unwrap();
            hub.deduplicated(&queue, 1);
            hub.deduplicated(&queue, 1);
        }
        let tallies = hub.tallies();
        assert_eq!(tallies.len(), METRIC_QUEUES + 1);
        let others = Tally { deduplicated: 6, ..Tally::default() };
        assert_eq!(tallies.last(), Some(&(OTHERS.into(), others)));
    }

    #[test]
    fn every_move_is_counted_once() {
        let hub = Hub::new(Wall::new(1));
        let (queued, running) = (Some(StateName::Queued), Some(StateName::Processing));
        let moves = [
            (None, running),
            (running, queued),
            (queued, running),
            (running, Some(StateName::Done)),
            (Some(StateName::Done), None),
        ];
        let before = *hub.watch().borrow();
        let mut events = moves.map(|(from, to)| change(from, to)).to_vec();
        hub.take(&mut events, Wall::new(0));
        assert_eq!((events.len(), *hub.watch().borrow()), (0, before + 5));
        let expected = Tally { enqueued: 1, started: 2, done: 1, retried: 1, ..Tally::default() };
        assert_eq!(hub.tallies(), [("default".into(), expected)]);
    }
}
