//! Figures as a store keeps them: rows of bytes by span, slot and process. A store knows nothing of
//! what is in them.
//!
//! A process adds what it did to its own live rows; a sweep folds the rows of all processes. Both
//! read, hold and replace rows in one transaction, so nothing is counted twice or lost.

use alloc::format;
use alloc::vec::Vec;

use super::{Cause, Reader, StoreError};
use crate::figures::slot;
use crate::{FigureSet, Millis, ProcessId, Span, Wall};

/// Where a row of figures is found. Rows are ordered by these fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FigureKey {
    /// How much time it covers.
    pub span: Span,
    /// The start of that time, by the store's clock; zero for the total.
    pub slot: Wall,
    /// The process that wrote a live row; zero for all other spans.
    pub process: ProcessId,
}

impl FigureKey {
    /// The row of one process for a slot.
    pub(crate) fn live(process: ProcessId, at: Wall) -> Self {
        Self { span: Span::Live, slot: Span::Live.slot(at), process }
    }

    /// A row of all processes.
    pub(crate) fn folded(span: Span, at: Wall) -> Self {
        Self { span, slot: span.slot(at), process: ProcessId(0) }
    }
}

/// Figures of one span and slot, as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FigureRow {
    /// Span, slot, and the process of a live row.
    pub key: FigureKey,
    /// A [`FigureSet`], as its bytes.
    pub data: Vec<u8>,
}

impl FigureRow {
    /// What is wrong with a row that was read, if anything.
    pub(crate) fn problem(&self) -> Option<alloc::string::String> {
        let FigureKey { span, slot, process } = self.key;
        if span.slot(slot) != slot {
            return Some(format!("figures of {span:?} at {slot}, where no slot starts"));
        }
        if span != Span::Live && process != ProcessId(0) {
            return Some(format!("figures of {span:?} at {slot} of a single process"));
        }
        let bad = FigureSet::from_bytes(&self.data).err()?;
        Some(format!("figures of {span:?} at {slot} cannot be read: {bad}"))
    }
}

/// A page of rows that are old enough to be folded or removed, by slot, then by process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FigurePage {
    /// The span of the rows.
    pub span: Span,
    /// Those whose slot starts at least this long before the store's clock.
    pub age: Millis,
    /// At most this many.
    pub limit: usize,
}

/// Rows to read: those of a span whose slot starts at or after `from` and before `to`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FigureRange {
    /// The span of the rows.
    pub span: Span,
    /// The earliest slot.
    pub from: Wall,
    /// The first slot that is too late.
    pub to: Wall,
}

/// What a process did within a slot of [`Span::Live`] and has not written yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotFigures {
    /// The start of the slot.
    pub slot: Wall,
    /// Figures of the slot, by queue.
    pub figures: FigureSet,
}

impl FigureSet {
    /// Everything that was written since the store was made, by any process. Never less than
    /// before, unless a queue was idle for so long that it was dropped.
    pub fn totals(reader: &mut (impl Reader + ?Sized)) -> Result<Self, StoreError> {
        let all = |span| FigureRange { span, from: Wall::new(i64::MIN), to: Wall::MAX };
        let rows = reader.figures(&[all(Span::Total), all(Span::Live)])?;
        let mut total = Self::default();
        for row in rows {
            total.add(&decode(&row)?);
        }
        Ok(total)
    }

    /// What happened from `from` until before `to`, by any process, in steps of this length; the
    /// first step starts at `from`. What is kept in longer slots than a step is counted where its
    /// slot starts. At most [`FIGURE_STEPS`](crate::limits::FIGURE_STEPS) steps are made.
    pub fn history(
        reader: &mut (impl Reader + ?Sized),
        from: Wall,
        to: Wall,
        step: Millis,
    ) -> Result<Vec<Self>, StoreError> {
        let step = step.get().max(1);
        let steps = usize::try_from(to.since(from).get().div_ceil(step)).unwrap_or(usize::MAX);
        let mut history = Vec::new();
        history.resize_with(steps.min(crate::limits::FIGURE_STEPS), Self::default);
        let spans = Span::ALL.into_iter().filter(|span| span.length().is_some());
        let ranges: Vec<FigureRange> = spans.map(|span| FigureRange { span, from, to }).collect();
        for row in reader.figures(&ranges)? {
            let at = row.key.slot.since(from).get() / step;
            let at = usize::try_from(at).unwrap_or(usize::MAX);
            if let Some(sum) = history.get_mut(at) {
                sum.add(&decode(&row)?);
            }
        }
        Ok(history)
    }

    /// What happened in the last minute, by any process, and over how long exactly: until `now`,
    /// from the start of the slot a minute ago.
    pub fn last_minute(
        reader: &mut (impl Reader + ?Sized),
        now: Wall,
    ) -> Result<(Self, Millis), StoreError> {
        let minute = Millis::minutes(1);
        let from = slot(now, Millis::seconds(10)).minus(minute);
        let history = Self::history(reader, from, now.plus(Millis::new(1)), minute.times(2))?;
        Ok((history.into_iter().next().unwrap_or_default(), now.since(from)))
    }
}

fn decode(row: &FigureRow) -> Result<FigureSet, StoreError> {
    let corrupt = |bad| StoreError::Corrupt(Cause::new(&format!("{:?}: {bad}", row.key)));
    FigureSet::from_bytes(&row.data).map_err(corrupt)
}
