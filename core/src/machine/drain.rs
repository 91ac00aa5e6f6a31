//! Shutdown as phases of the machine: running, draining, forcing, stopped.
//!
//! Draining admits and starts nothing; reports and heartbeats go on. One grace before the deadline,
//! what still runs gets the stop signal, and is given back once it has. A run that has not ended
//! shortly after the deadline is left: giving back what still runs would let it run twice at once.

use alloc::vec::Vec;

use super::commit::Call;
use super::input::{Answer, Phase, Refused, ShutdownReport, StopReason, WakeReason};
use super::{Machine, Now};
use crate::store::Cause;
use crate::{LeaseToken, Millis, Mono, Verdict};

/// How far the shutdown has come, and what it has met.
#[derive(Debug)]
pub(super) struct Drain {
    phase: Phase,
    stop_grace: Millis,
    force_grace: Millis,
    /// When the drain ends, whatever still runs.
    deadline: Mono,
    report: ShutdownReport,
}

impl Drain {
    pub(super) fn new(stop_grace: Millis, force_grace: Millis) -> Self {
        let report = ShutdownReport::default();
        let (phase, deadline) = (Phase::Running, Mono::default());
        Self { phase, stop_grace, force_grace, deadline, report }
    }

    pub(super) fn phase(&self) -> Phase {
        self.phase
    }

    pub(super) fn report(&self) -> &ShutdownReport {
        &self.report
    }

    /// Notes that a local run's verdict was recorded.
    pub(super) fn note_settled(&mut self, verdict: &Verdict) {
        match verdict {
            _ if self.phase == Phase::Running => {}
            Verdict::Release => self.report.released += 1,
            _ => self.report.finished += 1,
        }
    }

    /// Notes a run whose end will not be recorded.
    pub(super) fn note_left(&mut self, token: LeaseToken) {
        if self.phase != Phase::Running {
            self.report.left.push(token);
        }
    }
}

impl Machine {
    pub(super) fn drain(&mut self, now: Now, deadline: Millis) {
        if self.phase() != Phase::Running {
            self.stats.ignored += 1;
            return;
        }
        self.drain.phase = Phase::Draining;
        self.drain.deadline = now.mono.plus(deadline);
        let stop_after = deadline.get().saturating_sub(self.drain.stop_grace.get());
        self.timers.set(WakeReason::DrainDeadline, Some(now.mono.plus(Millis::new(stop_after))));
        self.say_draining();
        self.dismiss_polls();
    }

    /// Polls end at once when nothing is handed out any more.
    pub(super) fn dismiss_polls(&mut self) {
        for request in self.demands.dismiss() {
            self.reply(request, Answer::Jobs(Vec::new()));
        }
    }

    pub(super) fn force(&mut self, now: Now) {
        match self.phase() {
            Phase::Running => {
                self.drain(now, Millis::ZERO);
                self.begin_forcing(now);
            }
            Phase::Draining => {
                self.drain.deadline = now.mono;
                self.begin_forcing(now);
            }
            Phase::Forcing => self.end_forcing(),
            Phase::Stopped => self.stats.ignored += 1,
        }
    }

    pub(super) fn drain_deadlines(&mut self, now: Now) {
        let due = |reason| self.timers.is_due(reason, now.mono);
        match self.phase() {
            Phase::Draining if due(WakeReason::DrainDeadline) => self.begin_forcing(now),
            Phase::Forcing if due(WakeReason::ForceDeadline) => self.end_forcing(),
            _ => {}
        }
    }

    fn begin_forcing(&mut self, now: Now) {
        self.drain.phase = Phase::Forcing;
        self.drain.report.forced = true;
        let deadline = self.drain.deadline.max(now.mono).plus(self.drain.force_grace);
        self.timers.set(WakeReason::ForceDeadline, Some(deadline));
        let tokens: Vec<LeaseToken> = self.runs.tokens().collect();
        for token in tokens {
            self.stop(token, StopReason::Shutdown, now.mono);
        }
    }

    /// Time is up: whatever is not recorded is left to its lease.
    fn end_forcing(&mut self) {
        self.drain.report.left.extend(self.runs.tokens());
        for request in self.dismiss_pending() {
            self.refuse(request, Refused::ShuttingDown);
        }
        let cause = Cause::new("the process stopped while the batch was being committed");
        self.refuse_unknown(&cause);
        if let Some(Call::Commit(in_flight)) = self.call.take() {
            for request in in_flight.requests() {
                self.refuse(request, Refused::Unknown(cause.clone()));
            }
        }
        self.stop_here();
    }

    /// Moves on once nothing is left to do: a last commit, then the end.
    pub(super) fn settle_phase(&mut self) {
        self.plan_timers();
        let ending = matches!(self.phase(), Phase::Draining | Phase::Forcing);
        let idle = self.runs.is_empty() && self.pending.is_empty() && self.call.is_none();
        let decided = self.store_health.is_ready() || !self.store_health.is_usable();
        if !ending || !idle || !decided {
            return;
        }
        // The last figures go with the removal of the own row, if there is one.
        let more = self.store_health.is_ready() && (self.remove_at_end() | self.flush_figures());
        if more {
            return;
        }
        self.stop_here();
    }

    fn stop_here(&mut self) {
        self.dismiss_polls();
        self.drain.phase = Phase::Stopped;
    }

    /// Drops everything that clients wait for and that is in no batch yet, and says who.
    pub(super) fn dismiss_pending(&mut self) -> Vec<crate::RequestId> {
        let pending = &mut self.pending;
        let mut who = pending.settles.dismiss();
        who.append(&mut pending.heartbeats.dismiss());
        who.append(&mut pending.admin.dismiss());
        who.append(&mut pending.enqueues.dismiss());
        who
    }
}
