//! What must hold after every step: one file per invariant, and a table of them.
//!
//! An invariant is a function of the ledger and of one observation; it returns what is wrong, or
//! `None`. To add one: a file, a line in the table, and a test in that file with a violation.

mod i01_durable_ack;
mod i02_conservation;
mod i03_one_holder;
mod i04_fence;
mod i05_legal_moves;
mod i06_one_verdict;
mod i07_attempts;
mod i08_never_early;
mod i09_derived_data;
mod i10_idempotency;
mod i11_payload;
mod i12_slots;
mod i13_no_silent_stop;
mod i14_clocks;
mod i15_poison;
mod i16_latch;
mod i17_order;
mod i18_tokens;
mod i19_store_clock;
mod i20_limits;
mod i21_lost_leases;
mod i22_bulk;
mod i23_rates;
#[cfg(test)]
mod testing;

use std::collections::BTreeSet;
use std::fmt;

use windlass_core::machine::{Answer, Phase, Request, Run, Wakeup};
use windlass_core::store::{Answers, Batch, Dump, JobDetail};
use windlass_core::{LeaseToken, Wall, WorkerId};

use crate::ledger::{Commit, Ledger};

/// An observation of the world.
#[derive(Debug)]
pub enum Seen<'a> {
    /// A commit took place; it is not in the ledger yet.
    Commit(&'a Commit<'a>),
    /// The same commit, once it is in the ledger.
    Noted(&'a Commit<'a>),
    /// A transaction was answered; it has committed nothing yet.
    Answered(Answered<'a>),
    /// A machine made a batch.
    Made(Made<'a>),
    /// A machine answers a client.
    Replied(Replied<'a>),
    /// A machine starts a run on one of its slots.
    Started(Started<'a>),
    /// A machine has no pending effect or call.
    Quiet(Quiet<'a>),
    /// Some process has been well for a while.
    Steady(Steady),
    /// A process has been well for a while.
    Watched(Watched<'a>),
    /// The whole store, or what a crash has left of it.
    Image(Image<'a>),
}

/// A transaction was answered by the store's own clock.
#[derive(Debug)]
pub struct Answered<'a> {
    /// As the store gave them to `Apply`.
    pub answers: &'a Answers,
    /// When that clock was last set back, in true time.
    pub set_back: Option<u64>,
}

/// A machine made a batch.
#[derive(Debug)]
pub struct Made<'a> {
    /// The phase the machine was in.
    pub phase: Phase,
    /// The batch to be committed next.
    pub batch: &'a Batch,
    /// The local runs whose handler runs.
    pub alive: &'a BTreeSet<LeaseToken>,
    /// The local runs whose handler has ended.
    pub ended: &'a BTreeSet<LeaseToken>,
}

/// A machine answers a client.
#[derive(Debug)]
pub struct Replied<'a> {
    /// As the client sent it.
    pub request: &'a Request,
    /// As the client gets it.
    pub answer: &'a Answer,
    /// Whether its store has failed and was not reopened since.
    pub poisoned: bool,
    /// What a crash now would leave of the jobs in the answer; `None` if it was not read.
    pub image: Option<&'a [JobDetail]>,
}

/// A machine starts a run.
#[derive(Debug)]
pub struct Started<'a> {
    /// The job, its token and its deadlines.
    pub run: &'a Run,
    /// The phase the machine is in.
    pub phase: Phase,
    /// Number of jobs that the worker may run at once.
    pub slots: usize,
    /// Tokens of the runs that have a slot already.
    pub alive: &'a BTreeSet<LeaseToken>,
    /// Whether its store has failed and was not reopened since.
    pub poisoned: bool,
}

/// A machine has nothing to do right now.
#[derive(Debug)]
pub struct Quiet<'a> {
    /// The worker that this process is.
    pub worker: &'a WorkerId,
    /// Number of jobs that the worker may run at once.
    pub slots: usize,
    /// Number of slots in use, as far as the machine knows.
    pub busy: usize,
    /// The local runs whose handler runs.
    pub alive: &'a BTreeSet<LeaseToken>,
    /// The leases that the machine knows it holds.
    pub leases: &'a BTreeSet<LeaseToken>,
    /// Whether it is running, its store is well, and has answered it.
    pub settled: bool,
    /// The wake-up that it has asked for.
    pub wakeup: Option<Wakeup>,
    /// Time until then.
    pub sleeps_ms: u64,
    /// Whether its store is well.
    pub good: bool,
    /// Whether it has a free slot and a claimable job exists.
    pub has_claimable_job: bool,
    /// Time for which that has been so while its store was well.
    pub unclaimed_ms: u64,
    /// Maximum of `unclaimed_ms`: the next change check, and the commit.
    pub unclaimed_limit_ms: u64,
}

/// Some process has been running and well for a while.
#[derive(Debug, Clone, Copy)]
pub struct Steady {
    /// In true time.
    pub at: u64,
    /// Start of the time in which it has been well and no clock was set.
    pub since: u64,
    /// Reading of the wall clock.
    pub wall: Wall,
    /// Maximum time to notice that something is due, and to do it.
    pub slack_ms: u64,
}

/// A process that has been running or draining, and well, for a while.
#[derive(Debug)]
pub struct Watched<'a> {
    /// In true time.
    pub at: u64,
    /// Start of the time in which it has been well.
    pub since: u64,
    /// The local runs whose handler runs.
    pub alive: &'a BTreeSet<LeaseToken>,
    /// Those that got the stop signal.
    pub stopped: &'a BTreeSet<LeaseToken>,
    /// Maximum time until a handler whose lease is lost gets the stop signal.
    pub stop_limit_ms: u64,
}

/// The whole store at one moment.
#[derive(Debug)]
pub struct Image<'a> {
    /// Every row of the store.
    pub dump: &'a Dump,
    /// Contradictions that the audit of the store found.
    pub disagreements: &'a [String],
}

/// A property that must hold at every moment.
#[derive(Debug)]
pub struct Invariant {
    /// Like `I04 fence`.
    pub name: &'static str,
    /// The property in one sentence.
    pub says: &'static str,
    /// Returns the violation, if there is one.
    pub check: fn(&Ledger, &Seen<'_>) -> Option<String>,
}

/// A property that did not hold, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Name of the invariant.
    pub rule: &'static str,
    /// The rows or messages that contradict it.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.what)
    }
}

macro_rules! table {
    ($($module:ident, $name:literal, $says:literal;)+) => {
        /// In the order of their numbers.
        pub const INVARIANTS: &[Invariant] = &[
            $(Invariant { name: $name, says: $says, check: $module::check },)+
        ];
    };
}

table! {
    i01_durable_ack, "I1 durable ack", "what was acknowledged is in what a crash now would leave";
    i02_conservation, "I2 conservation", "every job created is stored or was legally removed";
    i03_one_holder, "I3 one holder", "a lease is given only after the one before it has ended";
    i04_fence, "I4 fence", "only the current token of a running job reports; epochs grow";
    i05_legal_moves, "I5 legal moves", "a job moves as the table of states says";
    i06_one_verdict, "I6 one verdict", "a generation has at most one final verdict";
    i07_attempts, "I7 attempts", "attempts are claims minus give-backs, within their limit";
    i08_never_early, "I8 never early", "nothing is claimed before it is due; backoff in its bounds";
    i09_derived_data, "I9 derived data", "counters, keys and indexes agree with the rows";
    i10_idempotency, "I10 idempotency", "one key, one job; one message, at most one job";
    i11_payload, "I11 payload", "a job runs with the payload it was enqueued with";
    i12_slots, "I12 slots", "leases held are runs in memory, no more than there are slots";
    i13_no_silent_stop, "I13 no silent stop", "work and a free slot do not stay apart";
    i14_clocks, "I14 clocks", "no lease is taken from a holder that sent a heartbeat in time";
    i15_poison, "I15 poison", "after the store failed nothing is acknowledged until reopened";
    i16_latch, "I16 latch", "a machine that drains claims nothing and releases nothing that runs";
    i17_order, "I17 order", "no job is claimed before a better-ranked one of its queue";
    i18_tokens, "I18 tokens", "no lease token is given out twice";
    i19_store_clock, "I19 store clock", "the store's clock is never behind a row it answered";
    i20_limits, "I20 limits", "nothing starts above a limit or in a paused queue";
    i21_lost_leases, "I21 lost leases", "a handler learns within two checks that its lease is lost";
    i22_bulk, "I22 bulk", "bulk actions count what they released, each job that a step took";
    i23_rates, "I23 rates", "every start is charged to its rates, which keep within their bursts";
}

/// Returns the first violation of an observation.
pub fn first_violation(ledger: &Ledger, seen: &Seen<'_>) -> Option<Violation> {
    INVARIANTS.iter().find_map(|invariant| {
        let what = (invariant.check)(ledger, seen)?;
        Some(Violation { rule: invariant.name, what })
    })
}
