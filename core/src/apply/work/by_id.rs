//! Positions by job. Most jobs of a batch come in the order of their ids, each behind all before:
//! these are appended to a list, and only the others go into a tree.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::JobId;

/// Positions by job.
#[derive(Debug, Default)]
pub(super) struct ById {
    /// Sorted by id.
    appended: Vec<(JobId, usize)>,
    others: BTreeMap<JobId, usize>,
}

impl ById {
    /// The position of a job.
    pub(super) fn get(&self, id: JobId) -> Option<usize> {
        if self.appended.last().is_none_or(|(last, _)| *last < id) {
            return None;
        }
        match self.appended.binary_search_by_key(&id, |(known, _)| *known) {
            Ok(at) => Some(self.appended[at].1),
            Err(_) if self.others.is_empty() => None,
            Err(_) => self.others.get(&id).copied(),
        }
    }

    /// Adds a job that is not in here.
    pub(super) fn insert(&mut self, id: JobId, position: usize) {
        if self.appended.last().is_none_or(|(last, _)| *last < id) {
            self.appended.push((id, position));
        } else {
            self.others.insert(id, position);
        }
    }

    /// Every position, by the id of its job.
    pub(super) fn positions(&self) -> impl Iterator<Item = usize> {
        let (mut appended, mut others) = (self.appended.iter().peekable(), self.others.iter());
        let mut other = others.next();
        core::iter::from_fn(move || {
            let (_, position) = match (appended.peek(), other) {
                (Some((next, _)), Some((id, _))) if id < next => other?,
                (None, Some(_)) => other?,
                _ => return appended.next().map(|(_, position)| *position),
            };
            other = others.next();
            Some(*position)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_in_any_order_are_found_and_come_back_by_their_ids() {
        for orders in [&[1_u64, 2, 3, 9][..], &[5, 1, 7, 6, 2], &[9, 8, 7], &[2, 1, 3], &[]] {
            let id = |number| JobId::new(number).expect("an id");
            let mut by_id = ById::default();
            for (position, number) in orders.iter().enumerate() {
                assert_eq!(by_id.get(id(*number)), None, "{orders:?}");
                by_id.insert(id(*number), position);
            }
            for (position, number) in orders.iter().enumerate() {
                assert_eq!(by_id.get(id(*number)), Some(position), "{orders:?}");
            }
            assert_eq!([4, 10].map(|number| by_id.get(id(number))), [None, None]);
            let numbers: Vec<u64> = by_id.positions().map(|position| orders[position]).collect();
            assert!(numbers.is_sorted() && numbers.len() == orders.len(), "{numbers:?}");
        }
    }
}
