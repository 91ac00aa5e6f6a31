//! Settings that a batch sets: their values before it, and their rows.

use redb::{ReadableTable, WriteTransaction};
use windlass_core::store::Changes;
use windlass_core::{SettingKey, SettingValue};

use crate::bytes::utf8;
use crate::rows::bad;
use crate::tables::{Access, Found, SETTINGS};

/// The values of these settings, in order; `None` where one is not set.
pub(crate) fn named(
    txn: &WriteTransaction,
    keys: &[SettingKey],
) -> Found<Vec<Option<SettingValue>>> {
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    let table = txn.open(SETTINGS)?;
    let value = |key: &SettingKey| {
        let Some(text) = table.get(key.as_str().as_bytes())? else { return Ok(None) };
        Ok(Some(SettingValue::new(utf8(text.value())?).map_err(bad)?))
    };
    keys.iter().map(value).collect()
}

/// Writes and deletes settings.
pub(crate) fn write(txn: &WriteTransaction, changes: &Changes) -> Found<()> {
    for (key, value) in &changes.settings {
        let mut table = txn.open(SETTINGS)?;
        let key = key.as_str().as_bytes();
        match value {
            Some(value) => table.insert(key, value.as_str().as_bytes())?,
            None => table.remove(key)?,
        };
    }
    Ok(())
}
