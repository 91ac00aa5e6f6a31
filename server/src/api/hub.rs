//! The one reader of the runtime's events. It numbers them, keeps the latest for clients that come
//! back, and writes the log line of each attempt.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use windlass_core::store::Change;
use windlass_core::{StateName, Wall};
use windlass_runtime_tokio::{Clock, Event, EventStream, SystemClock};

use crate::api::others::Hint;
use crate::api::timings::Timings;
use crate::attempts;
use crate::http::limits::EVENT_WINDOW;

/// Maximum number of events taken while holding the lock, for which clients wait.
const AT_ONCE: usize = 1_024;

/// Recent events, numbered, and their subscribers.
#[derive(Debug)]
pub(crate) struct Hub {
    inner: Mutex<Inner>,
    /// Waiting and run times by kind, which the store does not keep: those of jobs that this
    /// process saw claimed and ended. `None` unless they were asked for.
    pub(crate) times: Option<Times>,
    /// The number of the latest event.
    latest: watch::Sender<u64>,
}

/// How long jobs waited and ran.
#[derive(Debug, Default)]
pub(crate) struct Times {
    pub(crate) wait: Timings,
    pub(crate) run: Timings,
}

#[derive(Debug)]
struct Inner {
    /// The latest events, ending with number `next - 1`.
    window: VecDeque<Entry>,
    next: u64,
}

/// An event as clients get it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Entry {
    /// A change by this process, or one whose details were dropped.
    Own(Event),
    /// Other processes changed something.
    Others(Hint),
}

/// A part of the window, for one client.
#[derive(Debug)]
pub(crate) enum Part {
    /// These events, the first with this number.
    Events(u64, Vec<Entry>),
    /// The window does not reach back that far any more; it would go on with this number.
    Lost(u64),
}

impl Hub {
    /// Numbers go on from the clock, so that those of an earlier start are not taken for ours.
    /// With `by_kind`, waiting and run times are counted by kind.
    pub(crate) fn new(now: Wall, by_kind: bool) -> Arc<Self> {
        let first = now.get().max(1).cast_unsigned().saturating_mul(1_000);
        let inner = Mutex::new(Inner { window: VecDeque::new(), next: first });
        let times = by_kind.then(Times::default);
        Arc::new(Self { inner, times, latest: watch::Sender::new(first - 1) })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads all events until the runtime ends. `others` is notified of what other processes wrote.
    pub(crate) async fn follow(self: Arc<Self>, mut events: EventStream, others: Arc<Notify>) {
        let mut some = Vec::new();
        while events.next_many(&mut some, AT_ONCE).await > 0 {
            let before = some.len();
            some.retain(|event| *event != Event::Lagged(0));
            if some.len() < before {
                others.notify_one();
            }
            self.take(&mut some, SystemClock.now().wall);
        }
    }

    /// Other processes changed something in these queues.
    pub(crate) fn others_changed(&self, hint: Hint) {
        let latest = {
            let mut inner = self.inner();
            inner.keep(Entry::Others(hint));
            inner.next - 1
        };
        self.latest.send_replace(latest);
    }

    /// Drains a batch of events.
    fn take(&self, events: &mut Vec<Event>, now: Wall) {
        for event in events.iter() {
            match event {
                Event::Job(change) => {
                    self.attempt_started(change);
                    self.attempt_ended(change, now);
                }
                Event::Lagged(lost @ 1..) => {
                    tracing::warn!(lost, "events were lost; the log lacks attempts");
                }
                Event::Queue(_) | Event::Lagged(0) => {}
            }
        }
        let latest = {
            let mut inner = self.inner();
            for event in events.drain(..) {
                inner.keep(Entry::Own(event));
            }
            inner.next - 1
        };
        self.latest.send_replace(latest);
    }

    fn attempt_started(&self, change: &Change) {
        let started = change.started_at.filter(|_| change.to == Some(StateName::Processing));
        if let (Some(started), Some(times)) = (started, &self.times) {
            let waited = Duration::from_millis(started.since(change.run_at).get());
            times.wait.observe(&change.queue, &change.kind, waited.as_secs_f64());
        }
    }

    fn attempt_ended(&self, change: &Change, now: Wall) {
        let ran = attempts::log(change, now);
        if let (Some(millis), Some(times)) = (ran, &self.times) {
            let seconds = Duration::from_millis(millis).as_secs_f64();
            times.run.observe(&change.queue, &change.kind, seconds);
        }
    }

    /// Subscribes to new events.
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
}

impl Inner {
    fn keep(&mut self, entry: Entry) {
        if self.window.len() == EVENT_WINDOW {
            self.window.pop_front();
        }
        self.window.push_back(entry);
        self.next += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::{JobId, Kind, QueueName};

    fn change(from: Option<StateName>, to: Option<StateName>) -> Event {
        let (queue, kind) = (QueueName::default(), Kind::default());
        let (id, run_at, started_at) = (JobId::FIRST, Wall::new(0), Some(Wall::new(0)));
        let given_back = false;
        Event::Job(Change { id, queue, kind, from, to, run_at, started_at, given_back })
    }

    #[test]
    fn a_client_that_comes_back_gets_what_it_missed_and_one_too_late_a_reset() {
        let hub = Hub::new(Wall::new(1), false);
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
        let (old, new) = (Hub::new(Wall::new(1_000), false), Hub::new(Wall::new(2_000), false));
        for hub in [&old, &new] {
            hub.take(&mut vec![change(None, Some(StateName::Queued))], Wall::new(0));
        }
        let last = *old.watch().borrow();
        assert!(matches!(new.behind(last, 10), Part::Lost(_)));
    }
}
