//! Who waits for jobs: the local slots, and remote workers that poll.
//!
//! Pollers with the same demand form a group. A group takes part in a batch only when something
//! may have come for it since it last found nothing; a thousand idle pollers cost nothing.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::input::Poll;
use crate::store::{Batch, ClaimFor, Taker};
use crate::{Demand, Kind, LeaseLength, Millis, Mono, QueueName, RequestId, When, WorkerId};

/// Whether something may have come for a demand since it last found nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Readiness {
    /// No job can have become claimable.
    None,
    /// Maximum number of jobs.
    UpTo(usize),
    /// Any number.
    All,
}

impl Readiness {
    fn add(&mut self, jobs: usize) {
        *self = match *self {
            _ if jobs == 0 => return,
            Self::All => Self::All,
            _ if jobs == usize::MAX => Self::All,
            Self::None => Self::UpTo(jobs),
            Self::UpTo(already) => Self::UpTo(already.saturating_add(jobs)),
        };
    }

    fn jobs(self) -> usize {
        match self {
            Self::None => 0,
            Self::UpTo(jobs) => jobs,
            Self::All => usize::MAX,
        }
    }
}

/// The demand of this process's slots and of the polls that wait here.
#[derive(Debug)]
pub(super) struct Demands {
    local: Demand,
    local_readiness: Readiness,
    groups: BTreeMap<Demand, Group>,
    requests: BTreeMap<RequestId, Place>,
    deadlines: BTreeSet<(Mono, RequestId)>,
    next_turn: u64,
}

#[derive(Debug)]
struct Group {
    readiness: Readiness,
    /// By turn: who came first is served first.
    waiting: BTreeMap<u64, Waiter>,
    /// The turns of those for whom no claim was tried yet.
    untried: BTreeSet<u64>,
}

impl Group {
    fn is_ready(&self) -> bool {
        self.readiness != Readiness::None || !self.untried.is_empty()
    }

    /// The turns of those to claim for: as many as there may be jobs for, and the untried.
    fn turns(&self) -> BTreeSet<u64> {
        let mut jobs = self.readiness.jobs();
        let mut turns = self.untried.clone();
        for (turn, waiter) in &self.waiting {
            if jobs == 0 {
                break;
            }
            jobs = jobs.saturating_sub(waiter.max);
            turns.insert(*turn);
        }
        turns
    }
}

/// The state of a poll: in line, or in a batch.
#[derive(Debug, Clone)]
enum Place {
    Waiting { demand: Demand, turn: u64 },
    Claiming { gone: bool },
}

/// A remote worker that waits for jobs.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) request: RequestId,
    worker: WorkerId,
    max: usize,
    length: Option<LeaseLength>,
    until: Mono,
    /// When the machine answers at the latest.
    deadline: Mono,
    turn: u64,
    tried: bool,
}

/// The receivers of a claim in a batch: this process's slots, or polls.
#[derive(Debug)]
pub(super) enum Claimant {
    Local,
    Remote(Vec<Waiter>),
}

/// The next step of a waiter whose claim found no job for it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unserved {
    /// The waiter stays in line.
    Waits,
    /// Its wait has ended: answer it without jobs.
    Over,
    /// Its caller closed the request.
    Gone,
}

/// The longest wait for the answer of the store by a poll that does not want to wait for jobs.
const ONE_TRY: Millis = Millis::seconds(1);

impl Demands {
    pub(super) fn new(local: Demand) -> Self {
        Self {
            local,
            local_readiness: Readiness::All,
            groups: BTreeMap::new(),
            requests: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            next_turn: 0,
        }
    }

    /// Number of polls that wait.
    pub(super) fn len(&self) -> usize {
        self.requests.len()
    }

    /// Every demand there is.
    pub(super) fn all(&self) -> impl Iterator<Item = &Demand> {
        core::iter::once(&self.local).chain(self.groups.keys())
    }

    /// Adds a poll; says whether its request is a new one.
    pub(super) fn add(&mut self, request: RequestId, poll: Poll, now: Mono) -> bool {
        if self.requests.contains_key(&request) {
            return false;
        }
        let waiter = Waiter {
            request,
            worker: poll.worker.id,
            max: poll.worker.slots,
            length: poll.length,
            until: now.plus(poll.wait),
            deadline: now.plus(poll.wait.max(ONE_TRY)),
            turn: self.next_turn,
            tried: false,
        };
        self.next_turn += 1;
        self.wait(poll.worker.demand, waiter);
        true
    }

    fn wait(&mut self, demand: Demand, waiter: Waiter) {
        let turn = waiter.turn;
        self.deadlines.insert((waiter.deadline, waiter.request));
        self.requests.insert(waiter.request, Place::Waiting { demand: demand.clone(), turn });
        let group = self.groups.entry(demand).or_insert_with(|| Group {
            readiness: Readiness::None,
            waiting: BTreeMap::new(),
            untried: BTreeSet::new(),
        });
        if !waiter.tried {
            group.untried.insert(turn);
        }
        group.waiting.insert(turn, waiter);
    }

    /// Removes a poll; returns whether there was one.
    pub(super) fn remove(&mut self, request: RequestId) -> bool {
        match self.requests.get_mut(&request) {
            None => false,
            Some(Place::Claiming { gone }) => {
                *gone = true;
                true
            }
            Some(Place::Waiting { demand, turn }) => {
                let (demand, turn) = (demand.clone(), *turn);
                self.requests.remove(&request);
                self.leave(&demand, turn);
                true
            }
        }
    }

    fn leave(&mut self, demand: &Demand, turn: u64) -> Option<Waiter> {
        let group = self.groups.get_mut(demand)?;
        let waiter = group.waiting.remove(&turn)?;
        group.untried.remove(&turn);
        self.deadlines.remove(&(waiter.deadline, waiter.request));
        if group.waiting.is_empty() {
            self.groups.remove(demand);
        }
        Some(waiter)
    }

    /// When the first waiting poll has waited long enough.
    pub(super) fn next_deadline(&self) -> Option<Mono> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// Removes and returns a poll that has waited long enough.
    pub(super) fn pop_overdue(&mut self, now: Mono) -> Option<RequestId> {
        let (_, request) = self.deadlines.first().copied().filter(|(at, _)| *at <= now)?;
        self.remove(request);
        Some(request)
    }

    /// Removes all waiting polls, and returns them.
    pub(super) fn dismiss(&mut self) -> Vec<RequestId> {
        let waiting: Vec<RequestId> = self.deadlines.iter().map(|(_, request)| *request).collect();
        for request in &waiting {
            self.remove(*request);
        }
        waiting
    }

    // What may have come.

    /// Any number of jobs may have become ready, for any demand.
    pub(super) fn note_ready_all(&mut self) {
        self.note_ready(usize::MAX);
    }

    /// At most this many jobs may have become ready, for any demand.
    pub(super) fn note_ready(&mut self, jobs: usize) {
        self.local_readiness.add(jobs);
        for group in self.groups.values_mut() {
            group.readiness.add(jobs);
        }
    }

    /// Jobs of this queue may have become claimable by a batch. A claim of that batch has seen
    /// them already.
    pub(super) fn note_ready_queue(
        &mut self,
        queue: &QueueName,
        local_claimed: bool,
        claims: &[ClaimFor],
    ) {
        if !local_claimed && self.local.queues.includes(queue) {
            self.local_readiness = Readiness::All;
        }
        for (demand, group) in &mut self.groups {
            let claimed = || claims.iter().any(|claim| claim.demand == *demand);
            if demand.queues.includes(queue) && !claimed() {
                group.readiness = Readiness::All;
            }
        }
    }

    /// The local slots found as much as they asked for: there may be more.
    pub(super) fn note_ready_local(&mut self) {
        self.local_readiness = Readiness::All;
    }

    /// This group found as much as it asked for: there may be more.
    pub(super) fn note_ready_group(&mut self, demand: &Demand) {
        if let Some(group) = self.groups.get_mut(demand) {
            group.readiness = Readiness::All;
        }
    }

    /// New jobs of this batch come for those who want them.
    fn note_enqueues(&mut self, batch: &Batch) {
        // An instant may have passed or not: then the claim finds nothing, which costs little.
        let due = |when: When| !matches!(when, When::After(delay) if delay.get() > 0);
        let mut news: BTreeMap<(&QueueName, &Kind), usize> = BTreeMap::new();
        let mut last: Option<((&QueueName, &Kind), usize)> = None;
        for new in batch.enqueues.iter().filter(|new| due(new.when)) {
            match &mut last {
                Some(((queue, kind), count)) if queue.same(&new.queue) && kind.same(&new.kind) => {
                    *count += 1;
                }
                _ => {
                    if let Some((of, count)) = last.replace(((&new.queue, &new.kind), 1)) {
                        *news.entry(of).or_default() += count;
                    }
                }
            }
        }
        if let Some((of, count)) = last {
            *news.entry(of).or_default() += count;
        }
        for ((queue, kind), count) in news {
            if self.local.wants(queue, kind) {
                self.local_readiness.add(count);
            }
            for (demand, group) in &mut self.groups {
                if demand.wants(queue, kind) {
                    group.readiness.add(count);
                }
            }
        }
    }

    // Claims.

    /// Adds claims to a batch for every demand for which jobs may be ready.
    pub(super) fn claim(
        &mut self,
        batch: &mut Batch,
        local: &WorkerId,
        free_slots: usize,
        limit: usize,
    ) -> Vec<Claimant> {
        self.note_enqueues(batch);
        let mut claimants = Vec::new();
        let mut room = limit;
        if free_slots > 0 && self.local_readiness != Readiness::None {
            self.local_readiness = Readiness::None;
            let max = free_slots.min(room);
            room -= max;
            let takers = Vec::from([Taker { worker: local.clone(), max, length: None }]);
            batch.claims.push(ClaimFor { demand: self.local.clone(), takers });
            claimants.push(Claimant::Local);
        }
        let ready = self.groups.iter().filter(|(_, group)| group.is_ready());
        let ready: Vec<Demand> = ready.map(|(demand, _)| demand.clone()).collect();
        for demand in ready {
            // A group that finds no room in this batch is in the next one.
            if room == 0 {
                break;
            }
            let waiters = self.take_waiters(&demand, room);
            let taker = |waiter: &Waiter| {
                let max = waiter.max.min(room);
                room -= max;
                Taker { worker: waiter.worker.clone(), max, length: waiter.length }
            };
            let takers = waiters.iter().map(taker).collect();
            batch.claims.push(ClaimFor { demand, takers });
            claimants.push(Claimant::Remote(waiters));
        }
        claimants
    }

    /// Takes out as many waiters as there may be jobs for, in their turn, within `room`.
    fn take_waiters(&mut self, demand: &Demand, mut room: usize) -> Vec<Waiter> {
        let Some(group) = self.groups.get_mut(demand) else { return Vec::new() };
        let turns = group.turns();
        // If all of them find what they ask for, there may be more: it is noted as ready again.
        // If not, there is nothing for the others either.
        group.readiness = Readiness::None;
        let fits = |turn: &u64| {
            let fits = room > 0;
            room = room.saturating_sub(group.waiting.get(turn).map_or(0, |waiter| waiter.max));
            fits
        };
        let turns: Vec<u64> = turns.into_iter().filter(fits).collect();
        let taken: Vec<Waiter> =
            turns.into_iter().filter_map(|turn| self.leave(demand, turn)).collect();
        for waiter in &taken {
            self.requests.insert(waiter.request, Place::Claiming { gone: false });
        }
        taken
    }

    /// A waiter got jobs: it is removed. Says whether it is still there to take them.
    pub(super) fn served(&mut self, waiter: &Waiter) -> bool {
        let place = self.requests.remove(&waiter.request);
        !matches!(place, Some(Place::Claiming { gone: true }))
    }

    /// A waiter got nothing, though its claim was tried.
    pub(super) fn unserved(&mut self, demand: &Demand, mut waiter: Waiter, now: Mono) -> Unserved {
        let gone = !self.served(&waiter);
        if gone {
            return Unserved::Gone;
        }
        if waiter.until <= now {
            return Unserved::Over;
        }
        (waiter.deadline, waiter.tried) = (waiter.until, true);
        self.wait(demand.clone(), waiter);
        Unserved::Waits
    }

    /// A waiter's claim was not tried: the commit failed, or brought enough before its turn.
    pub(super) fn untried(&mut self, demand: &Demand, waiter: Waiter) {
        if self.served(&waiter) {
            self.wait(demand.clone(), waiter);
            self.note_ready_group(demand);
        }
    }
}
