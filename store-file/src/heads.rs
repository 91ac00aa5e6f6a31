//! The ready jobs that this process knows of, by queue and kind: so that a claim searches the store
//! neither for queues and kinds that have none, nor for every job of those that have some.
//!
//! What is kept per queue and kind are the best of its ranks, without a gap. It follows what this
//! process writes, and is dropped when another process commits or a transaction fails. A claim
//! still reads the rows, so an error in here cannot lease a job twice.

use std::cmp::Reverse;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};

use windlass_core::Rank;
use windlass_core::store::{ByteBudget, Want};

/// Maximum number of ranks that are kept, all queues and kinds together: 32 bytes each. Few in
/// tests, so that they reach it.
const MOST: usize = if cfg!(test) { 60 } else { 65_536 };
/// Minimum number of ranks to search for at once.
const FEWEST: usize = 16;

/// A queue and a kind, by their numbers in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pair {
    /// Number of the queue.
    pub queue: i64,
    /// Number of the kind.
    pub kind: i64,
}

/// The queues and kinds with ready jobs.
#[derive(Debug, Default)]
pub struct Heads {
    loaded: bool,
    pairs: BTreeMap<Pair, Head>,
    by_rank: BTreeSet<(Rank, Pair)>,
    /// Number of ranks in all heads.
    kept: usize,
}

#[derive(Debug)]
struct Head {
    /// Its place in `by_rank`: no ready job of the pair has a better rank.
    bound: Rank,
    /// The best ready jobs of the pair, without a gap, best first.
    known: VecDeque<Rank>,
    /// Whether these are all of its ready jobs.
    whole: bool,
}

impl Heads {
    /// Number of ranks per pair that [`load`](Self::load) takes.
    pub const LOADED: usize = 8;

    /// Whether every pair with ready jobs is in here.
    pub fn is_loaded(&self) -> bool {
        self.loaded
    }

    /// Takes in every pair with ready jobs: of each its [`LOADED`](Self::LOADED) best, or all if it
    /// has fewer. Sorted by pair, then by rank.
    pub fn load(&mut self, all: &[(Pair, Rank)]) {
        self.clear();
        for of_pair in all.chunk_by(|(a, _), (b, _)| a == b) {
            let (pair, bound) = of_pair[0];
            let whole = of_pair.len() < Self::LOADED;
            let known = of_pair.iter().map(|(_, rank)| *rank);
            let known = if self.kept < MOST { known.collect() } else { VecDeque::new() };
            self.kept += known.len();
            self.by_rank.insert((bound, pair));
            self.pairs.insert(pair, Head { bound, whole: whole && !known.is_empty(), known });
        }
        self.loaded = true;
    }

    /// Drops everything that is known.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Follows a ready job that was written.
    pub fn add(&mut self, pair: Pair, rank: Rank) {
        if !self.loaded {
            return;
        }
        let full = self.kept >= MOST;
        let head = match self.pairs.entry(pair) {
            Entry::Vacant(vacant) => {
                self.by_rank.insert((rank, pair));
                let known: VecDeque<Rank> = (!full).then_some(rank).into_iter().collect();
                self.kept += known.len();
                vacant.insert(Head { bound: rank, known, whole: !full });
                return;
            }
            Entry::Occupied(head) => head.into_mut(),
        };
        let at = match head.known.back() {
            Some(last) if *last < rank => head.known.len(),
            _ => head.known.partition_point(|known| *known < rank),
        };
        if at < head.known.len() || (head.whole && !full) {
            head.known.insert(at, rank);
            if full {
                head.known.pop_back();
                head.whole = false;
            } else {
                self.kept += 1;
            }
        } else {
            head.whole = false;
        }
        if rank < head.bound {
            self.by_rank.remove(&(head.bound, pair));
            self.by_rank.insert((rank, pair));
            head.bound = rank;
        }
    }

    /// Follows a job that was ready with this rank and is no more.
    pub fn remove(&mut self, pair: Pair, rank: Rank) {
        let Some(head) = self.pairs.get_mut(&pair) else { return };
        if head.known.front() == Some(&rank) {
            head.known.pop_front();
        } else if let Ok(at) = head.known.binary_search(&rank) {
            head.known.remove(at);
        } else {
            return;
        }
        self.kept -= 1;
        let bound = match head.known.front() {
            Some(first) => *first,
            // Those that are not known are behind it.
            None if !head.whole => rank,
            None => {
                self.by_rank.remove(&(head.bound, pair));
                self.pairs.remove(&pair);
                return;
            }
        };
        if bound != head.bound {
            self.by_rank.remove(&(head.bound, pair));
            self.by_rank.insert((bound, pair));
            head.bound = bound;
        }
    }

    /// The best-ranked ready jobs of the pairs that are wanted, as many as `want` asks for, and the
    /// payload length of the next one: zero if it was not read.
    ///
    /// `find` searches for the first ready jobs of a pair behind a rank. `read` reads ready jobs,
    /// in this order, as many as fit into the budget, and the payload length of the first that
    /// does not.
    pub fn best<T, E>(
        &mut self,
        want: &Want,
        wanted: impl FnMut(Pair) -> Result<bool, E>,
        find: impl FnMut(Pair, Option<Rank>, usize) -> Result<Vec<Rank>, E>,
        read: impl FnOnce(&[Rank], &mut ByteBudget) -> Result<(Vec<T>, Option<u32>), E>,
    ) -> Result<(Vec<T>, Option<u32>), E> {
        debug_assert!(self.loaded, "the pairs with ready jobs are known");
        let (ranks, more) = self.pick(want, wanted, find)?;
        let (jobs, next_bytes) = read(&ranks, &mut ByteBudget::new(want.bytes))?;
        Ok((jobs, next_bytes.or(more.then_some(0))))
    }

    /// The best ranks of the pairs that are wanted, and whether there may be more of them.
    fn pick<E>(
        &mut self,
        want: &Want,
        mut wanted: impl FnMut(Pair) -> Result<bool, E>,
        mut find: impl FnMut(Pair, Option<Rank>, usize) -> Result<Vec<Rank>, E>,
    ) -> Result<(Vec<Rank>, bool), E> {
        let mut merge = Merge::new(want, self.pairs.len());
        let mut closed = self.by_rank.iter().peekable();
        let more = loop {
            let bound = closed.peek().map(|(bound, _)| *bound);
            if merge.picked.len() >= want.limit {
                break bound.is_some() || !merge.heap.is_empty();
            }
            if merge.best().is_some_and(|best| bound.is_none_or(|bound| best < bound)) {
                merge.take(bound, &mut find)?;
            } else {
                let Some((_, pair)) = closed.next() else { break false };
                if wanted(*pair)?
                    && let Some(head) = self.pairs.get_mut(pair)
                {
                    merge.open(*pair, head, &mut find)?;
                }
            }
        };
        for list in merge.lists {
            self.put_back(list);
        }
        Ok((merge.picked, more))
    }

    /// Takes back the ranks of a pair that were merged, and those that were found behind them.
    fn put_back(&mut self, list: List) {
        let List { pair, ranks: mut known, mut whole, kept: Some(kept), .. } = list else { return };
        self.kept = self.kept - kept + known.len();
        let Some(head) = self.pairs.get_mut(&pair) else { return };
        let bound = known.front().copied();
        while self.kept > MOST && known.pop_back().is_some() {
            (self.kept, whole) = (self.kept - 1, false);
        }
        (head.known, head.whole) = (known, whole);
        if bound == Some(head.bound) {
            return;
        }
        self.by_rank.remove(&(head.bound, pair));
        if let Some(bound) = bound {
            self.by_rank.insert((bound, pair));
            head.bound = bound;
        } else {
            self.pairs.remove(&pair);
        }
    }
}

/// The ranks of several pairs, merged.
struct Merge<'w> {
    want: &'w Want,
    lists: Vec<List>,
    heap: BinaryHeap<Reverse<(Rank, usize)>>,
    /// Number of ranks to search for first in a pair.
    share: usize,
    picked: Vec<Rank>,
}

/// The ranks of one pair while they are merged.
struct List {
    pair: Pair,
    ranks: VecDeque<Rank>,
    /// The next to take.
    at: usize,
    whole: bool,
    /// Number of ranks to search for next.
    share: usize,
    /// Number of ranks that its head had; `None` if they do not start where the head does.
    kept: Option<usize>,
}

impl<'w> Merge<'w> {
    fn new(want: &'w Want, pairs: usize) -> Self {
        let share = want.limit.div_ceil(pairs.max(1)).clamp(FEWEST, MOST);
        let picked = Vec::with_capacity(want.limit.min(1_024));
        Self { want, lists: Vec::new(), heap: BinaryHeap::new(), share, picked }
    }

    fn best(&self) -> Option<Rank> {
        self.heap.peek().map(|Reverse((rank, _))| *rank)
    }

    /// Adds the ranks of a pair. Its head is without them until they are put back.
    fn open<E>(
        &mut self,
        pair: Pair,
        head: &mut Head,
        find: &mut impl FnMut(Pair, Option<Rank>, usize) -> Result<Vec<Rank>, E>,
    ) -> Result<(), E> {
        let (after, share) = (self.want.after, self.share);
        let gap = !head.whole && after.is_some_and(|after| head.known.back() < Some(&after));
        let mut list = if gap && !head.known.is_empty() {
            // What is between the known ones and `after` is not looked at.
            let ranks: VecDeque<Rank> = find(pair, after, share)?.into();
            let whole = ranks.len() < share;
            List { pair, ranks, at: 0, whole, share: share * 4, kept: None }
        } else {
            let (ranks, whole) = (std::mem::take(&mut head.known), head.whole);
            let kept = Some(ranks.len());
            List { pair, ranks, at: 0, whole, share, kept }
        };
        list.fill(find)?;
        if let Some(after) = after {
            list.at = list.ranks.partition_point(|rank| *rank <= after);
            while list.at == list.ranks.len() && !list.whole {
                list.fill(find)?;
                list.at = list.ranks.partition_point(|rank| *rank <= after);
            }
        }
        let first = list.ranks.get(list.at).copied();
        self.heap.extend(first.map(|rank| Reverse((rank, self.lists.len()))));
        self.lists.push(list);
        Ok(())
    }

    /// Takes the best ranks from one list, up to those of others.
    fn take<E>(
        &mut self,
        bound: Option<Rank>,
        find: &mut impl FnMut(Pair, Option<Rank>, usize) -> Result<Vec<Rank>, E>,
    ) -> Result<(), E> {
        let Some(Reverse((best, at))) = self.heap.pop() else { return Ok(()) };
        let end = [bound, self.best()].into_iter().flatten().min();
        let list = &mut self.lists[at];
        let mut next = Some(best);
        while let Some(rank) = next {
            if self.picked.len() >= self.want.limit || end.is_some_and(|end| rank > end) {
                self.heap.push(Reverse((rank, at)));
                break;
            }
            self.picked.push(rank);
            list.at += 1;
            if self.picked.len() < self.want.limit {
                list.fill(find)?;
            }
            next = list.ranks.get(list.at).copied();
        }
        // Whether there is another was not looked at.
        if next.is_none() && !list.whole {
            self.heap.push(Reverse((best, at)));
        }
        Ok(())
    }
}

impl List {
    /// Searches for more if all are taken and the pair may have more.
    fn fill<E>(
        &mut self,
        find: &mut impl FnMut(Pair, Option<Rank>, usize) -> Result<Vec<Rank>, E>,
    ) -> Result<(), E> {
        if self.at < self.ranks.len() || self.whole {
            return Ok(());
        }
        let found = find(self.pair, self.ranks.back().copied(), self.share)?;
        self.whole = found.len() < self.share;
        self.share = (self.share * 4).min(MOST);
        self.ranks.extend(found);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::{Demand, JobId, Wall};

    /// Numbers that look random, the same ones each time.
    struct Chance(u64);

    impl Chance {
        fn below(&mut self, end: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (self.0 >> 33) % end
        }
    }

    type Stored = BTreeSet<(Pair, Rank)>;

    fn rank(chance: &mut Chance, id: u64) -> Rank {
        let class = i16::try_from(chance.below(2)).expect("it is small");
        let due = Wall::new(i64::try_from(chance.below(5)).expect("it is small"));
        Rank { class, turn: 0, due, id: JobId::new(id).expect("an id") }
    }

    fn first(stored: &Stored, pair: Pair, after: Option<Rank>, limit: usize) -> Vec<Rank> {
        let behind = |rank: &Rank| after.is_none_or(|after| *rank > after);
        let of_pair = stored.iter().filter(|(of, _)| *of == pair).map(|(_, rank)| *rank);
        of_pair.filter(behind).take(limit).collect()
    }

    fn load(heads: &mut Heads, stored: &Stored) {
        let pairs: BTreeSet<Pair> = stored.iter().map(|(pair, _)| *pair).collect();
        let best = |pair| {
            first(stored, pair, None, Heads::LOADED).into_iter().map(move |rank| (pair, rank))
        };
        heads.load(&pairs.into_iter().flat_map(best).collect::<Vec<_>>());
    }

    /// Picks from the odd kinds only, and compares with what is stored; says what was picked.
    fn check(heads: &mut Heads, stored: &Stored, after: Option<Rank>, limit: usize) -> Vec<Rank> {
        let (closed, opened) = (Vec::new(), Vec::new());
        let closed_kinds = Vec::new();
        let want =
            Want { demand: Demand::ALL, closed, closed_kinds, opened, after, limit, bytes: 0 };
        let find = |pair, after, limit| Ok::<_, ()>(first(stored, pair, after, limit));
        let wanted = |pair: Pair| Ok(pair.kind % 2 == 1);
        let (picked, more) = heads.pick(&want, wanted, find).expect("nothing fails");
        let behind = |rank: &Rank| after.is_none_or(|after| *rank > after);
        let odd = stored.iter().filter(|(pair, _)| pair.kind % 2 == 1).map(|(_, rank)| *rank);
        let mut all: Vec<Rank> = odd.filter(behind).collect();
        all.sort_unstable();
        let left = all.split_off(limit.min(all.len()));
        assert_eq!(picked, all);
        assert!(more || left.is_empty(), "{} are left", left.len());
        let kept: usize = heads.pairs.values().map(|head| head.known.len()).sum();
        assert_eq!(kept, heads.kept);
        assert!(kept <= MOST + Heads::LOADED + limit, "{kept} ranks are kept");
        picked
    }

    #[test]
    fn what_is_picked_is_what_a_look_at_every_ready_job_would_pick() {
        for seed in 1..40 {
            let (mut chance, mut stored, mut heads) =
                (Chance(seed), Stored::new(), Heads::default());
            let pairs = 1 + chance.below(20);
            for id in 1..600 {
                let number = i64::try_from(chance.below(pairs)).expect("it is small");
                let pair = Pair { queue: number / 4, kind: number % 4 };
                let rank = rank(&mut chance, id);
                stored.insert((pair, rank));
                heads.add(pair, rank);
                if chance.below(40) == 0 {
                    load(&mut heads, &stored);
                }
                if heads.is_loaded() && chance.below(9) == 0 {
                    let limit = usize::try_from(chance.below(30)).expect("it is small");
                    let picked = check(&mut heads, &stored, None, limit);
                    check(&mut heads, &stored, picked.last().copied(), 5);
                    for rank in picked.iter().filter(|_| chance.below(3) > 0) {
                        let gone = stored.iter().find(|(_, stored)| stored == rank);
                        let gone = *gone.expect("it is stored");
                        stored.remove(&gone);
                        heads.remove(gone.0, gone.1);
                    }
                }
            }
        }
    }
}
