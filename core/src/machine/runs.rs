//! Local runs: which leases this process holds, and what time does to them.
//!
//! A run holds its slot until its handler has returned or was stopped, and its lease until the
//! store has answered its verdict. The lease is extended at a third of its length while the handler
//! runs, and the run is stopped before the lease ends if that cannot be written.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::input::{StopReason, WakeReason, Wakeup};
use crate::limits::STOP_GRACE;
use crate::{Failure, FailureKind, Job, LeaseToken, Millis, Mono, Verdict};

/// The runs of this process.
#[derive(Debug, Default)]
pub(super) struct Runs {
    held: BTreeMap<LeaseToken, Entry>,
    /// The number of them that have returned and wait for the store's answer.
    settling: usize,
    /// No run needs anything before this.
    next: Option<Wakeup>,
    /// Whether some run wants a heartbeat.
    heartbeats_wanted: bool,
}

#[derive(Debug)]
struct Entry {
    length: Millis,
    /// When the lease ends, by this process's own clock, counted from before the commit.
    lease_end: Mono,
    heartbeat_at: Mono,
    timeout_at: Option<Mono>,
    stage: Stage,
    /// When a stopping run gets its last heartbeat; zero once it has had it.
    heartbeats_until: Mono,
}

/// How far a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// No stop was asked for.
    Running,
    /// Its handler has the stop signal.
    Stopping(StopReason),
    /// Its handler has returned; its verdict waits for a commit.
    Settling,
}

/// Whether a run had the stop signal when it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// It ended without a stop signal.
    ByItself,
    /// It had the stop signal, for this reason.
    Stopped(StopReason),
}

impl Entry {
    fn renew(&mut self, from: Mono) {
        self.lease_end = from.plus(self.length);
        self.heartbeat_at = from.plus(self.length.part(3));
    }

    /// Gives it the stop signal. While its handler still runs, no other may run: it keeps its lease
    /// for a while, unless the lease is lost already.
    fn stop(&mut self, reason: StopReason, now: Mono) {
        self.stage = Stage::Stopping(reason);
        self.heartbeats_until = match reason {
            StopReason::TimedOut | StopReason::Shutdown => now.plus(STOP_GRACE),
            StopReason::Cancelled | StopReason::LeaseLost => Mono::default(),
        };
    }

    /// Whether its lease is to be kept alive.
    fn is_kept(&self, now: Mono) -> bool {
        match self.stage {
            Stage::Running => true,
            Stage::Stopping(_) => now < self.heartbeats_until,
            Stage::Settling => false,
        }
    }

    /// When it must stop unless its lease was extended: with a tenth of it left.
    fn stop_at(&self) -> Mono {
        let tenth = self.length.part(10);
        Mono::new(self.lease_end.get().saturating_sub(tenth.get()))
    }

    fn next(&self, heartbeats_wanted: bool) -> Option<Wakeup> {
        let heartbeat_at = (!heartbeats_wanted).then_some(self.heartbeat_at);
        match self.stage {
            Stage::Settling => return None,
            Stage::Stopping(_) => {
                let at = heartbeat_at.filter(|at| *at < self.heartbeats_until)?;
                return Some(Wakeup { at, reason: WakeReason::Heartbeat });
            }
            Stage::Running => {}
        }
        let heartbeat = heartbeat_at.map(|at| Wakeup { at, reason: WakeReason::Heartbeat });
        let end = Wakeup { at: self.stop_at(), reason: WakeReason::LeaseEnd };
        let timeout = self.timeout_at.map(|at| Wakeup { at, reason: WakeReason::JobTimeout });
        [Some(end), timeout, heartbeat].into_iter().flatten().min()
    }
}

impl Runs {
    /// Slots in use: held leases whose verdict is not on its way.
    pub(super) fn busy(&self) -> usize {
        self.held.len() - self.settling
    }

    /// Whether this process holds no lease.
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    pub(super) fn tokens(&self) -> impl Iterator<Item = LeaseToken> {
        self.held.keys().copied()
    }

    /// Whether a claim begun at `from` has taken so long that the run would have to stop at once.
    pub(super) fn is_too_late(job: &Job, from: Mono, now: Mono) -> bool {
        let length = job.lease().map_or(Millis::ZERO, |lease| lease.length.millis());
        now.since(from) >= length.part(10).times(9)
    }

    /// Notes a run whose claim was begun at `from`. Returns when it must stop unless its lease is
    /// extended.
    pub(super) fn start(&mut self, job: &Job, from: Mono, now: Mono) -> Mono {
        let length = job.lease().map_or(Millis::ZERO, |lease| lease.length.millis());
        let timeout_at = job.timeout.map(|timeout| now.plus(timeout.millis()));
        let stage = Stage::Running;
        let (lease_end, heartbeat_at, heartbeats_until) = (from, from, from);
        let mut entry =
            Entry { length, lease_end, heartbeat_at, timeout_at, stage, heartbeats_until };
        entry.renew(from);
        self.next = self.next.into_iter().chain(entry.next(false)).min();
        let stop_at = entry.stop_at();
        self.held.insert(job.token(), entry);
        stop_at
    }

    /// The handler has returned or was stopped: its slot is free. Says whether it had
    /// the stop signal; `None` if there is no such handler.
    pub(super) fn end(&mut self, token: LeaseToken) -> Option<Ended> {
        let entry = self.held.get_mut(&token)?;
        let ended = match entry.stage {
            Stage::Running => Ended::ByItself,
            Stage::Stopping(reason) => Ended::Stopped(reason),
            Stage::Settling => return None,
        };
        entry.stage = Stage::Settling;
        self.settling += 1;
        if self.busy() == 0 {
            (self.next, self.heartbeats_wanted) = (None, false);
        }
        Some(ended)
    }

    /// The verdict of a run is recorded, or will not be.
    pub(super) fn settled(&mut self, token: LeaseToken) {
        if let Some(Entry { stage: Stage::Settling, .. }) = self.held.get(&token) {
            self.held.remove(&token);
            self.settling -= 1;
        }
    }

    /// Drops the runs whose verdict the store will never answer, and says which.
    pub(super) fn drop_settling(&mut self) -> Vec<LeaseToken> {
        let settling = self.held.iter().filter(|(_, run)| run.stage == Stage::Settling);
        let settling: Vec<LeaseToken> = settling.map(|(token, _)| *token).collect();
        for token in &settling {
            self.settled(*token);
        }
        settling
    }

    /// Marks a run as stopping; says whether it was not already.
    pub(super) fn stop(&mut self, token: LeaseToken, reason: StopReason, now: Mono) -> bool {
        match self.held.get_mut(&token) {
            Some(entry) if entry.stage == Stage::Running => {
                entry.stop(reason, now);
                true
            }
            _ => false,
        }
    }

    /// The token by which this process runs a job, if it does.
    pub(super) fn token_of(&self, job: crate::JobId) -> Option<LeaseToken> {
        let first = LeaseToken { job, epoch: crate::Epoch::NEVER };
        let last = LeaseToken { job, epoch: crate::Epoch::new(u64::MAX) };
        let mut running =
            self.held.range(first..=last).filter(|(_, run)| run.stage == Stage::Running);
        running.next_back().map(|(token, _)| *token)
    }

    /// The runs whose handler runs without a stop signal.
    pub(super) fn running(&self) -> impl Iterator<Item = LeaseToken> {
        let running = self.held.iter().filter(|(_, run)| run.stage == Stage::Running);
        running.map(|(token, _)| *token)
    }

    pub(super) fn holds(&self, token: LeaseToken) -> bool {
        self.held.get(&token).is_some_and(|run| run.stage == Stage::Running)
    }

    /// Lets time pass: returns the runs that must stop now, and why.
    pub(super) fn advance(&mut self, now: Mono) -> Vec<(LeaseToken, StopReason)> {
        if self.next.is_none_or(|next| next.at > now) {
            return Vec::new();
        }
        let mut stops = Vec::new();
        for (token, run) in &mut self.held {
            if run.is_kept(now) {
                self.heartbeats_wanted |= run.heartbeat_at <= now;
            } else {
                run.heartbeats_until = Mono::default();
            }
            let reason = if run.timeout_at.is_some_and(|at| at <= now) {
                StopReason::TimedOut
            } else if run.stop_at() <= now {
                StopReason::LeaseLost
            } else {
                continue;
            };
            if run.stage == Stage::Running {
                run.stop(reason, now);
                stops.push((*token, reason));
            }
        }
        self.plan();
        stops
    }

    /// The runs to extend in a batch made now: those that are due, and those that soon will be.
    pub(super) fn take_heartbeats(&mut self, now: Mono) -> Vec<LeaseToken> {
        if !self.heartbeats_wanted {
            return Vec::new();
        }
        self.heartbeats_wanted = false;
        let mut due = Vec::new();
        for (token, run) in self.held.iter_mut().filter(|(_, run)| run.is_kept(now)) {
            if run.heartbeat_at <= now.plus(run.length.part(12)) {
                run.heartbeat_at = now.plus(run.length.part(3));
                due.push(*token);
            }
        }
        self.plan();
        due
    }

    /// Every run wants a heartbeat now: the wall clock by which others judge them was set.
    pub(super) fn want_heartbeats(&mut self, now: Mono) {
        for run in self.held.values_mut().filter(|run| run.is_kept(now)) {
            run.heartbeat_at = now;
            self.heartbeats_wanted = true;
        }
    }

    /// A heartbeat was written by a commit begun at `from`. Returns when the run must stop unless
    /// its lease is extended again, if it runs.
    pub(super) fn heartbeat_written(&mut self, token: LeaseToken, from: Mono) -> Option<Mono> {
        let run = self.held.get_mut(&token)?;
        run.renew(from);
        (run.stage == Stage::Running).then(|| run.stop_at())
    }

    /// A heartbeat was not written: it is wanted as soon as the store can be tried again.
    pub(super) fn heartbeat_failed(&mut self, token: LeaseToken, now: Mono) {
        if let Some(run) = self.held.get_mut(&token) {
            run.heartbeat_at = now;
            self.heartbeats_wanted = true;
        }
    }

    /// When a run next needs something.
    pub(super) fn next(&self) -> Option<Wakeup> {
        self.next
    }

    /// Computes again when a run next needs something.
    pub(super) fn plan(&mut self) {
        let wanted = self.heartbeats_wanted;
        self.next = self.held.values().filter_map(|run| run.next(wanted)).min();
    }
}

/// The verdict on a run that was stopped because its lease could not be extended in time. It has
/// run, so its attempt counts.
pub(super) fn lease_lost() -> Verdict {
    Verdict::Fail(Failure::new("stopped: its lease could not be extended in time").into())
}

/// The verdict on a run that was stopped because it ran too long.
pub(super) fn timed_out() -> Verdict {
    let failure = Failure::new("stopped: it ran longer than its timeout");
    Verdict::Fail(failure.of_kind(FailureKind::TimedOut).into())
}
