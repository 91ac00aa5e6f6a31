//! The dispatcher of a process as a state machine: fed inputs and answers of the store, it says
//! what to commit, whom to answer, what to run and when to be called again. It does no I/O and
//! reads no clock.

mod answer;
mod build;
mod clock;
mod commit;
mod config;
mod demand;
mod drain;
mod input;
mod pending;
mod presence;
mod runs;
mod setback;
mod stats;
mod store_link;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use self::clock::ClockGuard;
use self::commit::Call;
use self::demand::Demands;
use self::drain::Drain;
use self::pending::{Asker, Few, Pending};
use self::presence::Presence;
use self::runs::{Ended, Runs};
use self::store_link::Link;
use crate::limits::{JOBS_PER_REQUEST, PAGE_ROWS, SLOTS};
use crate::store::{Beat, LeaseCursor, Retention, Settle, Worker};
use crate::{
    Demand, Failure, FailureKind, LeaseToken, Millis, Mono, Now, Policy, RequestId, Verdict,
};

pub use config::{Config, Limits};
pub use input::{
    Answer, Effect, Health, Input, Phase, Poll, Refused, Request, Run, ShutdownReport, StopReason,
    StoreCall, WakeReason, Wakeup,
};
pub use stats::Stats;

/// The dispatcher of one process.
///
/// # Driving it
///
/// 1. Give it what has happened: [`handle`](Self::handle) for inputs, `handle_committed` and its
///    siblings for the answers of the store. None of them can fail: what is late, repeated or
///    unknown is counted and ignored.
/// 2. Ask [`poll_store`](Self::poll_store). If there is a call, make it and go to 1 with its
///    answer. There is at most one call at a time; until it is answered, there is no other.
/// 3. Ask [`poll_effect`](Self::poll_effect) until there is none, and do what it says. Effects may
///    come out after any call, also after `poll_store`.
/// 4. If [`phase`](Self::phase) is [`Phase::Stopped`], be done. Otherwise sleep until something
///    happens or [`poll_timeout`](Self::poll_timeout) comes, and go to 1, or straight to 2.
///
/// Waking early, or for nothing, is harmless. `now` never goes back in its monotonic part; its
/// wall part may do as it likes.
///
/// # Durability
///
/// A [`Effect::Reply`] that says something was stored, and a [`Effect::Run`], come out only after
/// the batch they belong to was committed. There is no other mechanism, and none is needed.
///
/// ```
/// use windlass_core::machine::{Config, Effect, Input, Machine, Request, StoreCall};
/// use windlass_core::store::{Store, Worker, WorkerKind};
/// use windlass_core::{Kind, Mono, NewJob, Now, Payload, ProcessId, RequestId, Wall, WorkerId};
///
/// # fn drive(store: &mut impl Store) {
/// let id = WorkerId::new("host-1").unwrap();
/// let worker = Worker::new(id, "host", WorkerKind::Local);
/// let mut machine = Machine::new(Config::new(ProcessId(1), worker, 4));
/// let now = Now::new(Wall::new(0), Mono::new(0));
///
/// let job = NewJob::new(Kind::default(), Payload::null());
/// machine.handle(now, Input::Request(RequestId(1), Request::Enqueue(job)));
/// while let Some(call) = machine.poll_store(now) {
///     let StoreCall::Commit(batch) = call else { break };
///     let result = store.commit(now.wall, &batch);
///     machine.handle_committed(now, batch, result);
/// }
/// while let Some(effect) = machine.poll_effect() {
///     // The job was stored and claimed by one commit: first the reply, then the run.
///     assert!(matches!(effect, Effect::Reply { .. } | Effect::Run(_) | Effect::Changed { .. }));
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct Machine {
    worker: Worker,
    limits: Limits,
    policy: Policy,
    retention: Retention,
    presence: Presence,
    change_check: Option<Millis>,
    process: crate::ProcessId,
    next_seq: u64,

    pending: Pending,
    demands: Demands,
    runs: Runs,
    /// The call of the store that is under way.
    call: Option<Call>,
    call_began: Mono,
    link: Link,
    drain: Drain,
    clock: ClockGuard,
    timers: Timers,
    effects: VecDeque<Effect>,
    stats: Stats,
}

/// When the machine next does something by itself.
#[derive(Debug, Default)]
struct Timers {
    /// Nothing is known about what is due: ask the store.
    refresh: bool,
    due: Option<Mono>,
    expiry: Option<Mono>,
    /// Where the reaper goes on, in the middle of a pass.
    reap_after: Option<LeaseCursor>,
    /// Leases that still run are to be looked at as well, once: a clock may have been set back.
    reap_all: bool,
    /// The reaper has nothing to do before this.
    reap_floor: Mono,
    purge: Mono,
    check: Option<Mono>,
}

impl Machine {
    /// A machine that has yet to hear of its store.
    pub fn new(config: Config) -> Self {
        let start = Mono::default();
        let timers = Timers {
            refresh: true,
            reap_all: true,
            check: config.change_check.map(|_| start),
            ..Timers::default()
        };
        Self {
            limits: config.limits,
            policy: config.policy,
            retention: config.retention,
            presence: Presence::new(config.presence, start),
            change_check: config.change_check,
            process: config.process,
            next_seq: 1,
            pending: Pending::default(),
            demands: Demands::new(config.worker.demand.clone()),
            worker: config.worker,
            runs: Runs::default(),
            call: None,
            call_began: start,
            link: Link::default(),
            drain: Drain::new(config.force_grace),
            clock: ClockGuard::default(),
            timers,
            effects: VecDeque::new(),
            stats: Stats::default(),
        }
    }

    /// Takes in something that has happened.
    pub fn handle(&mut self, now: Now, input: Input) {
        self.advance(now);
        match input {
            Input::Request(id, request) => self.request(now, id, request),
            Input::Gone(id) => {
                if !self.demands.forget(id) {
                    self.stats.ignored += 1;
                }
            }
            Input::Undelivered(tokens) => self.give_back(tokens),
            Input::Report { token, verdict } => self.report(token, Some(verdict)),
            Input::Stopped { token } => self.report(token, None),
            Input::Progress { token, progress } => {
                // A handler may say more than can be written; what is too much is not kept.
                let room = self.pending.beats.len() < self.limits.waiting_reports;
                if room && self.runs.holds(token) && self.link.is_usable() {
                    let beat = Beat { token, extend: None, progress: Some(progress) };
                    self.pending.beats.push(Asker::Local, Few::One(beat));
                } else {
                    self.stats.ignored += 1;
                }
            }
            Input::Changed => self.others_wrote(),
            Input::Slots(slots) => self.set_slots(now, slots),
            Input::Presence(every) => self.set_presence(now, every),
            Input::Policy(policy) => self.policy = policy,
            Input::Retention(retention) => {
                self.retention = retention;
                self.timers.purge = now.mono;
            }
            Input::Drain { deadline } => self.drain(now, deadline),
            Input::Force => self.force(now),
        }
        self.settle_phase();
    }

    /// The next effect, in order.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// How far the shutdown has come.
    pub fn phase(&self) -> Phase {
        self.drain.phase()
    }

    /// What the shutdown has left; complete once the phase is [`Phase::Stopped`].
    pub fn shutdown_report(&self) -> &ShutdownReport {
        self.drain.report()
    }

    /// How the store is doing.
    pub fn health(&self) -> Health {
        self.link.health()
    }

    /// Since when a call of the store has been under way: for a watchdog.
    pub fn call_since(&self) -> Option<Mono> {
        self.call.as_ref().map(|_| self.call_began)
    }

    /// Counters of what this machine has seen.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// How many local jobs may run at once.
    pub fn slots(&self) -> usize {
        self.worker.slots
    }

    /// Local handlers that run right now.
    pub fn running(&self) -> usize {
        self.runs.busy()
    }

    /// The leases this process holds for its slots, until the store has answered their verdicts.
    pub fn leases(&self) -> impl Iterator<Item = LeaseToken> {
        self.runs.tokens()
    }

    /// Everybody's demand: this process's slots, and those who wait for jobs.
    pub fn demands(&self) -> impl Iterator<Item = &Demand> {
        self.demands.all()
    }

    /// When the machine next wants to be called, if nothing happens before.
    pub fn poll_timeout(&self) -> Option<Wakeup> {
        if self.phase() == Phase::Stopped {
            return None;
        }
        let poll = self.demands.next_deadline();
        let poll = poll.map(|at| Wakeup { at, reason: WakeReason::PollTimeout });
        let always = [poll, self.runs.next(), self.drain.wakeup(), self.presence_wakeup()];
        let link = if self.call.is_none() { self.link.wakeup() } else { None };
        let sweeps = self.sweeps().unwrap_or_default();
        always.into_iter().chain([link]).chain(sweeps).flatten().min()
    }

    /// The timers that lead to a call of the store; none while one is under way.
    fn sweeps(&self) -> Option<[Option<Wakeup>; 5]> {
        if self.call.is_some() || !self.link.is_ready() || self.phase() != Phase::Running {
            return None;
        }
        let timers = &self.timers;
        let wake = |at: Option<Mono>, reason| at.map(|at| Wakeup { at, reason });
        let stored = timers.due.into_iter().chain(timers.expiry).min();
        Some([
            wake(timers.due, WakeReason::JobDue),
            wake(timers.expiry, WakeReason::LeaseExpiry),
            wake(Some(timers.purge), WakeReason::Purge),
            wake(timers.check, WakeReason::ChangeCheck),
            wake(stored.map(|_| self.clock.next_look()), WakeReason::ClockCheck),
        ])
    }

    /// Lets time pass.
    fn advance(&mut self, now: Now) {
        while let Some(request) = self.demands.pop_overdue(now.mono) {
            self.reply(request, Answer::Jobs(Vec::new()));
        }
        for (token, reason) in self.runs.advance(now.mono) {
            self.effects.push_back(Effect::Stop { token, reason });
        }
        self.link.advance(now.mono);
        if self.clock.own_step(now) && !self.timers.refresh {
            self.timers.refresh = true;
            self.runs.want_beats(now.mono);
        }
        self.drain_deadlines(now);
    }

    fn reply(&mut self, request: RequestId, answer: Answer) {
        self.effects.push_back(Effect::Reply { request, answer });
    }

    fn refuse(&mut self, request: RequestId, refused: Refused) {
        if matches!(refused, Refused::Overloaded { .. }) {
            self.stats.overloaded += 1;
        }
        self.reply(request, Answer::Refused(refused));
    }

    // Requests.

    fn request(&mut self, now: Now, id: RequestId, request: Request) {
        if let Err(refused) = self.admit(&request) {
            return self.refuse(id, refused);
        }
        let from = Asker::Request(id);
        match request {
            // Nothing to do needs no commit.
            Request::EnqueueMany(new) if new.is_empty() => {
                self.reply(id, Answer::EnqueuedMany(Vec::new()));
            }
            Request::SettleMany(settles) if settles.is_empty() => {
                self.reply(id, Answer::SettledMany(Vec::new()));
            }
            Request::Enqueue(new) => self.pending.enqueues.push(from, Few::One(new)),
            Request::EnqueueMany(new) => self.pending.enqueues.push(from, Few::Many(new)),
            Request::Settle(settle) => self.pending.settles.push(from, Few::One(settle)),
            Request::SettleMany(settles) => self.pending.settles.push(from, Few::Many(settles)),
            Request::Beat(beat) => self.pending.beats.push(from, Few::One(beat)),
            Request::Admin(command) => self.pending.admin.push(from, Few::One(command)),
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
        if let Some(cause) = self.link.lost_or_reopening() {
            return Err(Refused::Unavailable(cause));
        }
        let report =
            matches!(request, Request::Settle(_) | Request::SettleMany(_) | Request::Beat(_));
        if self.phase() == Phase::Stopped || self.phase() != Phase::Running && !report {
            return Err(Refused::ShuttingDown);
        }
        let (limits, pending) = (&self.limits, &self.pending);
        let reports = pending.settles.len() + pending.beats.len();
        let (what, waiting, more, limit) = match request {
            Request::Enqueue(_) | Request::EnqueueMany(_)
                if pending.bytes() > limits.waiting_bytes =>
            {
                ("bytes of new jobs", pending.bytes(), 1, limits.waiting_bytes)
            }
            Request::Enqueue(_) => ("new jobs", pending.enqueues.len(), 1, limits.waiting_jobs),
            Request::EnqueueMany(new) => {
                many(new.len())?;
                ("new jobs", pending.enqueues.len(), new.len(), limits.waiting_jobs)
            }
            Request::Settle(_) | Request::Beat(_) => {
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

    // Local runs.

    /// A local run has ended: by itself with a verdict, or because it was stopped.
    fn report(&mut self, token: LeaseToken, verdict: Option<Verdict>) {
        let Some(ended) = self.runs.end(token) else {
            self.stats.ignored += 1;
            return;
        };
        let verdict = match (ended, verdict) {
            // Nobody wants to hear of a cancelled one: its token is stale already.
            (Ended::Told(StopReason::Cancelled), _) => return self.runs.settled(token),
            (_, Some(verdict)) => verdict,
            (Ended::Told(StopReason::TimedOut), None) => timed_out(),
            (Ended::Told(StopReason::LeaseLost | StopReason::Shutdown) | Ended::ByItself, None) => {
                Verdict::Release
            }
        };
        if self.link.is_usable() {
            let settle = Settle { token, verdict };
            self.pending.settles.push(Asker::Local, Few::One(settle));
        } else {
            self.runs.settled(token);
            self.drain.note_left(token);
        }
    }

    /// Gives back leases that nobody will run.
    fn give_back(&mut self, tokens: Vec<LeaseToken>) {
        let give = |token| Settle { token, verdict: Verdict::Release };
        let settles: Vec<Settle> = tokens.into_iter().map(give).collect();
        if !settles.is_empty() && self.link.is_usable() {
            self.pending.settles.push(Asker::Machine, Few::Many(settles));
        }
    }

    fn stop(&mut self, token: LeaseToken, reason: StopReason, now: Mono) {
        if self.runs.stop(token, reason, now) {
            self.effects.push_back(Effect::Stop { token, reason });
        }
    }

    /// How many local jobs may run at once is another number; whoever reads of this worker learns
    /// it at once.
    fn set_slots(&mut self, now: Now, slots: usize) {
        self.worker.slots = slots.min(SLOTS);
        self.presence.say_now(now.mono);
    }

    /// Another process has written: there may be jobs, and a word for this worker.
    fn others_wrote(&mut self) {
        self.presence.look();
        self.stir_all();
    }

    fn stir_all(&mut self) {
        self.demands.stir_all();
        self.timers.refresh = true;
    }
}

fn many(given: usize) -> Result<(), Refused> {
    let limit = JOBS_PER_REQUEST;
    if given > limit { Err(Refused::TooMany { given, limit }) } else { Ok(()) }
}

/// The verdict on a run that was stopped because it ran too long.
fn timed_out() -> Verdict {
    let failure = Failure::new("stopped: it ran longer than its timeout");
    Verdict::Fail(failure.of_kind(FailureKind::TimedOut).into())
}
