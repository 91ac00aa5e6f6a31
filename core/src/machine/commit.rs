//! What became of a call of the store: answers go out only from here, after the commit.
//!
//! A commit is committed, not committed, or unknown. Committed: everybody is answered and claimed
//! jobs run. Not committed: the batch is taken apart and its commands wait again, for claims and
//! sweeps are made afresh. Unknown: nobody is answered until the store has been looked at.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::clock::Stepped;
use super::demand::Claimant;
use super::input::{Effect, Phase};
use super::pending::{Asker, Taken};
use super::{Machine, Now};
use crate::store::{Batch, CommitError, Outcomes, Reaped, StoreError};
use crate::{BatchId, LeaseToken, Millis, RequestId, StateName};

/// A call of the store that is under way.
#[derive(Debug)]
pub(super) enum Call {
    Commit(InFlight),
    Look(BatchId),
    Reopen,
    Check,
}

/// Who asked for what in the batch under way.
#[derive(Debug)]
pub(super) struct InFlight {
    id: BatchId,
    started: Now,
    pub(super) settles: Vec<Taken>,
    pub(super) beats: Vec<Taken>,
    /// The heartbeats of local runs; they stand behind the others.
    pub(super) local_beats: Vec<LeaseToken>,
    pub(super) admin: Vec<Taken>,
    pub(super) enqueues: Vec<Taken>,
    pub(super) claims: Vec<Claimant>,
}

impl InFlight {
    pub(super) fn new(id: BatchId, started: Now) -> Self {
        Self {
            id,
            started,
            settles: Vec::new(),
            beats: Vec::new(),
            local_beats: Vec::new(),
            admin: Vec::new(),
            enqueues: Vec::new(),
            claims: Vec::new(),
        }
    }

    /// Everybody who waits for an answer out of this batch.
    pub(super) fn requests(&self) -> Vec<RequestId> {
        let taken = self.settles.iter().chain(&self.beats).chain(&self.admin);
        let commands = taken.chain(&self.enqueues).filter_map(|taken| match taken.from {
            Asker::Request(request) => Some(request),
            Asker::Local | Asker::Machine => None,
        });
        let polls = self.claims.iter().flat_map(|claimant| match claimant {
            Claimant::Local => &[],
            Claimant::Remote(waiters) => waiters.as_slice(),
        });
        commands.chain(polls.map(|waiter| waiter.request)).collect()
    }
}

/// A batch of which it is not known whether it was committed.
#[derive(Debug)]
pub(super) enum Doubt {
    /// Nobody was answered yet.
    Open(Box<Open>),
    /// Everybody was told that it is not known. If it was committed, these leases are nobody's.
    Closed { batch: BatchId, leases: Vec<LeaseToken> },
}

/// A batch in doubt, with all that is needed to go on once it is cleared up.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) batch: Batch,
    pub(super) in_flight: InFlight,
    pub(super) outcomes: Outcomes,
}

impl Doubt {
    pub(super) fn batch_id(&self) -> BatchId {
        match self {
            Self::Open(open) => open.batch.id,
            Self::Closed { batch, .. } => *batch,
        }
    }
}

/// The pause between two passes of the reaper, or of the purge, over what they could not take yet.
const SWEEP_PAUSE: Millis = Millis::seconds(1);
/// The longest pause between two purges.
const HOUSEKEEPING: Millis = Millis::minutes(10);

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
                self.link.fail(cause, now.mono);
            }
            Err(CommitError::Full(cause)) => {
                self.restore_full(now, batch, in_flight, &cause);
                self.link.fail_full(cause, now.mono);
            }
            Err(CommitError::Unknown { cause, outcomes }) => {
                self.stats.unknown_commits += 1;
                let open = Open { batch, in_flight, outcomes: *outcomes };
                self.link.doubt(Doubt::Open(Box::new(open)), cause, now.mono);
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

    /// What became of [`StoreCall::Look`](super::StoreCall::Look).
    pub fn handle_looked(&mut self, now: Now, batch: BatchId, result: Result<bool, StoreError>) {
        if !matches!(self.call, Some(Call::Look(asked)) if asked == batch) {
            self.stats.ignored += 1;
            return;
        }
        self.call = None;
        match result {
            Ok(committed) => self.resolve(now, committed),
            Err(StoreError::Busy(cause)) => self.link.ask_again(cause, now.mono),
            Err(StoreError::Fatal(cause)) => self.link.break_in_doubt(cause, now.mono),
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
                self.link.reopened(now.mono);
                self.stir_all();
            }
            Err(StoreError::Busy(cause) | StoreError::Fatal(cause)) => {
                self.link.ask_again(cause, now.mono);
            }
            Err(StoreError::Corrupt(cause)) => self.lose(now, &cause),
        }
        self.advance(now);
        self.settle_phase();
    }

    /// What became of [`StoreCall::Check`](super::StoreCall::Check).
    pub fn handle_checked(&mut self, now: Now, result: Result<bool, StoreError>) {
        if !matches!(self.call, Some(Call::Check)) {
            self.stats.ignored += 1;
            return;
        }
        self.call = None;
        match result {
            Ok(true) => self.others_wrote(),
            Ok(false) | Err(StoreError::Busy(_)) => {}
            Err(StoreError::Fatal(cause)) => self.link.break_down(None, cause, now.mono),
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
        out: Outcomes,
    ) {
        self.link.works();
        self.stats.commits += 1;
        self.stats.commands += batch.len() as u64;
        let stepped = self.clock.observe(out.now, in_flight.started, now.mono);
        self.plan(now, batch, &out);
        if let Some(stepped) = stepped {
            self.stats.clock_steps += 1;
            // A pass that is under way starts again: it has to look at all leases.
            self.timers.reap_after = None;
            self.timers.reap_all |= stepped == Stepped::Back;
        }
        let InFlight { started, settles, beats, local_beats, admin, enqueues, claims, .. } =
            in_flight;
        self.answer_settles(&batch.settles, settles, out.settles);
        self.answer_beats(batch, started, beats, &local_beats, out.beats);
        let queues = self.answer_admin(now, admin, out.admin);
        self.answer_enqueues(enqueues, out.enqueues);
        let local_claimed = claims.iter().any(|claimant| matches!(claimant, Claimant::Local));
        for queue in &out.stirred {
            self.demands.stir_queue(queue, local_claimed, &batch.claims);
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

    /// Plans the timers anew from what the store has said.
    fn plan(&mut self, now: Now, batch: &Batch, out: &Outcomes) {
        let pause = now.mono.plus(SWEEP_PAUSE);
        self.timers.due = out.next_due.and_then(|at| self.clock.mono(at));
        let promoted_nothing = out.promoted.is_some_and(|promoted| promoted.count == 0);
        if promoted_nothing && self.timers.due.is_some_and(|at| at <= now.mono) {
            self.timers.due = Some(pause);
        }
        self.timers.expiry = out.next_expiry.and_then(|at| self.clock.mono(at));
        let overdue = self.timers.expiry.is_some_and(|at| at <= now.mono);
        match &out.reaped {
            None => {}
            Some(Reaped::ClockStepped) => {
                self.timers.reap_after = None;
                self.timers.reap_floor = pause;
            }
            Some(Reaped::Page { requeued, failed, next }) => {
                self.stats.leases_expired += (requeued + failed) as u64;
                self.timers.reap_after = *next;
                if next.is_none() {
                    self.timers.reap_all &= !batch.reap.is_some_and(|reap| reap.all);
                    // Leases that are held after a clock step stand at the head: not at once again.
                    self.timers.reap_floor = if overdue { pause } else { now.mono };
                }
            }
        }
        self.timers.expiry = self.timers.expiry.map(|at| at.max(self.timers.reap_floor));
        self.plan_purge(now, out);
    }

    /// When to purge next: when something is past its age, and now and then in any case, for what
    /// other processes have finished or left behind.
    fn plan_purge(&mut self, now: Now, out: &Outcomes) {
        let pause = now.mono.plus(SWEEP_PAUSE);
        if let Some(purged) = &out.purged {
            let housekeeping = now.mono.plus(HOUSEKEEPING);
            let next = purged.next.and_then(|at| self.clock.mono(at));
            let next = next.map_or(housekeeping, |at| at.clamp(pause, housekeeping));
            self.timers.purge = if purged.more { now.mono } else { next };
        }
        let finished = out.changes.iter().filter_map(|change| match change.to? {
            StateName::Done => self.retention.done,
            StateName::Failed => self.retention.failed,
            StateName::Cancelled => self.retention.cancelled,
            StateName::Queued | StateName::Processing => None,
        });
        if let Some(age) = finished.min() {
            let due = now.mono.plus(age).max(pause);
            self.timers.purge = self.timers.purge.min(due);
        }
    }
}
