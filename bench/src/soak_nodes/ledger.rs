//! The clients' record of jobs: acknowledged, claimed, settled. It is filled from the servers'
//! answers and webhook calls alone.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

/// Records of the jobs of a run, by number.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// Addresses of the nodes; read for each new connection.
    addresses: RwLock<Vec<SocketAddr>>,
    book: Mutex<Book>,
}

#[derive(Debug, Default)]
struct Book {
    jobs: BTreeMap<u64, Known>,
    tokens: BTreeSet<String>,
    sums: Sums,
}

/// Record of one job.
#[derive(Debug, Default)]
struct Known {
    /// Its id, known from an answer or a claim.
    id: Option<u64>,
    acknowledged: bool,
    /// Verdicts that were accepted, or calls of its webhook.
    settled: u64,
}

/// Counters since the start.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sums {
    pub(super) acknowledged: u64,
    /// Jobs with a verdict, or whose webhook was called.
    pub(super) settled: u64,
    /// Jobs of workers with a second verdict.
    pub(super) verdicts_twice: u64,
    /// Calls of a webhook beside the first, after a node was killed.
    pub(super) calls_again: u64,
    /// Tokens that were given out a second time.
    pub(super) tokens_twice: u64,
    /// Jobs that no client enqueued, or a second job for one key.
    pub(super) unexpected: u64,
    /// Claimed jobs that a worker has dropped without a report.
    pub(super) dropped: u64,
    /// Reports that were refused because the lease was lost.
    pub(super) refused: u64,
    /// Requests that were not answered, or with 503.
    pub(super) unanswered: u64,
    /// Answers that no fault explains.
    pub(super) odd: u64,
}

/// How a job was settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// A worker reported it done and was answered 200.
    Verdict,
    /// A node has called its webhook.
    Call,
}

impl Ledger {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the addresses of the nodes.
    pub(super) fn listen(&self, addresses: Vec<SocketAddr>) {
        *self.addresses.write().unwrap_or_else(PoisonError::into_inner) = addresses;
    }

    /// The address of one node; `number` is taken modulo the nodes.
    pub(super) fn address(&self, number: u64) -> Option<SocketAddr> {
        let addresses = self.addresses.read().unwrap_or_else(PoisonError::into_inner);
        let count = addresses.len() as u64;
        addresses.get(usize::try_from(number.checked_rem(count)?).ok()?).copied()
    }

    /// Adds a record for the next job; returns its number.
    pub(super) fn begin(&self) -> u64 {
        let mut book = self.book();
        let number = book.jobs.len() as u64;
        book.jobs.insert(number, Known::default());
        number
    }

    /// Records an acknowledged enqueue with its id.
    pub(super) fn acknowledge(&self, number: u64, id: u64) {
        let mut book = self.book();
        book.of(number, Some(id), |known, sums| {
            if !std::mem::replace(&mut known.acknowledged, true) {
                sums.acknowledged += 1;
                sums.settled += u64::from(known.settled > 0);
            }
        });
    }

    /// Records a claim with its token.
    pub(super) fn claim(&self, number: u64, id: u64, token: &str) {
        let mut book = self.book();
        if !book.tokens.insert(token.to_owned()) {
            book.sums.tokens_twice += 1;
        }
        book.of(number, Some(id), |_, _| ());
    }

    /// Records that a job was settled.
    pub(super) fn settle(&self, number: u64, end: End) {
        self.book().of(number, None, |known, sums| {
            known.settled += 1;
            match (known.settled, end) {
                (1, _) => sums.settled += u64::from(known.acknowledged),
                (2, End::Verdict) => sums.verdicts_twice += 1,
                (_, End::Verdict) => (),
                (_, End::Call) => sums.calls_again += 1,
            }
        });
    }

    /// Changes the counters.
    pub(super) fn count(&self, count: impl FnOnce(&mut Sums)) {
        count(&mut self.book().sums);
    }

    /// A copy of the counters.
    pub(super) fn sums(&self) -> Sums {
        self.book().sums
    }
}

impl Book {
    fn of(&mut self, number: u64, id: Option<u64>, note: impl FnOnce(&mut Known, &mut Sums)) {
        let Some(known) = self.jobs.get_mut(&number) else {
            self.sums.unexpected += 1;
            return;
        };
        if id.is_some() && known.id.is_some_and(|other| Some(other) != id) {
            self.sums.unexpected += 1;
        }
        known.id = known.id.or(id);
        note(known, &mut self.sums);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_is_acknowledged_and_not_settled_is_missing() {
        let ledger = Ledger::default();
        let [early, late] = [ledger.begin(), ledger.begin()];
        ledger.acknowledge(early, 7);
        ledger.settle(early, End::Verdict);
        ledger.settle(late, End::Verdict);
        assert_eq!((ledger.sums().acknowledged, ledger.sums().settled), (1, 1));
        ledger.acknowledge(late, 8);
        ledger.acknowledge(late, 8);
        assert_eq!((ledger.sums().acknowledged, ledger.sums().settled), (2, 2));
        let open = ledger.begin();
        ledger.acknowledge(open, 9);
        assert_eq!((ledger.sums().acknowledged, ledger.sums().settled), (3, 2));
    }

    #[test]
    fn what_must_not_happen_is_counted() {
        let ledger = Ledger::default();
        let number = ledger.begin();
        ledger.claim(number, 7, "a");
        ledger.claim(number, 7, "a");
        ledger.acknowledge(number, 8);
        ledger.settle(99, End::Call);
        for _ in 0..2 {
            ledger.settle(number, End::Verdict);
        }
        let sums = ledger.sums();
        assert_eq!((sums.tokens_twice, sums.unexpected, sums.verdicts_twice), (1, 2, 1));
    }

    #[test]
    fn a_webhook_may_be_called_again() {
        let ledger = Ledger::default();
        let number = ledger.begin();
        for _ in 0..3 {
            ledger.settle(number, End::Call);
        }
        assert_eq!((ledger.sums().calls_again, ledger.sums().verdicts_twice), (2, 0));
    }
}
