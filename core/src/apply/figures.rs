//! Figures: a process adds to its live rows; the purge folds what has grown old.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;
use core::mem;

use crate::store::{Answers, BadAnswer, Batch, Changes, FigureKey, FigureRow, Questions};
use crate::{FigureSet, Span};

/// The rows of figures that a batch has touched.
#[derive(Debug, Default)]
pub(super) struct FigureWork {
    rows: BTreeMap<FigureKey, Row>,
    /// The rows to fold, by key.
    old: Vec<FigureKey>,
    /// Whether a page was full.
    more: bool,
}

/// A row as it is now.
#[derive(Debug, Default)]
struct Row {
    /// Nothing if it does not exist, or was removed.
    figures: Option<FigureSet>,
    /// Whether the store has it.
    stored: bool,
    changed: bool,
}

impl FigureWork {
    /// Takes in what the store answered.
    pub(super) fn take_in(
        &mut self,
        asked: &Questions,
        answers: &mut Answers,
    ) -> Result<(), BadAnswer> {
        for (key, data) in asked.figures.iter().zip(mem::take(&mut answers.figures)) {
            self.add(*key, data.as_deref())?;
        }
        let pages = asked.old_figures.iter().zip(mem::take(&mut answers.old_figures));
        for (asked, page) in pages {
            self.more |= page.len() >= asked.limit;
            for FigureRow { key, data } in page {
                self.add(key, Some(&data))?;
                self.old.push(key);
            }
        }
        Ok(())
    }

    /// The rows that old ones are folded into, as far as they are not known yet.
    pub(super) fn to_load(&self) -> Vec<FigureKey> {
        let targets = self.old.iter().flat_map(|key| targets(*key));
        let unknown = targets.filter(|key| !self.rows.contains_key(key));
        crate::store::sorted(unknown.collect())
    }

    /// Whether there may be more rows to fold.
    pub(super) fn has_more(&self) -> bool {
        self.more
    }

    /// Adds what the process did since its last batch with figures, and folds old rows.
    pub(super) fn decide(&mut self, batch: &Batch) {
        for added in &batch.figures {
            let key = FigureKey::live(batch.id.process, added.slot);
            self.change(key, |row| row.add(&added.figures));
        }
        for key in mem::take(&mut self.old) {
            let Some(row) = self.rows.get_mut(&key) else { continue };
            let Some(figures) = row.figures.take() else { continue };
            row.changed = true;
            for target in targets(key) {
                self.change(target, |row| match target.span {
                    Span::Total => row.add_slot(key.slot, &figures),
                    _ => row.add(&figures),
                });
            }
        }
    }

    /// Adds the changed and the dropped rows to the changes.
    pub(super) fn gather(&mut self, changes: &mut Changes) {
        for (key, row) in mem::take(&mut self.rows) {
            match row {
                Row { changed: true, figures: Some(figures), .. } => {
                    changes.figures.push(FigureRow { key, data: figures.to_bytes() });
                }
                Row { changed: true, figures: None, stored: true } => {
                    changes.dropped_figures.push(key);
                }
                _ => {}
            }
        }
    }

    fn add(&mut self, key: FigureKey, data: Option<&[u8]>) -> Result<(), BadAnswer> {
        let bad = |bad| BadAnswer(format!("{key:?}: {bad}"));
        let figures = data.map(FigureSet::from_bytes).transpose().map_err(bad)?;
        let stored = figures.is_some();
        self.rows.entry(key).or_insert(Row { figures, stored, changed: false });
        Ok(())
    }

    fn change(&mut self, key: FigureKey, change: impl FnOnce(&mut FigureSet)) {
        let row = self.rows.entry(key).or_default();
        change(row.figures.get_or_insert_default());
        row.changed = true;
    }
}

/// The rows that an old one is folded into.
fn targets(key: FigureKey) -> impl Iterator<Item = FigureKey> {
    let first = key.span == Span::Live;
    let total = first.then(|| FigureKey::folded(Span::Total, key.slot));
    let into = key.span.folds_into().map(|span| FigureKey::folded(span, key.slot));
    into.into_iter().chain(total)
}
