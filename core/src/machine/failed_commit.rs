//! After a commit that failed: commands wait again, doubts are cleared up, or everything stops.

use alloc::vec::Vec;

use super::commit::{InFlight, Open, UnknownCommit};
use super::demand::Claimant;
use super::input::{Phase, Refused, StopReason};
use super::pending::Entry;
use super::{Machine, Now};
use crate::store::{Batch, Cause, Outcomes};
use crate::{LeaseToken, RequestId};

/// What a client asked for, by how much space it may need.
#[derive(Debug, Clone, Copy)]
enum Need {
    /// To store new jobs.
    New,
    /// An operator's command.
    Order,
    /// A worker's report or heartbeat.
    Report,
}

impl Machine {
    /// Takes a batch apart that was not committed: its commands wait again.
    pub(super) fn restore(&mut self, now: Now, batch: Batch, in_flight: InFlight, cause: &Cause) {
        self.take_apart(now, batch, in_flight, |_, tries| {
            tries.then(|| Refused::Unavailable(cause.clone()))
        });
    }

    /// The same, where the store has no space left: new jobs are refused; and operators, if there
    /// was none for their commands alone.
    pub(super) fn restore_full(
        &mut self,
        now: Now,
        batch: Batch,
        in_flight: InFlight,
        cause: &Cause,
    ) {
        let alone = batch.enqueues.is_empty();
        self.take_apart(now, batch, in_flight, |need, tries| {
            let refused = match need {
                Need::New => true,
                Need::Order => alone || tries,
                Need::Report => tries,
            };
            refused.then(|| Refused::StoreFull(cause.clone()))
        });
        for request in self.pending.enqueues.dismiss() {
            self.refuse(request, Refused::StoreFull(cause.clone()));
        }
    }

    /// Takes a batch apart. `refuse` says whether a client is told no, and how: given what it asked
    /// for, and whether that was tried often enough.
    fn take_apart(
        &mut self,
        now: Now,
        batch: Batch,
        in_flight: InFlight,
        refuse: impl Fn(Need, bool) -> Option<Refused>,
    ) {
        let most = self.limits.tries;
        let mut told: Vec<(RequestId, Refused)> = Vec::new();
        let mut give_up = |entry: Entry, need: Need| {
            let Some(request) = entry.origin.request() else { return false };
            let refused = refuse(need, entry.tries + 1 >= most);
            let gives_up = refused.is_some();
            told.extend(refused.map(|refused| (request, refused)));
            gives_up
        };
        let Batch { settles, mut heartbeats, admin, enqueues, claims, .. } = batch;
        heartbeats.truncate(heartbeats.len() - in_flight.local_heartbeats.len());
        let pending = &mut self.pending;
        pending.settles.restore(&in_flight.settles, settles, |entry| give_up(entry, Need::Report));
        pending
            .heartbeats
            .restore(&in_flight.heartbeats, heartbeats, |entry| give_up(entry, Need::Report));
        pending.admin.restore(&in_flight.admin, admin, |entry| give_up(entry, Need::Order));
        pending.enqueues.restore(&in_flight.enqueues, enqueues, |entry| give_up(entry, Need::New));
        for (request, refused) in told {
            self.refuse(request, refused);
        }
        for token in in_flight.local_heartbeats {
            self.runs.heartbeat_failed(token, now.mono);
        }
        for (claimant, claim) in in_flight.claims.into_iter().zip(claims) {
            match claimant {
                Claimant::Local => self.demands.note_ready_local(),
                Claimant::Remote(waiters) => {
                    for waiter in waiters {
                        self.demands.untried(&claim.demand, waiter);
                    }
                }
            }
        }
        if self.phase() != Phase::Running {
            self.dismiss_polls();
        }
    }

    /// The store has said whether the batch in doubt was committed.
    pub(super) fn resolve(&mut self, now: Now, committed: bool) {
        match self.store_health.take_unknown() {
            Some(UnknownCommit::Open(open)) if committed => {
                self.committed(now, &open.batch, open.in_flight, open.outcomes);
            }
            Some(UnknownCommit::Open(open)) => {
                let Open { batch, in_flight, .. } = *open;
                let cause = Cause::new("the batch was found not to be committed");
                self.restore(now, batch, in_flight, &cause);
                self.store_health.fail(cause, now.mono, &mut self.timers);
            }
            Some(UnknownCommit::Closed { leases, .. }) if committed => self.give_back(leases),
            Some(UnknownCommit::Closed { .. }) | None => {}
        }
    }

    /// The store is unusable until it is opened anew. Nobody is told that anything was stored.
    pub(super) fn break_down(
        &mut self,
        now: Now,
        batch: Batch,
        in_flight: InFlight,
        cause: &Cause,
        outcomes: Option<Outcomes>,
    ) {
        let id = batch.id;
        let doubt = outcomes.map(|outcomes| {
            let claimed = outcomes.claims.iter().flat_map(|claimed| &claimed.jobs);
            let leases = claimed.map(|leased| leased.job.token()).collect();
            UnknownCommit::Closed { batch: id, leases }
        });
        let unknown = doubt.is_some();
        self.take_apart(now, batch, in_flight, |_, _| {
            let cause = cause.clone();
            Some(if unknown { Refused::Unknown(cause) } else { Refused::Unavailable(cause) })
        });
        self.refuse_waiting(cause);
        self.store_health.break_down(doubt, cause.clone(), now.mono, &mut self.timers);
    }

    /// Tells those whose batch is in doubt that nobody will find out for them.
    pub(super) fn refuse_unknown(&mut self, cause: &Cause) {
        if let Some(UnknownCommit::Open(open)) = self.store_health.take_unknown() {
            for request in open.in_flight.requests() {
                self.refuse(request, Refused::Unknown(cause.clone()));
            }
        }
    }

    fn refuse_waiting(&mut self, cause: &Cause) {
        for request in self.dismiss_pending() {
            self.refuse(request, Refused::Unavailable(cause.clone()));
        }
    }

    /// The store is lost for good: everybody is told, and everything stops.
    pub(super) fn lose(&mut self, now: Now, cause: &Cause) {
        self.refuse_unknown(cause);
        self.store_health.lose(cause.clone());
        self.refuse_waiting(cause);
        for request in self.demands.dismiss() {
            self.refuse(request, Refused::Unavailable(cause.clone()));
        }
        self.pending.clear();
        for token in self.runs.drop_settling() {
            self.drain.note_left(token);
        }
        let tokens: Vec<LeaseToken> = self.runs.tokens().collect();
        for token in tokens {
            self.stop(token, StopReason::LeaseLost, now.mono);
        }
    }
}
