//! What the demo prints on standard output: a few lines, however much happens.

use std::io::Write;

use tokio::time::Instant;
use windlass_core::store::Change;
use windlass_core::{Counts, StateName, View};
use windlass_runtime_tokio::{Event, EventStream};

/// Observes events, and prints some of them.
pub(super) struct EventPrinter {
    events: EventStream,
    started: Instant,
    retried: u64,
    dead: u64,
    /// Whether a retry, and a dead letter, was printed since the last line of figures.
    printed: [bool; 2],
}

impl EventPrinter {
    pub(super) fn new(events: EventStream, started: Instant) -> Self {
        Self { events, started, retried: 0, dead: 0, printed: [false; 2] }
    }

    /// Observes events until the queue ends. Cancelling it loses no event.
    pub(super) async fn listen(&mut self) {
        while let Some(event) = self.events.next().await {
            if let Event::Job(change) = event {
                self.observe(&change);
            }
        }
    }

    fn observe(&mut self, change: &Change) {
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

    fn once(&mut self, at: usize, text: &str) {
        if !std::mem::replace(&mut self.printed[at], true) {
            line(text);
        }
    }

    /// Prints the counters, and how much was retried and given up since the start.
    pub(super) fn figures(&mut self, counts: &Counts) {
        self.printed = [false; 2];
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

/// Prints a line of the demo.
pub(super) fn line(text: &str) {
    let mut out = std::io::stdout().lock();
    // A closed standard output does not end the demo.
    let _ = writeln!(out, "demo  {text}").and_then(|()| out.flush());
}
