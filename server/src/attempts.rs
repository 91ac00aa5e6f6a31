//! The log line of each attempt that ended, written by the process that recorded its end: a server,
//! or a worker process.

use windlass_core::store::Change;
use windlass_core::{StateName, Wall};
use windlass_runtime_tokio::{Clock, Event, EventStream, SystemClock};

/// Logs the end of an attempt, if this change is one, and returns how long it ran, in ms. That is
/// not known of one that was replaced by another in the same commit.
pub(crate) fn log(change: &Change, now: Wall) -> Option<u64> {
    if change.from != Some(StateName::Processing) {
        return None;
    }
    // The instant of an attempt that replaced this one says nothing about this one.
    let same = change.to != Some(StateName::Processing);
    let ran = change.started_at.filter(|_| same).map(|started| now.since(started).get());
    tracing::info!(
        job = change.id.get(),
        queue = %change.queue,
        kind = %change.kind,
        became = change.to.map_or("removed", StateName::as_str),
        ran_ms = ran,
        "attempt ended"
    );
    ran
}

/// How many events are taken at once, at most.
const AT_ONCE: usize = 1_024;

/// Logs the attempts of a process that does nothing else with its events, until its queue ends.
pub(crate) async fn follow(mut events: EventStream) {
    let mut some = Vec::new();
    while events.next_many(&mut some, AT_ONCE).await > 0 {
        let now = SystemClock.now().wall;
        for event in some.drain(..) {
            match event {
                Event::Job(change) => drop(log(&change, now)),
                Event::Lagged(lost @ 1..) => {
                    tracing::warn!(lost, "events were lost; the log lacks attempts");
                }
                Event::Queue(_) | Event::Lagged(0) => {}
            }
        }
    }
}
