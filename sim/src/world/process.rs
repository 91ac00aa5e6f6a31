//! A process: a machine, its handle to the store, its clock and its running handlers. It boots,
//! crashes, is suspended, shuts down, and boots again with a new identity.

use std::collections::BTreeSet;

use windlass_core::machine::{
    Config, Health, Input, Limits, Machine, Phase, Request, StoreCall, Wakeup,
};
use windlass_core::store::{Retention, Worker, WorkerKind};
use windlass_core::{
    Demand, Kinds, LeaseLength, LeaseToken, Millis, Now, Policy, ProcessId, Queues, RequestId,
    Wall, WorkerId,
};

use super::World;
use super::behaviour::kind;
use super::call::Call;
use super::event::{Event, Sender, Signal, request_words};
use super::transaction::IDLE_TRANSACTION;
use crate::clock::{FAR_SKEW, MAX_SKEW, ProcessClock, StepDetector};
use crate::disk::Handle;
use crate::faults::Fault;
use crate::invariants::{Quiet, Seen, Steady, Watched, first_violation};
use crate::ledger::IdleReaps;

/// A call of the store that takes longer than this, in ms, is slow.
const SLOW_CALL: u64 = 150;

/// A process number, with the process while it is up.
#[derive(Debug, Default)]
pub(super) struct Process {
    pub(super) up: Option<Box<Up>>,
}

/// A process that is up.
#[derive(Debug)]
pub(super) struct Up {
    pub(super) boot: u64,
    pub(super) machine: Machine,
    pub(super) handle: Handle,
    pub(super) clock: ProcessClock,
    pub(super) worker: WorkerId,
    pub(super) demand: Demand,
    /// Maximum number of jobs at once; an operator may lower it while it runs.
    pub(super) slots: usize,
    pub(super) call: Option<Call>,
    /// When its pending call of the store was made.
    pub(super) called: Option<u64>,
    /// Local runs whose handler runs.
    pub(super) alive: BTreeSet<LeaseToken>,
    /// Local runs whose handler has ended.
    pub(super) ended: BTreeSet<LeaseToken>,
    /// Local runs whose handler was asked to stop.
    pub(super) stopped: BTreeSet<LeaseToken>,
    pub(super) suspended_until: u64,
    pub(super) wake_at: Option<u64>,
    /// The store has failed and was not reopened since.
    pub(super) poisoned: bool,
    /// Steps of the wall clock that it has detected.
    pub(super) step_detector: StepDetector,
    /// The same when it made its last batch, with the reading of the wall clock.
    pub(super) made_with: (StepDetector, Wall),
    pub(super) claimable_since: Option<u64>,
    /// Start of the time in which it has been running and well.
    pub(super) well_since: u64,
    /// The same, also while it drains.
    pub(super) listens_since: u64,
    /// Consecutive reaping commits that have written nothing, and the time of the last.
    pub(super) idle_reaps: (IdleReaps, u64),
}

impl World {
    /// The process, if it is up and was not restarted since boot number `boot`.
    pub(super) fn up(&mut self, at: usize, boot: u64) -> Option<&mut Up> {
        let up = self.processes.get_mut(at)?.up.as_deref_mut()?;
        (up.boot == boot).then_some(up)
    }

    pub(super) fn boot_of(&self, at: usize) -> Option<u64> {
        self.processes.get(at)?.up.as_ref().map(|up| up.boot)
    }

    pub(super) fn boot(&mut self, at: usize) {
        if self.processes[at].up.is_some() || self.closing {
            return;
        }
        let boot = self.next_boot;
        self.next_boot += 1;
        let handle = match self.disk.open() {
            Ok(handle) => handle,
            Err(error) => return self.fail("E5 reopen", error),
        };
        let skew = if self.options.faults.has(Fault::Skew) {
            self.coverage.fault(Fault::Skew);
            let most = if self.options.interleaved { FAR_SKEW } else { MAX_SKEW };
            self.luck.below(2 * most + 1).cast_signed() - most.cast_signed()
        } else {
            0
        };
        let drift = if self.options.faults.has(Fault::Drift) {
            self.coverage.fault(Fault::Drift);
            self.luck.below(1_001).cast_signed() - 500
        } else {
            0
        };
        let config = self.config(at, boot);
        let (worker, demand, slots) =
            (config.worker.id.clone(), config.worker.demand.clone(), config.worker.slots);
        let up = Up {
            boot,
            machine: Machine::new(config),
            handle,
            clock: ProcessClock::new(self.now, skew, drift),
            worker,
            demand,
            slots,
            call: None,
            called: None,
            alive: BTreeSet::new(),
            ended: BTreeSet::new(),
            stopped: BTreeSet::new(),
            suspended_until: 0,
            wake_at: None,
            poisoned: false,
            step_detector: StepDetector::default(),
            made_with: (StepDetector::default(), Wall::default()),
            claimable_since: None,
            well_since: self.now,
            listens_since: self.now,
            idle_reaps: (IdleReaps::default(), 0),
        };
        self.processes[at].up = Some(Box::new(up));
        self.trace.note(&[2, at as u64, boot], || format!("p{at} boots as boot {boot}"));
        self.drive(at);
    }

    fn config(&self, at: usize, boot: u64) -> Config {
        let options = &self.options;
        let id = WorkerId::new(&format!("p{at}-{boot}")).expect("a plain name");
        let worker = Worker::new(id, "sim", WorkerKind::Process);
        let size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let mut config = Config::new(ProcessId(boot), worker, size(options.slots));
        // The first takes every kind, so that every job has a worker that takes it.
        if at % 2 == 1 && options.kinds > 1 {
            config.worker.demand =
                Demand { queues: Queues::All, kinds: Kinds::except(vec![kind(0)]) };
        }
        config.policy = Policy {
            visibility_timeout: LeaseLength::new(options.lease_ms.0).unwrap_or(LeaseLength::MIN),
            idempotency_window: Millis::new(options.window_ms),
            ..Policy::default()
        };
        let age = options.retention_ms.map(Millis::new);
        config.retention = Retention { done: age, failed: age, cancelled: age };
        config.presence = options.presence_ms.map(Millis::new);
        config.change_check = Some(Millis::new(options.change_check_ms));
        let overload = options.faults.has(Fault::Overload);
        let few = |usual: usize| if overload { 2 } else { usual };
        let usual = Limits::default();
        config.limits = Limits {
            batch: size(options.batch),
            page: size(options.page),
            tries: u32::try_from(options.tries).unwrap_or(1),
            waiting_reports: few(usual.waiting_reports),
            waiting_admin: few(usual.waiting_admin),
            waiting_polls: few(usual.waiting_polls),
        };
        config
    }

    /// Kills a process; it boots again after a while.
    pub(super) fn crash(&mut self, at: usize) {
        let Some(mut up) = self.processes[at].up.take() else { return };
        self.trace.note(&[3, at as u64, up.boot], || format!("p{at} is killed"));
        if let Some(Call::Open(open)) = up.call.take() {
            self.abandon(*open);
        }
        drop(up);
        let down = self.luck.range(10, if self.healed.is_some() { 100 } else { 4_000 });
        self.after(down, Event::Boot(at));
    }

    pub(super) fn signal(&mut self, at: usize, boot: u64, signal: Signal) {
        let wall = self.wall.read(self.now);
        let now = self.now;
        let Some(up) = self.up(at, boot) else { return };
        if up.suspended_until > now {
            let left = up.suspended_until - now;
            return self.after(left, Event::Signal(at, boot, signal));
        }
        let input = match signal {
            Signal::Drain(millis) => Input::Drain { deadline: Millis::new(millis) },
            Signal::Force => Input::Force,
        };
        self.trace.note(&[4, at as u64, wall.unsigned_abs()], || format!("p{at} gets {signal:?}"));
        self.handle(at, input);
    }

    /// Reads the clocks of a process, for its machine.
    pub(super) fn read_clocks(&mut self, at: usize) -> Option<Now> {
        let up = self.processes[at].up.as_mut()?;
        let now = up.clock.now(&self.wall, self.now);
        up.step_detector.read(now, self.now);
        Some(now)
    }

    /// Passes an input to a machine, and executes its effects.
    pub(super) fn handle(&mut self, at: usize, input: Input) {
        let Some(now) = self.read_clocks(at) else { return };
        if let Some(up) = self.processes[at].up.as_mut() {
            up.machine.handle(now, input);
        }
        self.drive(at);
    }

    pub(super) fn deliver(&mut self, at: usize, request: RequestId) {
        let Some(up) = self.processes[at].up.as_ref() else {
            // The process is down: the connection is refused, and the client times out.
            self.asks.remove(&request);
            return;
        };
        if up.suspended_until > self.now {
            let left = up.suspended_until - self.now;
            return self.after(left, Event::Deliver(at, request));
        }
        let Some(ask) = self.asks.get(&request) else { return };
        let (who, asked) = (ask.who, ask.request.clone());
        match &asked {
            Request::Enqueue(new) => self.note_sent(new.payload.as_str()),
            Request::EnqueueMany(many) => {
                for new in many {
                    self.note_sent(new.payload.as_str());
                }
            }
            _ => {}
        }
        let gone = matches!(who, Sender::Poll(..)) && self.strikes_at_rate(Fault::LoseReply);
        self.trace.note(&[5, at as u64, request.0], || {
            format!("p{at} is asked by {who}: {}", request_words(&asked))
        });
        self.handle(at, Input::Request(request, asked));
        if gone {
            self.handle(at, Input::Gone(request));
        }
    }

    fn note_sent(&mut self, payload: &str) {
        self.ledger.sent.entry(payload.to_owned()).or_default().delivered += 1;
    }

    pub(super) fn wake(&mut self, at: usize, boot: u64) {
        let now = self.now;
        let Some(up) = self.up(at, boot) else { return };
        if up.wake_at.is_none_or(|wanted| wanted > now) {
            return;
        }
        up.wake_at = None;
        if up.suspended_until > now {
            let left = up.suspended_until - now;
            up.wake_at = Some(up.suspended_until);
            return self.after(left, Event::Wake(at, boot));
        }
        self.drive(at);
    }

    /// Drains the calls and effects of a machine.
    pub(super) fn drive(&mut self, at: usize) {
        loop {
            if !self.do_effects(at) {
                return;
            }
            if !self.take_call(at) {
                break;
            }
        }
        if !self.do_effects(at) {
            return;
        }
        let Some(up) = self.processes[at].up.as_ref() else { return };
        if up.machine.phase() == Phase::Stopped {
            return self.exit(at);
        }
        if matches!(up.machine.health(), Health::Lost(_)) {
            return self.lost(at);
        }
        self.check_quiet(at);
        self.plan_wake(at);
    }

    /// Ends the process of a machine that has stopped. A pending commit may still take place,
    /// whatever its callers were answered.
    fn exit(&mut self, at: usize) {
        let call = self.processes[at].up.as_mut().and_then(|up| up.call.take());
        match call {
            Some(Call::Asked(StoreCall::Commit(batch)))
                if !self.options.interleaved && self.luck.chance(500) =>
            {
                self.trace.note(&[23, at as u64], || format!("p{at} commits while it exits"));
                self.commit(at, batch);
            }
            Some(Call::Open(open)) => self.abandon(*open),
            _ => {}
        }
        let Some(up) = self.processes[at].up.as_ref() else { return };
        let left = up.machine.shutdown_report().left.len() as u64;
        self.trace.note(&[6, at as u64, left], || format!("p{at} has stopped, {left} runs left"));
        if self.closing {
            self.processes[at].up = None;
        } else {
            self.crash(at);
        }
    }

    /// Ends the process of a machine that gave up its store. It may only after a fatal error.
    fn lost(&mut self, at: usize) {
        if !self.options.faults.has(Fault::Corrupt) {
            self.fail(
                "I13 no silent stop",
                format!("p{at} gave up its store without a fatal error"),
            );
        }
        self.crash(at);
    }

    fn plan_wake(&mut self, at: usize) {
        let now = self.now;
        let Some(up) = self.processes[at].up.as_mut() else { return };
        let Some(Wakeup { at: wanted, .. }) = up.machine.poll_timeout() else { return };
        let when = up.clock.when(wanted, now).max(up.suspended_until);
        if up.wake_at.is_none_or(|planned| planned > when || planned < now) {
            up.wake_at = Some(when);
            let boot = up.boot;
            self.after(when - now, Event::Wake(at, boot));
        }
    }

    fn check_quiet(&mut self, at: usize) {
        let now = self.now;
        let slow = self.has_slow_transaction();
        let wall = Wall::new(self.wall.read(now));
        let unclaimed_limit_ms =
            3 * self.options.change_check_ms + 6 * self.options.commit_ms + 3_000;
        let Some(up) = self.processes[at].up.as_mut() else { return };
        if up.call.is_some() {
            return;
        }
        let running = up.machine.phase() == Phase::Running;
        let good = up.machine.health() == Health::Good;
        let demand = &up.demand;
        // Jobs that a slow transaction holds cannot be claimed.
        let good = good && !slow;
        // A suspended process cannot claim.
        let has_claimable_job = running
            && up.suspended_until <= now
            && up.machine.running() < up.machine.slots()
            && self.ledger.has_claimable(wall, |queue, kind| demand.wants(queue, kind));
        // Nor can one whose store fails: it claims nothing until the store has answered.
        let since =
            if has_claimable_job && good { *up.claimable_since.get_or_insert(now) } else { now };
        if !has_claimable_job || !good {
            up.claimable_since = None;
        }
        let leases: BTreeSet<LeaseToken> = up.machine.leases().collect();
        let wakeup = up.machine.poll_timeout();
        let mono = up.clock.now(&self.wall, now).mono;
        let sleeps_ms = wakeup.map_or(u64::MAX, |wakeup| wakeup.at.since(mono).get());
        let quiet = Quiet {
            worker: &up.worker,
            slots: up.slots,
            busy: up.machine.running(),
            alive: &up.alive,
            leases: &leases,
            settled: running && good && up.step_detector.has_begun(),
            wakeup,
            good,
            sleeps_ms,
            has_claimable_job,
            unclaimed_ms: now - since,
            unclaimed_limit_ms,
        };
        let seen = Seen::Quiet(quiet);
        if self.violation.is_none() {
            self.violation = first_violation(&self.ledger, &seen);
        }
    }

    /// Checks that expired leases are reaped, if some process is well. One that waits for the
    /// store, is suspended or shuts down is not required to reap.
    pub(super) fn check_steady(&mut self) {
        let now = self.now;
        for process in &mut self.processes {
            let Some(up) = process.up.as_mut() else { continue };
            let phase = up.machine.phase();
            let well = up.machine.health() == Health::Good
                && up.suspended_until <= now
                && up.called.is_none_or(|called| now - called < SLOW_CALL);
            if !well || phase != Phase::Running {
                up.well_since = now;
            }
            if !well || !matches!(phase, Phase::Running | Phase::Draining) {
                up.listens_since = now;
            }
        }
        let up = self.processes.iter().filter_map(|process| process.up.as_ref());
        let Some(since) = up.map(|up| up.well_since).min() else { return };
        if self.has_slow_transaction() {
            self.held_up = now;
        }
        let since = since.max(self.wall.stepped.unwrap_or(0)).max(self.held_up);
        let wall = Wall::new(self.wall.read(now));
        let options = &self.options;
        let slack_ms = 3 * options.change_check_ms + 100 * options.commit_ms + 5_000;
        let stop_limit_ms = 2 * options.change_check_ms + 20 * options.commit_ms + 1_000;
        self.see(&Seen::Steady(Steady { at: now, since, wall, slack_ms }));
        for up in self.processes.iter().filter_map(|process| process.up.as_ref()) {
            let (since, alive, stopped) = (up.listens_since, &up.alive, &up.stopped);
            let watched = Watched { at: now, since, alive, stopped, stop_limit_ms };
            if self.violation.is_none() {
                self.violation = first_violation(&self.ledger, &Seen::Watched(watched));
            }
        }
    }

    /// Resumes a suspended process.
    pub(super) fn resume(&mut self, at: usize) {
        let (now, sleeps) = (self.now, self.options.mono_sleeps);
        let Some(up) = self.processes[at].up.as_mut() else { return };
        if sleeps {
            up.clock.wake(up.suspended_until.saturating_sub(now));
        }
        up.suspended_until = up.suspended_until.min(now);
    }

    /// Suspends a process.
    pub(super) fn suspend(&mut self, at: usize, millis: u64) {
        let (now, sleeps) = (self.now, self.options.mono_sleeps);
        let Some(up) = self.processes[at].up.as_mut() else { return };
        if up.suspended_until > now {
            return;
        }
        up.suspended_until = now + millis;
        up.claimable_since = None;
        if sleeps {
            up.clock.sleep(millis);
        }
        let boot = up.boot;
        if let Some(Call::Open(open)) = &up.call {
            let seq = open.seq();
            self.after(IDLE_TRANSACTION, Event::CutOff(at, boot, seq));
        }
        self.trace.note(&[7, at as u64, millis], || format!("p{at} is suspended for {millis} ms"));
        if let Some(up) = self.up(at, boot) {
            up.wake_at = Some(now + millis);
        }
        self.after(millis, Event::Wake(at, boot));
    }
}
