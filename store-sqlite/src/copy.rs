//! Pages of rows for a copy to another store, each section by its key.

use rusqlite::params;
use windlass_core::IdempotencyKey;
use windlass_core::store::{ByteBudget, CopyPlace, CopyRows, PageSize};

use crate::figures;
use crate::find::{Found, Rows, count, key_record};
use crate::reader::{attempt_columns, attempts, detail};
use crate::rows::{bad, id_code, job, select_jobs, text};

/// The rows of a section behind a place.
pub(crate) fn page(tx: &mut Rows<'_>, after: &CopyPlace, size: PageSize) -> Found<CopyRows> {
    let limit = count(size.rows);
    let mut page = CopyRows::default();
    match after {
        CopyPlace::Figures(after) => {
            page.figures = figures::behind(tx.conn, after.as_ref(), size.rows)?;
        }
        CopyPlace::Jobs(after) => {
            let after = after.map_or(0, id_code);
            let mut statement = tx.conn.prepare_cached(JOBS)?;
            let mut rows = statement.query(params![after, limit])?;
            let mut budget = ByteBudget::new(size.bytes);
            while let Some(row) = rows.next()? {
                let job = job(tx.conn, tx.names, row)?;
                let row = detail(tx, job)?;
                if !budget.takes(row.bytes()) {
                    break;
                }
                page.jobs.push(row);
            }
        }
        CopyPlace::Attempts(after) => {
            let (job, epoch) =
                after.map_or((0, 0), |token| (id_code(token.job), token.epoch.get().cast_signed()));
            page.attempts = attempts(tx, ATTEMPTS, params![job, epoch, limit])?;
        }
        CopyPlace::Keys(after) => {
            let after = after.as_ref().map_or("", IdempotencyKey::as_str);
            let mut statement = tx.conn.prepare_cached(KEYS)?;
            let mut rows = statement.query(params![after, limit])?;
            while let Some(row) = rows.next()? {
                let key = IdempotencyKey::new(text(row, 0)?.unwrap_or_default()).map_err(bad)?;
                page.keys.push(key_record(key, row, 1)?);
            }
        }
        CopyPlace::Settings => page.next_id = Some(tx.next_id()?),
        CopyPlace::Queues(_) | CopyPlace::Groups(_) | CopyPlace::Whole => {}
    }
    Ok(page)
}

const JOBS: &str = concat!(select_jobs!(), "WHERE id > ?1 ORDER BY id LIMIT ?2");
const ATTEMPTS: &str = concat!(
    "SELECT ",
    attempt_columns!(),
    " FROM attempts WHERE (job, epoch) > (?1, ?2) ORDER BY job, epoch LIMIT ?3"
);
const KEYS: &str = "SELECT key, job, request, created_at, orphan_until FROM keys \
    WHERE key > ?1 ORDER BY key LIMIT ?2";
