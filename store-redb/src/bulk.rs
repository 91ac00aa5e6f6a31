//! Rows of bulk actions: all of them read, put in place, removed. What is in them is core's.

use redb::{ReadableTable, WriteTransaction};
use windlass_core::BulkId;
use windlass_core::store::{BulkRow, Changes};

use crate::tables::{Access, BULK, Found};

/// Every row, by id.
pub(crate) fn all(access: impl Access) -> Found<Vec<BulkRow>> {
    let table = access.open(BULK)?;
    let rows = table.iter()?;
    rows.map(|row| {
        let (id, data) = row?;
        Ok(BulkRow { id: BulkId(id.value()), data: data.value().to_vec() })
    })
    .collect()
}

/// Writes what a batch changed.
pub(crate) fn write(txn: &WriteTransaction, changes: &Changes) -> Found<()> {
    if changes.bulk.is_empty() && changes.dropped_bulk.is_empty() {
        return Ok(());
    }
    let mut table = txn.open(BULK)?;
    for BulkRow { id, data } in &changes.bulk {
        table.insert(id.0, data.as_slice())?;
    }
    for id in &changes.dropped_bulk {
        table.remove(id.0)?;
    }
    Ok(())
}
