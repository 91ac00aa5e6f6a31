//! Merges lists of jobs, newest first: for indexes that hold several lists one behind the other.

use std::collections::{BinaryHeap, VecDeque};

use windlass_core::store::Cursor;

/// Minimum number of places to search for at once.
const FEWEST: usize = 2;

/// The greatest places of all lists behind `after`, at most `limit`. `find` searches for those of
/// one list; fewer than it was asked for are the last.
pub fn newest_of<L, E>(
    lists: &[L],
    after: Option<Cursor>,
    limit: usize,
    mut find: impl FnMut(&L, Option<Cursor>, usize) -> Result<Vec<Cursor>, E>,
) -> Result<Vec<Cursor>, E> {
    let share = limit.div_ceil(lists.len().max(1)) + FEWEST;
    let mut open: Vec<Open<'_, L>> = Vec::with_capacity(lists.len());
    let mut heap: BinaryHeap<(Cursor, usize)> = BinaryHeap::new();
    for list in lists {
        let mut list = Open { list, places: VecDeque::new(), last: after, share, more: true };
        list.fill(&mut find)?;
        heap.extend(list.places.pop_front().map(|place| (place, open.len())));
        open.push(list);
    }
    let mut found = Vec::with_capacity(limit.min(1_024));
    while found.len() < limit
        && let Some((place, at)) = heap.pop()
    {
        found.push(place);
        open[at].fill(&mut find)?;
        heap.extend(open[at].places.pop_front().map(|place| (place, at)));
    }
    Ok(found)
}

/// A list while it is merged.
struct Open<'l, L> {
    list: &'l L,
    places: VecDeque<Cursor>,
    /// The last place that was found.
    last: Option<Cursor>,
    /// Number of places to search for next.
    share: usize,
    more: bool,
}

impl<L> Open<'_, L> {
    /// Searches for more if all were taken.
    fn fill<E>(
        &mut self,
        find: &mut impl FnMut(&L, Option<Cursor>, usize) -> Result<Vec<Cursor>, E>,
    ) -> Result<(), E> {
        if self.more && self.places.is_empty() {
            let found = find(self.list, self.last, self.share)?;
            self.more = found.len() == self.share;
            self.last = found.last().copied().or(self.last);
            self.share = self.share.saturating_mul(4);
            self.places = found.into();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::{JobId, Wall};

    fn place(id: u64) -> Cursor {
        Cursor { at: Wall::new(0), id: JobId::new(id).expect("an id") }
    }

    #[test]
    fn lists_are_merged_newest_first_and_few_places_are_searched_for() {
        let lists: Vec<Vec<u64>> =
            vec![(1..=500).map(|id| id * 2).collect(), vec![3, 999], vec![], vec![5]];
        for (after, limit) in [(None, 1), (None, 7), (Some(500), 40), (Some(4), 10)] {
            let mut searched = 0;
            let found = newest_of(&lists, after.map(place), limit, |list, after, limit| {
                let behind = |id: &&u64| after.is_none_or(|after| **id < after.id.get());
                let found: Vec<Cursor> =
                    list.iter().rev().filter(behind).take(limit).map(|id| place(*id)).collect();
                searched += found.len();
                Ok::<_, ()>(found)
            });
            let mut all: Vec<u64> = lists.concat();
            all.retain(|id| after.is_none_or(|after| *id < after));
            all.sort_unstable_by(|a, b| b.cmp(a));
            all.truncate(limit);
            let found: Vec<u64> =
                found.expect("it is found").iter().map(|at| at.id.get()).collect();
            assert_eq!(found, all);
            assert!(searched <= 6 * limit + 8, "{searched} places for {limit}");
        }
    }
}
