//! Rows of bulk actions: all of them read, put in place, removed. What is in them is core's.

use rusqlite::{Connection, params};
use windlass_core::BulkId;
use windlass_core::store::{BulkRow, Changes};

use crate::find::Found;
use crate::rows::bad;

/// Every row, by id.
pub(crate) fn all(conn: &Connection) -> Found<Vec<BulkRow>> {
    let mut statement = conn.prepare_cached("SELECT id, data FROM bulk ORDER BY id")?;
    let mut rows = statement.query([])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let id = u32::try_from(row.get::<_, i64>(0)?).map_err(bad)?;
        found.push(BulkRow { id: BulkId(id), data: row.get(1)? });
    }
    Ok(found)
}

/// Writes what a batch changed.
pub(crate) fn write(conn: &Connection, changes: &Changes) -> Found<()> {
    for BulkRow { id, data } in &changes.bulk {
        let sql = "INSERT INTO bulk (id, data) VALUES (?1, ?2) \
                   ON CONFLICT DO UPDATE SET data = excluded.data";
        conn.prepare_cached(sql)?.execute(params![id.0, data])?;
    }
    for id in &changes.dropped_bulk {
        conn.prepare_cached("DELETE FROM bulk WHERE id = ?1")?.execute([id.0])?;
    }
    Ok(())
}
