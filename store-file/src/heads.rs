//! Which queues and kinds have ready jobs, the one with the best rank first: so that a claim looks
//! only where there is something to find, and costs nothing for those that are empty.
//!
//! A rank in here is a lower bound of what is stored: nothing better is ready in that queue and
//! kind. It is kept by this process as it writes, and given up when another process commits or a
//! transaction fails.

use std::cmp::Reverse;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};

use windlass_core::store::{ByteBudget, Want};
use windlass_core::{Job, Rank};

/// A queue and a kind, by their numbers in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pair {
    /// The queue.
    pub queue: i64,
    /// The kind.
    pub kind: i64,
}

/// The queues and kinds with ready jobs.
#[derive(Debug, Default)]
pub struct Heads {
    loaded: bool,
    pairs: BTreeMap<Pair, Head>,
    by_rank: BTreeSet<(Rank, Pair)>,
}

#[derive(Debug, Clone, Copy)]
struct Head {
    /// No ready job of the pair has a better rank.
    bound: Rank,
    /// How many ready jobs the pair has, if that is known.
    count: Option<usize>,
}

impl Heads {
    /// Whether every pair with ready jobs is in here.
    pub fn is_loaded(&self) -> bool {
        self.loaded
    }

    /// Takes in every pair with ready jobs, each with its best rank.
    pub fn load(&mut self, all: impl IntoIterator<Item = (Pair, Rank)>) {
        self.forget();
        for (pair, bound) in all {
            self.pairs.insert(pair, Head { bound, count: None });
            self.by_rank.insert((bound, pair));
        }
        self.loaded = true;
    }

    /// Gives up everything that is known.
    pub fn forget(&mut self) {
        *self = Self::default();
    }

    /// Follows a ready job that was written.
    pub fn add(&mut self, pair: Pair, rank: Rank) {
        if !self.loaded {
            return;
        }
        let bound = match self.pairs.entry(pair) {
            Entry::Vacant(vacant) => {
                vacant.insert(Head { bound: rank, count: Some(1) });
                self.by_rank.insert((rank, pair));
                return;
            }
            Entry::Occupied(head) => {
                let head = head.into_mut();
                head.count = head.count.map(|count| count + 1);
                head.bound
            }
        };
        if rank < bound {
            self.set_bound(pair, rank);
        }
    }

    /// Follows a ready job that was written to stand elsewhere, or removed.
    pub fn remove(&mut self, pair: Pair) {
        let Some(head) = self.pairs.get_mut(&pair) else { return };
        head.count = head.count.map(|count| count.saturating_sub(1));
        if head.count == Some(0) {
            self.drop_pair(pair);
        }
    }

    /// Takes in what a look at the ready jobs of a pair has found: the best of them, and their
    /// number if that is all of them.
    fn looked(&mut self, pair: Pair, best: Option<Rank>, count: Option<usize>) {
        let Some(best) = best else { return self.drop_pair(pair) };
        self.set_bound(pair, best);
        if let Some(head) = self.pairs.get_mut(&pair) {
            head.count = count.or(head.count);
        }
    }

    fn set_bound(&mut self, pair: Pair, bound: Rank) {
        let Some(head) = self.pairs.get_mut(&pair) else { return };
        if head.bound != bound {
            self.by_rank.remove(&(head.bound, pair));
            self.by_rank.insert((bound, pair));
            head.bound = bound;
        }
    }

    fn drop_pair(&mut self, pair: Pair) {
        if let Some(head) = self.pairs.remove(&pair) {
            self.by_rank.remove(&(head.bound, pair));
        }
    }

    /// The best-ranked ready jobs of the pairs that are wanted, as many as `want` asks for, and the
    /// payload length of the next one. `fetch` finds the first ready jobs of a pair behind a rank.
    ///
    /// A pair is looked at only when its bound says that it may hold the next one. Where one pair
    /// holds all the best, it is asked for more and more at a time.
    pub fn best<E>(
        &mut self,
        want: &Want,
        mut wanted: impl FnMut(Pair) -> Result<bool, E>,
        mut fetch: impl FnMut(Pair, Option<Rank>, usize) -> Result<Vec<Job>, E>,
    ) -> Result<(Vec<Job>, Option<u32>), E> {
        debug_assert!(self.loaded, "the pairs with ready jobs are known");
        let mut merge = Merge::new(want, self.pairs.len());
        let mut looked = Vec::new();
        let mut closed = self.by_rank.iter().peekable();
        let next_bytes = loop {
            let bound = closed.peek().map(|(bound, _)| *bound);
            if merge.taken.len() == want.limit {
                break merge.next_bytes(bound.is_some());
            }
            match merge.best() {
                Some(best) if bound.is_none_or(|bound| best < bound) => {
                    if let Some(next) = merge.take(&mut fetch)? {
                        break Some(next);
                    }
                }
                _ => {
                    let Some((_, pair)) = closed.next() else { break None };
                    if wanted(*pair)? {
                        looked.extend(merge.open(*pair, &mut fetch)?);
                    }
                }
            }
        };
        for (pair, best, count) in looked {
            self.looked(pair, best, count);
        }
        Ok((merge.taken, next_bytes))
    }
}

/// What a look at a pair has found.
type Looked = (Pair, Option<Rank>, Option<usize>);

/// The ready jobs of several pairs, merged by rank.
struct Merge<'w> {
    want: &'w Want,
    lists: Vec<List>,
    heap: BinaryHeap<Reverse<(Rank, usize)>>,
    /// How many jobs to ask of a pair first.
    share: usize,
    budget: ByteBudget,
    taken: Vec<Job>,
}

/// Ready jobs of one pair that were fetched and not taken yet.
struct List {
    pair: Pair,
    jobs: VecDeque<Job>,
    /// How many were asked for last; fewer were found if there are no more.
    asked: usize,
    last: Option<Rank>,
    more: bool,
}

impl<'w> Merge<'w> {
    fn new(want: &'w Want, pairs: usize) -> Self {
        // Of several, one more than a pair's share shows whether there are others behind it.
        let several = usize::from(pairs > 1);
        let share = want.limit.div_ceil(pairs.max(1)) + several;
        let budget = ByteBudget::new(want.bytes);
        Self { want, lists: Vec::new(), heap: BinaryHeap::new(), share, budget, taken: Vec::new() }
    }

    fn best(&self) -> Option<Rank> {
        self.heap.peek().map(|Reverse((rank, _))| *rank)
    }

    /// Looks at a pair for the first time.
    fn open<E>(
        &mut self,
        pair: Pair,
        fetch: &mut impl FnMut(Pair, Option<Rank>, usize) -> Result<Vec<Job>, E>,
    ) -> Result<Option<Looked>, E> {
        let asked = self.share;
        let jobs = fetch(pair, self.want.after, asked)?;
        let (first, count, more) =
            (jobs.first().map(|job| job.rank), jobs.len(), jobs.len() == asked);
        let last = jobs.last().map(|job| job.rank);
        self.heap.extend(first.map(|rank| Reverse((rank, self.lists.len()))));
        self.lists.push(List { pair, jobs: jobs.into(), asked, last, more });
        // Behind a rank it is not all that the pair has.
        let whole = self.want.after.is_none();
        Ok(whole.then_some((pair, first, (!more).then_some(count))))
    }

    /// The payload length of the next one once enough are taken; zero if it was not looked at.
    fn next_bytes(&self, closed: bool) -> Option<u32> {
        let next = self.heap.peek().and_then(|Reverse((_, at))| self.lists[*at].jobs.front());
        let unseen = closed || self.lists.iter().any(|list| list.more && list.jobs.is_empty());
        next.map(|job| job.payload_bytes).or(unseen.then_some(0))
    }

    /// Takes the best one; if it does not fit any more, says how long its payload is.
    fn take<E>(
        &mut self,
        fetch: &mut impl FnMut(Pair, Option<Rank>, usize) -> Result<Vec<Job>, E>,
    ) -> Result<Option<u32>, E> {
        let Some(Reverse((_, at))) = self.heap.pop() else { return Ok(None) };
        let list = &mut self.lists[at];
        let Some(job) = list.jobs.pop_front() else { return Ok(None) };
        let bytes = job.payload_bytes;
        if !self.budget.takes(bytes as usize) {
            return Ok(Some(bytes));
        }
        self.taken.push(job);
        if list.jobs.is_empty() && list.more && self.taken.len() < self.want.limit {
            list.asked *= 4;
            let jobs = fetch(list.pair, list.last, list.asked)?;
            list.more = jobs.len() == list.asked;
            list.last = jobs.last().map(|job| job.rank).or(list.last);
            list.jobs = jobs.into();
        }
        self.heap.extend(list.jobs.front().map(|job| Reverse((job.rank, at))));
        Ok(None)
    }
}
