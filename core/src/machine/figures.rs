//! Figures of what this process has done: added up after each commit, written at most once a
//! second, within a batch that is made anyway or by a timer.
//!
//! They are taken from outcomes, so nothing is counted that was not committed; and they wait here
//! until the batch that writes them is known to be committed. A process that is killed loses what
//! it has not written: about the last second.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::Machine;
use super::input::{Phase, WakeReason};
use crate::limits::FIGURE_SLOTS;
use crate::store::{Batch, SlotFigures};
use crate::{FigureSet, Figures, Gauges, Millis, Mono, Now, QueueName, Span, Wall};

/// Time from the first figure to the write.
const WRITE_PAUSE: Millis = Millis::seconds(1);
/// How long gauges wait for other figures with which they can be written.
const GAUGE_PAUSE: Millis = Millis::minutes(1);
/// How long after figures were written they are folded, at the latest.
const FOLD_PAUSE: Millis = Millis::minutes(10);

/// Figures that are not written yet, by slot.
#[derive(Debug, Default)]
pub(super) struct Unwritten {
    slots: BTreeMap<Wall, FigureSet>,
    /// The latest gauges, and the slot they belong to.
    gauges: Option<(Wall, Gauges)>,
    /// When gauges were taken for a batch the last time.
    gauged: Option<Mono>,
}

impl Unwritten {
    fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    fn take(&mut self, now: Mono) -> Vec<SlotFigures> {
        if let Some((slot, gauges)) = self.gauges.take() {
            self.slots.entry(slot).or_default().gauge(&gauges);
            self.gauged = Some(now);
        }
        let slots = core::mem::take(&mut self.slots).into_iter();
        slots.map(|(slot, figures)| SlotFigures { slot, figures }).collect()
    }

    fn restore(&mut self, slot: Wall, figures: &FigureSet) {
        self.slots.entry(slot).or_default().add(figures);
        self.bound();
    }

    /// While the store is too full to write figures, the oldest slots are put together.
    fn bound(&mut self) {
        if self.slots.len() > FIGURE_SLOTS
            && let Some((_, oldest)) = self.slots.pop_first()
            && let Some(mut next) = self.slots.first_entry()
        {
            next.get_mut().add(&oldest);
        }
    }
}

impl Machine {
    /// Counts the start of this process.
    pub(super) fn note_start(&mut self, now: Now) {
        self.figures.slots.entry(Span::Live.slot(now.wall)).or_default().count_start();
        self.plan_figures(now.mono);
    }

    /// Takes what waits and runs, to be written soon.
    pub(super) fn note_gauges(&mut self, now: Now, gauges: Gauges) {
        if self.phase() == Phase::Running {
            self.figures.gauges = Some((Span::Live.slot(now.wall), gauges));
            let next = self.figures.gauged.map_or(now.mono, |last| last.plus(GAUGE_PAUSE));
            self.timers.bring_forward(WakeReason::Figures, next.max(now.mono));
        }
    }

    /// Counts what a batch did that was committed at this instant of the store's clock.
    pub(super) fn note_figures(
        &mut self,
        now: Mono,
        at: Wall,
        did: Vec<(QueueName, Box<Figures>)>,
    ) {
        if did.is_empty() {
            return;
        }
        let set = self.figures.slots.entry(Span::Live.slot(at)).or_default();
        for (queue, figures) in did {
            set.count(&queue, &figures);
        }
        self.figures.bound();
        self.plan_figures(now);
    }

    /// Puts figures into a batch when it is time for it. Where space is short they wait.
    pub(super) fn add_figures(&mut self, batch: &mut Batch, now: Mono) {
        if self.timers.is_due(WakeReason::Figures, now) && !self.store_health.is_full() {
            self.timers.set(WakeReason::Figures, None);
            batch.figures = self.figures.take(now);
        }
    }

    /// The figures of a batch were written: they can be folded later.
    pub(super) fn figures_written(&mut self, now: Mono, batch: &Batch) {
        if !batch.figures.is_empty() {
            self.timers.bring_forward(WakeReason::Purge, now.plus(FOLD_PAUSE));
        }
    }

    /// The figures of a batch were not written: they wait again.
    pub(super) fn restore_figures(&mut self, now: Mono, figures: &[SlotFigures]) {
        for SlotFigures { slot, figures } in figures {
            self.figures.restore(*slot, figures);
        }
        if !figures.is_empty() {
            self.plan_figures(now);
        }
    }

    /// Writes what is left, at the end; says whether there is something to do.
    pub(super) fn flush_figures(&mut self) -> bool {
        let left = !self.figures.is_empty() && !self.store_health.is_full();
        if left {
            self.timers.set(WakeReason::Figures, Some(Mono::default()));
        }
        left
    }

    fn plan_figures(&mut self, now: Mono) {
        if self.phase() != Phase::Stopped {
            self.timers.bring_forward(WakeReason::Figures, now.plus(WRITE_PAUSE));
        }
    }
}
