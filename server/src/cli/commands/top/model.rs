//! What the live screen knows, and what keys mean. It does no I/O.

use std::collections::VecDeque;

use tokio::time::Instant;

use super::queue_path;
use crate::api::wire::{Job, QueueList, Status, StatusCounts, WorkerList};

/// How many looks the graph shows.
const HISTORY: usize = 300;

/// One look at everything that is shown.
pub(super) struct Seen {
    pub(super) status: Status,
    pub(super) queues: QueueList,
    pub(super) workers: WorkerList,
    pub(super) running: Vec<Job>,
    pub(super) dead: Vec<Job>,
}

/// The tables, in the order in which Tab goes through them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pane {
    Queues,
    Running,
    Dead,
    Workers,
}

impl Pane {
    pub(super) const ALL: [Self; 4] = [Self::Queues, Self::Running, Self::Dead, Self::Workers];
}

/// A key that `top` reacts to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    Next,
    Previous,
    Up,
    Down,
    Pause,
    Retry,
    Cancel,
    Yes,
    No,
    End,
}

/// What is to be done about it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Act {
    Nothing,
    /// Post to this path.
    Post(String),
    End,
}

/// The state of the screen.
pub(super) struct Model {
    pub(super) seen: Seen,
    at: Instant,
    /// Jobs finished per second, look by look.
    pub(super) rates: VecDeque<u64>,
    pub(super) pane: Pane,
    /// The chosen row of each table.
    rows: [usize; 4],
    /// What is said at the bottom.
    pub(super) message: Option<String>,
    /// The job that is cancelled if the answer is yes.
    asked: Option<u64>,
}

impl Model {
    pub(super) fn new(seen: Seen, at: Instant) -> Self {
        let (rates, rows, pane) = (VecDeque::with_capacity(HISTORY), [0; 4], Pane::Queues);
        Self { seen, at, rates, pane, rows, message: None, asked: None }
    }

    /// Takes a new look. What is purged between two looks makes a rate smaller, never negative.
    pub(super) fn look(&mut self, seen: Seen, at: Instant) {
        let millis = (at - self.at).as_millis().max(1);
        let (before, now) = (finished(self.seen.status.counts), finished(seen.status.counts));
        let rate = u128::from(now.saturating_sub(before)) * 1_000 / millis;
        if self.rates.len() == HISTORY {
            self.rates.pop_front();
        }
        self.rates.push_back(u64::try_from(rate).unwrap_or(u64::MAX));
        (self.seen, self.at) = (seen, at);
        for (at, pane) in Pane::ALL.into_iter().enumerate() {
            self.rows[at] = self.rows[at].min(self.len(pane).saturating_sub(1));
        }
    }

    /// A look that failed: what was seen before stays.
    pub(super) fn blind(&mut self, why: &str) {
        self.message = Some(why.into());
    }

    /// The answer to a POST.
    pub(super) fn answered(&mut self, refused: Option<&str>) {
        self.message = Some(refused.unwrap_or("done").into());
    }

    pub(super) fn row(&self, pane: Pane) -> usize {
        self.rows[pane as usize]
    }

    pub(super) fn len(&self, pane: Pane) -> usize {
        match pane {
            Pane::Queues => self.seen.queues.queues.len(),
            Pane::Running => self.seen.running.len(),
            Pane::Dead => self.seen.dead.len(),
            Pane::Workers => self.seen.workers.workers.len(),
        }
    }

    /// What a key asks for.
    pub(super) fn press(&mut self, key: Key) -> Act {
        self.message = None;
        if let Some(id) = self.asked.take() {
            return match key {
                Key::Yes => Act::Post(format!("/jobs/{id}/cancel")),
                Key::End => Act::End,
                _ => Act::Nothing,
            };
        }
        match key {
            Key::End => return Act::End,
            Key::Next => self.turn(1),
            Key::Previous => self.turn(Pane::ALL.len() - 1),
            Key::Up => self.rows[self.pane as usize] = self.row(self.pane).saturating_sub(1),
            Key::Down => {
                let last = self.len(self.pane).saturating_sub(1);
                self.rows[self.pane as usize] = (self.row(self.pane) + 1).min(last);
            }
            Key::Pause => return self.pause(),
            Key::Retry => return self.retry(),
            Key::Cancel => self.ask_to_cancel(),
            Key::Yes | Key::No => {}
        }
        Act::Nothing
    }

    fn turn(&mut self, by: usize) {
        self.pane = Pane::ALL[(self.pane as usize + by) % Pane::ALL.len()];
    }

    fn pause(&mut self) -> Act {
        let chosen = self.seen.queues.queues.get(self.row(Pane::Queues));
        let Some(queue) = chosen.filter(|_| self.pane == Pane::Queues) else {
            return self.say("select a queue to pause or resume it");
        };
        Act::Post(queue_path(&queue.name, if queue.paused { "resume" } else { "pause" }))
    }

    fn retry(&mut self) -> Act {
        let chosen = self.seen.dead.get(self.row(Pane::Dead));
        let Some(job) = chosen.filter(|_| self.pane == Pane::Dead) else {
            return self.say("select a dead letter to run it again");
        };
        Act::Post(format!("/dlq/{}/retry", job.id))
    }

    fn ask_to_cancel(&mut self) {
        let chosen = self.seen.running.get(self.row(Pane::Running));
        let Some(job) = chosen.filter(|_| self.pane == Pane::Running) else {
            self.say("select a running job to cancel it");
            return;
        };
        let (id, kind) = (job.id, job.kind.clone());
        self.asked = Some(id);
        self.say(&format!("cancel job {id} ({kind})? y or n"));
    }

    fn say(&mut self, text: &str) -> Act {
        self.message = Some(text.into());
        Act::Nothing
    }
}

/// How many jobs have come to their end.
fn finished(counts: StatusCounts) -> u64 {
    counts.done + counts.failed + counts.cancelled
}
