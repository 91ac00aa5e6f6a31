//! The lock table: which transaction holds which row, who waits for whom, and which ids are
//! reserved. Rows that do not exist can be held too.

use std::collections::{BTreeMap, BTreeSet};

use windlass_core::store::FigureKey;
use windlass_core::{GroupId, IdempotencyKey, JobId, ProcessId, QueueName, SettingKey};

/// A transaction, by its number. Later ones have greater numbers.
pub(crate) type TransactionId = u64;

/// What can be held. The order is the one in which a transaction takes its locks.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Resource {
    /// All bulk actions.
    Bulk,
    Job(JobId),
    Key(IdempotencyKey),
    Queue(QueueName),
    Setting(SettingKey),
    Figures(FigureKey),
    Group(GroupId),
}

/// Shared or exclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Others may hold it too, none may change it.
    Shared,
    /// At most one transaction has it.
    Exclusive,
}

/// Why a lock was not given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blocked {
    /// Another transaction holds it.
    Wait,
    /// Another transaction holds it and waits, by way of others or not, for the one that asks.
    Deadlock,
}

/// How a store treats the rows that a transaction has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Holding {
    /// Found rows are locked, and preconditions are checked when the changes are staged.
    #[default]
    Locking,
    /// Found rows are not locked, and preconditions are checked when the changes are committed.
    Optimistic,
}

#[derive(Debug, Default)]
pub(crate) struct Locks {
    pub(crate) holding: Holding,
    /// Grows whenever a transaction ends.
    pub(crate) releases: u64,
    latest: TransactionId,
    held: BTreeMap<Resource, Holders>,
    live: BTreeMap<TransactionId, Live>,
}

#[derive(Debug, Default)]
struct Holders {
    exclusive: Option<TransactionId>,
    shared: BTreeSet<TransactionId>,
}

/// A transaction that is not over.
#[derive(Debug)]
struct Live {
    process: ProcessId,
    held: Vec<(Resource, Mode)>,
    /// The number of these that are in [`Locks::held`]: while no other transaction lives, none
    /// asks who holds what.
    entered: usize,
    waits_for: Option<(Resource, Mode)>,
    /// The greatest job id that was reserved for it.
    reserved: u64,
}

impl Locks {
    /// Begins a transaction of a process.
    pub(crate) fn begin(&mut self, process: ProcessId) -> TransactionId {
        self.enter_all();
        self.latest += 1;
        let live = Live { process, held: Vec::new(), entered: 0, waits_for: None, reserved: 0 };
        self.live.insert(self.latest, live);
        self.latest
    }

    /// Ends a transaction: everything it holds is free.
    pub(crate) fn end(&mut self, by: TransactionId) {
        let Some(live) = self.live.remove(&by) else { return };
        self.releases += 1;
        if self.live.is_empty() {
            self.held.clear();
            return;
        }
        for (resource, _) in live.held {
            let Some(holders) = self.held.get_mut(&resource) else { continue };
            holders.shared.remove(&by);
            holders.exclusive = holders.exclusive.filter(|holder| *holder != by);
            if holders.exclusive.is_none() && holders.shared.is_empty() {
                self.held.remove(&resource);
            }
        }
    }

    /// Whether some transaction is not over.
    pub(crate) fn has_any(&self) -> bool {
        !self.live.is_empty()
    }

    /// Whether some transaction of this process is not over.
    pub(crate) fn has_live(&self, process: ProcessId) -> bool {
        self.live.values().any(|live| live.process == process)
    }

    /// Takes a lock, or says why not. One that has to wait is noted as waiting until it asks again.
    pub(crate) fn take(
        &mut self,
        by: TransactionId,
        resource: Resource,
        mode: Mode,
    ) -> Result<(), Blocked> {
        if let (1, Some(live)) = (self.live.len(), self.live.get_mut(&by)) {
            live.waits_for = None;
            live.held.push((resource, mode));
            return Ok(());
        }
        if self.blockers(by, &resource, mode).is_empty() {
            self.give(by, resource, mode);
            return Ok(());
        }
        if let Some(live) = self.live.get_mut(&by) {
            live.waits_for = Some((resource, mode));
        }
        Err(if self.waits_for_itself(by) { Blocked::Deadlock } else { Blocked::Wait })
    }

    fn give(&mut self, by: TransactionId, resource: Resource, mode: Mode) {
        enter(&mut self.held, by, &resource, mode);
        if let Some(live) = self.live.get_mut(&by) {
            live.waits_for = None;
            live.held.push((resource, mode));
            live.entered = live.held.len();
        }
    }

    /// Enters what was taken while one transaction alone lived.
    fn enter_all(&mut self) {
        for (by, live) in &mut self.live {
            for (resource, mode) in &live.held[live.entered..] {
                enter(&mut self.held, *by, resource, *mode);
            }
            live.entered = live.held.len();
        }
    }

    /// Whether no other transaction holds this.
    pub(crate) fn is_free(&self, by: TransactionId, resource: &Resource) -> bool {
        self.blockers(by, resource, Mode::Exclusive).is_empty()
    }

    /// The other transactions whose locks are in the way.
    fn blockers(&self, by: TransactionId, resource: &Resource, mode: Mode) -> Vec<TransactionId> {
        if self.live.len() == 1 {
            return Vec::new();
        }
        let Some(holders) = self.held.get(resource) else { return Vec::new() };
        let shared = holders.shared.iter().filter(|_| mode == Mode::Exclusive);
        let all = holders.exclusive.iter().chain(shared).copied();
        all.filter(|holder| *holder != by).collect()
    }

    /// Whether a chain of waiting transactions leads from this one back to it.
    fn waits_for_itself(&self, by: TransactionId) -> bool {
        let mut seen = BTreeSet::new();
        let mut next = vec![by];
        while let Some(at) = next.pop() {
            let Some((resource, mode)) = self.live.get(&at).and_then(|live| live.waits_for.clone())
            else {
                continue;
            };
            for blocker in self.blockers(at, &resource, mode) {
                if blocker == by {
                    return true;
                }
                if seen.insert(blocker) {
                    next.push(blocker);
                }
            }
        }
        false
    }

    /// Reserves job ids behind the last one stored and all that are reserved. Returns the first.
    pub(crate) fn reserve(&mut self, by: TransactionId, stored: u64, count: usize) -> u64 {
        let reserved = self.live.values().map(|live| live.reserved).max().unwrap_or(0);
        let before = stored.max(reserved);
        if let Some(live) = self.live.get_mut(&by).filter(|_| count > 0) {
            live.reserved = before.saturating_add(count as u64);
        }
        before.saturating_add(1)
    }
}

fn enter(
    held: &mut BTreeMap<Resource, Holders>,
    by: TransactionId,
    resource: &Resource,
    mode: Mode,
) {
    let holders = held.entry(resource.clone()).or_default();
    match mode {
        Mode::Exclusive => holders.exclusive = Some(by),
        Mode::Shared => {
            holders.shared.insert(by);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(id: u64) -> Resource {
        Resource::Job(JobId::new(id).unwrap())
    }

    fn two() -> (Locks, TransactionId, TransactionId) {
        let mut locks = Locks::default();
        let (one, other) = (locks.begin(ProcessId(1)), locks.begin(ProcessId(2)));
        (locks, one, other)
    }

    #[test]
    fn a_lock_is_given_to_one_transaction_until_it_ends() {
        let (mut locks, one, other) = two();
        assert_eq!(locks.take(one, job(1), Mode::Exclusive), Ok(()));
        assert_eq!(locks.take(one, job(1), Mode::Exclusive), Ok(()), "it holds it already");
        assert_eq!(locks.take(other, job(1), Mode::Shared), Err(Blocked::Wait));
        locks.end(one);
        assert_eq!(locks.take(other, job(1), Mode::Exclusive), Ok(()));
        assert!(!locks.has_live(ProcessId(1)) && locks.has_live(ProcessId(2)));
    }

    #[test]
    fn what_was_taken_while_no_other_transaction_lived_is_held_against_a_later_one() {
        let mut locks = Locks::default();
        let one = locks.begin(ProcessId(1));
        locks.take(one, job(1), Mode::Exclusive).unwrap();
        locks.take(one, job(2), Mode::Shared).unwrap();
        let other = locks.begin(ProcessId(2));
        assert!(!locks.is_free(other, &job(1)) && locks.is_free(other, &job(3)));
        assert_eq!(locks.take(other, job(2), Mode::Shared), Ok(()));
        assert_eq!(locks.take(other, job(1), Mode::Shared), Err(Blocked::Wait));
        locks.end(one);
        locks.take(other, job(4), Mode::Exclusive).unwrap();
        let third = locks.begin(ProcessId(3));
        let free = [1, 2, 4].map(|id| locks.is_free(third, &job(id)));
        assert_eq!(free, [true, false, false]);
    }

    #[test]
    fn shared_locks_keep_out_only_who_wants_it_alone() {
        let (mut locks, one, other) = two();
        assert_eq!(locks.take(one, job(1), Mode::Shared), Ok(()));
        assert_eq!(locks.take(other, job(1), Mode::Shared), Ok(()));
        assert_eq!(locks.take(other, job(1), Mode::Exclusive), Err(Blocked::Wait));
        assert_eq!(locks.take(one, job(1), Mode::Exclusive), Err(Blocked::Deadlock));
        locks.end(one);
        assert_eq!(locks.take(other, job(1), Mode::Exclusive), Ok(()));
    }

    #[test]
    fn the_one_that_closes_a_circle_of_waits_is_the_victim() {
        let (mut locks, one, other) = two();
        locks.take(one, job(1), Mode::Exclusive).unwrap();
        locks.take(other, job(2), Mode::Exclusive).unwrap();
        assert_eq!(locks.take(one, job(2), Mode::Exclusive), Err(Blocked::Wait));
        assert_eq!(locks.take(other, job(1), Mode::Exclusive), Err(Blocked::Deadlock));
        locks.end(other);
        assert_eq!(locks.take(one, job(2), Mode::Exclusive), Ok(()));
    }

    #[test]
    fn ids_are_reserved_once_while_their_transaction_lives() {
        let (mut locks, one, other) = two();
        assert_eq!(locks.reserve(one, 4, 2), 5);
        assert_eq!(locks.reserve(other, 4, 1), 7);
        locks.end(one);
        assert_eq!(locks.reserve(other, 4, 1), 8);
        locks.end(other);
        let third = locks.begin(ProcessId(3));
        assert_eq!(locks.reserve(third, 4, 1), 5, "nothing of it was stored");
    }
}
