//! Many keys into a table, out of it, or looked up in it, at once and in their order.
//!
//! redb descends from the root for every single key. A run of neighbours is found, put in place or
//! removed with one descent, and each page is built once: this is where the speed of a batch comes
//! from.

use std::ops::Bound;

use redb::{CursorError, Key, ReadableTable, Table, Value};

use crate::tables::Found;

/// So few keys are quicker one by one.
const FEW: usize = 4;
/// So many keys are looked up one by one, at most, before neighbours are looked for again.
const FURTHEST: usize = 64;

/// A key that owns its bytes.
pub(crate) trait Sorted: Ord + Copy {
    /// The key as redb names its type.
    type Stored: Key + 'static;

    /// It, as redb takes it.
    fn stored(&self) -> <Self::Stored as Value>::SelfType<'_>;

    /// Whether redb gave back this one.
    fn is(&self, stored: &<Self::Stored as Value>::SelfType<'_>) -> bool;
}

impl Sorted for u64 {
    type Stored = u64;

    fn stored(&self) -> u64 {
        *self
    }

    fn is(&self, stored: &u64) -> bool {
        self == stored
    }
}

impl<const N: usize> Sorted for [u8; N] {
    type Stored = &'static [u8; N];

    fn stored(&self) -> &[u8; N] {
        self
    }

    fn is(&self, stored: &&[u8; N]) -> bool {
        self == *stored
    }
}

/// Looks up keys in any order, and hands over what stands there. Where the keys are neighbours in
/// the table, it walks along instead of descending for each.
pub(crate) fn get_all<K: Sorted, V: Value + 'static>(
    table: &impl ReadableTable<K::Stored, V>,
    keys: &[K],
    mut found: impl FnMut(Option<V::SelfType<'_>>) -> Found<()>,
) -> Found<()> {
    let mut walk = None;
    // How many keys to look up one by one before it is worth another try to walk.
    let (mut wait, mut backoff) = (0, 1);
    for (at, key) in keys.iter().enumerate() {
        if let Some(range) = &mut walk {
            let range: &mut redb::Range<'_, K::Stored, V> = range;
            match range.next().transpose()? {
                Some((next, value)) if key.is(&next.value()) => {
                    backoff = 1;
                    found(Some(value.value()))?;
                    continue;
                }
                _ => (walk, wait, backoff) = (None, backoff, FURTHEST.min(backoff * 2)),
            }
        }
        let value = table.get(key.stored())?;
        found(value.as_ref().map(redb::AccessGuard::value))?;
        if wait > 0 {
            wait -= 1;
        } else if value.is_some() && keys.len() - at > FEW {
            let behind = (Bound::Excluded(key.stored()), Bound::Unbounded);
            walk = Some(table.range::<<K::Stored as Value>::SelfType<'_>>(behind)?);
        }
    }
    Ok(())
}

/// Puts rows in place, sorted by their keys. Those that are there are replaced.
pub(crate) fn put_all<K: Sorted, V: Value + 'static>(
    table: &mut Table<'_, K::Stored, V>,
    rows: &[(K, V::SelfType<'_>)],
) -> Found<()> {
    debug_assert!(rows.is_sorted_by(|(a, _), (b, _)| a < b), "keys come in order, each once");
    let mut rest = rows;
    while let Some(((key, value), behind)) = rest.split_first() {
        table.insert(key.stored(), value)?;
        rest = behind;
        if rest.len() >= FEW {
            let run = put_run(table, key, rest)?;
            rest = &rest[run..];
        }
    }
    Ok(())
}

/// Puts as many rows in place as fit between `after` and its neighbour, and says how many.
fn put_run<K: Sorted, V: Value + 'static>(
    table: &mut Table<'_, K::Stored, V>,
    after: &K,
    rows: &[(K, V::SelfType<'_>)],
) -> Found<usize> {
    let mut cursor = table.lower_bound_mut(Bound::Excluded(after.stored()))?;
    let mut run = 0;
    for (key, value) in rows {
        match cursor.insert_before(key.stored(), value) {
            Ok(()) => run += 1,
            Err(CursorError::UnorderedKey) => break,
            Err(error) => return Err(error.into()),
        }
    }
    cursor.close()?;
    Ok(run)
}

/// Removes keys, sorted. One that is not there is none to remove.
pub(crate) fn remove_all<K: Sorted, V: Value + 'static>(
    table: &mut Table<'_, K::Stored, V>,
    keys: &[K],
) -> Found<()> {
    debug_assert!(keys.is_sorted_by(|a, b| a < b), "keys come in order, each once");
    let mut rest = keys;
    while let Some((first, behind)) = rest.split_first() {
        let run = neighbours(table, rest)?;
        if run > FEW {
            let range = first.stored()..=rest[run - 1].stored();
            table.retain_in::<<K::Stored as Value>::SelfType<'_>, _>(range, |_, _| false)?;
            rest = &rest[run..];
        } else {
            table.remove(first.stored())?;
            rest = behind;
        }
    }
    Ok(())
}

/// How many of these keys stand side by side in the table, from the first on.
fn neighbours<K: Sorted, V: Value + 'static>(
    table: &Table<'_, K::Stored, V>,
    keys: &[K],
) -> Found<usize> {
    if keys.len() <= FEW {
        return Ok(0);
    }
    let mut stored = table.range::<<K::Stored as Value>::SelfType<'_>>(keys[0].stored()..)?;
    let mut run = 0;
    for key in keys {
        let Some(next) = stored.next().transpose()? else { break };
        if !key.is(&next.0.value()) {
            break;
        }
        run += 1;
    }
    Ok(run)
}
