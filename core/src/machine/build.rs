//! Making a batch: everything that waits, whatever time has brought, and claims for everybody for
//! whom something may have come.

use super::commit::{Call, InFlight};
use super::input::{Phase, StoreCall};
use super::store_link::Turn;
use super::{Machine, Now};
use crate::store::{Admin, Batch, Beat, Purge, Reap, Settle};
use crate::{BatchId, Mono, Verdict};

impl Machine {
    /// The next call of the store, if there is one to make. Until it is answered there is no
    /// other.
    pub fn poll_store(&mut self, now: Now) -> Option<StoreCall> {
        self.advance(now);
        self.settle_phase();
        if self.call.is_some() || self.phase() == Phase::Stopped {
            return None;
        }
        let call = match self.link.turn(now.mono) {
            Turn::Wait => None,
            Turn::Look(batch) => {
                self.call = Some(Call::Look(batch));
                Some(StoreCall::Look(batch))
            }
            Turn::Reopen => {
                self.call = Some(Call::Reopen);
                Some(StoreCall::Reopen)
            }
            Turn::Commit => self.poll_check(now.mono).or_else(|| self.poll_commit(now)),
        };
        self.call_began = now.mono;
        call
    }

    fn poll_commit(&mut self, now: Now) -> Option<StoreCall> {
        // Where space is short, what brings no new job goes first and alone: it must not wait for
        // those that do.
        let alone = if self.link.is_full() { self.make_batch(now, false) } else { None };
        alone.or_else(|| self.make_batch(now, true))
    }

    fn make_batch(&mut self, now: Now, growing: bool) -> Option<StoreCall> {
        let id = BatchId { process: self.process, seq: self.next_seq };
        let mut batch = Batch::new(id, self.policy);
        let running = self.phase() == Phase::Running;
        self.note_presence(now.mono);
        let limit = self.limits.batch;
        let mut in_flight = InFlight::new(id, now);
        in_flight.settles = self.pending.settles.take(limit, &mut batch.settles);
        in_flight.beats = self.pending.beats.take(limit, &mut batch.beats);
        in_flight.local_beats = self.runs.take_beats(now.mono);
        let beats = in_flight.local_beats.iter();
        let beats = beats.map(|token| Beat { token: *token, extend: None, progress: None });
        batch.beats.extend(beats);
        in_flight.admin = self.pending.admin.take(limit, &mut batch.admin);
        if growing {
            in_flight.enqueues = self.pending.enqueues.take(limit, &mut batch.enqueues);
        }
        if running {
            self.add_sweeps(&mut batch, now.mono);
            self.demands.stir_up_to(may_bring_ready_jobs(&batch));
            let free = self.worker.slots.saturating_sub(self.runs.busy());
            in_flight.claims = self.demands.claim(&mut batch, &self.worker.id, free, limit);
        }
        if batch.is_empty() && !(running && self.timers.refresh) {
            return None;
        }
        self.timers.refresh = false;
        self.next_seq += 1;
        self.call = Some(Call::Commit(in_flight));
        Some(StoreCall::Commit(batch))
    }

    fn add_sweeps(&mut self, batch: &mut Batch, now: Mono) {
        let limit = self.limits.page;
        let due = is_due(self.timers.expiry, now) || self.timers.reap_all;
        let due = due && self.timers.reap_floor <= now || self.timers.reap_after.is_some();
        if due && self.clock.may_reap() {
            batch.reap = Some(Reap {
                limit,
                after: self.timers.reap_after,
                all: self.timers.reap_all,
                expected: self.clock.expected(now),
                trusted_since: self.clock.trusted_since(),
            });
        }
        if is_due(self.timers.due, now) {
            batch.promote = Some(limit);
        }
        if self.timers.purge <= now {
            batch.purge = Some(Purge { retention: self.retention, limit });
        }
    }

    fn poll_check(&mut self, now: Mono) -> Option<StoreCall> {
        let running = self.phase() == Phase::Running;
        if !running || !is_due(self.timers.check, now) {
            return None;
        }
        self.timers.check = self.change_check.map(|every| now.plus(every));
        self.call = Some(Call::Check);
        Some(StoreCall::Check)
    }
}

/// How many stored jobs a batch may make claimable, at most: the same commit claims them.
fn may_bring_ready_jobs(batch: &Batch) -> usize {
    let swept = batch.reap.map_or(0, |reap| reap.limit) + batch.promote.unwrap_or(0);
    let given_back = |settle: &&Settle| matches!(settle.verdict, Verdict::Release);
    let opened = batch.admin.iter().map(|command| match command {
        Admin::Replay(_) => 1,
        Admin::ReplayDead { limit, .. } => *limit,
        Admin::Resume(_) | Admin::SetQueue(..) => usize::MAX,
        Admin::Cancel(_)
        | Admin::Delete(_)
        | Admin::DiscardDead { .. }
        | Admin::Pause(_)
        | Admin::SetSetting(..)
        | Admin::SeeWorker(_)
        | Admin::RemoveWorker(_)
        | Admin::StopWorker(_)
        | Admin::LookAtWorker(_) => 0,
    });
    let released = batch.settles.iter().filter(given_back).count();
    opened.fold(swept + released, usize::saturating_add)
}

pub(super) fn is_due(at: Option<Mono>, now: Mono) -> bool {
    at.is_some_and(|at| at <= now)
}
