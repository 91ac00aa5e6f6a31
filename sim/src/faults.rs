//! The faults that the simulation injects, by name. Each seed turns on some of them (swarm
//! testing), so that frequent faults do not hide rare ones.

use std::fmt;

use crate::rng::Rng;

macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident = $word:literal,)+) => {
        /// A fault that can be injected.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Fault {
            $($(#[$doc])* $name,)+
        }

        impl Fault {
            /// Every fault.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// The name in options and reports.
            pub fn word(self) -> &'static str {
                match self {
                    $(Self::$name => $word,)+
                }
            }
        }
    };
}

faults! {
    /// A process is killed.
    Crash = "crash",
    /// Every process is killed, and everything that was not durable is lost.
    PowerCut = "power-cut",
    /// A process is killed between two effects.
    CrashAmidEffects = "crash-amid-effects",
    /// A process is killed before its call of the store is made.
    CrashBeforeCommit = "crash-before-commit",
    /// A process is killed in a commit, which takes place or not.
    CrashInCommit = "crash-in-commit",
    /// A process is killed after a commit, before it gets the answer.
    CrashAfterCommit = "crash-after-commit",
    /// A commit does not take place, and the answer says so.
    NotCommitted = "not-committed",
    /// A commit takes place, and its outcome is unknown.
    UnknownCommitted = "unknown-committed",
    /// A commit does not take place, and its outcome is unknown.
    UnknownNotCommitted = "unknown-not-committed",
    /// The store fails with a commit that takes place.
    FatalCommitted = "fatal-committed",
    /// The store fails with a commit that does not take place.
    FatalNotCommitted = "fatal-not-committed",
    /// The store fails before a commit.
    FatalBefore = "fatal-before",
    /// The store says it is corrupt.
    Corrupt = "corrupt",
    /// The disk is full for a while.
    DiskFull = "disk-full",
    /// The store cannot say whether a batch was committed.
    WasCommittedFails = "was-committed-fails",
    /// The store cannot be reopened at once.
    ReopenFails = "reopen-fails",
    /// A process is killed in a transaction, which is rolled back or commits later.
    CrashInTransaction = "crash-in-transaction",
    /// A transaction holds its rows for seconds.
    SlowTransaction = "slow-transaction",
    /// The store ends a waiting transaction as the victim of a deadlock.
    DeadlockVictim = "deadlock-victim",
    /// A transaction of another client holds waiting jobs for seconds, then rolls back.
    ForeignTransaction = "foreign-transaction",
    /// A commit takes place, or not, only after its process got the answer that it is unknown.
    LateCommit = "late-commit",
    /// A commit takes seconds.
    SlowCommit = "slow-commit",
    /// A commit takes longer than leases last.
    StuckCommit = "stuck-commit",
    /// An orderly shutdown.
    Shutdown = "shutdown",
    /// A shutdown that waits for nothing.
    ForcedShutdown = "forced-shutdown",
    /// A second signal at any moment of a shutdown.
    SecondSignal = "second-signal",
    /// Every process is restarted, one after the other.
    RollingRestart = "rolling-restart",
    /// A message to a process is lost.
    LoseRequest = "lose-request",
    /// An answer is lost.
    LoseReply = "lose-reply",
    /// A message arrives twice.
    Duplicate = "duplicate",
    /// A message takes so long that later ones overtake it.
    Delay = "delay",
    /// The wall clock is set forward.
    StepForward = "step-forward",
    /// The wall clock is set back.
    StepBack = "step-back",
    /// The wall clock jumps back and forth by less than a detected step.
    Strobe = "strobe",
    /// A process is suspended for a while.
    Suspend = "suspend",
    /// Processes read different wall clocks: by ms, or by hours if the store has its own.
    Skew = "skew",
    /// Monotonic clocks run too fast or too slow.
    Drift = "drift",
    /// A handler reports an error.
    HandlerFails = "handler-fails",
    /// A handler reports an error that must not be retried.
    HandlerGivesUp = "handler-gives-up",
    /// The panic is reported as a failed attempt.
    HandlerPanics = "handler-panics",
    /// A handler runs until it is stopped.
    HandlerHangs = "handler-hangs",
    /// A handler runs longer than its lease; a remote one stops its heartbeats and reports late.
    HandlerOutlives = "handler-outlives",
    /// A handler snoozes its job.
    HandlerSnoozes = "handler-snoozes",
    /// A handler crashes its process.
    HandlerCrashes = "handler-crashes",
    /// A handler ignores the stop signal.
    IgnoresStop = "ignores-stop",
    /// An operator cancels jobs.
    Cancels = "cancels",
    /// An operator replays jobs.
    Replays = "replays",
    /// An operator deletes jobs.
    Deletes = "deletes",
    /// An operator pauses queues.
    Pauses = "pauses",
    /// An operator sets limits of queues.
    Limits = "limits",
    /// The retention of finished jobs is short.
    Purges = "purges",
    /// Requests arrive faster than a machine with low limits accepts them.
    Overload = "overload",
}

/// One bit per fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FaultSet(u64);

impl FaultSet {
    /// Every fault.
    pub fn all() -> Self {
        Fault::ALL.iter().fold(Self::default(), |set, fault| set.with(*fault))
    }

    /// Adds `fault`.
    #[must_use]
    pub fn with(self, fault: Fault) -> Self {
        Self(self.0 | 1 << fault as u64)
    }

    /// Removes the faults of another set.
    #[must_use]
    pub fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    /// Whether `fault` is in the set.
    pub fn has(self, fault: Fault) -> bool {
        self.0 & 1 << fault as u64 != 0
    }

    /// The faults of the set, in the order of their bits.
    pub fn iter(self) -> impl Iterator<Item = Fault> {
        Fault::ALL.iter().copied().filter(move |fault| self.has(*fault))
    }

    /// Draws the faults of a seed: none, all, or each with the same probability.
    pub fn draw(rng: &mut Rng) -> Self {
        let per_mille = match rng.below(20) {
            0 => return Self::default(),
            1 => return Self::all(),
            n => 250 + 50 * (n % 10),
        };
        let mut set = Self::default();
        for fault in Fault::ALL {
            if rng.chance(per_mille) {
                set = set.with(*fault);
            }
        }
        set
    }

    /// Parses names separated by commas.
    pub fn parse(names: &str) -> Result<Self, String> {
        let mut set = Self::default();
        for name in names.split(',').filter(|name| !name.is_empty()) {
            let fault = Fault::ALL.iter().find(|fault| fault.word() == name);
            set = set.with(*fault.ok_or_else(|| format!("there is no fault {name:?}"))?);
        }
        Ok(set)
    }
}

impl fmt::Display for FaultSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.iter().map(Fault::word).collect();
        f.pad(&names.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_fits_into_a_set_and_has_a_name_of_its_own() {
        assert!(Fault::ALL.len() <= 64);
        assert_eq!(FaultSet::parse(&FaultSet::all().to_string()), Ok(FaultSet::all()));
        assert_eq!(FaultSet::all().iter().count(), Fault::ALL.len());
    }

    #[test]
    fn a_name_that_is_no_fault_is_refused() {
        assert!(FaultSet::parse("crash,gremlins").unwrap_err().contains("gremlins"));
    }
}
