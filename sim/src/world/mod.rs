//! The world: simulated time, everything that happens in it, and the checks after every step.
//!
//! One seed decides everything. In the first phase things go wrong; then the world heals, and
//! everything that was accepted has to come to its end.

mod behaviour;
mod call;
mod effects;
mod ending;
mod event;
mod foreign;
mod operator;
mod process;
mod producer;
mod remote;
mod transaction;
mod trouble;

use std::collections::BTreeMap;

use windlass_core::machine::Request;
use windlass_core::store::Dump;
use windlass_core::{JobId, RequestId};
use windlass_store_memory::{Holding, Transaction};

use self::event::{Ask, Event, Who};
use self::process::Process;
use self::producer::Wish;
use self::remote::Remote;
use self::transaction::Stray;
use crate::clock::WallClock;
use crate::coverage::Coverage;
use crate::disk::{Disk, StoreKind, nothing};
use crate::faults::Fault;
use crate::invariants::{Image, Seen, Violation, first_violation};
use crate::ledger::Ledger;
use crate::options::Options;
use crate::rng::Rng;
use crate::trace::Trace;

/// A world.
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
    wishes: Vec<Wish>,
    remotes: Vec<Remote>,
    /// Transactions whose process has left them, by number.
    strays: BTreeMap<u64, Stray>,
    next_stray: u64,
    /// Transactions that belong to no process, by number.
    foreign: BTreeMap<u64, Transaction>,
    /// The one of them that lasts until all other jobs are finished, and what it holds.
    held_to_the_end: Option<(u64, Vec<JobId>)>,
    /// How often there was one.
    held_last: u32,
    /// When a transaction was last seen that had held its rows for long.
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

/// What came of a run.
#[derive(Debug)]
pub struct Outcome {
    /// The hash of everything that happened.
    pub hash: u64,
    /// What went wrong, if something did.
    pub violation: Option<Violation>,
    /// What it has seen.
    pub coverage: Coverage,
    /// What happened, if it was to be written down.
    pub lines: Vec<String>,
    /// Everything stored at the end.
    pub dump: Dump,
}

impl Outcome {
    /// A run that did not come to its end.
    pub fn failed(violation: Violation) -> Self {
        let dump = nothing();
        let (hash, coverage, lines) = (0, Coverage::default(), Vec::new());
        Self { hash, violation: Some(violation), coverage, lines, dump }
    }
}

/// More than this is a livelock.
const MOST_EVENTS: u64 = 300_000;

impl World {
    /// The world of these options.
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
            wishes: Vec::new(),
            remotes: Vec::new(),
            strays: BTreeMap::new(),
            next_stray: 1,
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
        self.after(50, Event::Trouble);
        self.after(self.options.millis, Event::Heal);
    }

    /// Lets everything happen, to the end or to the first violation.
    pub fn run(mut self) -> Outcome {
        while self.violation.is_none() {
            let Some(((at, _), event)) = self.upcoming.pop_first() else { break };
            self.now = at;
            self.trace.at(at);
            self.coverage.events += 1;
            if self.coverage.events > MOST_EVENTS {
                self.fail("I13 no silent stop", "things happen without end: a livelock".into());
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
            Event::Land(stray) => self.land(stray),
            Event::Release(number) => self.release_foreign(number),
            Event::Answer(at, boot) => self.answer(at, boot),
            Event::RunEnds(at, boot, token, end) => self.run_ends(at, boot, token, end),
            Event::Signal(at, boot, signal) => self.signal(at, boot, signal),
            Event::Deliver(at, request) => self.deliver(at, request),
            Event::Reply(who, answer) => self.reply(who, *answer),
            Event::Produce(producer) => self.produce(producer),
            Event::GiveUp(wish, tries) => self.give_up(wish, tries),
            Event::Remote(at) => self.remote_looks(at),
            Event::RemoteBeat(at, token) => self.remote_beats(at, token),
            Event::RemoteEnds(at, token) => self.remote_ends(at, token),
            Event::RemoteReport(at, token, tries) => self.remote_reports(at, token, tries),
            Event::Operate => self.operate(),
            Event::Trouble => self.trouble(),
            Event::Heal => self.heal(),
            Event::Look => self.look_around(),
        }
    }

    fn after(&mut self, millis: u64, event: Event) {
        self.upcoming.insert((self.now + millis, self.next_event), event);
        self.next_event += 1;
    }

    // Chance.

    /// Whether a fault comes up on one of its occasions.
    fn strikes(&mut self, fault: Fault, per_mille: u64) -> bool {
        let strikes =
            self.healed.is_none() && self.options.faults.has(fault) && self.luck.chance(per_mille);
        if strikes {
            self.coverage.fault(fault);
            self.trace.note(&[1, fault as u64], || format!("! {}", fault.word()));
        }
        strikes
    }

    /// The same, at the pace of the seed.
    fn strikes_at_rate(&mut self, fault: Fault) -> bool {
        self.strikes(fault, self.options.rate)
    }

    // Messages.

    /// Sends a message to a process; it may be lost, late, or arrive twice.
    fn send(&mut self, to: usize, who: Who, request: &Request) {
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

    /// How long a message takes.
    fn delay(&mut self) -> u64 {
        let usual = self.net.below(self.options.network_ms + 1);
        if self.strikes_at_rate(Fault::Delay) { usual + self.net.below(8_000) } else { usual }
    }

    /// A process to send to, whether it is up or not.
    fn any_process(&mut self) -> usize {
        usize::try_from(self.net.below(self.processes.len() as u64)).unwrap_or(0)
    }

    fn reply(&mut self, who: Who, answer: windlass_core::machine::Answer) {
        match who {
            Who::Producer(wish) => self.producer_hears(wish, &answer),
            Who::Poll(at, serial) => self.remote_gets(at, serial, answer),
            Who::Heartbeat(at, token) => self.remote_heard(at, token, &answer),
            Who::Report(at, token) => self.remote_settled(at, token, &answer),
            Who::Operator => {}
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

    /// Looks at everything that is stored.
    fn audit(&mut self) {
        self.since_audit = 0;
        let dump = self.disk.dump();
        let disagreements = self.disk.disagreements(&dump);
        self.see(&Seen::Image(Image { dump: &dump, disagreements: &disagreements }));
    }

    /// A job, by chance: one that was stored, or that soon may be.
    fn any_job(&mut self) -> JobId {
        let number = self.work.range(1, self.ledger.created + 3);
        JobId::new(number).unwrap_or(JobId::FIRST)
    }
}
