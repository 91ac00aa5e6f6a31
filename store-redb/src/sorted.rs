//! Many keys into a table, out of it, or looked up in it, at once and in their order.
//!
//! redb descends from the root for every single key. A run of neighbours is found, put in place or
//! removed with one descent, and each page is built once: this is where the speed of a batch comes
//! from.

use std::ops::{Bound, ControlFlow};

use redb::{CursorError, Key, ReadableTable, Table, Value};
use windlass_core::JobId;

use crate::tables::Found;

/// Up to this number of keys, one lookup per key is faster.
const FEW: usize = 4;
/// At most this number of keys is looked up one by one before a run of neighbours is tried again.
const FURTHEST: usize = 64;

/// A key that owns its bytes.
pub(crate) trait Sorted: Ord + Copy {
    /// The key as redb names its type.
    type Stored: Key + 'static;

    /// The key as redb takes it.
    fn stored(&self) -> <Self::Stored as Value>::SelfType<'_>;

    /// Whether it is the next one behind `other`, so that no key is between them.
    fn follows(&self, other: &Self) -> bool;

    /// Whether redb returned this key.
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

impl Sorted for JobId {
    type Stored = u64;

    fn stored(&self) -> u64 {
        self.get()
    }

    fn follows(&self, other: &Self) -> bool {
        self.get().follows(&other.get())
    }

    fn is(&self, stored: &u64) -> bool {
        self.get() == *stored
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

/// When to try for a run of neighbours: after each failure twice as many keys are taken one by one.
struct Tries {
    wait: usize,
    backoff: usize,
}

impl Default for Tries {
    fn default() -> Self {
        Self { wait: 0, backoff: 1 }
    }
}

impl Tries {
    /// Whether to try now, one key further on.
    fn due(&mut self) -> bool {
        let due = self.wait == 0;
        self.wait = self.wait.saturating_sub(1);
        due
    }

    /// Takes in whether a try has found a run.
    fn made(&mut self, run: bool) {
        (self.wait, self.backoff) =
            if run { (0, 1) } else { (self.backoff, FURTHEST.min(self.backoff * 2)) };
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
            match range.next() {
                Some(Ok((next, value))) if key.is(&next.value()) => {
                    backoff = 1;
                    if found(Some(value.value()))?.is_break() {
                        return Ok(());
                    }
                    continue;
                }
                Some(Err(error)) => return Err(error.into()),
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

/// Puts rows in place, sorted by their keys. Those that are there are replaced: says how many.
pub(crate) fn put_all<K: Sorted, V: Value + 'static>(
    table: &mut Table<'_, K::Stored, V>,
    rows: &[(K, V::SelfType<'_>)],
) -> Found<usize> {
    debug_assert!(rows.is_sorted_by(|(a, _), (b, _)| a < b), "keys come in order, each once");
    let mut rest = rows;
    let mut replaced = 0;
    let mut tries = Tries::default();
    while let Some(((key, value), behind)) = rest.split_first() {
        replaced += usize::from(table.insert(key.stored(), value)?.is_some());
        rest = behind;
        if rest.len() >= FEW && tries.due() {
            let run = put_run(table, key, rest)?;
            tries.made(run > 0);
            rest = &rest[run..];
        }
    }
    Ok(replaced)
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
/// they are removed and put back, each page once. Says how many were there.
pub(crate) fn replace_all<K: Sorted, V: Value + 'static>(
    table: &mut Table<'_, K::Stored, V>,
    rows: &[(K, V::SelfType<'_>)],
) -> Found<usize> {
    let mut replaced = 0;
    for run in rows.chunk_by(|(a, _), (b, _)| b.follows(a)) {
        if let [(first, _), .., (last, _)] = run
            && run.len() > FEW
        {
            replaced += remove_run(table, first, last)?;
        }
        replaced += put_all(table, run)?;
    }
    Ok(replaced)
}

/// Removes keys, sorted, and says how many of them were there.
pub(crate) fn remove_all<K: Sorted, V: Value + 'static>(
    table: &mut Table<'_, K::Stored, V>,
    keys: &[K],
) -> Found<usize> {
    debug_assert!(keys.is_sorted_by(|a, b| a < b), "keys come in order, each once");
    let mut rest = keys;
    let mut removed = 0;
    let mut tries = Tries::default();
    while let Some((first, behind)) = rest.split_first() {
        let run = match rest.windows(2).position(|pair| !pair[1].follows(&pair[0])) {
            None => rest.len(),
            Some(last) if last >= FEW => last + 1,
            Some(_) if tries.due() => {
                let run = neighbours(table, rest)?;
                tries.made(run > FEW);
                run
            }
            Some(_) => 0,
        };
        if run > FEW {
            removed += remove_run(table, first, &rest[run - 1])?;
            rest = &rest[run..];
        } else {
            removed += usize::from(table.remove(first.stored())?.is_some());
            rest = behind;
        }
    }
    Ok(removed)
}

/// Removes everything from one key to another, and says how much that was.
fn remove_run<K: Sorted, V: Value + 'static>(
    table: &mut Table<'_, K::Stored, V>,
    first: &K,
    last: &K,
) -> Found<usize> {
    let range = first.stored()..=last.stored();
    let mut removed = 0;
    table.retain_in::<<K::Stored as Value>::SelfType<'_>, _>(range, |_, _| {
        removed += 1;
        false
    })?;
    Ok(removed)
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

    const TABLE: redb::TableDefinition<'_, u64, u64> = redb::TableDefinition::new("numbers");

    /// Runs `change` on a table with these keys; what it says, and the keys that are left.
    fn on(
        keys: &[u64],
        change: impl FnOnce(&mut Table<'_, u64, u64>) -> usize,
    ) -> (usize, Vec<u64>) {
        let backend = redb::backends::InMemoryBackend::new();
        let db = redb::Builder::new().create_with_backend(backend).expect("it is made");
        let txn = db.begin_write().expect("no other transaction writes");
        let mut table = txn.open_table(TABLE).expect("it opens");
        for key in keys {
            table.insert(key, 0).expect("it is put");
        }
        let said = change(&mut table);
        let left = table.iter().expect("it is read");
        (said, left.map(|row| row.expect("it is read").0.value()).collect())
    }

    #[test]
    fn what_is_removed_is_counted_in_runs_and_one_by_one() {
        let remove = |stored: &[u64], keys: &[u64]| {
            on(stored, |table| remove_all(table, keys).expect("it is removed"))
        };
        let all: Vec<u64> = (1..=40).collect();
        assert_eq!(remove(&all, &all), (40, vec![]));
        assert_eq!(remove(&all, &[3, 9]).0, 2);
        assert_eq!(remove(&all, &[39, 40, 41, 42]), (2, (1..=38).collect()));
        let far: Vec<u64> = (1..=40).map(|key| key * 10).collect();
        assert_eq!(remove(&far, &far), (40, vec![]));
        assert_eq!(remove(&far, &all), (4, far[4..].to_vec()));
        assert_eq!(remove(&all[..20], &all), (20, vec![]), "a run of which the end is missing");
    }

    #[test]
    fn what_is_replaced_is_counted_in_runs_and_one_by_one() {
        let rows = |keys: &[u64]| -> Vec<(u64, u64)> { keys.iter().map(|key| (*key, 1)).collect() };
        let replace = |stored: &[u64], keys: &[u64]| {
            on(stored, |table| replace_all(table, &rows(keys)).expect("they are put"))
        };
        let put = |stored: &[u64], keys: &[u64]| {
            on(stored, |table| put_all(table, &rows(keys)).expect("they are put"))
        };
        let all: Vec<u64> = (1..=40).collect();
        let far: Vec<u64> = (1..=40).map(|key| key * 10).collect();
        for keys in [&all, &far] {
            assert_eq!(replace(keys, keys), (40, keys.clone()));
            assert_eq!(replace(&keys[..30], keys), (30, keys.clone()));
            assert_eq!(put(keys, keys), (40, keys.clone()));
            assert_eq!(put(&keys[..30], keys), (30, keys.clone()));
            assert_eq!(put(&[], keys), (0, keys.clone()));
            assert_eq!(put(&keys[20..21], keys), (1, keys.clone()));
        }
    }
}
