//! Positions by name. Names that a store has read share their text: these are found by its
//! address, without comparing texts.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::{Kind, QueueName};

/// So few are quicker looked at one by one.
const FEW: usize = 16;

/// Positions by name.
#[derive(Debug)]
pub(super) struct ByName<N> {
    /// Sorted by name.
    sorted: Vec<(N, usize)>,
    /// Positions by the address of the name's text, once there are more than a few. The names are
    /// in `sorted`, so no other text gets their addresses.
    addresses: BTreeMap<u64, usize>,
}

/// A name that may share its text with others.
pub(super) trait Shared: Ord + Clone {
    /// The address of the text.
    fn address(&self) -> u64;
}

impl Shared for QueueName {
    fn address(&self) -> u64 {
        self.address()
    }
}

impl Shared for Kind {
    fn address(&self) -> u64 {
        self.address()
    }
}

impl<N> Default for ByName<N> {
    fn default() -> Self {
        Self { sorted: Vec::new(), addresses: BTreeMap::new() }
    }
}

impl<N: Shared> ByName<N> {
    /// The position of a name.
    pub(super) fn get(&self, name: &N) -> Option<usize> {
        let address = name.address();
        let known = if self.sorted.len() <= FEW {
            let mut all = self.sorted.iter();
            all.find(|(known, _)| known.address() == address).map(|(_, position)| *position)
        } else {
            self.addresses.get(&address).copied()
        };
        known.or_else(|| self.find(name).ok().map(|at| self.sorted[at].1))
    }

    /// Adds a name with its position, and returns true. One that is there stays as it is.
    pub(super) fn insert(&mut self, name: &N, position: usize) -> bool {
        let Err(at) = self.find(name) else { return false };
        self.sorted.insert(at, (name.clone(), position));
        if self.sorted.len() > FEW {
            let missing = if self.addresses.is_empty() { 0..self.sorted.len() } else { at..at + 1 };
            for (name, position) in &self.sorted[missing] {
                self.addresses.insert(name.address(), *position);
            }
        }
        true
    }

    /// Where a name is in `sorted`, or where it belongs. Stores answer by name, so that most
    /// belong at the end.
    fn find(&self, name: &N) -> Result<usize, usize> {
        if self.sorted.last().is_none_or(|(last, _)| last < name) {
            return Err(self.sorted.len());
        }
        self.sorted.binary_search_by(|(known, _)| known.cmp(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn names_are_found_by_their_text_whether_they_share_it_or_not() {
        let name = |at: usize| QueueName::new(&format!("queue-{at}")).expect("a name");
        let mut names = ByName::default();
        let all: Vec<QueueName> = (0..40).map(|at| name(at * 17 % 40)).collect();
        for (position, added) in all.iter().enumerate() {
            assert_eq!(names.get(added), None);
            assert!(names.insert(added, position));
            assert!(!names.insert(&name(position * 17 % 40), usize::MAX));
            for (position, known) in all[..=position].iter().enumerate() {
                assert_eq!(names.get(known), Some(position), "{known}");
                assert_eq!(names.get(&known.as_str().parse().expect("a name")), Some(position));
            }
        }
        assert_eq!(names.get(&name(40)), None);
    }
}
