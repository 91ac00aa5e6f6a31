//! The outcome of a call of the store: answers go out only from here, after the commit.
//!
//! A commit is committed, not committed, or unknown. Committed: requests are answered and claimed
//! jobs run. Not committed: the batch is taken apart and its commands wait again, for claims and
//! sweeps are made afresh. Unknown: no request is answered until the store was asked.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::mem;

use super::demand::Claimant;
use super::input::{Effect, Phase};
use super::pending::Entry;
use super::{Machine, Now};
use crate::store::{Admin, Batch, Change, CommitError, News, Outcomes, SlotFigures, StoreError};
use crate::{BatchId, Figures, LeaseToken, Queue, QueueName, RequestId, Wall};

/// A call of the store that is under way.
#[derive(Debug)]
pub(super) enum Call {
    Commit(InFlight),
    WasCommitted(BatchId),
    Reopen,
    News,
    Bulk,
}

/// The origins of the commands in the batch under way, in the order of the commands.
#[derive(Debug)]
pub(super) struct InFlight {
    id: BatchId,
    started: Now,
    pub(super) settles: Vec<Entry>,
    pub(super) heartbeats: Vec<Entry>,
    /// The heartbeats of local runs; they stand behind the others.
    pub(super) local_heartbeats: Vec<LeaseToken>,
    pub(super) admin: Vec<Entry>,
    pub(super) enqueues: Vec<Entry>,
    pub(super) claims: Vec<Claimant>,
}

impl InFlight {
    pub(super) fn new(id: BatchId, started: Now) -> Self {
        Self {
            id,
            started,
            settles: Vec::new(),
            heartbeats: Vec::new(),
            local_heartbeats: Vec::new(),
            admin: Vec::new(),
            enqueues: Vec::new(),
            claims: Vec::new(),
        }
    }

    /// The requests that wait for an answer of this batch.
    pub(super) fn requests(&self) -> Vec<RequestId> {
        let entries = self.settles.iter().chain(&self.heartbeats).chain(&self.admin);
        let commands = entries.chain(&self.enqueues).filter_map(|entry| entry.origin.request());
        let polls = self.claims.iter().flat_map(|claimant| match claimant {
            Claimant::Local => &[],
            Claimant::Remote(waiters) => waiters.as_slice(),
        });
        commands.chain(polls.map(|waiter| waiter.request)).collect()
    }
}

/// A batch of which it is not known whether it was committed.
#[derive(Debug)]
pub(super) enum UnknownCommit {
    /// No request was answered yet.
    Open(Box<Open>),
    /// All requests were refused as unknown. If it was committed, its leases have no holder.
    Closed(Box<Closed>),
}

/// An unknown commit, with all that is needed to go on once its outcome is known.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) batch: Batch,
    pub(super) in_flight: InFlight,
    pub(super) outcomes: Outcomes,
}

/// An unknown commit whose requests are answered.
#[derive(Debug)]
pub(super) struct Closed {
    pub(super) batch: BatchId,
    /// Tokens of the jobs it claimed.
    pub(super) leases: Vec<LeaseToken>,
    /// The figures that it was to write.
    pub(super) written: Vec<SlotFigures>,
    /// When it was applied, by the store's clock.
    pub(super) at: Wall,
    /// Figures of its outcomes, by queue.
    pub(super) did: Vec<(QueueName, Box<Figures>)>,
    /// The jobs it changed.
    pub(super) changes: Vec<Change>,
    /// The queues that operators changed by it.
    pub(super) queues: Vec<Queue>,
}

impl UnknownCommit {
    pub(super) fn batch_id(&self) -> BatchId {
        match self {
            Self::Open(open) => open.batch.id,
            Self::Closed(closed) => closed.batch,
        }
    }
}

impl Machine {
    /// The outcome of [`StoreCall::Commit`](super::StoreCall::Commit); the batch comes back.
    pub fn handle_committed(
        &mut self,
        now: Now,
        batch: Batch,
        result: Result<Outcomes, CommitError>,
    ) {
        let Some(in_flight) = self.take_commit(batch.id) else {
            self.stats.ignored += 1;
            return;
        };
        if result.is_err() {
            self.stats.failed_commits += 1;
        }
        match result {
            Ok(outcomes) => self.committed(now, &batch, in_flight, outcomes),
            Err(CommitError::NotCommitted(cause)) => {
                self.restore(now, batch, in_flight, &cause);
                self.store_health.fail(cause, now.mono, &mut self.timers);
            }
            Err(CommitError::Full(cause)) => {
                self.restore_full(now, batch, in_flight, &cause);
                self.store_health.fail_full(cause, now.mono, &mut self.timers);
            }
            Err(CommitError::Unknown { cause, outcomes }) => {
                self.stats.unknown_commits += 1;
                let open = Open { batch, in_flight, outcomes: *outcomes };
                let unknown = UnknownCommit::Open(Box::new(open));
                self.store_health.note_unknown(unknown, cause, now.mono, &mut self.timers);
            }
            Err(CommitError::Fatal { cause, outcomes }) => {
                self.break_down(now, batch, in_flight, &cause, outcomes.map(|out| *out));
            }
            Err(CommitError::Corrupt(cause)) => {
                self.restore(now, batch, in_flight, &cause);
                self.lose(now, &cause);
            }
        }
        self.advance(now);
        self.settle_phase();
    }

    /// The answer to [`StoreCall::WasCommitted`](super::StoreCall::WasCommitted).
    pub fn handle_was_committed(
        &mut self,
        now: Now,
        batch: BatchId,
        result: Result<bool, StoreError>,
    ) {
        if !matches!(self.call, Some(Call::WasCommitted(asked)) if asked == batch) {
            self.stats.ignored += 1;
            return;
        }
        self.call = None;
        match result {
            Ok(committed) => self.resolve(now, committed),
            Err(StoreError::Busy(cause)) => self.still_unknown(now, cause),
            Err(StoreError::Fatal(cause)) => {
                self.store_health.break_while_unknown(cause, now.mono, &mut self.timers);
            }
            Err(StoreError::Corrupt(cause)) => self.lose(now, &cause),
        }
        self.advance(now);
        self.settle_phase();
    }

    /// The outcome of [`StoreCall::Reopen`](super::StoreCall::Reopen).
    pub fn handle_reopened(&mut self, now: Now, result: Result<(), StoreError>) {
        if !matches!(self.call, Some(Call::Reopen)) {
            self.stats.ignored += 1;
            return;
        }
        self.call = None;
        match result {
            Ok(()) => {
                self.store_health.reopened(now.mono, &mut self.timers);
                self.note_ready_all();
            }
            Err(StoreError::Busy(cause) | StoreError::Fatal(cause)) => {
                self.store_health.ask_again(cause, now.mono, &mut self.timers);
            }
            Err(StoreError::Corrupt(cause)) => self.lose(now, &cause),
        }
        self.advance(now);
        self.settle_phase();
    }

    /// The answer to [`StoreCall::News`](super::StoreCall::News).
    pub fn handle_news(&mut self, now: Now, result: Result<News, StoreError>) {
        if !matches!(self.call, Some(Call::News)) {
            self.stats.ignored += 1;
            return;
        }
        self.call = None;
        match result {
            Ok(news) => {
                for lost in &news.lost {
                    self.lost_lease(now.mono, lost);
                }
                if news.wrote {
                    self.others_wrote();
                }
            }
            Err(StoreError::Busy(_)) => {}
            Err(StoreError::Fatal(cause)) => {
                self.store_health.break_down(None, cause, now.mono, &mut self.timers);
            }
            Err(StoreError::Corrupt(cause)) => self.lose(now, &cause),
        }
        self.advance(now);
        self.settle_phase();
    }

    fn take_commit(&mut self, id: BatchId) -> Option<InFlight> {
        match self.call.take() {
            Some(Call::Commit(in_flight)) if in_flight.id == id => Some(in_flight),
            other => {
                self.call = other;
                None
            }
        }
    }

    // Committed.

    pub(super) fn committed(
        &mut self,
        now: Now,
        batch: &Batch,
        in_flight: InFlight,
        mut out: Outcomes,
    ) {
        self.store_health.works(&mut self.timers);
        self.stats.commits += 1;
        self.stats.commands += batch.len() as u64;
        let stepped = self.clock.observe(out.now, in_flight.started, now.mono);
        self.plan(now, batch, &out);
        self.plan_bulk(now.mono, batch, &out);
        self.figures_written(now.mono, batch);
        self.note_figures(now.mono, out.now, mem::take(&mut out.figures));
        if let Some(stepped) = stepped {
            self.stats.clock_steps += 1;
            self.restart_sweeps(stepped);
        }
        let InFlight {
            started,
            settles,
            heartbeats,
            local_heartbeats,
            admin,
            enqueues,
            claims,
            ..
        } = in_flight;
        self.answer_settles(&batch.settles, &settles, out.settles);
        self.answer_heartbeats(batch, started, &heartbeats, &local_heartbeats, out.heartbeats);
        for (command, answer) in batch.admin.iter().zip(&out.admin) {
            if let (Admin::EndWorker(worker), Ok(_)) = (command, answer) {
                self.end_worker(worker);
            }
        }
        let queues = self.answer_admin(now, &admin, out.admin);
        self.answer_enqueues(&enqueues, out.enqueues);
        let local_claimed = claims.iter().any(|claimant| matches!(claimant, Claimant::Local));
        for queue in &out.ready_queues {
            self.demands.note_ready_queue(queue, local_claimed, &batch.claims);
        }
        if !out.changes.is_empty() || !queues.is_empty() {
            self.effects.push_back(Effect::Changed { jobs: out.changes, queues });
        }
        for ((claimant, claimed), asked) in claims.into_iter().zip(out.claims).zip(&batch.claims) {
            match claimant {
                Claimant::Local => self.start(now, started, claimed),
                Claimant::Remote(waiters) => {
                    self.serve(now, started, &asked.demand, waiters, claimed);
                }
            }
        }
        if self.phase() != Phase::Running {
            self.dismiss_polls();
        }
    }
}
