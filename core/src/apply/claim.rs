//! Claims: the best-ranked ready jobs for each demand, one lease each.
//!
//! The store brings candidates by rank; jobs that became ready in this batch join them. A claim
//! takes the best of both. It asks for more only where the next candidate of the store may be
//! better than what is left here.

use alloc::vec::Vec;
use core::mem;

use super::work::{Place, Slot, Work};
use crate::limits::{CLAIM_BYTES, STOP_GRACE};
use crate::store::{
    BadAnswer, Batch, ByteBudget, Candidates, ClaimFor, Claimed, Leased, Questions, Taker, Want,
    sorted,
};
use crate::{
    Claim, Demand, Event, Gate, JobId, Millis, QueueName, Queues, Rank, Step, View, Wall, WorkerId,
    transition,
};

/// The claims of a batch.
#[derive(Debug)]
pub(super) struct Claims {
    /// The first question of each claim; taken when it is its turn.
    sources: Vec<Option<Source>>,
    pool: Vec<(Rank, Slot)>,
    /// The claim whose turn it is.
    current: Option<Current>,
    done: Vec<Claimed>,
    /// When to look again at what stores left out because of a rate.
    opens: Option<Wall>,
}

/// A question for candidates, and how far it was answered.
#[derive(Debug)]
struct Source {
    want: Want,
    /// The rank of the last candidate given.
    frontier: Option<Rank>,
    /// The payload length of the next one, if there may be one.
    next_bytes: Option<u32>,
}

/// A claim that is being served.
#[derive(Debug)]
struct Current {
    sources: Vec<Source>,
    /// The source that was asked for more.
    asked: usize,
    /// The position in the pool, which is sorted by rank.
    at: usize,
    budget: ByteBudget,
    taker: usize,
    /// Jobs that the present taker, and all together, may still take.
    left: (usize, usize),
    claimed: Claimed,
}

impl Claims {
    pub(super) fn new(batch: &Batch) -> Self {
        let sources = batch.claims.iter().map(|claim| Want::of(claim).map(Source::new)).collect();
        Self { sources, pool: Vec::new(), current: None, done: Vec::new(), opens: None }
    }

    /// Takes in the candidates of the first answer.
    pub(super) fn start(
        &mut self,
        work: &mut Work,
        candidates: Vec<Candidates>,
    ) -> Result<(), BadAnswer> {
        for (source, found) in self.sources.iter_mut().flatten().zip(candidates) {
            self.opens = earlier(self.opens, found.opens);
            source.take_in(work, &mut self.pool, found)?;
        }
        Ok(())
    }

    /// Takes in further candidates.
    pub(super) fn refill(
        &mut self,
        work: &mut Work,
        candidates: Vec<Candidates>,
    ) -> Result<(), BadAnswer> {
        let Some(current) = &mut self.current else { return Ok(()) };
        for found in candidates {
            self.opens = earlier(self.opens, found.opens);
            current.sources[current.asked].take_in(work, &mut self.pool, found)?;
            (self.pool, current.at) = (sorted(mem::take(&mut self.pool)), 0);
        }
        Ok(())
    }

    /// Serves the claims in order; asks for more candidates where they are needed.
    pub(super) fn run(&mut self, work: &mut Work, batch: &Batch) -> Option<Questions> {
        while let Some(claim) = batch.claims.get(self.done.len()) {
            let current = self.current.take().unwrap_or_else(|| self.begin(work, claim));
            let current = self.current.insert(current);
            if let Some(mut questions) = current.serve(work, &self.pool, claim, batch.own.as_ref())
            {
                // Earlier claims may have taken some of what comes.
                let taken: usize = self.done.iter().map(|claimed| claimed.jobs.len()).sum();
                questions.wants.iter_mut().for_each(|want| want.limit += taken);
                return Some(questions);
            }
            self.done.extend(self.current.take().map(|current| current.claimed));
        }
        None
    }

    fn begin(&mut self, work: &Work, claim: &ClaimFor) -> Current {
        if self.done.is_empty() {
            self.pool.extend(work.newly_ready().map(|(slot, job)| (job.rank, slot)));
            self.pool = sorted(mem::take(&mut self.pool));
        }
        let mut sources: Vec<Source> = self.sources[self.done.len()].take().into_iter().collect();
        sources.extend(sources.first().and_then(|source| source.reopened(work)));
        let all = claim.takers.iter().map(|taker| taker.max).sum();
        let jobs = Vec::with_capacity(self.pool.len().min(all));
        Current {
            asked: 0,
            sources,
            at: 0,
            budget: ByteBudget::new(CLAIM_BYTES),
            taker: 0,
            left: (claim.takers.first().map_or(0, |taker| taker.max), all),
            claimed: Claimed { jobs, ..Claimed::default() },
        }
    }

    /// When to claim again, because a rate that kept a claim from jobs has room by then.
    pub(super) fn next_open(&self, work: &Work, batch: &Batch) -> Option<Wall> {
        let demands = || batch.claims.iter().map(|claim| &claim.demand);
        let wanted = |queue: &QueueName| demands().any(|demand| demand.queues.includes(queue));
        let closed = (!batch.claims.is_empty()).then(|| work.next_open(wanted)).flatten();
        earlier(self.opens, closed)
    }

    /// The claimed jobs, in the order of the claims.
    pub(super) fn take(&mut self) -> Vec<Claimed> {
        mem::take(&mut self.done)
    }
}

impl Source {
    fn new(want: Want) -> Self {
        Self { want, frontier: None, next_bytes: None }
    }

    fn take_in(
        &mut self,
        work: &mut Work,
        pool: &mut Vec<(Rank, Slot)>,
        found: Candidates,
    ) -> Result<(), BadAnswer> {
        self.frontier = found.jobs.last().map(|last| last.job.rank).or(self.frontier);
        self.next_bytes = found.next_bytes;
        pool.reserve(found.jobs.len());
        for candidate in found.jobs {
            pool.push((candidate.job.rank, work.add_candidate(candidate)?));
        }
        Ok(())
    }

    /// The queues of this demand that this batch has opened: the store may have left them out.
    fn reopened(&self, work: &Work) -> Option<Self> {
        let opened = work.reopened(&self.want.demand);
        let kinds = self.want.demand.kinds.clone();
        let demand = Demand { queues: Queues::Only(opened.clone()), kinds };
        let any = !opened.is_empty();
        let closed_kinds = work.closed_kinds(&demand);
        let want = Want { demand, closed_kinds, opened, ..self.want.clone() };
        // There may be some, of any length.
        any.then_some(Self { want, frontier: None, next_bytes: Some(0) })
    }

    /// Whether this source may have a better one than the best that is known.
    fn goes_before(&self, best: Option<Rank>) -> bool {
        let behind = |best| self.frontier.is_none_or(|frontier| frontier < best);
        self.next_bytes.is_some() && best.is_none_or(behind)
    }
}

impl Current {
    /// Leases jobs to each taker in turn, until there is enough or something must be asked.
    fn serve(
        &mut self,
        work: &mut Work,
        pool: &[(Rank, Slot)],
        claim: &ClaimFor,
        own: Option<&WorkerId>,
    ) -> Option<Questions> {
        let mut wanted = Wanted { demand: &claim.demand, latest: None };
        while let Some(taker) = claim.takers.get(self.taker) {
            if self.left.0 == 0 {
                self.taker += 1;
                self.left.0 = claim.takers.get(self.taker).map_or(0, |taker| taker.max);
                continue;
            }
            let ready = pool[self.at..].iter().position(|one| wanted.ready(work, *one));
            self.at = ready.map_or(pool.len(), |behind| self.at + behind);
            let best = pool.get(self.at).copied();
            let rank = best.map(|(rank, _)| rank);
            if let Some(at) = self.sources.iter().position(|source| source.goes_before(rank)) {
                let wants = Vec::from([self.want_more(work, at)?]);
                return Some(Questions { wants, ..Questions::default() });
            }
            let Some((_, slot)) = best else {
                self.claimed.dry = true;
                return None;
            };
            let bytes = work.job_at(slot).map_or(0, |job| job.payload_bytes);
            // One that does not fit is not asked for.
            if work.payload_at(slot).is_none() && self.budget.fits(bytes as usize) {
                let payloads = self.without_payload(work, &pool[self.at..], wanted);
                return Some(Questions { payloads, ..Questions::default() });
            }
            if !self.budget.takes(bytes as usize) {
                self.claimed.cut = true;
                return None;
            }
            self.at += 1;
            if let Some(leased) = lease(work, slot, (self.taker, taker), own) {
                self.claimed.jobs.push(leased);
                self.left = (self.left.0 - 1, self.left.1 - 1);
            }
        }
        None
    }

    /// The next question to a source; `None` if its next payload would not fit.
    fn want_more(&mut self, work: &Work, at: usize) -> Option<Want> {
        let source = &self.sources[at];
        if !self.budget.fits(source.next_bytes.unwrap_or(0) as usize) {
            self.claimed.cut = true;
            return None;
        }
        self.asked = at;
        Some(Want {
            closed: work.closed(&source.want.demand),
            closed_kinds: work.closed_kinds(&source.want.demand),
            after: source.frontier,
            limit: self.left.1,
            bytes: self.budget.left(),
            ..source.want.clone()
        })
    }

    /// The best-ranked jobs whose payload is not known, as many as may be taken.
    fn without_payload(
        &self,
        work: &Work,
        pool: &[(Rank, Slot)],
        mut wanted: Wanted<'_>,
    ) -> Vec<JobId> {
        let mut budget = self.budget;
        let ready = pool.iter().filter(|one| wanted.ready(work, **one)).map(|(_, slot)| *slot);
        let unknown = ready.filter(|slot| work.payload_at(*slot).is_none()).take(self.left.1);
        let jobs = unknown.filter_map(|slot| work.job_at(slot));
        let jobs = jobs.take_while(|job| budget.takes(job.payload_bytes as usize));
        jobs.map(|job| job.id).collect()
    }
}

fn earlier(a: Option<Wall>, b: Option<Wall>) -> Option<Wall> {
    a.into_iter().chain(b).min()
}

/// Leases a job, if the rules allow it.
fn lease(
    work: &mut Work,
    slot: Slot,
    (at, taker): (usize, &Taker),
    own: Option<&WorkerId>,
) -> Option<Leased> {
    let (worker, length) = (taker.worker.clone(), taker.length);
    let stop_grace = if own == Some(&taker.worker) { STOP_GRACE } else { Millis::ZERO };
    let claim = Claim { worker, length, stop_grace, gate: work.gate(work.place_at(slot)) };
    let step = transition(work.job_at(slot)?, Event::Claim(&claim), work.now);
    let Ok(Step::Moved(job)) = step else { return None };
    let job = work.put_at(slot, job).clone();
    work.note_start(work.place_at(slot));
    let payload = work.payload_at(slot)?.clone();
    Some(Leased { taker: at, job, payload })
}

/// The jobs of the pool that a claim may take.
struct Wanted<'d> {
    demand: &'d Demand,
    /// The latest queue and kind, and whether they are wanted: most jobs are of one.
    latest: Option<(Place, bool)>,
}

impl Wanted<'_> {
    fn ready(&mut self, work: &Work, (rank, slot): (Rank, Slot)) -> bool {
        let place = work.place_at(slot);
        let (_, wanted) = *match &mut self.latest {
            Some(latest) if latest.0 == place => latest,
            latest => {
                let (queue, kind) = work.names(place);
                latest.insert((place, self.demand.wants(queue, kind)))
            }
        };
        let ready = |job: &crate::Job| job.state.view() == View::Queued && job.rank == rank;
        wanted && work.job_at(slot).is_some_and(ready) && work.gate(place) == Gate::Open
    }
}
