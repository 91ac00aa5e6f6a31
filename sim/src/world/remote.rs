//! Remote workers: they poll, run, send heartbeats and report, over a network that loses, delays
//! and repeats messages. One that stops its heartbeats runs on and reports late.

use std::collections::BTreeMap;

use windlass_core::machine::{Answer, Poll, Request, Run};
use windlass_core::store::{Heartbeat, Settle, Worker, WorkerKind};
use windlass_core::{
    Demand, Kinds, LeaseLength, LeaseToken, Millis, QueueName, Queues, Verdict, WorkerId,
};

use super::World;
use super::behaviour::{Behaviour, kind, queue};
use super::event::{Event, Sender};

/// A remote worker.
#[derive(Debug)]
pub(super) struct Remote {
    worker: Worker,
    demand: Demand,
    /// Number of its pending poll.
    polls: u64,
    waiting_until: u64,
    held: BTreeMap<LeaseToken, Held>,
}

/// A job that a remote worker runs.
#[derive(Debug)]
struct Held {
    length: u64,
    /// Whether it still sends heartbeats.
    heartbeats: bool,
    verdict: Option<Verdict>,
}

const MOST_HELD: usize = 3;

impl World {
    pub(super) fn begin_remotes(&mut self) {
        for at in 0..self.options.remotes {
            let demand = self.draw_demand();
            let worker = remote_worker(at, 0);
            let held = BTreeMap::new();
            self.remotes.push(Remote { worker, demand, polls: 0, waiting_until: 0, held });
            let first = self.work.below(500);
            self.after(first, Event::Remote(usize::try_from(at).unwrap_or(0)));
        }
    }

    fn draw_demand(&mut self) -> Demand {
        let queues: Vec<QueueName> = (0..self.options.queues).map(queue).collect();
        let kinds = match self.work.below(3) {
            0 => Kinds::All,
            1 => Kinds::only(vec![kind(0)]),
            _ => Kinds::except(vec![kind(1)]),
        };
        let some = self.work.chance(500);
        Demand { queues: if some { Queues::only(queues) } else { Queues::All }, kinds }
    }

    /// Sends a poll if the worker has room, and schedules the next.
    pub(super) fn remote_looks(&mut self, at: usize) {
        if self.closing {
            return;
        }
        let now = self.now;
        let wait = self.net.below(4_000);
        let to = self.any_process();
        let remote = &mut self.remotes[at];
        if remote.waiting_until <= now && remote.held.len() < MOST_HELD {
            remote.polls += 1;
            remote.waiting_until = now + wait + 3_000;
            let max = MOST_HELD - remote.held.len();
            let length = (at % 2 == 1).then(|| LeaseLength::new(self.options.lease_ms.0).ok());
            let poll = Poll {
                worker: Worker {
                    demand: remote.demand.clone(),
                    slots: max,
                    ..remote.worker.clone()
                },
                wait: Millis::new(wait),
                length: length.flatten(),
            };
            let who = Sender::Poll(at, remote.polls);
            self.send(to, who, &Request::Poll(poll));
        }
        let pause = self.work.range(100, 700);
        self.after(pause, Event::Remote(at));
    }

    pub(super) fn remote_gets(&mut self, at: usize, serial: u64, answer: Answer) {
        let remote = &mut self.remotes[at];
        if remote.polls == serial {
            remote.waiting_until = 0;
        }
        let Answer::Jobs(runs) = answer else { return };
        for run in runs {
            self.remote_starts(at, &run);
        }
    }

    fn remote_starts(&mut self, at: usize, run: &Run) {
        let token = run.job.token();
        if self.remotes[at].held.contains_key(&token) {
            return;
        }
        self.note_execution(token.job);
        let length = run.job.lease().map_or(1_000, |lease| lease.length.get());
        self.trace.note(&[19, at as u64, token.job.get(), token.epoch.get()], || {
            format!("remote {at} runs #{token}")
        });
        let behaviour = self.behaviour(token, length);
        let (ends, verdict) = match behaviour {
            Behaviour::Ends(after, verdict) => (Some(after), Some(verdict)),
            Behaviour::Hang => (None, None),
            Behaviour::Crash(_) => return self.remote_vanishes(at),
        };
        let heartbeats = ends.is_some_and(|after| after < length) || self.net.chance(500);
        self.remotes[at].held.insert(token, Held { length, heartbeats, verdict });
        match ends {
            Some(after) => self.after(after, Event::RemoteEnds(at, token)),
            // Its own worker ends a handler that hangs.
            None => self.after(2 * length, Event::RemoteEnds(at, token)),
        }
        self.after(length / 3, Event::RemoteBeat(at, token));
    }

    /// Replaces a remote worker, with all that it runs, by a new one.
    fn remote_vanishes(&mut self, at: usize) {
        let serial = self.remotes[at].polls + 1;
        self.trace.note(&[20, at as u64], || format!("remote {at} is replaced"));
        let remote = &mut self.remotes[at];
        remote.held.clear();
        (remote.polls, remote.waiting_until) = (serial, 0);
        remote.worker = remote_worker(at as u64, serial);
    }

    pub(super) fn remote_beats(&mut self, at: usize, token: LeaseToken) {
        let Some(held) = self.remotes[at].held.get(&token) else { return };
        if !held.heartbeats {
            return;
        }
        let length = held.length;
        let extend = self.net.chance(50).then(|| LeaseLength::new(length).ok()).flatten();
        let heartbeat = Heartbeat { token, extend, progress: None };
        let to = self.any_process();
        self.send(to, Sender::Heartbeat(at, token), &Request::Heartbeat(heartbeat));
        self.after(length / 3, Event::RemoteBeat(at, token));
    }

    pub(super) fn remote_extended(&mut self, at: usize, token: LeaseToken, answer: &Answer) {
        let lost = matches!(answer, Answer::LeaseExtended(Err(_)));
        // Most drop the work; some go on, and send late reports.
        if lost && self.net.chance(600) {
            self.remotes[at].held.remove(&token);
        }
    }

    pub(super) fn remote_ends(&mut self, at: usize, token: LeaseToken) {
        let Some(held) = self.remotes[at].held.get_mut(&token) else { return };
        held.heartbeats = false;
        if held.verdict.is_none() {
            self.remotes[at].held.remove(&token);
            return;
        }
        self.remote_reports(at, token, 1);
    }

    /// Sends a report; repeated until it is answered, up to a limit.
    pub(super) fn remote_reports(&mut self, at: usize, token: LeaseToken, tries: u32) {
        let Some(held) = self.remotes[at].held.get(&token) else { return };
        let Some(verdict) = held.verdict.clone() else { return };
        if tries > 6 {
            self.remotes[at].held.remove(&token);
            return;
        }
        let to = self.any_process();
        let settle = Settle { token, verdict };
        let request = if self.net.chance(150) {
            Request::SettleMany(vec![settle])
        } else {
            Request::Settle(settle)
        };
        self.send(to, Sender::Report(at, token), &request);
        let wait_ms = self.net.range(200, 3_000);
        self.after(wait_ms, Event::RemoteReport(at, token, tries + 1));
    }

    pub(super) fn remote_settled(&mut self, at: usize, token: LeaseToken, answer: &Answer) {
        if matches!(answer, Answer::Settled(_) | Answer::SettledMany(_)) {
            self.remotes[at].held.remove(&token);
        }
    }

    /// Whether no remote worker holds anything.
    pub(super) fn remotes_idle(&self) -> bool {
        self.remotes.iter().all(|remote| remote.held.is_empty())
    }
}

fn remote_worker(at: u64, serial: u64) -> Worker {
    let id = WorkerId::new(&format!("r{at}-{serial}")).expect("a plain name");
    Worker::new(id, "far", WorkerKind::Remote)
}
