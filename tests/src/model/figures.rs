//! What is counted of jobs, and where it is kept: ten seconds of a process, then longer and longer
//! times of all together, and everything since the beginning.

use std::collections::BTreeMap;

use windlass_core::store::{Batch, FigureKey, FigureRow};
use windlass_core::{FigureSet, Figures, ProcessId, QueueName, Span, Wall};

use super::Model;
use super::job::ModelJob;

const MINUTE_MS: u64 = 60 * 1_000;
const DAY_MS: u64 = 24 * 60 * MINUTE_MS;

/// A span and the length of its slots in milliseconds.
type Target = (Span, i64);

/// The rows that are folded, how old they must be, and into what they are folded.
const FOLDS: [(Span, u64, Option<Target>); 4] = [
    (Span::Live, 30_000, Some((Span::TenSeconds, 10_000))),
    (Span::TenSeconds, 70 * MINUTE_MS, Some((Span::FiveMinutes, 300_000))),
    (Span::FiveMinutes, 25 * 60 * MINUTE_MS, Some((Span::HalfHour, 1_800_000))),
    (Span::HalfHour, 30 * DAY_MS, None),
];
/// How many rows of a span one batch folds.
const PAGE: usize = 60;

impl Model {
    /// What the batch did to jobs of this queue.
    pub(super) fn did(&mut self, queue: &QueueName) -> &mut Figures {
        self.did.entry(queue.clone()).or_default()
    }

    /// What the batch did to this attempt, which its holder ended.
    pub(super) fn did_run(&mut self, was: &ModelJob, now: Wall) -> &mut Figures {
        let started = was.started_at.expect("a running job was started");
        let figures = self.did(&was.queue);
        figures.run.record(now.since(started));
        figures
    }

    /// Adds what was counted earlier, and folds what was old before the batch. Answers whether
    /// there may be more to fold.
    pub(super) fn keep_figures(&mut self, now: Wall, batch: &Batch) -> bool {
        let before: Vec<FigureKey> = self.figures.keys().copied().collect();
        for added in &batch.figures {
            let (slot, process) = (added.slot, batch.id.process);
            let key = FigureKey { span: Span::Live, slot, process };
            self.figures.entry(key).or_default().add(&added.figures);
        }
        if batch.purge.is_none() {
            return false;
        }
        let mut more = false;
        for (span, age, into) in FOLDS {
            let old = |key: &&FigureKey| {
                key.span == span && key.slot.get() <= now.get().saturating_sub_unsigned(age)
            };
            let old: Vec<FigureKey> = before.iter().filter(old).take(PAGE).copied().collect();
            more |= old.len() == PAGE;
            for key in old {
                self.note("figures are folded");
                let figures = self.figures.remove(&key).expect("it was there before");
                if let Some((span, length)) = into {
                    let at = key.slot.get();
                    self.fold(span, Wall::new(at - at.rem_euclid(length)), &figures);
                }
                if span == Span::Live {
                    self.fold(Span::Total, Wall::new(0), &figures);
                }
            }
        }
        more
    }

    fn fold(&mut self, span: Span, slot: Wall, figures: &FigureSet) {
        let key = FigureKey { span, slot, process: ProcessId(0) };
        self.figures.entry(key).or_default().add(figures);
    }

    pub(super) fn figure_rows(&self) -> Vec<FigureRow> {
        let row =
            |(key, set): (&FigureKey, &FigureSet)| FigureRow { key: *key, data: set.to_bytes() };
        self.figures.iter().map(row).collect()
    }
}

/// What is in a row, by queue.
pub(crate) fn by_queue(row: &FigureRow) -> (FigureKey, BTreeMap<QueueName, Figures>, Figures) {
    let set = FigureSet::from_bytes(&row.data).expect("figures can be read");
    let queues = set.queues().map(|(name, figures)| (name.clone(), figures.clone()));
    (row.key, queues.collect(), set.other().clone())
}
