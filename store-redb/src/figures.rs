//! Rows of figures: found by span and slot, put in place, removed. What is in them is core's.

use std::ops::Bound;

use redb::{ReadableTable, WriteTransaction};
use windlass_core::Wall;
use windlass_core::store::{Changes, FigureKey, FigurePage, FigureRange, FigureRow};

use crate::tables::{Access, FIGURES, Found, figures_key, figures_place};

/// The data of these rows, in this order.
pub(crate) fn data(access: impl Access, keys: &[FigureKey]) -> Found<Vec<Option<Vec<u8>>>> {
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    let table = access.open(FIGURES)?;
    let one = |key: &FigureKey| {
        let row = table.get(&figures_key(key.span, key.slot, key.process.0))?;
        Ok(row.map(|row| row.value().to_vec()))
    };
    keys.iter().map(one).collect()
}

/// The first rows of a span that are old enough.
pub(crate) fn old(access: impl Access, now: Wall, page: FigurePage) -> Found<Vec<FigureRow>> {
    let first = figures_key(page.span, Wall::new(i64::MIN), 0);
    let last = figures_key(page.span, now.minus(page.age), u64::MAX);
    rows(access, Bound::Included(&first), Bound::Included(&last), page.limit)
}

/// The rows of these ranges.
pub(crate) fn within(access: impl Access, ranges: &[FigureRange]) -> Found<Vec<FigureRow>> {
    let mut found = Vec::new();
    for FigureRange { span, from, to } in ranges {
        if from < to {
            let (first, end) = (figures_key(*span, *from, 0), figures_key(*span, *to, 0));
            let (first, end) = (Bound::Included(&first), Bound::Excluded(&end));
            found.append(&mut rows(access, first, end, usize::MAX)?);
        }
    }
    Ok(found)
}

/// The rows behind a key.
pub(crate) fn behind(
    access: impl Access,
    after: Option<&FigureKey>,
    limit: usize,
) -> Found<Vec<FigureRow>> {
    let after = after.map(|key| figures_key(key.span, key.slot, key.process.0));
    let after = after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
    rows(access, after, Bound::Unbounded, limit)
}

/// Every row, by key.
pub(crate) fn all(access: impl Access) -> Found<Vec<FigureRow>> {
    rows(access, Bound::Unbounded, Bound::Unbounded, usize::MAX)
}

/// Writes what a batch changed.
pub(crate) fn write(txn: &WriteTransaction, changes: &Changes) -> Found<()> {
    if changes.figures.is_empty() && changes.dropped_figures.is_empty() {
        return Ok(());
    }
    let mut table = txn.open(FIGURES)?;
    for FigureRow { key, data } in &changes.figures {
        table.insert(&figures_key(key.span, key.slot, key.process.0), data.as_slice())?;
    }
    for key in &changes.dropped_figures {
        table.remove(&figures_key(key.span, key.slot, key.process.0))?;
    }
    Ok(())
}

fn rows(
    access: impl Access,
    first: Bound<&[u8; 17]>,
    last: Bound<&[u8; 17]>,
    limit: usize,
) -> Found<Vec<FigureRow>> {
    let table = access.open(FIGURES)?;
    let rows = table.range::<&[u8; 17]>((first, last))?.take(limit);
    rows.map(|row| {
        let (key, data) = row?;
        Ok(FigureRow { key: figures_place(key.value())?, data: data.value().to_vec() })
    })
    .collect()
}
