//! Rows of bulk actions: all of them read, put in place, removed. What is in them is core's.

use tokio_postgres::Row;
use windlass_core::BulkId;
use windlass_core::store::{BulkAsk, BulkRow, Changes};

use crate::locks::LockIds;
use crate::rows::{bad, get};
use crate::session::{Flight, Found, Place, params};

pub(crate) const ALL: &str = "SELECT id, data FROM bulk ORDER BY id";
const PUT: &str = "INSERT INTO bulk (id, data) SELECT * FROM unnest($1::bigint[], $2::bytea[]) \
    ON CONFLICT (id) DO UPDATE SET data = excluded.data";
const DROP: &str = "DELETE FROM bulk WHERE id = ANY($1::bigint[])";

/// Asks for all rows, which are held together if that is asked for.
pub(crate) fn ask(flight: &mut Flight, locks: LockIds, asked: BulkAsk) -> Option<Place> {
    if asked == BulkAsk::Hold {
        flight.add("SELECT pg_advisory_xact_lock($1)", params![locks.bulk()]);
    }
    (asked != BulkAsk::No).then(|| flight.add(ALL, vec![]))
}

/// Rows as they were read.
pub(crate) fn rows(found: &[Row]) -> Found<Vec<BulkRow>> {
    let read = |row: &Row| {
        let id = u32::try_from(get::<i64>(row, 0)?).map_err(bad)?;
        Ok(BulkRow { id: BulkId(id), data: get(row, 1)? })
    };
    found.iter().map(read).collect()
}

/// Writes what a batch changed.
pub(crate) fn write(flight: &mut Flight, changes: &Changes) {
    if !changes.bulk.is_empty() {
        let ids: Vec<i64> = changes.bulk.iter().map(|row| row.id.0.into()).collect();
        let data: Vec<Vec<u8>> = changes.bulk.iter().map(|row| row.data.clone()).collect();
        flight.add(PUT, params![ids, data]);
    }
    if !changes.dropped_bulk.is_empty() {
        let ids: Vec<i64> = changes.dropped_bulk.iter().map(|id| id.0.into()).collect();
        flight.add(DROP, params![ids]);
    }
}
