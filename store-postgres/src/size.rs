//! How much space a store takes on its server.

use windlass_core::store::StoreError;

use crate::check::PgMaintenance;
use crate::rows::get;

impl PgMaintenance {
    /// Bytes of the tables of the store with their indexes, by the sizes of their files.
    pub fn bytes(&self) -> Result<u64, StoreError> {
        let rows = self.pool.reader().read(|reading| reading.session.query(BYTES, vec![]))?;
        let bytes = rows.first().and_then(|row| get::<i64>(row, 0).ok()).unwrap_or_default();
        Ok(bytes.unsigned_abs())
    }
}

/// Small tables of the catalogue: what the planner is kept from elsewhere is right here.
const BYTES: &str = "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint \
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
    WHERE nspname = current_schema() AND relkind = 'r'";
