//! The world: simulated time, its events, and the checks after every step.
//!
//! One seed decides everything. The first phase has faults; in the second all accepted jobs must
//! finish.

mod behaviour;
mod call;
mod effects;
mod ending;
mod event;
mod faults;
mod foreign;
mod operator;
mod process;
mod producer;
mod remote;
mod transaction;

use std::collections::BTreeMap;

use windlass_core::machine::Request;
use windlass_core::store::Dump;
use windlass_core::{JobId, RequestId};
use windlass_store_memory::{Holding, Transaction};

use self::event::{Ask, Event, Sender};
use self::process::Process;
use self::producer::Submission;
use self::remote::Remote;
use self::transaction::DetachedCommit;
use crate::clock::WallClock;
use crate::coverage::Coverage;
use crate::disk::{Disk, StoreKind, nothing};
use crate::faults::Fault;
use crate::invariants::{Image, Seen, Violation, first_violation};
use crate::ledger::Ledger;
use crate::options::Options;
use crate::rng::Rng;
use crate::trace::Trace;

/// The processes, clients, clocks and disk of one run, and the queue of their events.
#[derive(Debug)]
pub struct World {
    options: Options,
    now: u64,
    upcoming: BTreeMap<(u64, u64), Event>,
    next_event: u64,
    wall: WallClock,
    disk: Disk,
    processes: Vec<Process>,
    next_boot: u64,
    asks: BTreeMap<RequestId, Ask>,
    next_request: u64,
    submissions: Vec<Submission>,
    remotes: Vec<Remote>,
    /// Transactions whose process is gone, by number.
    detached: BTreeMap<u64, DetachedCommit>,
    next_transaction: u64,
    /// Transactions of another client, by number.
    foreign: BTreeMap<u64, Transaction>,
    /// The one of them that lasts until all other jobs are finished, and the jobs that it locks.
    held_to_the_end: Option<(u64, Vec<JobId>)>,
    /// Number of such transactions so far.
    held_last: u32,
    /// When a transaction was last seen that had locked rows for long, in true time.
    held_up: u64,
    ledger: Ledger,
    trace: Trace,
    coverage: Coverage,
    violation: Option<Violation>,
    healed: Option<u64>,
    closing: bool,
    full_until: u64,
    since_audit: u64,
    work: Rng,
    luck: Rng,
    net: Rng,
}

/// The result of a run.
#[derive(Debug)]
pub struct Outcome {
    /// Hash of the trace.
    pub hash: u64,
    /// The first violation.
    pub violation: Option<Violation>,
    /// Faults, states and refusals that occurred.
    pub coverage: Coverage,
    /// Lines of the trace; empty unless the text was asked for.
    pub lines: Vec<String>,
    /// Everything stored at the end.
    pub dump: Dump,
}

impl Outcome {
    /// The outcome of a run that was ended by a violation outside of the world.
    pub fn failed(violation: Violation) -> Self {
        let dump = nothing();
        let (hash, coverage, lines) = (0, Coverage::default(), Vec::new());
        Self { hash, violation: Some(violation), coverage, lines, dump }
    }
}

/// A run with more events than this is a livelock.
const MOST_EVENTS: u64 = 300_000;

impl World {
    /// Builds the world with its store; fails if the store cannot be opened.
    pub fn new(options: Options, store: StoreKind, with_text: bool) -> Result<Self, String> {
        let seed = options.seed;
        let holding = if options.optimistic { Holding::Optimistic } else { Holding::Locking };
        let mut world = Self {
            now: 0,
            upcoming: BTreeMap::new(),
            next_event: 0,
            wall: WallClock::default(),
            disk: Disk::new(store, holding)?,
            processes: Vec::new(),
            next_boot: 1,
            asks: BTreeMap::new(),
            next_request: 1,
            submissions: Vec::new(),
            remotes: Vec::new(),
            detached: BTreeMap::new(),
            next_transaction: 1,
            foreign: BTreeMap::new(),
            held_to_the_end: None,
            held_last: 0,
            held_up: 0,
            ledger: Ledger::default(),
            trace: Trace::new(with_text),
            coverage: Coverage::default(),
            violation: None,
            healed: None,
            closing: false,
            full_until: 0,
            since_audit: 0,
            work: Rng::new(seed, 1),
            luck: Rng::new(seed, 2),
            net: Rng::new(seed, 3),
            options,
        };
        world.begin();
        Ok(world)
    }

    fn begin(&mut self) {
        for index in 0..self.options.processes {
            let index = usize::try_from(index).unwrap_or(0);
            self.processes.push(Process::default());
            let at = self.work.below(50);
            self.after(at, Event::Boot(index));
        }
        self.begin_producers();
        self.begin_remotes();
        self.after(100, Event::Operate);
        self.after(50, Event::Faults);
        self.after(self.options.millis, Event::Heal);
    }

    /// Processes events until the end or the first violation.
    pub fn run(mut self) -> Outcome {
        while self.violation.is_none() {
            let Some(((at, _), event)) = self.upcoming.pop_first() else { break };
            self.now = at;
            self.trace.at(at);
            self.coverage.events += 1;
            if self.coverage.events > MOST_EVENTS {
                self.fail(
                    "I13 no silent stop",
                    format!("more than {MOST_EVENTS} events: a livelock"),
                );
                break;
            }
            self.happen(event);
        }
        self.coverage.millis = self.now;
        self.coverage.jobs = self.ledger.created;
        let dump = self.disk.dump();
        Outcome {
            hash: self.trace.hash(),
            violation: self.violation,
            coverage: self.coverage,
            lines: self.trace.lines().to_vec(),
            dump,
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Boot(at) => self.boot(at),
            Event::Wake(at, boot) => self.wake(at, boot),
            Event::Execute(at, boot) => self.execute(at, boot),
            Event::Step(at, boot) => self.step(at, boot),
            Event::CutOff(at, boot, seq) => self.cut_off(at, boot, seq),
            Event::Land(detached) => self.land(detached),
            Event::Release(number) => self.release_foreign(number),
            Event::Answer(at, boot) => self.answer(at, boot),
            Event::RunEnds(at, boot, token, end) => self.run_ends(at, boot, token, end),
            Event::Signal(at, boot, signal) => self.signal(at, boot, signal),
            Event::Deliver(at, request) => self.deliver(at, request),
            Event::Reply(who, answer) => self.reply(who, *answer),
            Event::Produce(producer) => self.produce(producer),
            Event::GiveUp(submission, tries) => self.give_up(submission, tries),
            Event::Remote(at) => self.remote_looks(at),
            Event::RemoteBeat(at, token) => self.remote_beats(at, token),
            Event::RemoteEnds(at, token) => self.remote_ends(at, token),
            Event::RemoteReport(at, token, tries) => self.remote_reports(at, token, tries),
            Event::Operate => self.operate(),
            Event::Faults => self.strike_faults(),
            Event::Heal => self.heal(),
            Event::Look => self.look_around(),
        }
    }

    fn after(&mut self, millis: u64, event: Event) {
        self.upcoming.insert((self.now + millis, self.next_event), event);
        self.next_event += 1;
    }

    // Random decisions.

    /// Draws whether a fault occurs on one of its occasions.
    fn strikes(&mut self, fault: Fault, per_mille: u64) -> bool {
        let strikes =
            self.healed.is_none() && self.options.faults.has(fault) && self.luck.chance(per_mille);
        if strikes {
            self.coverage.fault(fault);
            self.trace.note(&[1, fault as u64], || format!("! {}", fault.word()));
        }
        strikes
    }

    /// The same, with the rate of the seed.
    fn strikes_at_rate(&mut self, fault: Fault) -> bool {
        self.strikes(fault, self.options.rate)
    }

    // Messages.

    /// Sends a message to a process; it may be lost, late, or arrive twice.
    fn send(&mut self, to: usize, who: Sender, request: &Request) {
        let copies = if self.strikes_at_rate(Fault::Duplicate) { 2 } else { 1 };
        for _ in 0..copies {
            if self.strikes_at_rate(Fault::LoseRequest) {
                continue;
            }
            let id = RequestId(self.next_request);
            self.next_request += 1;
            self.asks.insert(id, Ask { who, request: request.clone() });
            let delay = self.delay();
            self.after(delay, Event::Deliver(to, id));
        }
    }

    /// Draws the delay of a message.
    fn delay(&mut self) -> u64 {
        let usual = self.net.below(self.options.network_ms + 1);
        if self.strikes_at_rate(Fault::Delay) { usual + self.net.below(8_000) } else { usual }
    }

    /// Draws a process to send to, whether it is up or not.
    fn any_process(&mut self) -> usize {
        usize::try_from(self.net.below(self.processes.len() as u64)).unwrap_or(0)
    }

    fn reply(&mut self, who: Sender, answer: windlass_core::machine::Answer) {
        match who {
            Sender::Producer(submission) => self.producer_answered(submission, &answer),
            Sender::Poll(at, serial) => self.remote_gets(at, serial, answer),
            Sender::Heartbeat(at, token) => self.remote_extended(at, token, &answer),
            Sender::Report(at, token) => self.remote_settled(at, token, &answer),
            Sender::Operator => {}
        }
    }

    // Checks.

    fn see(&mut self, seen: &Seen<'_>) {
        if self.violation.is_none() {
            self.violation = first_violation(&self.ledger, seen);
        }
    }

    fn fail(&mut self, rule: &'static str, what: String) {
        self.violation.get_or_insert(Violation { rule, what });
    }

    /// Reads the whole store and checks it.
    fn audit(&mut self) {
        self.since_audit = 0;
        let dump = self.disk.dump();
        let disagreements = self.disk.disagreements(&dump);
        self.see(&Seen::Image(Image { dump: &dump, disagreements: &disagreements }));
    }

    /// Draws the id of a job that was stored, or soon may be.
    fn any_job(&mut self) -> JobId {
        let number = self.work.range(1, self.ledger.created + 3);
        JobId::new(number).unwrap_or(JobId::FIRST)
    }
}
