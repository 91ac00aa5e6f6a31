//! What must hold after every step: one file per invariant, and a table of them.
//!
//! An invariant is a function of the ledger and of one thing that was seen. It says what is wrong,
//! or nothing. To add one: a file, a line in the table, and a test in that file which shows it a
//! violation.

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
#[cfg(test)]
mod testing;

use std::collections::BTreeSet;
use std::fmt;

use windlass_core::machine::{Answer, Phase, Request, Run, Wakeup};
use windlass_core::store::{Answers, Batch, Dump, JobDetail};
use windlass_core::{LeaseToken, Wall, WorkerId};

use crate::ledger::{Commit, Ledger};

/// Something that was seen.
#[derive(Debug)]
pub enum Seen<'a> {
    /// A commit took place; the ledger does not hold it yet.
    Commit(&'a Commit<'a>),
    /// The same commit, once the ledger holds it.
    Noted(&'a Commit<'a>),
    /// A transaction was answered; it has committed nothing yet.
    Answered(Answered<'a>),
    /// A machine made a batch.
    Made(Made<'a>),
    /// A machine answers a client.
    Told(Told<'a>),
    /// A machine starts a run on one of its slots.
    Started(Started<'a>),
    /// A machine has nothing to do right now.
    Quiet(Quiet<'a>),
    /// Some process has been well for a while.
    Calm(Calm),
    /// A process has been well for a while.
    Watched(Watched<'a>),
    /// Everything that is stored, or that a crash has left.
    Image(Image<'a>),
}

/// A transaction was answered by the store's own clock.
#[derive(Debug)]
pub struct Answered<'a> {
    /// The answers.
    pub answers: &'a Answers,
    /// When that clock was last set back, in true time.
    pub set_back: Option<u64>,
}

/// A machine made a batch.
#[derive(Debug)]
pub struct Made<'a> {
    /// In which phase.
    pub phase: Phase,
    /// The batch.
    pub batch: &'a Batch,
    /// The local runs whose handler runs.
    pub alive: &'a BTreeSet<LeaseToken>,
    /// The local runs whose handler has ended.
    pub ended: &'a BTreeSet<LeaseToken>,
}

/// A machine answers a client.
#[derive(Debug)]
pub struct Told<'a> {
    /// What was asked.
    pub request: &'a Request,
    /// The answer.
    pub answer: &'a Answer,
    /// Whether its store has failed and was not opened anew since.
    pub poisoned: bool,
    /// What a crash now would leave of the jobs in the answer, if that was looked at.
    pub image: Option<&'a [JobDetail]>,
}

/// A machine starts a run.
#[derive(Debug)]
pub struct Started<'a> {
    /// The run.
    pub run: &'a Run,
    /// The phase it is in.
    pub phase: Phase,
    /// Its slots.
    pub slots: usize,
    /// Those taken before.
    pub alive: &'a BTreeSet<LeaseToken>,
    /// Whether its store has failed and was not opened anew since.
    pub poisoned: bool,
}

/// A machine has nothing to do right now.
#[derive(Debug)]
pub struct Quiet<'a> {
    /// Its worker.
    pub worker: &'a WorkerId,
    /// Its slots.
    pub slots: usize,
    /// How many of them it believes to be taken.
    pub busy: usize,
    /// The local runs whose handler runs.
    pub alive: &'a BTreeSet<LeaseToken>,
    /// The leases it knows to hold.
    pub leases: &'a BTreeSet<LeaseToken>,
    /// Whether it is running, its store is well, and it has heard from it.
    pub settled: bool,
    /// When it wants to be woken.
    pub wakeup: Option<Wakeup>,
    /// How long that is from now.
    pub sleeps_ms: u64,
    /// Whether its store is well.
    pub good: bool,
    /// Whether it has a free slot and there is a job for it.
    pub hungry: bool,
    /// For how long that has been so while its store was well.
    pub hungry_ms: u64,
    /// How long that may be so: until it looks for what others have written.
    pub patience_ms: u64,
}

/// Some process has been running and well for a while.
#[derive(Debug, Clone, Copy)]
pub struct Calm {
    /// What time it is.
    pub at: u64,
    /// Since when it has been well, and no clock was set.
    pub since: u64,
    /// What the wall clock reads.
    pub wall: Wall,
    /// How long it may take to notice that something is due, and to do it.
    pub slack_ms: u64,
}

/// A process that has been running and well for a while.
#[derive(Debug)]
pub struct Watched<'a> {
    /// What time it is.
    pub at: u64,
    /// Since when it has been well.
    pub since: u64,
    /// The local runs whose handler runs.
    pub alive: &'a BTreeSet<LeaseToken>,
    /// Those that were told to stop.
    pub stopped: &'a BTreeSet<LeaseToken>,
    /// How long it may take until a handler is told that its lease is lost.
    pub patience_ms: u64,
}

/// Everything that is stored.
#[derive(Debug)]
pub struct Image<'a> {
    /// All of it.
    pub dump: &'a Dump,
    /// What contradicts itself in it.
    pub disagreements: &'a [String],
}

/// An invariant.
#[derive(Debug)]
pub struct Invariant {
    /// Its number and name.
    pub name: &'static str,
    /// What it says, in a sentence.
    pub says: &'static str,
    /// Says what is wrong, if something is.
    pub check: fn(&Ledger, &Seen<'_>) -> Option<String>,
}

/// A violation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Of which invariant.
    pub rule: &'static str,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.what)
    }
}

macro_rules! table {
    ($($module:ident, $name:literal, $says:literal;)+) => {
        /// Every invariant.
        pub const INVARIANTS: &[Invariant] = &[
            $(Invariant { name: $name, says: $says, check: $module::check },)+
        ];
    };
}

table! {
    i01_durable_ack, "I1 durable ack", "what a client was told is in what a crash now would leave";
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
    i14_clocks, "I14 clocks", "no lease is taken from a holder that was heard in time";
    i15_poison, "I15 poison", "after the store failed nothing is acknowledged until reopened";
    i16_latch, "I16 latch", "a machine that drains claims nothing and releases nothing that runs";
    i17_order, "I17 order", "no job is claimed before a better-ranked one of its queue";
    i18_tokens, "I18 tokens", "no lease token is given out twice";
    i19_store_clock, "I19 store clock", "the store's clock is never behind a row it answered";
    i20_limits, "I20 limits", "nothing starts above a limit or in a paused queue";
    i21_lost_leases, "I21 lost leases", "a handler learns within two checks that its lease is lost";
}

/// The first violation of something seen.
pub fn first_violation(ledger: &Ledger, seen: &Seen<'_>) -> Option<Violation> {
    INVARIANTS.iter().find_map(|invariant| {
        let what = (invariant.check)(ledger, seen)?;
        Some(Violation { rule: invariant.name, what })
    })
}
