//! Settings that a batch sets: held from the answer to the end of the transaction, those included
//! that are not set.

use std::collections::BTreeMap;

use tokio_postgres::Row;
use windlass_core::store::Changes;
use windlass_core::{SettingKey, SettingValue};

use crate::locks::LockIds;
use crate::rows::{bad, get};
use crate::session::{Flight, Found, Place, params};

/// Holds settings and asks for their values.
pub(crate) fn ask(flight: &mut Flight, locks: LockIds, keys: &[SettingKey]) -> Option<Place> {
    if keys.is_empty() {
        return None;
    }
    flight.add("SELECT pg_advisory_xact_lock($1)", params![locks.settings()]);
    let keys: Vec<String> = keys.iter().map(|key| key.as_str().to_owned()).collect();
    Some(flight.add(NAMED, params![keys]))
}

/// The values in the order in which they were asked for.
pub(crate) fn values(asked: &[SettingKey], rows: &[Row]) -> Found<Vec<Option<SettingValue>>> {
    let mut values: BTreeMap<&str, SettingValue> = BTreeMap::new();
    for row in rows {
        values.insert(get(row, 0)?, SettingValue::new(get(row, 1)?).map_err(bad)?);
    }
    Ok(asked.iter().map(|key| values.remove(key.as_str())).collect())
}

/// Writes and deletes settings. The batch has asked for them, and holds them.
pub(crate) fn write(flight: &mut Flight, changes: &Changes) {
    for (key, value) in &changes.settings {
        let key = key.as_str().to_owned();
        if let Some(value) = value {
            flight.add(PUT, params![key, value.as_str().to_owned()]);
        } else {
            flight.add("DELETE FROM settings WHERE key = $1::text", params![key]);
        }
    }
}

const NAMED: &str = "SELECT key, value FROM settings WHERE key = ANY($1::text[])";
const PUT: &str = "INSERT INTO settings (key, value) VALUES ($1::text, $2::text) \
    ON CONFLICT (key) DO UPDATE SET value = excluded.value";
