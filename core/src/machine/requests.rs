//! Requests: admitted and put to the commands that wait for a batch, or refused.

use alloc::vec::Vec;

use super::input::{Answer, Phase, Refused, Request};
use super::pending::Origin;
use super::{Machine, Now};
use crate::RequestId;
use crate::limits::{JOBS_PER_REQUEST, PAGE_ROWS};

impl Machine {
    pub(super) fn request(&mut self, now: Now, id: RequestId, request: Request) {
        if let Err(refused) = self.admit(&request) {
            return self.refuse(id, refused);
        }
        let pending = &mut self.pending;
        match request {
            // Nothing to do needs no commit.
            Request::EnqueueMany(new) if new.is_empty() => {
                self.reply(id, Answer::EnqueuedMany(Vec::new()));
            }
            Request::SettleMany(settles) if settles.is_empty() => {
                self.reply(id, Answer::SettledMany(Vec::new()));
            }
            Request::Enqueue(new) => pending.enqueues.push(Origin::One(id), new),
            Request::EnqueueMany(new) => pending.enqueues.extend(Origin::List(id), new),
            Request::Settle(settle) => pending.settles.push(Origin::One(id), settle),
            Request::SettleMany(settles) => pending.settles.extend(Origin::List(id), settles),
            Request::Heartbeat(heartbeat) => pending.heartbeats.push(Origin::One(id), heartbeat),
            Request::Admin(command) => pending.admin.push(Origin::One(id), command),
            Request::Poll(mut poll) => {
                poll.worker.slots = poll.worker.slots.clamp(1, PAGE_ROWS);
                self.note_remote(now.mono, &poll);
                if !self.demands.add(id, poll, now.mono) {
                    self.stats.ignored += 1;
                }
            }
        }
    }

    fn admit(&self, request: &Request) -> Result<(), Refused> {
        if let Some(cause) = self.store_health.lost_or_reopening() {
            return Err(Refused::Unavailable(cause));
        }
        let report =
            matches!(request, Request::Settle(_) | Request::SettleMany(_) | Request::Heartbeat(_));
        if self.phase() == Phase::Stopped || self.phase() != Phase::Running && !report {
            return Err(Refused::ShuttingDown);
        }
        let (limits, pending) = (&self.limits, &self.pending);
        let reports = pending.settles.len() + pending.heartbeats.len();
        let (what, waiting, more, limit) = match request {
            // The driver bounds how many new jobs wait, here and on their way here.
            Request::Enqueue(_) => return Ok(()),
            Request::EnqueueMany(new) => return many(new.len()),
            Request::Settle(_) | Request::Heartbeat(_) => {
                ("reports of workers", reports, 1, limits.waiting_reports)
            }
            Request::SettleMany(settles) => {
                many(settles.len())?;
                ("reports of workers", reports, settles.len(), limits.waiting_reports)
            }
            Request::Admin(_) => ("commands", pending.admin.len(), 1, limits.waiting_admin),
            Request::Poll(_) => ("polls", self.demands.len(), 1, limits.waiting_polls),
        };
        let full = waiting + more > limit;
        if full { Err(Refused::Overloaded { what, limit }) } else { Ok(()) }
    }
}

fn many(given: usize) -> Result<(), Refused> {
    let limit = JOBS_PER_REQUEST;
    if given > limit { Err(Refused::TooMany { given, limit }) } else { Ok(()) }
}
