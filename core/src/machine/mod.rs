//! The dispatcher of a process as a state machine: fed inputs and answers of the store, it says
//! what to commit, whom to answer, what to run and when to be called again. It does no I/O and
//! reads no clock.

mod answer;
mod build;
mod bulk;
mod clock;
mod commit;
mod config;
mod demand;
mod drain;
mod failed_commit;
mod figures;
mod input;
mod pending;
mod presence;
mod requests;
mod runs;
mod stats;
mod store_health;
mod sweep;
mod timers;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use self::bulk::BulkSteps;
use self::clock::ClockGuard;
use self::commit::Call;
use self::demand::Demands;
use self::drain::Drain;
use self::figures::Unwritten;
use self::pending::{Origin, Pending};
use self::presence::Presence;
use self::runs::{Ended, Runs};
use self::store_health::StoreHealth;
use self::sweep::{HOUSEKEEPING, Sweeps};
use self::timers::Timers;
use crate::limits::SLOTS;
use crate::store::{Heartbeat, LostLease, Retention, Settle, Worker};
use crate::{Demand, LeaseToken, Millis, Mono, NewJob, Now, Policy, RequestId, StateName, Verdict};

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
///     assert!(!matches!(effect, Effect::Stop { .. } | Effect::StopAsked));
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
    /// When the store was last asked for news.
    checked_at: Option<Mono>,
    process: crate::ProcessId,
    next_seq: u64,

    pending: Pending,
    demands: Demands,
    runs: Runs,
    /// The call of the store that is under way.
    call: Option<Call>,
    call_began: Mono,
    store_health: StoreHealth,
    drain: Drain,
    clock: ClockGuard,
    timers: Timers,
    sweeps: Sweeps,
    figures: Unwritten,
    bulk: BulkSteps,
    effects: VecDeque<Effect>,
    stats: Stats,
}

impl Machine {
    /// A machine that has not called its store yet.
    pub fn new(config: Config) -> Self {
        let start = Mono::default();
        let mut timers = Timers::default();
        for reason in [WakeReason::JobDue, WakeReason::LeaseExpiry, WakeReason::Purge] {
            timers.set(reason, Some(start));
        }
        timers.set(WakeReason::QueueSweep, Some(start.plus(HOUSEKEEPING)));
        timers.set(WakeReason::ChangeCheck, config.change_check.map(|_| start));
        timers.set(WakeReason::Presence, config.presence.map(|_| start));
        Self {
            limits: config.limits,
            policy: config.policy,
            retention: config.retention,
            presence: Presence::new(config.presence),
            change_check: config.change_check,
            checked_at: None,
            process: config.process,
            next_seq: 1,
            pending: Pending::default(),
            demands: Demands::new(config.worker.demand.clone()),
            worker: config.worker,
            runs: Runs::default(),
            call: None,
            call_began: start,
            store_health: StoreHealth::default(),
            drain: Drain::new(config.stop_grace, config.force_grace),
            clock: ClockGuard::default(),
            timers,
            sweeps: Sweeps::default(),
            figures: Unwritten::default(),
            bulk: BulkSteps::default(),
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
                if !self.demands.remove(id) {
                    self.stats.ignored += 1;
                }
            }
            Input::Undelivered(tokens) => self.give_back(tokens),
            Input::Report { token, verdict } => self.report(token, Some(verdict), None),
            Input::Stopped { token, reason } => self.report(token, None, reason),
            Input::Progress { token, progress } => {
                // A handler may say more than can be written; what is too much is not kept.
                let room = self.pending.heartbeats.len() < self.limits.waiting_reports;
                if room && self.runs.holds(token) && self.store_health.is_usable() {
                    let heartbeat = Heartbeat { token, extend: None, progress: Some(progress) };
                    self.pending.heartbeats.push(Origin::Local, heartbeat);
                } else {
                    self.stats.ignored += 1;
                }
            }
            Input::Changed => self.hinted(now.mono),
            Input::Slots(slots) => self.set_slots(now, slots),
            Input::Presence(every) => self.set_presence(now, every),
            Input::Policy(policy) => self.policy = policy,
            Input::Started => self.note_start(now),
            Input::Gauges(gauges) => self.note_gauges(now, gauges),
            Input::Retention(retention) => {
                self.retention = retention;
                self.timers.set(WakeReason::Purge, Some(now.mono));
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
        self.store_health.health()
    }

    /// Since when a call of the store has been under way: for a watchdog.
    pub fn call_since(&self) -> Option<Mono> {
        self.call.as_ref().map(|_| self.call_began)
    }

    /// Counters of what this machine has seen.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// The new jobs that wait for a batch. Their number and the bytes of their payloads are bounded
    /// by the driver alone, which counts them together with those on their way here.
    pub fn waiting_jobs(&self) -> &[NewJob] {
        self.pending.enqueues.commands()
    }

    /// Maximum number of local jobs at once.
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

    /// All demands: of this process's slots, and of waiting polls.
    pub fn demands(&self) -> impl Iterator<Item = &Demand> {
        self.demands.all()
    }

    /// When the machine next wants to be called, if nothing happens before.
    pub fn poll_timeout(&self) -> Option<Wakeup> {
        if self.phase() == Phase::Stopped {
            return None;
        }
        self.timers.next(|reason| self.counts(reason))
    }

    /// Whether a timer leads to anything now.
    fn counts(&self, reason: WakeReason) -> bool {
        let idle = self.call.is_none();
        let can_sweep = idle && self.store_health.is_ready() && self.phase() == Phase::Running;
        match reason {
            WakeReason::JobDue
            | WakeReason::LeaseExpiry
            | WakeReason::Purge
            | WakeReason::QueueSweep
            | WakeReason::Bulk
            | WakeReason::RateOpens => can_sweep,
            WakeReason::ChangeCheck => idle && self.store_health.is_ready() && self.wants_news(),
            WakeReason::ClockCheck => {
                let stored = [WakeReason::JobDue, WakeReason::LeaseExpiry, WakeReason::RateOpens];
                can_sweep && stored.iter().any(|reason| self.timers.get(*reason).is_some())
            }
            WakeReason::StoreRetry => idle && self.store_health.is_to_be_tried(),
            WakeReason::Figures => {
                idle && self.store_health.is_ready() && !self.store_health.is_full()
            }
            WakeReason::Presence => idle && self.store_health.is_ready() && self.is_present(),
            WakeReason::DrainDeadline => self.phase() == Phase::Draining,
            WakeReason::ForceDeadline => self.phase() == Phase::Forcing,
            WakeReason::Heartbeat
            | WakeReason::LeaseEnd
            | WakeReason::JobTimeout
            | WakeReason::PollTimeout => true,
        }
    }

    /// Whether changes of other processes concern this one. While it drains they do as long as jobs
    /// run here, since another process may cancel them.
    fn wants_news(&self) -> bool {
        match self.phase() {
            Phase::Running => true,
            Phase::Draining => self.runs.running().next().is_some(),
            Phase::Forcing | Phase::Stopped => false,
        }
    }

    /// Sets the timers of what has one each: the earliest run and the earliest poll.
    fn plan_timers(&mut self) {
        let run = self.runs.next();
        for reason in [WakeReason::Heartbeat, WakeReason::LeaseEnd, WakeReason::JobTimeout] {
            let at = run.filter(|wakeup| wakeup.reason == reason).map(|wakeup| wakeup.at);
            self.timers.set(reason, at);
        }
        self.timers.set(WakeReason::PollTimeout, self.demands.next_deadline());
    }

    /// Lets time pass.
    fn advance(&mut self, now: Now) {
        while let Some(request) = self.demands.pop_overdue(now.mono) {
            self.reply(request, Answer::Jobs(Vec::new()));
        }
        for (token, reason) in self.runs.advance(now.mono) {
            self.effects.push_back(Effect::Stop { token, reason });
        }
        self.store_health.advance(now.mono, &self.timers);
        self.timers.set(WakeReason::ClockCheck, Some(now.mono.plus(LONGEST_SLEEP)));
        if self.clock.own_step(now) {
            self.sweep_now();
            self.runs.want_heartbeats(now.mono);
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

    // Local runs.

    /// A local run has ended: by itself with a verdict, or because it was stopped.
    fn report(&mut self, token: LeaseToken, verdict: Option<Verdict>, why: Option<StopReason>) {
        let Some(ended) = self.runs.end(token) else {
            self.stats.ignored += 1;
            return;
        };
        let stopped = match ended {
            Ended::ByItself => None,
            Ended::Stopped(reason) => Some(reason),
        };
        let verdict = match (why.or(stopped), verdict) {
            // The token of a cancelled run is stale already.
            _ if stopped == Some(StopReason::Cancelled) => return self.runs.settled(token),
            (_, Some(verdict)) => verdict,
            (Some(StopReason::Cancelled), None) => return self.runs.settled(token),
            (Some(StopReason::TimedOut), None) => runs::timed_out(),
            (Some(StopReason::LeaseLost), None) => runs::lease_lost(),
            // Only what this process has not run, or ends itself, is not charged.
            (Some(StopReason::Shutdown) | None, None) => Verdict::Release,
        };
        if self.store_health.is_usable() {
            let settle = Settle { token, verdict };
            self.pending.settles.push(Origin::Local, settle);
        } else {
            self.runs.settled(token);
            self.drain.note_left(token);
        }
    }

    /// Gives back leases that will not run.
    fn give_back(&mut self, tokens: Vec<LeaseToken>) {
        let give = |token| Settle { token, verdict: Verdict::Release };
        let settles: Vec<Settle> = tokens.into_iter().map(give).collect();
        if !settles.is_empty() && self.store_health.is_usable() {
            self.pending.settles.extend(Origin::Machine, settles);
        }
    }

    fn stop(&mut self, token: LeaseToken, reason: StopReason, now: Mono) {
        if self.runs.stop(token, reason, now) {
            self.effects.push_back(Effect::Stop { token, reason });
        }
    }

    /// Changes how many local jobs may run at once. The row of this worker is updated at once.
    fn set_slots(&mut self, now: Now, slots: usize) {
        self.worker.slots = slots.min(SLOTS);
        self.say_now(now.mono);
    }

    /// Another process may have written. Where changes are checked for, the next check comes
    /// sooner, but not sooner than [`CHECK_GAP`] after the last one.
    fn hinted(&mut self, now: Mono) {
        if self.change_check.is_none() {
            return self.others_wrote();
        }
        let soonest = self.checked_at.map_or(now, |at| now.max(at.plus(CHECK_GAP)));
        self.timers.bring_forward(WakeReason::ChangeCheck, soonest);
    }

    /// Another process has written: there may be jobs, and this worker may be asked to stop.
    fn others_wrote(&mut self) {
        self.presence.check_mark();
        self.note_ready_all();
    }

    fn note_ready_all(&mut self) {
        self.demands.note_ready_all();
        self.sweep_now();
    }

    /// Another process has taken the lease of a local run away.
    fn lost_lease(&mut self, now: Mono, lost: &LostLease) {
        let cancelled = lost.state == Some(StateName::Cancelled);
        let reason = if cancelled { StopReason::Cancelled } else { StopReason::LeaseLost };
        self.stop(lost.token, reason, now);
    }
}

/// Time between two checks for changes at least, however many hints come: another process may
/// commit thousands of times a second.
const CHECK_GAP: Millis = Millis::new(5);

/// The longest a machine sleeps on a stored instant before it looks at the wall clock again.
const LONGEST_SLEEP: Millis = Millis::minutes(1);
