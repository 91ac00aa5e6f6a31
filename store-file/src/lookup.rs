//! A map by number that is looked up in and never walked: rows by id, names by their number or by
//! the address of their text.

use std::hash::{BuildHasherDefault, Hasher};

/// A hash map by number. It cannot be walked, so its order shows nowhere. The numbers are given out
/// by the store or by the allocator, not by clients, so that a fixed and quick hash does.
#[derive(Debug)]
pub struct Lookup<V> {
    entries: Entries<V>,
}

#[expect(clippy::disallowed_types, reason = "it is never walked")]
type Entries<V> = std::collections::HashMap<u64, V, BuildHasherDefault<Mix>>;

impl<V> Default for Lookup<V> {
    fn default() -> Self {
        Self { entries: Entries::default() }
    }
}

impl<V> Lookup<V> {
    /// The value of a number.
    pub fn get(&self, number: u64) -> Option<&V> {
        self.entries.get(&number)
    }

    /// Puts an entry in place.
    pub fn insert(&mut self, number: u64, value: V) {
        self.entries.insert(number, value);
    }

    /// Takes an entry out.
    pub fn remove(&mut self, number: u64) -> Option<V> {
        self.entries.remove(&number)
    }

    /// Whether there are fewer entries than this.
    pub fn has_room(&self, most: usize) -> bool {
        self.entries.len() < most
    }
}

/// Multiplies, and turns the well-mixed high bits to where the map takes its buckets from.
#[derive(Debug, Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64((*byte).into());
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0.rotate_left(26)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_is_found_until_it_is_taken() {
        let mut lookup = Lookup::default();
        for number in 0..1_000_u64 {
            lookup.insert(number * 16, number);
        }
        assert_eq!(lookup.remove(16), Some(1));
        assert_eq!(lookup.remove(16), None);
        assert_eq!(lookup.get(16), None);
        assert!((2..1_000).all(|number| lookup.get(number * 16) == Some(&number)));
        assert!(lookup.has_room(1_000) && !lookup.has_room(999));
    }
}
