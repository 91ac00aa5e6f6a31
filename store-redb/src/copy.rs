//! Pages of rows for a copy to another store, each section by its key.

use std::ops::Bound;

use redb::ReadableTable;
use windlass_core::store::{ByteBudget, CopyPlace, CopyRows, PageSize};
use windlass_core::{IdempotencyKey, JobId};

use crate::bytes::utf8;
use crate::figures;
use crate::find::Rows;
use crate::rows::{self, bad};
use crate::tables::{Access, Found, JOBS, KEYS, attempt_key, job_id};

impl<A: Access> Rows<'_, A> {
    /// The rows of a section behind a place.
    pub(crate) fn copy_page(&mut self, after: &CopyPlace, size: PageSize) -> Found<CopyRows> {
        let mut page = CopyRows::default();
        match after {
            CopyPlace::Figures(after) => {
                page.figures = figures::behind(self.access, after.as_ref(), size.rows)?;
            }
            CopyPlace::Jobs(after) => {
                let mut budget = ByteBudget::new(size.bytes);
                let ids = self.ids_behind(*after, size.rows)?;
                for job in self.indexed(&ids)? {
                    let row = self.detail(job)?;
                    if !budget.takes(row.bytes()) {
                        break;
                    }
                    page.jobs.push(row);
                }
            }
            CopyPlace::Attempts(after) => {
                let after = after.map(|token| attempt_key(token.job, token.epoch));
                let after = after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
                page.attempts = self.attempts(after, Bound::Unbounded, size.rows)?;
            }
            CopyPlace::Keys(after) => {
                let after = after.as_ref().map(|key| key.as_str().as_bytes());
                let after = after.map_or(Bound::Unbounded, Bound::Excluded);
                let table = self.access.open(KEYS)?;
                for row in table.range::<&[u8]>((after, Bound::Unbounded))?.take(size.rows) {
                    let (key, row) = row?;
                    let key = IdempotencyKey::new(utf8(key.value())?).map_err(bad)?;
                    page.keys.push(rows::key_record(key, row.value())?);
                }
            }
            CopyPlace::Settings => page.next_id = Some(self.next_id()?),
            CopyPlace::Queues(_) | CopyPlace::Groups(_) | CopyPlace::Whole => {}
        }
        Ok(page)
    }

    fn ids_behind(&self, after: Option<JobId>, limit: usize) -> Found<Vec<JobId>> {
        let after = after.map_or(Bound::Unbounded, |id| Bound::Excluded(id.get()));
        let table = self.access.open(JOBS)?;
        let rows = table.range::<u64>((after, Bound::Unbounded))?.take(limit);
        rows.map(|row| job_id(row?.0.value())).collect()
    }
}
