//! Coverage of a batch of runs: how often each fault, legal move and refusal occurred. A batch in
//! which one of them never occurred proves nothing about it: it is invalid, not green.

use std::collections::BTreeMap;

use windlass_core::machine::{Answer, Refused};
use windlass_core::store::{AdminDone, AdminRefused, JobRefused};
use windlass_core::{EnqueueRefused, EventName, Rejected};

use crate::faults::{Fault, FaultSet};

/// The legal moves of a job or a queue, each of which has to occur.
pub const EDGES: [&str; 25] = [
    "enqueue ready",
    "enqueue scheduled",
    "fall due",
    "claim",
    "complete",
    "fail, tried again",
    "fail, attempts used up",
    "fail for good",
    "snooze",
    "release",
    "heartbeat",
    "expire, tried again",
    "expire, attempts used up",
    "lease counts again",
    "cancel waiting",
    "cancel running",
    "cancel again",
    "replay failed",
    "replay cancelled",
    "remove done",
    "remove failed",
    "remove cancelled",
    "verdict repeated",
    "duplicate enqueue",
    "delete queue",
];

/// The refusals that a client can get, each of which has to occur. Those that need thousands of
/// queues or kinds are left to the conformance suite.
pub const REFUSALS: [&str; 17] = [
    "stale verdict",
    "stale heartbeat",
    "cancel finished",
    "replay unfinished",
    "delete unfinished",
    "no such job",
    "delete queue with jobs",
    "settings changed",
    "queue full",
    "idempotency conflict",
    "too far ahead",
    "shutting down",
    "overloaded",
    "too many",
    "store full",
    "unavailable",
    "unknown",
];

/// Kinds of contention between transactions, each of which has to occur.
pub const CONTENTION: [&str; 6] = [
    "lock wait",
    "deadlock victim",
    "conflict retried",
    "skipped row",
    "late commit",
    "was_committed waited",
];

/// Faults that only interleaved commits can have.
const INTERLEAVED: [Fault; 5] = [
    Fault::CrashInTransaction,
    Fault::SlowTransaction,
    Fault::DeadlockVictim,
    Fault::ForeignTransaction,
    Fault::LateCommit,
];

/// Number of occurrences, by name.
#[derive(Debug, Clone, Default)]
pub struct Coverage {
    faults: BTreeMap<Fault, u64>,
    edges: BTreeMap<&'static str, u64>,
    refusals: BTreeMap<&'static str, u64>,
    contention: BTreeMap<&'static str, u64>,
    /// Commits that took place.
    pub commits: u64,
    /// Jobs stored.
    pub jobs: u64,
    /// Handlers started.
    pub executions: u64,
    /// Events of the world that were processed.
    pub events: u64,
    /// Simulated time in ms.
    pub millis: u64,
}

impl Coverage {
    /// Counts an injected fault.
    pub fn fault(&mut self, fault: Fault) {
        *self.faults.entry(fault).or_default() += 1;
    }

    /// Counts a legal move: one of [`EDGES`].
    pub fn edge(&mut self, edge: &'static str) {
        debug_assert!(EDGES.contains(&edge), "{edge} is no edge");
        *self.edges.entry(edge).or_default() += 1;
    }

    /// Counts contention between transactions: one of [`CONTENTION`].
    pub fn contention(&mut self, name: &'static str) {
        debug_assert!(CONTENTION.contains(&name), "{name} is no contention");
        *self.contention.entry(name).or_default() += 1;
    }

    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Self) {
        for (fault, count) in &other.faults {
            *self.faults.entry(*fault).or_default() += count;
        }
        for (edge, count) in &other.edges {
            *self.edges.entry(edge).or_default() += count;
        }
        for (refusal, count) in &other.refusals {
            *self.refusals.entry(refusal).or_default() += count;
        }
        for (name, count) in &other.contention {
            *self.contention.entry(name).or_default() += count;
        }
        self.commits += other.commits;
        self.jobs += other.jobs;
        self.executions += other.executions;
        self.events += other.events;
        self.millis += other.millis;
    }

    /// Counts the refusals in an answer to a client.
    pub fn answer(&mut self, answer: &Answer) {
        match answer {
            Answer::Refused(refused) => self.refusal(refused_name(refused)),
            Answer::Enqueued(Err(refused)) => self.enqueue_refused(refused),
            Answer::EnqueuedMany(many) => {
                for refused in many.iter().filter_map(|one| one.as_ref().err()) {
                    self.enqueue_refused(refused);
                }
            }
            Answer::Settled(Err(refused)) => self.job_refused(refused, "stale verdict"),
            Answer::LeaseExtended(Err(refused)) => self.job_refused(refused, "stale heartbeat"),
            Answer::Admin(Err(AdminRefused::Job(refused))) => {
                self.job_refused(refused, "stale verdict");
            }
            Answer::Admin(Err(AdminRefused::QueueHasJobs { .. })) => {
                self.refusal("delete queue with jobs");
            }
            Answer::Admin(Err(AdminRefused::SettingsChanged(_))) => {
                self.refusal("settings changed");
            }
            Answer::Admin(Ok(AdminDone::QueueDeleted)) => self.edge("delete queue"),
            _ => {}
        }
    }

    fn job_refused(&mut self, refused: &JobRefused, stale: &'static str) {
        let name = match refused {
            JobRefused::NotFound(_) => "no such job",
            JobRefused::Rejected(Rejected::Stale { .. }) => stale,
            JobRefused::Rejected(Rejected::Illegal { event, .. }) => match event {
                EventName::Cancel => "cancel finished",
                EventName::Replay => "replay unfinished",
                EventName::Delete => "delete unfinished",
                _ => return,
            },
            JobRefused::Rejected(_) => return,
        };
        self.refusal(name);
    }

    fn enqueue_refused(&mut self, refused: &EnqueueRefused) {
        let name = match refused {
            EnqueueRefused::QueueFull { .. } => "queue full",
            EnqueueRefused::IdempotencyConflict { .. } => "idempotency conflict",
            EnqueueRefused::TooFarAhead { .. } => "too far ahead",
            EnqueueRefused::TooManyQueues(_) | EnqueueRefused::TooManyKinds { .. } => return,
        };
        self.refusal(name);
    }

    fn refusal(&mut self, name: &'static str) {
        *self.refusals.entry(name).or_default() += 1;
    }

    /// Names that never occurred. Some can occur only where commits are `interleaved`.
    pub fn missing(&self, interleaved: bool) -> Vec<String> {
        let faults = FaultSet::all().iter().filter(|fault| !self.faults.contains_key(fault));
        let faults = faults.filter(|fault| interleaved || !INTERLEAVED.contains(fault));
        let faults = faults.map(|fault| format!("fault {}", fault.word()));
        let edges = EDGES.iter().filter(|edge| !self.edges.contains_key(*edge));
        let refusals = REFUSALS.iter().filter(|name| !self.refusals.contains_key(*name));
        let contention = CONTENTION.iter().filter(|_| interleaved);
        let contention = contention.filter(|name| !self.contention.contains_key(*name));
        faults
            .chain(edges.map(|edge| format!("move {edge}")))
            .chain(refusals.map(|name| format!("refusal {name}")))
            .chain(contention.map(|name| format!("contention {name}")))
            .collect()
    }

    /// Family, name and count of everything that occurred.
    pub fn counts(&self) -> Vec<(&'static str, &'static str, u64)> {
        let faults = self.faults.iter().map(|(fault, count)| ("fault", fault.word(), *count));
        let edges = self.edges.iter().map(|(edge, count)| ("move", *edge, *count));
        let refusals = self.refusals.iter().map(|(name, count)| ("refusal", *name, *count));
        let met = self.contention.iter().map(|(name, count)| ("contention", *name, *count));
        faults.chain(edges).chain(refusals).chain(met).collect()
    }
}

fn refused_name(refused: &Refused) -> &'static str {
    match refused {
        Refused::ShuttingDown => "shutting down",
        Refused::Overloaded { .. } => "overloaded",
        Refused::TooMany { .. } => "too many",
        Refused::StoreFull(_) => "store full",
        Refused::Unavailable(_) => "unavailable",
        Refused::Unknown(_) => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_never_came_up_is_named_until_it_does() {
        let mut coverage = Coverage::default();
        let all = Fault::ALL.len() + EDGES.len() + REFUSALS.len() + CONTENTION.len();
        assert_eq!(coverage.missing(true).len(), all);
        let atomic = all - CONTENTION.len() - INTERLEAVED.len();
        assert_eq!(coverage.missing(false).len(), atomic);
        coverage.edge("claim");
        coverage.fault(Fault::Crash);
        coverage.answer(&Answer::Refused(Refused::ShuttingDown));
        coverage.contention("lock wait");
        assert_eq!(coverage.missing(true).len(), all - 4);
        let mut sum = Coverage::default();
        sum.add(&coverage);
        assert_eq!(sum.missing(true), coverage.missing(true));
    }
}
