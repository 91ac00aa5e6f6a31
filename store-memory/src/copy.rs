//! Pages of rows for a copy to another store.

use std::collections::BTreeMap;
use std::ops::Bound;

use windlass_core::store::{ByteBudget, CopyPlace, CopyRows, FigureRow, JobDetail, PageSize};

use crate::tables::Tables;

impl Tables {
    /// The rows of a section behind a place.
    pub(crate) fn copy_page(&self, after: &CopyPlace, size: PageSize) -> CopyRows {
        let mut page = CopyRows::default();
        match after {
            CopyPlace::Figures(after) => {
                let rows = behind(&self.figures, after.as_ref()).take(size.rows);
                let row = |(key, data): (_, &Vec<u8>)| FigureRow { key, data: data.clone() };
                page.figures = rows.map(|(key, data)| row((*key, data))).collect();
            }
            CopyPlace::Jobs(after) => {
                let mut budget = ByteBudget::new(size.bytes);
                let ids = behind(&self.jobs, after.as_ref()).take(size.rows);
                let details = ids.filter_map(|(id, _)| self.detail(*id));
                page.jobs =
                    details.take_while(|detail: &JobDetail| budget.takes(detail.bytes())).collect();
            }
            CopyPlace::Attempts(after) => {
                let after = after.map(|token| (token.job, token.epoch));
                let rows = behind(&self.attempts, after.as_ref()).take(size.rows);
                page.attempts = rows.map(|(_, attempt)| attempt.clone()).collect();
            }
            CopyPlace::Keys(after) => {
                let rows = behind(&self.keys, after.as_ref()).take(size.rows);
                page.keys = rows.map(|(_, record)| record.clone()).collect();
            }
            CopyPlace::Settings => page.next_id = Some(self.next_id()),
            CopyPlace::Queues(_) | CopyPlace::Groups(_) | CopyPlace::Whole => {}
        }
        page
    }
}

/// The rows of a table behind a key.
fn behind<'t, K: Ord, V>(
    table: &'t BTreeMap<K, V>,
    after: Option<&'t K>,
) -> impl Iterator<Item = (&'t K, &'t V)> {
    let from = after.map_or(Bound::Unbounded, Bound::Excluded);
    table.range((from, Bound::Unbounded))
}
