//! Effects of a machine: answers are sent, handlers are started and stopped. The process may crash
//! between any two of them.

use windlass_core::machine::{Answer, Effect, Input, Refused, Request, Run};
use windlass_core::store::JobDetail;
use windlass_core::{JobId, LeaseToken, RequestId};

use super::World;
use super::behaviour::Behaviour;
use super::event::{End, Event, Signal, answer_words};
use crate::faults::Fault;
use crate::invariants::{Replied, Seen, Started, first_violation};

impl World {
    /// Executes all effects of a machine. Returns whether its process is still up.
    pub(super) fn do_effects(&mut self, at: usize) -> bool {
        loop {
            let Some(up) = self.processes[at].up.as_mut() else { return false };
            let Some(effect) = up.machine.poll_effect() else { return true };
            match effect {
                Effect::Reply { request, answer } => self.say(at, request, answer),
                Effect::Run { run, .. } => self.start(at, &run),
                Effect::Stop { token, reason } => {
                    self.trace.note(&[15, token.job.get(), token.epoch.get()], || {
                        format!("p{at} stops #{token}: {reason:?}")
                    });
                    up.stopped.insert(token);
                    self.stop(at, token);
                }
                Effect::StopAsked => {
                    let boot = up.boot;
                    self.after(0, Event::Signal(at, boot, Signal::Drain(5_000)));
                }
                Effect::Changed { .. } | Effect::Extended { .. } => {}
            }
            if self.violation.is_some() {
                return false;
            }
            if self.strikes(Fault::CrashAmidEffects, self.options.rate / 8) {
                self.crash(at);
                return false;
            }
        }
    }

    /// Sends an answer.
    fn say(&mut self, at: usize, request: RequestId, answer: Answer) {
        let Some(ask) = self.asks.remove(&request) else {
            let what = format!("request {} was answered twice, or was never made", request.0);
            return self.fail("I1 durable ack", what);
        };
        let words = || format!("p{at} answers {}: {}", ask.who, answer_words(&answer));
        self.trace.note(&[16, request.0, answer_number(&answer)], words);
        self.coverage.answer(&answer);
        let image = self.sampled_image(&answer);
        let poisoned = self.processes[at].up.as_ref().is_some_and(|up| up.poisoned);
        let replied =
            Replied { request: &ask.request, answer: &answer, poisoned, image: image.as_deref() };
        if self.violation.is_none() {
            self.violation = first_violation(&self.ledger, &Seen::Replied(replied));
        }
        self.note_answer(&ask.request, &answer);
        let delay = self.delay();
        if self.strikes_at_rate(Fault::LoseReply) {
            if let Answer::Jobs(runs) = answer
                && self.luck.chance(500)
            {
                let tokens = runs.iter().map(|run| run.job.token()).collect();
                self.undelivered(at, tokens);
            }
            return;
        }
        self.after(delay, Event::Reply(ask.who, Box::new(answer)));
    }

    /// Reports to a process that an answer with jobs did not arrive.
    fn undelivered(&mut self, at: usize, tokens: Vec<LeaseToken>) {
        let Some(now) = self.read_clocks(at) else { return };
        if let Some(up) = self.processes[at].up.as_mut() {
            up.machine.handle(now, Input::Undelivered(tokens));
        }
    }

    /// What a crash now would leave of the jobs in an answer; `None` if this answer is not sampled.
    fn sampled_image(&mut self, answer: &Answer) -> Option<Vec<JobDetail>> {
        let ids: Vec<JobId> = match answer {
            Answer::Enqueued(Ok(receipt)) => vec![receipt.id],
            Answer::EnqueuedMany(many) => many.iter().flatten().map(|one| one.id).collect(),
            _ => return None,
        };
        if !self.work.chance(40) {
            return None;
        }
        let found = self.disk.durable(&ids);
        let lost = ids
            .iter()
            .zip(&found)
            .find(|(id, row)| row.is_none() && self.ledger.row(**id).is_some());
        if let Some((id, _)) = lost {
            let what = format!("#{id} is acknowledged, but a crash now would lose it");
            self.fail("I1 durable ack", what);
        }
        Some(found.into_iter().flatten().collect())
    }

    /// Records the answer about new jobs: acknowledged, refused, or unknown. A request that was
    /// refused, or answered with an earlier job, has stored nothing.
    fn note_answer(&mut self, request: &Request, answer: &Answer) {
        let new = match request {
            Request::Enqueue(new) => std::slice::from_ref(new),
            Request::EnqueueMany(many) => many.as_slice(),
            _ => return,
        };
        for (at, new) in new.iter().enumerate() {
            let result = match answer {
                Answer::Refused(Refused::Unknown(_)) => return,
                Answer::Enqueued(result) => result.as_ref().ok(),
                Answer::EnqueuedMany(results) => {
                    results.get(at).and_then(|result| result.as_ref().ok())
                }
                _ => None,
            };
            let sent = self.ledger.sent.entry(new.payload.as_str().to_owned()).or_default();
            sent.acknowledged |= result.is_some();
            if result.is_none_or(|receipt| receipt.duplicate) {
                sent.delivered = sent.delivered.saturating_sub(1);
            }
            if sent.stored > sent.delivered {
                let what = format!("{:?} was answered as not stored, but was", new.payload);
                return self.fail("I10 idempotency", what);
            }
        }
    }

    // Local runs.

    fn start(&mut self, at: usize, run: &Run) {
        let token = run.job.token();
        self.trace.note(&[17, token.job.get(), token.epoch.get()], || {
            format!("p{at} runs #{token}, attempt {}", run.job.attempts)
        });
        let Some(up) = self.processes[at].up.as_ref() else { return };
        let started = Started {
            run,
            phase: up.machine.phase(),
            slots: up.slots,
            alive: &up.alive,
            poisoned: up.poisoned,
        };
        if self.violation.is_none() {
            self.violation = first_violation(&self.ledger, &Seen::Started(started));
        }
        self.note_execution(token.job);
        let length = run.job.lease().map_or(1_000, |lease| lease.length.get());
        let behaviour = self.behaviour(token, length);
        let boot = self.boot_of(at).unwrap_or(0);
        self.ledger.started.insert(token);
        if let Some(up) = self.processes[at].up.as_mut() {
            up.alive.insert(token);
        }
        match behaviour {
            Behaviour::Hang => {}
            Behaviour::Ends(after, verdict) => {
                self.after(after, Event::RunEnds(at, boot, token, End::Says(verdict)));
            }
            Behaviour::Crash(after) => {
                self.after(after, Event::RunEnds(at, boot, token, End::Crash));
            }
        }
    }

    pub(super) fn note_execution(&mut self, job: JobId) {
        self.coverage.executions += 1;
        if let Some(life) = self.ledger.life_mut(job) {
            life.executions += 1;
        }
    }

    fn stop(&mut self, at: usize, token: LeaseToken) {
        let Some(boot) = self.boot_of(at) else { return };
        let wait = if self.strikes(Fault::IgnoresStop, 100) {
            self.luck.range(2_000, 40_000)
        } else {
            self.work.below(50)
        };
        self.after(wait, Event::RunEnds(at, boot, token, End::Stopped));
    }

    pub(super) fn run_ends(&mut self, at: usize, boot: u64, token: LeaseToken, end: End) {
        let now = self.now;
        let Some(up) = self.up(at, boot) else { return };
        if up.suspended_until > now {
            let left = up.suspended_until - now;
            return self.after(left, Event::RunEnds(at, boot, token, end));
        }
        if !up.alive.remove(&token) {
            return;
        }
        up.ended.insert(token);
        self.trace.note(&[18, token.job.get(), token.epoch.get()], || {
            format!("p{at}: the handler of #{token} ends: {end:?}")
        });
        match end {
            End::Crash => self.crash(at),
            End::Stopped => self.handle(at, Input::Stopped { token, reason: None }),
            End::Says(verdict) => self.handle(at, Input::Report { token, verdict }),
        }
    }

    /// Tokens of the handlers that run in a process, in their order.
    pub(super) fn alive(&self, at: usize) -> Vec<LeaseToken> {
        let up = self.processes[at].up.as_ref();
        up.map(|up| up.alive.iter().copied().collect()).unwrap_or_default()
    }
}

fn answer_number(answer: &Answer) -> u64 {
    match answer {
        Answer::Enqueued(Ok(receipt)) => 1 + receipt.id.get() * 16 + u64::from(receipt.duplicate),
        Answer::Enqueued(Err(_)) => 3,
        Answer::EnqueuedMany(many) => 4 + 16 * many.len() as u64,
        Answer::Settled(Ok(state)) => 5 + 16 * (*state as u64),
        Answer::Settled(Err(_)) => 6,
        Answer::SettledMany(many) => 7 + 16 * many.len() as u64,
        Answer::LeaseExtended(result) => 8 + u64::from(result.is_ok()),
        Answer::Admin(result) => 10 + u64::from(result.is_ok()),
        Answer::Jobs(runs) => 12 + 16 * runs.len() as u64,
        Answer::Refused(_) => 13,
    }
}
