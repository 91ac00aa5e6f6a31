//! Bulk actions: when a step is due, the next pages are asked for, and taken by the next batch.

use alloc::vec::Vec;

use super::commit::Call;
use super::input::{Phase, StopReason, StoreCall, WakeReason};
use super::{Machine, Now};
use crate::bulk::Step;
use crate::store::{Batch, Change, Outcomes, StoreError};
use crate::{Millis, Mono, StateName};

/// The pause after the next pages could not be read.
const READ_PAUSE: Millis = Millis::seconds(1);

/// Pause after another process committed the step first.
const YIELD: Millis = Millis::seconds(1);

/// Bulk actions, as far as this process carries them out.
#[derive(Debug, Default)]
pub(super) struct BulkSteps {
    /// Steps for the next batch.
    waiting: Vec<Step>,
}

impl Machine {
    /// Asks for the next pages, if it is time for it.
    pub(super) fn poll_bulk(&mut self, now: Mono) -> Option<StoreCall> {
        let running = self.phase() == Phase::Running && self.bulk.waiting.is_empty();
        if !running || !self.timers.is_due(WakeReason::Bulk, now) {
            return None;
        }
        self.timers.set(WakeReason::Bulk, None);
        self.call = Some(Call::Bulk);
        Some(StoreCall::Bulk)
    }

    /// The answer to [`StoreCall::Bulk`].
    pub fn handle_bulk(&mut self, now: Now, result: Result<Vec<Step>, StoreError>) {
        if !matches!(self.call, Some(Call::Bulk)) {
            self.stats.ignored += 1;
            return;
        }
        self.call = None;
        match result {
            Ok(steps) => self.bulk.waiting = steps,
            // The writer finds out by itself whether the store still works.
            Err(StoreError::Busy(_) | StoreError::Fatal(_)) => {
                self.timers.bring_forward(WakeReason::Bulk, now.mono.plus(READ_PAUSE));
            }
            Err(StoreError::Corrupt(cause)) => self.lose(now, &cause),
        }
        self.advance(now);
        self.settle_phase();
    }

    pub(super) fn add_bulk(&mut self, batch: &mut Batch) {
        batch.bulk = core::mem::take(&mut self.bulk.waiting);
    }

    /// The steps of a batch were not taken: pages are asked for again.
    pub(super) fn restore_bulk(&mut self, now: Mono, batch: &Batch) {
        if !batch.bulk.is_empty() {
            self.timers.bring_forward(WakeReason::Bulk, now);
        }
    }

    /// When the next step is due; and jobs that were cancelled stop at once.
    pub(super) fn plan_bulk(&mut self, now: Mono, batch: &Batch, out: &Outcomes) {
        if !batch.bulk.is_empty() {
            let until = if out.bulk_lost { now.plus(YIELD) } else { now };
            self.timers.hold(WakeReason::Bulk, until);
        }
        let next = self.next(out.next_bulk, self.timers.get(WakeReason::Bulk));
        self.timers.set(WakeReason::Bulk, next);
        if !batch.bulk.is_empty() {
            self.stop_cancelled(now, &out.changes);
        }
    }

    /// Stops local runs whose jobs were cancelled.
    pub(super) fn stop_cancelled(&mut self, now: Mono, changes: &[Change]) {
        for change in changes.iter().filter(|change| change.to == Some(StateName::Cancelled)) {
            if let Some(token) = self.runs.token_of(change.id) {
                self.stop(token, StopReason::Cancelled, now);
            }
        }
    }
}
