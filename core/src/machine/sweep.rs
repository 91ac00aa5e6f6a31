//! Sweeps: pages of reaping, promoting, purging and of empty queues, taken along by batches, and
//! when the next ones are due.

use alloc::vec::Vec;
use core::mem;

use super::clock::Stepped;
use super::input::WakeReason;
use super::{Machine, Now};
use crate::store::{Batch, Cursor, Next, Outcomes, Purge, QueueSweep, Reap, Reaped};
use crate::{Millis, Mono, QueueName, StateName, WorkerId};

/// The pause between two passes of the reaper, or of the purge, over what they could not take yet.
const SWEEP_PAUSE: Millis = Millis::seconds(1);
/// The longest pause between two purges, and the pause between two passes over the queues.
pub(super) const HOUSEKEEPING: Millis = Millis::minutes(10);

/// What is known of sweeps that go on.
#[derive(Debug)]
pub(super) struct Sweeps {
    reaper: Reaper,
    /// Where the sweep of empty queues goes on, in the middle of a pass.
    queues_after: Option<QueueName>,
}

/// The reaper, which takes back leases in pages.
#[derive(Debug)]
struct Reaper {
    /// Where it goes on, in the middle of a pass.
    after: Option<Cursor>,
    /// Leases that still run are to be looked at as well, once: a clock may have been set back.
    all: bool,
    /// Whether the pass that looks at all of them has left some out, which another process held.
    skipped: bool,
    /// Workers known to be dead, whose leases the pass over all leases takes back.
    dead: Vec<WorkerId>,
}

impl Default for Sweeps {
    fn default() -> Self {
        let reaper = Reaper { after: None, all: true, skipped: false, dead: Vec::new() };
        Self { reaper, queues_after: None }
    }
}

impl Machine {
    pub(super) fn add_sweeps(&mut self, batch: &mut Batch, now: Mono) {
        let limit = self.limits.page;
        let Reaper { after, all, dead, .. } = &self.sweeps.reaper;
        let due = *all && !self.timers.is_held(WakeReason::LeaseExpiry, now)
            || self.timers.is_due(WakeReason::LeaseExpiry, now)
            || after.is_some();
        if due && self.clock.may_reap() {
            batch.reap = Some(Reap { limit, after: *after, all: *all });
            batch.dead.clone_from(dead);
        }
        if self.timers.is_due(WakeReason::JobDue, now) {
            batch.promote = Some(limit);
        }
        if self.timers.is_due(WakeReason::Purge, now) {
            batch.purge = Some(Purge { retention: self.retention, limit });
        }
        if self.timers.is_due(WakeReason::QueueSweep, now) {
            let after = self.sweeps.queues_after.clone();
            batch.queue_sweep = Some(QueueSweep { after, limit });
        }
    }

    /// Nothing is known about what is due: ask with the next batch.
    pub(super) fn sweep_now(&mut self) {
        for reason in [WakeReason::JobDue, WakeReason::LeaseExpiry] {
            self.timers.set(reason, Some(Mono::default()));
        }
    }

    /// Takes back the leases of a worker that is known to be dead, with the next pass.
    pub(super) fn end_worker(&mut self, worker: &WorkerId) {
        let reaper = &mut self.sweeps.reaper;
        if !reaper.dead.contains(worker) {
            reaper.dead.push(worker.clone());
        }
        (reaper.after, reaper.all) = (None, true);
        self.sweep_now();
    }

    /// The wall clock was stepped: the instants that are known were computed by the clock as it
    /// was. A pass that is under way starts again, and looks at all leases if the clock was set
    /// back.
    pub(super) fn restart_sweeps(&mut self, stepped: Stepped) {
        let reaper = &mut self.sweeps.reaper;
        reaper.after = None;
        reaper.all |= stepped == Stepped::Back;
        self.sweep_now();
    }

    /// Sets the timers from the horizon of the store.
    pub(super) fn plan(&mut self, now: Now, batch: &Batch, out: &Outcomes) {
        let due = self.next(out.next_due, self.timers.get(WakeReason::JobDue));
        let promoted_nothing = out.promoted.is_some_and(|promoted| promoted.count == 0);
        let stuck = promoted_nothing && due.is_some_and(|at| at <= now.mono);
        let pause = now.mono.plus(SWEEP_PAUSE);
        self.timers.set(WakeReason::JobDue, if stuck { Some(pause) } else { due });
        self.plan_reap(now.mono, batch, out);
        self.plan_purge(now, out);
        self.plan_queue_sweep(now.mono, out);
        self.plan_rates(now.mono, out);
    }

    /// When to take back leases next. They are looked at no sooner than after a pause where a pass
    /// could not take back all that are due.
    fn plan_reap(&mut self, now: Mono, batch: &Batch, out: &Outcomes) {
        const TIMER: WakeReason = WakeReason::LeaseExpiry;
        let pause = now.plus(SWEEP_PAUSE);
        // In the middle of a pass, what earlier pages could not take back is still to come.
        let begun = batch.reap.is_some_and(|reap| reap.after.is_some());
        let known = self.timers.get(TIMER);
        let expiry = self.next(out.next_expiry, known);
        let mut expiry = expiry.into_iter().chain(known.filter(|_| begun)).min();
        let overdue = expiry.is_some_and(|at| at <= now);
        let reaper = &mut self.sweeps.reaper;
        match &out.reaped {
            None => {}
            Some(Reaped::ClockStepped) => {
                reaper.after = None;
                self.timers.hold(TIMER, pause);
            }
            Some(Reaped::Page { requeued, failed, next }) => {
                self.stats.leases_expired += (requeued + failed) as u64;
                reaper.after = *next;
                let all = batch.reap.is_some_and(|reap| reap.all);
                reaper.skipped |= all && out.skipped;
                if next.is_none() {
                    // What another process held is looked at in the next pass.
                    let again = mem::take(&mut reaper.skipped);
                    reaper.all &= !all || again;
                    if all && !again {
                        reaper.dead.clear();
                    }
                    // Leases that are held after a clock step are due, but cannot be taken back.
                    self.timers.hold(TIMER, if overdue || again { pause } else { now });
                    expiry = expiry.into_iter().chain(again.then_some(pause)).min();
                }
            }
        }
        self.timers.set(TIMER, expiry);
    }

    /// The monotonic instant of what comes next, given what was known before.
    pub(super) fn next(&self, next: Next, known: Option<Mono>) -> Option<Mono> {
        let at = next.at().and_then(|at| self.clock.mono(at));
        match next {
            Next::Known(_) => at,
            Next::Written(_) => at.into_iter().chain(known).min(),
        }
    }

    /// Notes when a rate that kept a claim from jobs has room again. The clock of the store is only
    /// known to a moment: a claim that comes a little early must not be repeated at once.
    fn plan_rates(&mut self, now: Mono, out: &Outcomes) {
        if let Some(at) = out.next_open.and_then(|at| self.clock.mono(at)) {
            let soonest = now.plus(Millis::new(1));
            self.timers.bring_forward(WakeReason::RateOpens, at.max(soonest));
        }
    }

    /// Claims again for every demand if a rate may have room again.
    pub(super) fn note_open_rates(&mut self, now: Mono) {
        if self.timers.is_due(WakeReason::RateOpens, now) {
            self.timers.set(WakeReason::RateOpens, None);
            self.demands.note_ready_all();
        }
    }

    /// When to look for queues that hold nothing: at once in the middle of a pass.
    fn plan_queue_sweep(&mut self, now: Mono, out: &Outcomes) {
        if let Some(swept) = &out.queues_swept {
            self.sweeps.queues_after.clone_from(&swept.next);
            let pause = if swept.next.is_some() { Millis::ZERO } else { HOUSEKEEPING };
            self.timers.set(WakeReason::QueueSweep, Some(now.plus(pause)));
        }
    }

    /// When to purge next: when something is past its age, and now and then in any case, for what
    /// other processes have finished or left behind.
    fn plan_purge(&mut self, now: Now, out: &Outcomes) {
        let pause = now.mono.plus(SWEEP_PAUSE);
        if let Some(purged) = &out.purged {
            let housekeeping = now.mono.plus(HOUSEKEEPING);
            let next = purged.next.and_then(|at| self.clock.mono(at));
            let next = next.map_or(housekeeping, |at| at.clamp(pause, housekeeping));
            let next = if purged.more { now.mono } else { next };
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
