//! What became of a call of the store: answers go out only from here, after the commit.
//!
//! A commit is committed, not committed, or unknown. Committed: requests are answered and claimed
//! jobs run. Not committed: the batch is taken apart and its commands wait again, for claims and
//! sweeps are made afresh. Unknown: no request is answered until the store was asked.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::mem;

use super::clock::Stepped;
use super::demand::Claimant;
use super::input::{Effect, Phase, WakeReason};
use super::pending::Entry;
use super::{Machine, Now};
use crate::store::{
    Admin, Batch, Change, CommitError, News, Next, Outcomes, Reaped, SlotFigures, StoreError,
};
use crate::{
    BatchId, Figures, LeaseToken, Millis, Mono, Queue, QueueName, RequestId, StateName, Wall,
};

/// A call of the store that is under way.
#[derive(Debug)]
pub(super) enum Call {
    Commit(InFlight),
    WasCommitted(BatchId),
    Reopen,
    News,
}

/// Who asked for what in the batch under way.
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

/// A batch in doubt, with all that is needed to go on once it is cleared up.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) batch: Batch,
    pub(super) in_flight: InFlight,
    pub(super) outcomes: Outcomes,
}

/// A batch in doubt whose requests are answered.
#[derive(Debug)]
pub(super) struct Closed {
    pub(super) batch: BatchId,
    /// What it claimed.
    pub(super) leases: Vec<LeaseToken>,
    /// The figures that it was to write.
    pub(super) written: Vec<SlotFigures>,
    /// When it was applied, by the store's clock.
    pub(super) at: Wall,
    /// What it did.
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

/// The pause between two passes of the reaper, or of the purge, over what they could not take yet.
const SWEEP_PAUSE: Millis = Millis::seconds(1);
/// The longest pause between two purges.
pub(super) const HOUSEKEEPING: Millis = Millis::minutes(10);

impl Machine {
    /// What became of [`StoreCall::Commit`](super::StoreCall::Commit); the batch comes back.
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
                let doubt = UnknownCommit::Open(Box::new(open));
                self.store_health.doubt(doubt, cause, now.mono, &mut self.timers);
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

    /// What became of [`StoreCall::Reopen`](super::StoreCall::Reopen).
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
        self.figures_written(now.mono, batch);
        self.note_figures(now.mono, out.now, mem::take(&mut out.figures));
        if let Some(stepped) = stepped {
            self.stats.clock_steps += 1;
            // A pass that is under way starts again: it has to look at all leases.
            self.reaper.after = None;
            self.reaper.all |= stepped == Stepped::Back;
            // The horizon was computed by the clock as it was.
            self.sweep_now();
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

    /// Sets the timers from the horizon of the store.
    fn plan(&mut self, now: Now, batch: &Batch, out: &Outcomes) {
        let pause = now.mono.plus(SWEEP_PAUSE);
        let due = self.next(out.next_due, self.timers.get(WakeReason::JobDue));
        let promoted_nothing = out.promoted.is_some_and(|promoted| promoted.count == 0);
        let stuck = promoted_nothing && due.is_some_and(|at| at <= now.mono);
        self.timers.set(WakeReason::JobDue, if stuck { Some(pause) } else { due });
        // In the middle of a pass, what earlier pages could not take back is still to come.
        let begun = batch.reap.is_some_and(|reap| reap.after.is_some());
        let known = self.timers.get(WakeReason::LeaseExpiry);
        let expiry = self.next(out.next_expiry, known);
        let mut expiry = expiry.into_iter().chain(known.filter(|_| begun)).min();
        let overdue = expiry.is_some_and(|at| at <= now.mono);
        match &out.reaped {
            None => {}
            Some(Reaped::ClockStepped) => {
                (self.reaper.after, self.reaper.floor) = (None, pause);
            }
            Some(Reaped::Page { requeued, failed, next }) => {
                self.stats.leases_expired += (requeued + failed) as u64;
                self.reaper.after = *next;
                let all = batch.reap.is_some_and(|reap| reap.all);
                self.reaper.skipped |= all && out.skipped;
                if next.is_none() {
                    // What another process held is looked at in the next pass.
                    let again = mem::take(&mut self.reaper.skipped);
                    self.reaper.all &= !all || again;
                    if all && !again {
                        self.reaper.dead.clear();
                    }
                    // Leases that are held after a clock step are due, but cannot be taken back.
                    self.reaper.floor = if overdue || again { pause } else { now.mono };
                    expiry = expiry.into_iter().chain(again.then_some(pause)).min();
                }
            }
        }
        let expiry = expiry.map(|at| at.max(self.reaper.floor));
        self.timers.set(WakeReason::LeaseExpiry, expiry);
        self.plan_purge(now, out);
    }

    /// The monotonic instant of what comes next, given what was known before.
    fn next(&self, next: Next, known: Option<Mono>) -> Option<Mono> {
        let at = next.at().and_then(|at| self.clock.mono(at));
        match next {
            Next::Known(_) => at,
            Next::Written(_) => at.into_iter().chain(known).min(),
        }
    }

    /// When to look for queues that hold nothing; returns whether a pass is under way.
    fn plan_queue_sweep(&mut self, now: Now, out: &Outcomes) -> bool {
        if let Some(swept) = &out.queues_swept {
            self.queue_sweeper.after.clone_from(&swept.next);
            let pause = if swept.next.is_some() { Millis::ZERO } else { HOUSEKEEPING };
            self.queue_sweeper.due = now.mono.plus(pause);
        }
        self.queue_sweeper.after.is_some()
    }

    /// When to purge next: when something is past its age, and now and then in any case, for what
    /// other processes have finished or left behind.
    fn plan_purge(&mut self, now: Now, out: &Outcomes) {
        let pause = now.mono.plus(SWEEP_PAUSE);
        if let Some(purged) = &out.purged {
            let housekeeping = now.mono.plus(HOUSEKEEPING);
            let next = purged.next.and_then(|at| self.clock.mono(at));
            let next = next.map_or(housekeeping, |at| at.clamp(pause, housekeeping));
            let more = purged.more || self.plan_queue_sweep(now, out);
            let next = if more { now.mono } else { next };
            self.timers.set(WakeReason::Purge, Some(next));
        }
        let finished = out.changes.iter().filter_map(|change| match change.to? {
            StateName::Done => self.retention.done,
            StateName::Failed => self.retention.failed,
            StateName::Cancelled => self.retention.cancelled,
            StateName::Queued | StateName::Processing => None,
        });
        if let Some(age) = finished.min() {
            let due = now.mono.plus(age).max(pause);
            self.timers.bring_forward(WakeReason::Purge, due);
        }
    }
}
