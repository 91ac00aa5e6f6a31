//! Saying that workers are there: this process's own, now and then, and remote ones when they poll;
//! and reading whether this one was asked to stop.
//!
//! A worker is seen until its process has ended what it runs, then its row is removed and it is not
//! seen again. The own row is read whenever it is written, and when another process has written.

use alloc::collections::BTreeMap;

use super::input::{Effect, Phase, Poll, WakeReason};
use super::pending::Origin;
use super::{Machine, Now};
use crate::store::{Admin, Worker};
use crate::{Millis, Mono, WorkerId};

/// When workers are noted in the store.
#[derive(Debug)]
pub(super) struct Presence {
    /// How often; never if not set.
    every: Option<Millis>,
    /// Whether to read with the next batch if it was asked to stop.
    check_mark: bool,
    /// Whether it was, and that was said.
    asked: bool,
    removed: bool,
    /// The remote workers that were noted, as they were, and when.
    remote: BTreeMap<WorkerId, (Mono, Worker)>,
}

impl Presence {
    pub(super) fn new(every: Option<Millis>) -> Self {
        let every = every.map(|every| every.max(OFTEN));
        let remote = BTreeMap::new();
        Self { every, check_mark: false, asked: false, removed: false, remote }
    }

    /// Reads with the next batch whether the own worker was asked to stop.
    pub(super) fn check_mark(&mut self) {
        self.check_mark = self.every.is_some() && !self.asked;
    }
}

impl Machine {
    pub(super) fn set_presence(&mut self, now: Now, every: Option<Millis>) {
        let every = every.map(|every| every.max(OFTEN));
        let was = core::mem::replace(&mut self.presence.every, every);
        self.say_now(now.mono);
        if was.is_some() && every.is_none() {
            self.presence.remote.clear();
            self.remove_own();
        }
    }

    /// Notes the own worker with the next batch.
    pub(super) fn say_now(&mut self, now: Mono) {
        self.timers.set(WakeReason::Presence, self.presence.every.map(|_| now));
    }

    /// Whether this process runs jobs, or still has some to end.
    pub(super) fn is_present(&self) -> bool {
        matches!(self.phase(), Phase::Running | Phase::Draining) && !self.presence.removed
    }

    /// Puts into the next batch what it should say of the own worker, or ask.
    pub(super) fn note_presence(&mut self, now: Mono) {
        if !self.is_present() {
            return;
        }
        let check = core::mem::take(&mut self.presence.check_mark);
        let due = self.timers.is_due(WakeReason::Presence, now);
        if let (true, Some(every)) = (due, self.presence.every) {
            self.timers.set(WakeReason::Presence, Some(now.plus(every)));
            self.note(Admin::SeeWorker(Worker { presence: every, ..self.worker.clone() }));
        } else if check {
            self.note(Admin::LookAtWorker(self.worker.id.clone()));
        }
    }

    /// Notes a remote worker as alive: when it is new or wants something else, with the batch that
    /// claims for it; later not more often than need be.
    pub(super) fn note_remote(&mut self, now: Mono, poll: &Poll) {
        let Some(every) = self.presence.every else { return };
        // While it waits here it sends nothing.
        let presence = every.max(poll.wait);
        let server = Some(self.worker.id.clone());
        let worker = Worker { server, presence, ..poll.worker.clone() };
        let remote = &mut self.presence.remote;
        if let Some((last, known)) = remote.get(&worker.id) {
            // How many it asks for changes with every poll; that is not worth a write.
            let pause =
                if known.demand == worker.demand { every } else { every.min(MIN_DEMAND_UPDATE) };
            if now.since(*last) < pause {
                return;
            }
        }
        if remote.len() >= self.limits.waiting_polls {
            remote.retain(|_, (last, _)| now.since(*last) < every);
        }
        remote.insert(worker.id.clone(), (now, worker.clone()));
        self.note(Admin::SeeWorker(worker));
    }

    /// Says something of workers with the next batch; not if the store is so slow that notes pile
    /// up.
    fn note(&mut self, command: Admin) {
        if self.pending.admin.len() < self.limits.waiting_admin {
            self.pending.admin.push(Origin::Machine, command);
        }
    }

    /// A worker was asked to stop: if it is this process's own, that is said, once.
    pub(super) fn asked_to_stop(&mut self, id: &WorkerId) {
        if *id == self.worker.id && !self.presence.asked {
            self.presence.asked = true;
            self.effects.push_back(Effect::StopAsked);
        }
    }

    /// Marks the row of the own worker, if there is one: it stops, and takes no more jobs.
    pub(super) fn say_draining(&mut self) {
        if self.presence.every.is_some() && !self.presence.removed {
            self.presence.asked = true;
            self.note(Admin::StopWorker(self.worker.id.clone()));
        }
    }

    /// Removes the row of the own worker, once, at the end; says whether there is something to do.
    pub(super) fn remove_at_end(&mut self) -> bool {
        let registered = self.presence.every.is_some();
        let first = !core::mem::replace(&mut self.presence.removed, registered);
        if registered && first {
            self.remove_own();
        }
        registered && first
    }

    fn remove_own(&mut self) {
        let remove = Admin::RemoveWorker(self.worker.id.clone());
        self.pending.admin.push(Origin::Machine, remove);
    }
}

/// The shortest period of updates of `last_seen`.
const OFTEN: Millis = Millis::new(100);
/// The shortest time between two updates of a demand that changed.
const MIN_DEMAND_UPDATE: Millis = Millis::seconds(1);
