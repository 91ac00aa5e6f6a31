//! Many keys into a table, out of it, or looked up in it, at once and in their order.
//!
//! redb descends from the root for every single key. A run of neighbours is found, put in place or
//! removed with one descent, and each page is built once: this is where the speed of a batch comes
//! from.

use std::ops::{Bound, ControlFlow};

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

    /// Whether it is the next one behind `other`, so that nothing can stand between them.
    fn follows(&self, other: &Self) -> bool;

    /// Whether redb gave back this one.
    fn is(&self, stored: &<Self::Stored as Value>::SelfType<'_>) -> bool;
}

impl Sorted for u64 {
    type Stored = u64;

    fn stored(&self) -> u64 {
        *self
    }

    fn follows(&self, other: &u64) -> bool {
        other.checked_add(1) == Some(*self)
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

    /// Only as numbers that end in the last eight bytes: ids, in keys that sort by id last.
    fn follows(&self, other: &Self) -> bool {
        let (Some((start, end)), Some((other_start, other_end))) =
            (self.split_last_chunk::<8>(), other.split_last_chunk::<8>())
        else {
            return false;
        };
        start == other_start && u64::from_be_bytes(*end).follows(&u64::from_be_bytes(*other_end))
    }

    fn is(&self, stored: &&[u8; N]) -> bool {
        self == *stored
    }
}

/// Looks up keys in any order, and hands over what stands there, until that is enough. Where the
/// keys are neighbours in the table, it walks along instead of descending for each.
pub(crate) fn get_all<K: Sorted, V: Value + 'static>(
    table: &impl ReadableTable<K::Stored, V>,
    keys: &[K],
    mut found: impl FnMut(Option<V::SelfType<'_>>) -> Found<ControlFlow<()>>,
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
                    if found(Some(value.value()))?.is_break() {
                        return Ok(());
                    }
                    continue;
                }
                _ => (walk, wait, backoff) = (None, backoff, FURTHEST.min(backoff * 2)),
            }
        }
        let value = table.get(key.stored())?;
        if found(value.as_ref().map(redb::AccessGuard::value))?.is_break() {
            return Ok(());
        }
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

/// Puts rows in place of those with the same keys, sorted. Where nothing can stand between them,
/// they are removed and put back, each page once.
pub(crate) fn replace_all<K: Sorted, V: Value + 'static>(
    table: &mut Table<'_, K::Stored, V>,
    rows: &[(K, V::SelfType<'_>)],
) -> Found<()> {
    for run in rows.chunk_by(|(a, _), (b, _)| b.follows(a)) {
        if let [(first, _), .., (last, _)] = run
            && run.len() > FEW
        {
            remove_run(table, first, last)?;
        }
        put_all(table, run)?;
    }
    Ok(())
}

/// Removes keys, sorted. One that is not there is none to remove.
pub(crate) fn remove_all<K: Sorted, V: Value + 'static>(
    table: &mut Table<'_, K::Stored, V>,
    keys: &[K],
) -> Found<()> {
    debug_assert!(keys.is_sorted_by(|a, b| a < b), "keys come in order, each once");
    let mut rest = keys;
    while let Some((first, behind)) = rest.split_first() {
        let run = match rest.windows(2).position(|pair| !pair[1].follows(&pair[0])) {
            None => rest.len(),
            Some(last) if last >= FEW => last + 1,
            Some(_) => neighbours(table, rest)?,
        };
        if run > FEW {
            remove_run(table, first, &rest[run - 1])?;
            rest = &rest[run..];
        } else {
            table.remove(first.stored())?;
            rest = behind;
        }
    }
    Ok(())
}

/// Removes everything from one key to another.
fn remove_run<K: Sorted, V: Value + 'static>(
    table: &mut Table<'_, K::Stored, V>,
    first: &K,
    last: &K,
) -> Found<()> {
    let range = first.stored()..=last.stored();
    table.retain_in::<<K::Stored as Value>::SelfType<'_>, _>(range, |_, _| false)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_follows_another_only_if_nothing_fits_between() {
        assert!(8_u64.follows(&7) && !9_u64.follows(&7) && !0_u64.follows(&u64::MAX));
        let key = |start: u8, end: u64| {
            let mut key = [start; 10];
            key[2..].copy_from_slice(&end.to_be_bytes());
            key
        };
        assert!(key(1, 256).follows(&key(1, 255)));
        assert!(!key(1, 257).follows(&key(1, 255)));
        assert!(!key(2, 1).follows(&key(1, 0)));
        assert!(!key(2, 0).follows(&key(1, u64::MAX)));
        assert!(![1_u8; 4].follows(&[0; 4]));
    }
}
