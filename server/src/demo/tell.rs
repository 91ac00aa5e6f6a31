//! What the demo says on standard output: a few lines, however much happens.

use std::io::Write;

use tokio::time::Instant;
use windlass_core::store::Change;
use windlass_core::{Counts, StateName, View};
use windlass_runtime_tokio::{Event, EventStream};

/// Listens to what happens, and tells some of it.
pub(super) struct Teller {
    events: EventStream,
    started: Instant,
    retried: u64,
    dead: u64,
    /// A line of each sort per line of figures is enough.
    told: [bool; 2],
}

impl Teller {
    pub(super) fn new(events: EventStream, started: Instant) -> Self {
        Self { events, started, retried: 0, dead: 0, told: [false; 2] }
    }

    /// Listens until the queue ends. Whoever awaits something else drops this meanwhile.
    pub(super) async fn listen(&mut self) {
        while let Some(event) = self.events.next().await {
            if let Event::Job(change) = event {
                self.hear(&change);
            }
        }
    }

    fn hear(&mut self, change: &Change) {
        let Change { id, kind, from, to, .. } = change;
        match (from, to) {
            (Some(StateName::Processing), Some(StateName::Queued)) => {
                self.retried += 1;
                let text =
                    format!("retry: job {id} ({kind}) failed and waits for its next attempt");
                self.once(0, &text);
            }
            (Some(StateName::Processing), Some(StateName::Failed)) => {
                self.dead += 1;
                let text = format!("dead letter: job {id} ({kind}); see it with GET /jobs/{id}");
                self.once(1, &text);
            }
            _ => {}
        }
    }

    fn once(&mut self, sort: usize, text: &str) {
        if !std::mem::replace(&mut self.told[sort], true) {
            line(text);
        }
    }

    pub(super) fn figures(&mut self, counts: &Counts) {
        self.told = [false; 2];
        let seconds = self.started.elapsed().as_secs();
        let (retried, dead) = (self.retried, self.dead);
        let count = |view| counts.get(view);
        line(&format!(
            "{:>2}:{:02}  {} queued, {} scheduled, {} running, {} done; {retried} retries, {dead} \
             new dead letters, {} in all",
            seconds / 60,
            seconds % 60,
            count(View::Queued),
            count(View::Scheduled),
            count(View::Processing),
            count(View::Done),
            count(View::Failed),
        ));
    }
}

/// Says something to whoever watches.
pub(super) fn line(text: &str) {
    let mut out = std::io::stdout().lock();
    // Nobody may be reading.
    let _ = writeln!(out, "demo  {text}").and_then(|()| out.flush());
}
