//! Claims: the best-ranked ready jobs for each demand, one lease each.
//!
//! Per queue and kind there is a head that moves through the ready jobs by rank; a claim merges
//! the heads it wants. Kinds without ready jobs are known from the counters and never looked at,
//! so a backlog of other kinds costs nothing.

use alloc::collections::{BTreeMap, BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::work::{Before, Spot, Work};
use crate::limits::{CLAIM_BYTES, PAGE_ROWS};
use crate::store::{ClaimFor, Claimed, Leased, Taker, Tx};
use crate::{
    Claim, Demand, Event, Gate, Job, Kind, QueueName, Queues, Rank, Step, View, transition,
};

/// Claims jobs for each demand, in order.
pub(super) fn claim<T: Tx>(
    work: &mut Work<'_, T>,
    claims: &[ClaimFor],
) -> Result<Vec<Claimed>, T::Error> {
    if claims.is_empty() {
        return Ok(Vec::new());
    }
    let mut heads = Heads::new(work);
    claims.iter().map(|claim| claim_for(work, &mut heads, claim)).collect()
}

/// A job that was taken, and what it takes to put it back.
struct Take {
    taker: usize,
    spot: Spot,
    head: usize,
    rank: Rank,
    before: Before,
}

fn claim_for<T: Tx>(
    work: &mut Work<'_, T>,
    heads: &mut Heads,
    claim: &ClaimFor,
) -> Result<Claimed, T::Error> {
    let (mut taken, dry) = take(work, heads, claim)?;
    let spots: Vec<Spot> = taken.iter().map(|take| take.spot).collect();
    let payloads = work.payloads(&spots, CLAIM_BYTES)?;
    let cut = payloads.len() < taken.len();
    // Put back in order, so that whoever claims next finds them as if they had not been touched.
    for take in taken.drain(payloads.len()..).rev() {
        work.put_back(take.spot, take.before);
        heads.all[take.head].page.push_front((take.rank, take.spot));
    }
    let mut jobs = Vec::with_capacity(taken.len());
    for (take, payload) in taken.iter().zip(payloads) {
        let Some(job) = work.job_at(take.spot) else { continue };
        jobs.push(Leased { taker: take.taker, job: job.clone(), payload });
    }
    Ok(Claimed { jobs, dry: dry && !cut, cut })
}

/// Leases jobs to each taker in turn; says whether there were fewer than they asked for.
fn take<T: Tx>(
    work: &mut Work<'_, T>,
    heads: &mut Heads,
    claim: &ClaimFor,
) -> Result<(Vec<Take>, bool), T::Error> {
    let asked: usize = claim.takers.iter().map(|taker| taker.max).sum();
    let mut merge = Merge::new(work, heads, &claim.demand, asked)?;
    let mut taken = Vec::with_capacity(heads.standing().min(asked));
    for (taker, Taker { worker, max, length }) in claim.takers.iter().enumerate() {
        let mut claim = Claim { worker: worker.clone(), length: *length, gate: Gate::Open };
        let mut left = *max;
        while left > 0 {
            let Some((head, rank, spot)) = merge.next(work, heads, asked - taken.len())? else {
                return Ok((taken, true));
            };
            if let Some(before) = lease(work, spot, &mut claim) {
                taken.push(Take { taker, spot, head, rank, before });
                left -= 1;
            }
            heads.all[head].step();
            merge.waiting = Some(head);
        }
    }
    Ok((taken, false))
}

/// Leases a job, if the rules allow it.
fn lease<T: Tx>(work: &mut Work<'_, T>, spot: Spot, claim: &mut Claim) -> Option<Before> {
    claim.gate = work.gate_at(spot);
    match transition(work.job_at(spot)?, Event::Claim(claim), work.now) {
        Ok(Step::Moved(job)) => work.replace(spot, job),
        _ => None,
    }
}

/// The heads one claim wants, the best-ranked on top.
struct Merge {
    heap: BinaryHeap<Reverse<(Ready, usize)>>,
    /// The head taken from last; it is looked at again only if more is wanted.
    waiting: Option<usize>,
    heads: usize,
}

impl Merge {
    fn new<T: Tx>(
        work: &mut Work<'_, T>,
        heads: &mut Heads,
        demand: &Demand,
        asked: usize,
    ) -> Result<Self, T::Error> {
        let wanted = heads.wanted(work, demand);
        let mut merge = Self { heap: BinaryHeap::new(), waiting: None, heads: wanted.len() };
        heads.fetch(work, &wanted, merge.share(asked))?;
        for head in wanted {
            merge.push(work, heads, head, asked)?;
        }
        Ok(merge)
    }

    /// The best-ranked job of an open queue, with the head it stands at.
    fn next<T: Tx>(
        &mut self,
        work: &mut Work<'_, T>,
        heads: &mut Heads,
        asked: usize,
    ) -> Result<Option<(usize, Rank, Spot)>, T::Error> {
        if let Some(head) = self.waiting.take() {
            self.push(work, heads, head, asked)?;
        }
        while let Some(Reverse(((rank, spot), head))) = self.heap.pop() {
            if work.gate_at(spot) == Gate::Open {
                return Ok(Some((head, rank, spot)));
            }
        }
        Ok(None)
    }

    fn push<T: Tx>(
        &mut self,
        work: &mut Work<'_, T>,
        heads: &mut Heads,
        head: usize,
        asked: usize,
    ) -> Result<(), T::Error> {
        if let Some(ready) = heads.all[head].peek(work, self.share(asked))? {
            self.heap.push(Reverse((ready, head)));
        }
        Ok(())
    }

    /// Several heads share what is asked for; one alone is asked for all of it.
    fn share(&self, asked: usize) -> usize {
        asked.div_ceil(self.heads.max(1)).clamp(1, PAGE_ROWS)
    }
}

/// A ready job: its rank, and where it lies.
type Ready = (Rank, Spot);

/// The heads of this batch, made as they are wanted.
struct Heads {
    all: Vec<Head>,
    places: BTreeMap<(QueueName, Kind), usize>,
    /// Ready jobs that the store's index does not show yet, best rank last.
    fresh: BTreeMap<(QueueName, Kind), Vec<Ready>>,
}

impl Heads {
    fn new<T: Tx>(work: &Work<'_, T>) -> Self {
        let mut fresh: BTreeMap<(QueueName, Kind), Vec<Ready>> = BTreeMap::new();
        let mut run: Option<(&Job, Vec<Ready>)> = None;
        // Most batches are of one queue and kind: runs of them are collected without a look-up.
        for (spot, job) in work.newly_ready() {
            match &mut run {
                Some((of, ranks)) if of.queue.same(&job.queue) && of.kind.same(&job.kind) => {
                    ranks.push((job.rank(), spot));
                }
                _ => {
                    flush(&mut fresh, run.take());
                    run = Some((job, Vec::from([(job.rank(), spot)])));
                }
            }
        }
        flush(&mut fresh, run);
        for ranks in fresh.values_mut() {
            ranks.sort_unstable_by(|a, b| b.cmp(a));
        }
        Self { all: Vec::new(), places: BTreeMap::new(), fresh }
    }

    /// The heads of every open queue and kind with ready jobs that this demand wants.
    fn wanted<T: Tx>(&mut self, work: &Work<'_, T>, demand: &Demand) -> Vec<usize> {
        let mut found = Vec::new();
        let mut add = |at: usize| {
            let queue = work.queue_at(at);
            if queue.gate() != Gate::Open {
                return;
            }
            for kind in &queue.kinds {
                if kind.counts.get(View::Queued) > 0 && demand.kinds.includes(&kind.kind) {
                    found.push(self.place(&queue.queue.name, &kind.kind));
                }
            }
        };
        match &demand.queues {
            Queues::All => (0..work.queues().len()).for_each(add),
            Queues::Only(names) => {
                names.iter().filter_map(|name| work.queue_place(name)).for_each(&mut add);
            }
        }
        found
    }

    /// How many ready jobs are known.
    fn standing(&self) -> usize {
        self.all.iter().map(|head| head.fresh.len() + head.page.len()).sum()
    }

    /// Fills those of these heads that nobody has looked at yet, with one question.
    fn fetch<T: Tx>(
        &mut self,
        work: &mut Work<'_, T>,
        wanted: &[usize],
        share: usize,
    ) -> Result<(), T::Error> {
        let unasked = |at: &usize| self.all[*at].after.is_none() && !self.all[*at].exhausted;
        let unasked: Vec<usize> = wanted.iter().copied().filter(unasked).collect();
        if unasked.is_empty() {
            return Ok(());
        }
        let name = |at: &usize| (self.all[*at].queue.clone(), self.all[*at].kind.clone());
        let names: Vec<(QueueName, Kind)> = unasked.iter().map(name).collect();
        let found = work.tx.heads(&names, share)?;
        for (at, jobs) in unasked.into_iter().zip(found) {
            self.all[at].take(work, jobs, share)?;
        }
        Ok(())
    }

    fn place(&mut self, queue: &QueueName, kind: &Kind) -> usize {
        let key = (queue.clone(), kind.clone());
        if let Some(at) = self.places.get(&key) {
            return *at;
        }
        let fresh = self.fresh.remove(&key).unwrap_or_default();
        self.all.push(Head {
            queue: queue.clone(),
            kind: kind.clone(),
            fresh,
            page: VecDeque::new(),
            after: None,
            exhausted: false,
        });
        self.places.insert(key, self.all.len() - 1);
        self.all.len() - 1
    }
}

fn flush(fresh: &mut BTreeMap<(QueueName, Kind), Vec<Ready>>, run: Option<(&Job, Vec<Ready>)>) {
    if let Some((of, ranks)) = run {
        fresh.entry((of.queue.clone(), of.kind.clone())).or_default().extend(ranks);
    }
}

/// A place among the ready jobs of one queue and kind, moving by rank.
struct Head {
    queue: QueueName,
    kind: Kind,
    fresh: Vec<Ready>,
    page: VecDeque<Ready>,
    /// The last rank the store was asked for.
    after: Option<Rank>,
    exhausted: bool,
}

impl Head {
    /// The job at this place. At most `share` jobs are asked of the store at a time.
    fn peek<T: Tx>(
        &mut self,
        work: &mut Work<'_, T>,
        share: usize,
    ) -> Result<Option<Ready>, T::Error> {
        loop {
            if let Some(after) = self.after.filter(|_| self.page.is_empty() && !self.exhausted) {
                let jobs = work.tx.ready(&self.queue, &self.kind, after, share)?;
                self.take(work, jobs, share)?;
            }
            let Some((rank, spot)) = self.best() else { return Ok(None) };
            let stands = |job: &Job| job.state.view() == View::Queued && job.rank() == rank;
            if work.job_at(spot).is_some_and(stands) {
                return Ok(Some((rank, spot)));
            }
            self.step();
        }
    }

    /// Moves past the job at this place.
    fn step(&mut self) {
        let Some(ready) = self.best() else { return };
        if self.fresh.last() == Some(&ready) {
            self.fresh.pop();
        }
        if self.page.front() == Some(&ready) {
            self.page.pop_front();
        }
    }

    fn best(&self) -> Option<Ready> {
        match (self.fresh.last(), self.page.front()) {
            (Some(fresh), Some(page)) => Some(*fresh.min(page)),
            (fresh, page) => fresh.or(page).copied(),
        }
    }

    /// Takes in a page that the store has found; `share` jobs were asked for.
    fn take<T: Tx>(
        &mut self,
        work: &mut Work<'_, T>,
        jobs: Vec<Job>,
        share: usize,
    ) -> Result<(), T::Error> {
        self.exhausted = jobs.len() < share;
        let ranks: Vec<Rank> = jobs.iter().map(Job::rank).collect();
        self.after = ranks.last().copied().or(self.after);
        self.page.extend(ranks.into_iter().zip(work.adopt(jobs)?));
        Ok(())
    }
}
