//! Settings that a batch sets: their values before it, and their rows.

use rusqlite::Connection;
use windlass_core::store::Changes;
use windlass_core::{SettingKey, SettingValue};

use crate::find::Found;
use crate::rows::{bad, text};

/// The values of these settings, in order; `None` where one is not set.
pub(crate) fn named(conn: &Connection, keys: &[SettingKey]) -> Found<Vec<Option<SettingValue>>> {
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    let mut statement = conn.prepare_cached("SELECT value FROM settings WHERE key = ?1")?;
    let mut value = |key: &SettingKey| {
        let mut rows = statement.query([key.as_str()])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let value = SettingValue::new(text(row, 0)?.unwrap_or_default());
        Ok(Some(value.map_err(bad)?))
    };
    keys.iter().map(&mut value).collect()
}

/// Writes and deletes settings.
pub(crate) fn write(conn: &Connection, changes: &Changes) -> Found<()> {
    for (key, value) in &changes.settings {
        if let Some(value) = value {
            let sql = "INSERT OR REPLACE INTO settings (key, value) VALUES (?1, ?2)";
            conn.prepare_cached(sql)?.execute([key.as_str(), value.as_str()])?;
        } else {
            let sql = "DELETE FROM settings WHERE key = ?1";
            conn.prepare_cached(sql)?.execute([key.as_str()])?;
        }
    }
    Ok(())
}
