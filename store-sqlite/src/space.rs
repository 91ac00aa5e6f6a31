//! The space of purged jobs: it is reused, and returned to the file system when there is much of
//! it.

use rusqlite::Connection;

use crate::error::TxError;

/// Free pages that a database may keep, whatever its size.
const SPARE: i64 = 1_000;
/// Pages given back with one commit.
const STEP: i64 = 256;

/// Gives some free pages back to the file system, as a part of the transaction that is open. True
/// if there are still more than need be kept.
///
/// Up to a quarter of the database is kept for jobs to come. To give a page back another has to be
/// moved into its place, so a commit does only a bounded number of them.
pub(crate) fn give_back(conn: &Connection) -> Result<bool, TxError> {
    let number = |sql: &str| conn.prepare_cached(sql)?.query_row([], |row| row.get::<_, i64>(0));
    let free = number("PRAGMA freelist_count")?;
    let kept = SPARE.max(number("PRAGMA page_count")? / 4);
    let step = (free - kept).min(STEP);
    if step > 0 {
        let mut vacuum = conn.prepare(&format!("PRAGMA incremental_vacuum({step})"))?;
        // A row for each page.
        let mut pages = vacuum.query([])?;
        while pages.next()?.is_some() {}
    }
    Ok(free - step.max(0) > kept)
}
