//! After a commit that failed: commands wait again, doubts are cleared up, or everything stops.

use alloc::vec::Vec;

use super::commit::{Doubt, InFlight, Open};
use super::demand::Claimant;
use super::input::{Phase, Refused, StopReason};
use super::pending::{Asker, Taken};
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
        let mut give_up = |taken: Taken, need: Need| match taken.from {
            Asker::Local | Asker::Machine => false,
            Asker::Request(request) => {
                let refused = refuse(need, taken.tries + 1 >= most);
                let gives_up = refused.is_some();
                told.extend(refused.map(|refused| (request, refused)));
                gives_up
            }
        };
        let Batch { settles, mut beats, admin, enqueues, claims, .. } = batch;
        beats.truncate(beats.len() - in_flight.local_beats.len());
        let pending = &mut self.pending;
        pending.settles.restore(in_flight.settles, settles, |taken| give_up(taken, Need::Report));
        pending.beats.restore(in_flight.beats, beats, |taken| give_up(taken, Need::Report));
        pending.admin.restore(in_flight.admin, admin, |taken| give_up(taken, Need::Order));
        pending.enqueues.restore(in_flight.enqueues, enqueues, |taken| give_up(taken, Need::New));
        for (request, refused) in told {
            self.refuse(request, refused);
        }
        for token in in_flight.local_beats {
            self.runs.beat_failed(token, now.mono);
        }
        for (claimant, claim) in in_flight.claims.into_iter().zip(claims) {
            match claimant {
                Claimant::Local => self.demands.stir_local(),
                Claimant::Remote(waiters) => {
                    for waiter in waiters {
                        self.demands.untried(&claim.demand, waiter);
                    }
                }
            }
        }
        self.timers.refresh = true;
        if self.phase() != Phase::Running {
            self.dismiss_polls();
        }
    }

    /// The store has said whether the batch in doubt was committed.
    pub(super) fn resolve(&mut self, now: Now, committed: bool) {
        match self.link.take_doubt() {
            Some(Doubt::Open(open)) if committed => {
                self.committed(now, &open.batch, open.in_flight, open.outcomes);
            }
            Some(Doubt::Open(open)) => {
                let Open { batch, in_flight, .. } = *open;
                let cause = Cause::new("the batch was found not to be committed");
                self.restore(now, batch, in_flight, &cause);
                self.link.fail(cause, now.mono);
            }
            Some(Doubt::Closed { leases, .. }) if committed => self.give_back(leases),
            Some(Doubt::Closed { .. }) | None => {}
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
            Doubt::Closed { batch: id, leases }
        });
        let unknown = doubt.is_some();
        self.take_apart(now, batch, in_flight, |_, _| {
            let cause = cause.clone();
            Some(if unknown { Refused::Unknown(cause) } else { Refused::Unavailable(cause) })
        });
        self.refuse_waiting(cause);
        self.link.break_down(doubt, cause.clone(), now.mono);
    }

    /// Tells those whose batch is in doubt that nobody will find out for them.
    pub(super) fn refuse_doubtful(&mut self, cause: &Cause) {
        if let Some(Doubt::Open(open)) = self.link.take_doubt() {
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
        self.refuse_doubtful(cause);
        self.link.lose(cause.clone());
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
