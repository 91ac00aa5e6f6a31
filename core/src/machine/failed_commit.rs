//! After a commit that failed: commands wait again, unknown commits are looked up, or
//! everything stops.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::mem;

use super::commit::{Closed, InFlight, Open, UnknownCommit};
use super::demand::Claimant;
use super::input::{Effect, Phase, Refused, StopReason};
use super::pending::Entry;
use super::{Machine, Now};
use crate::store::{AdminDone, Batch, Cause, Outcomes};
use crate::{LeaseToken, RequestId};

/// The commands of clients, by how much space they may need.
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

    /// Takes a batch apart. `refuse` says whether a client is refused, and how: given what it asked
    /// for, and whether that was tried often enough.
    fn take_apart(
        &mut self,
        now: Now,
        batch: Batch,
        in_flight: InFlight,
        refuse: impl Fn(Need, bool) -> Option<Refused>,
    ) {
        self.restore_bulk(now.mono, &batch);
        let most = self.limits.tries;
        let mut refusals: Vec<(RequestId, Refused)> = Vec::new();
        let mut give_up = |entry: Entry, need: Need| {
            let Some(request) = entry.origin.request() else { return false };
            let refused = refuse(need, entry.tries + 1 >= most);
            let gives_up = refused.is_some();
            refusals.extend(refused.map(|refused| (request, refused)));
            gives_up
        };
        let Batch { settles, mut heartbeats, admin, enqueues, claims, figures, .. } = batch;
        heartbeats.truncate(heartbeats.len() - in_flight.local_heartbeats.len());
        let pending = &mut self.pending;
        pending.settles.restore(&in_flight.settles, settles, |entry| give_up(entry, Need::Report));
        pending
            .heartbeats
            .restore(&in_flight.heartbeats, heartbeats, |entry| give_up(entry, Need::Report));
        pending.admin.restore(&in_flight.admin, admin, |entry| give_up(entry, Need::Order));
        pending.enqueues.restore(&in_flight.enqueues, enqueues, |entry| give_up(entry, Need::New));
        for (request, refused) in refusals {
            self.refuse(request, refused);
        }
        self.restore_figures(now.mono, &figures);
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

    /// The store has said whether the unknown commit took place.
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
            Some(UnknownCommit::Closed(closed)) => {
                self.store_health.works(&mut self.timers);
                if committed {
                    self.closed_was_committed(now, *closed);
                } else {
                    self.restore_figures(now.mono, &closed.written);
                }
                self.note_ready_all();
            }
            None => {}
        }
    }

    /// The store is unusable until it is reopened. Nothing is acknowledged as stored.
    pub(super) fn break_down(
        &mut self,
        now: Now,
        batch: Batch,
        in_flight: InFlight,
        cause: &Cause,
        outcomes: Option<Outcomes>,
    ) {
        let unknown = if let Some(outcomes) = outcomes {
            Some(self.close(now, Open { batch, in_flight, outcomes }, cause))
        } else {
            let refused = Refused::Unavailable(cause.clone());
            self.take_apart(now, batch, in_flight, |_, _| Some(refused.clone()));
            None
        };
        self.refuse_waiting(cause);
        self.store_health.break_down(unknown, cause.clone(), now.mono, &mut self.timers);
    }

    /// The store cannot say whether the batch was committed. After some tries it is not
    /// waited for any longer: its requests are refused as unknown, and those behind it as
    /// unavailable.
    pub(super) fn still_unknown(&mut self, now: Now, cause: Cause) {
        if self.store_health.failures() + 1 >= self.limits.tries {
            let unknown = match self.store_health.take_unknown() {
                Some(UnknownCommit::Open(open)) => Some(self.close(now, *open, &cause)),
                other => other,
            };
            self.store_health.keep_unknown(unknown);
            self.refuse_waiting(&cause);
        }
        self.store_health.ask_again(cause, now.mono, &mut self.timers);
    }

    /// A batch was committed whose requests are answered: what else follows from it.
    fn closed_was_committed(&mut self, now: Now, closed: Closed) {
        let Closed { leases, at, did, changes, queues, .. } = closed;
        self.note_figures(now.mono, at, did);
        self.give_back(leases);
        self.stop_cancelled(now.mono, &changes);
        if !changes.is_empty() || !queues.is_empty() {
            self.effects.push_back(Effect::Changed { jobs: changes, queues });
        }
    }

    /// Refuses the requests of an unknown commit.
    fn close(&mut self, now: Now, open: Open, cause: &Cause) -> UnknownCommit {
        let Open { mut batch, in_flight, outcomes } = open;
        let claimed = outcomes.claims.iter().flat_map(|claimed| &claimed.jobs);
        let leases = claimed.map(|leased| leased.job.token()).collect();
        // Held back until the outcome is known, so that they are not written twice.
        let written = mem::take(&mut batch.figures);
        let queues = outcomes.admin.iter().filter_map(|done| match done {
            Ok(AdminDone::Queue(queue)) => Some(queue.clone()),
            _ => None,
        });
        let queues = queues.collect();
        let Outcomes { now: at, figures: did, changes, .. } = outcomes;
        let closed = Closed { batch: batch.id, leases, written, at, did, changes, queues };
        let refused = Refused::Unknown(cause.clone());
        self.take_apart(now, batch, in_flight, |_, _| Some(refused.clone()));
        UnknownCommit::Closed(Box::new(closed))
    }

    /// Refuses the requests of an unknown commit as unknown, since it will not be resolved.
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

    /// The store is lost: refuses all requests and stops all runs.
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
