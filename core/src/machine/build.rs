//! Making a batch: waiting requests, sweeps that are due, and claims for every demand for which
//! jobs may be ready.

use super::commit::{Call, InFlight};
use super::input::{Phase, StoreCall, WakeReason};
use super::store_health::Turn;
use super::{Machine, Now};
use crate::store::{Admin, Batch, Heartbeat, Settle};
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
        let call = match self.store_health.turn(now.mono, &self.timers) {
            Turn::Wait => None,
            Turn::WasCommitted(batch) => {
                self.call = Some(Call::WasCommitted(batch));
                Some(StoreCall::WasCommitted(batch))
            }
            Turn::Reopen => {
                self.call = Some(Call::Reopen);
                Some(StoreCall::Reopen)
            }
            Turn::Commit => self
                .poll_news(now.mono)
                .or_else(|| self.poll_bulk(now.mono))
                .or_else(|| self.poll_commit(now)),
        };
        self.call_began = now.mono;
        call
    }

    fn poll_commit(&mut self, now: Now) -> Option<StoreCall> {
        // Where space is short, what brings no new job goes first and alone: it must not wait for
        // those that do.
        let alone = if self.store_health.is_full() { self.make_batch(now, false) } else { None };
        alone.or_else(|| self.make_batch(now, true))
    }

    fn make_batch(&mut self, now: Now, growing: bool) -> Option<StoreCall> {
        let id = BatchId { process: self.process, seq: self.next_seq };
        let mut batch = Batch::new(id, self.policy);
        let running = self.phase() == Phase::Running;
        batch.own = Some(self.worker.id.clone());
        batch.clock = self.clock.view(now.mono);
        self.note_presence(now.mono);
        let limit = self.limits.batch;
        let mut in_flight = InFlight::new(id, now);
        in_flight.settles = self.pending.settles.take(limit, &mut batch.settles);
        in_flight.heartbeats = self.pending.heartbeats.take(limit, &mut batch.heartbeats);
        in_flight.local_heartbeats = self.runs.take_heartbeats(now.mono);
        let heartbeats = in_flight.local_heartbeats.iter();
        let heartbeats =
            heartbeats.map(|token| Heartbeat { token: *token, extend: None, progress: None });
        batch.heartbeats.extend(heartbeats);
        in_flight.admin = self.pending.admin.take(limit, &mut batch.admin);
        if growing {
            in_flight.enqueues = self.pending.enqueues.take(limit, &mut batch.enqueues);
        }
        if running {
            self.add_bulk(&mut batch);
            self.add_sweeps(&mut batch, now.mono);
            self.demands.note_ready(may_bring_ready_jobs(&batch));
            self.note_open_rates(now.mono);
            let free = self.worker.slots.saturating_sub(self.runs.busy());
            in_flight.claims = self.demands.claim(&mut batch, &self.worker.id, free, limit);
        }
        self.add_figures(&mut batch, now.mono);
        if batch.is_empty() {
            return None;
        }
        self.next_seq += 1;
        self.call = Some(Call::Commit(in_flight));
        Some(StoreCall::Commit(batch))
    }

    fn poll_news(&mut self, now: Mono) -> Option<StoreCall> {
        if !self.wants_news() || !self.timers.is_due(WakeReason::ChangeCheck, now) {
            return None;
        }
        self.timers.set(WakeReason::ChangeCheck, self.change_check.map(|every| now.plus(every)));
        self.checked_at = Some(now);
        self.call = Some(Call::News);
        Some(StoreCall::News(self.runs.running().collect()))
    }
}

/// Maximum number of stored jobs that a batch may make claimable: the same commit claims them.
fn may_bring_ready_jobs(batch: &Batch) -> usize {
    let swept = batch.reap.map_or(0, |reap| reap.limit) + batch.promote.unwrap_or(0);
    let given_back = |settle: &&Settle| matches!(settle.verdict, Verdict::Release);
    let opened = batch.admin.iter().map(|command| match command {
        Admin::Replay(_) => 1,
        Admin::ReplayDead { limit, .. } => *limit,
        Admin::Resume(_) | Admin::SetQueue { .. } => usize::MAX,
        Admin::Cancel(_)
        | Admin::Delete(_)
        | Admin::DiscardDead { .. }
        | Admin::Pause { .. }
        | Admin::DeleteQueue(_)
        | Admin::SetSetting { .. }
        | Admin::SeeWorker(_)
        | Admin::RemoveWorker(_)
        | Admin::EndWorker(_)
        | Admin::StopWorker(_)
        | Admin::StartBulk(_)
        | Admin::ContinueBulk(_)
        | Admin::StopBulk(_)
        | Admin::LookAtWorker(_) => 0,
    });
    let released = batch.settles.iter().filter(given_back).count();
    opened.fold(swept + released, usize::saturating_add)
}
