//! The store: commits in transactions, with faults on demand and an image of what a crash leaves.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLockWriteGuard};

use windlass_core::store::{
    Batch, Cause, CommitError, CommitPoint, Durability, LostLease, News, Outcomes, Seal, Store,
    StoreError,
};
use windlass_core::{Apply, ApplyStep, BatchId, LeaseToken, Millis, ProcessId, Wall};

use crate::locks::Holding;
use crate::reader::{MemoryReader, keys_agree};
use crate::tables::Tables;
use crate::transaction::{Asked, Conflict, SharedState, Transaction};

/// How often a commit is tried when other transactions have changed what it found, before it is
/// [`NotCommitted`](CommitError::NotCommitted).
pub const MOST_TRIES: u32 = 20;

/// How a commit is to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing is written, and the answer says so.
    NotCommitted,
    /// Nothing is written, for want of space.
    Full,
    /// The answer is that the outcome is unknown; it was written.
    UnknownCommitted,
    /// The answer is that the outcome is unknown; it was not written.
    UnknownNotCommitted,
    /// The store is unusable from now on; it was written.
    FatalCommitted,
    /// The store is unusable from now on; it was not written, and the caller cannot know.
    FatalNotCommitted,
    /// The store is unusable from now on; the batch never came to its commit.
    FatalBefore,
    /// What is stored cannot be trusted.
    Corrupt,
    /// The answer is that it was committed, but a crash would lose it: a disk whose sync does
    /// nothing. The next honest commit makes it durable after all.
    Unsynced,
}

/// Called from inside [`Store::commit`].
type Hook = Box<dyn FnMut(CommitPoint) + Send>;

/// A store in memory. Handles made by [`MemoryStore::another`] share it, like processes that share
/// a file.
#[derive(Default)]
pub struct MemoryStore {
    shared: Arc<SharedState>,
    faults: VecDeque<Option<Fault>>,
    poisoned: bool,
    seen: u64,
    /// Whether a transaction of this handle has left rows out since it was last asked for news.
    has_skipped: Arc<AtomicBool>,
    hook: Option<Hook>,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// Another handle to the same store, as another process would have it.
    #[must_use]
    pub fn another(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), ..Self::default() }
    }

    /// What a crash at this moment would leave: a store of its own, without transactions.
    #[must_use]
    pub fn crash_image(&self) -> Self {
        let live = self.shared.tables.read().unwrap_or_else(PoisonError::into_inner);
        let durable = self.shared.durable.read().unwrap_or_else(PoisonError::into_inner);
        let image = durable.as_ref().unwrap_or(&*live).clone();
        let image = Self { shared: Arc::new(SharedState::new(image)), ..Self::default() };
        image.hold(self.shared.locks().holding);
        image
    }

    /// Makes the next commit fail like this; a second call makes the one after it fail, and so on.
    pub fn fail_next(&mut self, fault: Fault) {
        self.faults.push_back(Some(fault));
    }

    /// Lets the next commit pass, before those that are to fail.
    pub fn pass_next(&mut self) {
        self.faults.push_back(None);
    }

    /// Lets every commit pass from now on.
    pub fn clear_faults(&mut self) {
        self.faults.clear();
    }

    /// Sets how transactions of this store that begin from now on treat the rows they find.
    pub fn hold(&self, holding: Holding) {
        self.shared.locks().holding = holding;
    }

    /// Calls `hook` at points inside each commit of this handle, where tests let others commit.
    pub fn on_commit(&mut self, hook: impl FnMut(CommitPoint) + Send + 'static) {
        self.hook = Some(Box::new(hook));
    }

    /// Whether the keys by which jobs are found match the rows; every disagreement otherwise.
    pub fn verify(&self) -> Vec<String> {
        keys_agree(&self.shared.tables.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Job rows that commits have read so far: to show that a cost does not grow.
    pub fn rows_read(&self) -> u64 {
        self.tables().rows_read
    }

    /// Rounds of questions that commits have asked so far: to show that one takes few.
    pub fn rounds(&self) -> u64 {
        self.tables().rounds
    }

    fn tables(&self) -> RwLockWriteGuard<'_, Tables> {
        self.shared.tables()
    }

    // Transactions.

    /// Begins a transaction of a process, to be taken through its steps by hand.
    pub fn begin(&self, process: ProcessId) -> Transaction {
        Transaction::new(&self.shared, process, &self.has_skipped)
    }

    /// Ends a transaction whose changes are staged: commits it, or lets it fail.
    pub fn finish(
        &mut self,
        transaction: Transaction,
        outcomes: Outcomes,
        fault: Option<Fault>,
    ) -> Result<Result<Outcomes, CommitError>, Conflict> {
        let Some(fault) = fault else {
            self.apply(transaction)?;
            return Ok(Ok(outcomes));
        };
        let cause = Cause::new(&format!("injected fault: {fault:?}"));
        self.poisoned |= fault.is_fatal();
        match fault {
            Fault::Unsynced => transaction.commit(false)?,
            Fault::UnknownCommitted | Fault::FatalCommitted => self.apply(transaction)?,
            _ => drop(transaction),
        }
        let unknown = Box::new(outcomes);
        Ok(match fault {
            Fault::NotCommitted => Err(CommitError::NotCommitted(cause)),
            Fault::Full => Err(CommitError::Full(cause)),
            Fault::Corrupt => Err(CommitError::Corrupt(cause)),
            Fault::Unsynced => Ok(*unknown),
            Fault::UnknownCommitted | Fault::UnknownNotCommitted => {
                Err(CommitError::Unknown { cause, outcomes: unknown })
            }
            Fault::FatalCommitted | Fault::FatalNotCommitted => {
                Err(CommitError::Fatal { cause, outcomes: Some(unknown) })
            }
            Fault::FatalBefore => Err(CommitError::Fatal { cause, outcomes: None }),
        })
    }

    fn apply(&mut self, transaction: Transaction) -> Result<(), Conflict> {
        let versions = transaction.apply(true)?;
        // One's own commits are no news.
        if self.seen == versions.before {
            self.seen = versions.after;
        }
        Ok(())
    }

    /// Takes a batch through a transaction, up to its commit.
    fn run(&mut self, now: Wall, batch: &Batch) -> Result<(Transaction, Outcomes), Stopped> {
        let mut transaction = self.begin(batch.id.process);
        let (mut apply, mut asked) = Apply::new(batch);
        let changes = loop {
            let releases = self.shared.locks().releases;
            let answers = match transaction.ask(&asked, now) {
                Asked::Answers(answers) => answers,
                Asked::Conflict => return Err(Stopped::Conflict),
                Asked::Deadlock => {
                    drop(transaction);
                    self.pass(CommitPoint::Waiting);
                    self.shared.give_way();
                    return Err(Stopped::Conflict);
                }
                Asked::Wait => {
                    self.pass(CommitPoint::Waiting);
                    self.shared.wait(releases);
                    continue;
                }
            };
            match apply.answer(answers) {
                Ok(ApplyStep::Ask(more)) => asked = more,
                Ok(ApplyStep::Write(changes)) => break changes,
                Err(bad) => return Err(Stopped::Corrupt(Cause::new(&bad.to_string()))),
            }
        };
        self.pass(CommitPoint::Answered);
        transaction.write(changes)?;
        Ok((transaction, apply.finish()))
    }

    /// Refuses a batch for the mark of the store.
    fn check_seal(&self, batch: &Batch) -> Result<(), CommitError> {
        let seal = self.tables().seal().map(|text| Seal::parse(text.as_str()));
        batch.check_seal(seal.as_ref())
    }

    fn pass(&mut self, point: CommitPoint) {
        if let Some(hook) = &mut self.hook {
            hook(point);
        }
    }
}

/// Why a batch did not come to its commit.
enum Stopped {
    /// Another transaction changed what it had found.
    Conflict,
    /// What is stored does not fit what was asked.
    Corrupt(Cause),
}

impl From<Conflict> for Stopped {
    fn from(Conflict: Conflict) -> Self {
        Self::Conflict
    }
}

impl Fault {
    fn is_fatal(self) -> bool {
        matches!(self, Self::FatalCommitted | Self::FatalNotCommitted | Self::FatalBefore)
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { shared, faults, poisoned, seen, .. } = self;
        f.debug_struct("MemoryStore")
            .field("shared", shared)
            .field("faults", faults)
            .field("poisoned", poisoned)
            .field("seen", seen)
            .finish_non_exhaustive()
    }
}

impl Store for MemoryStore {
    type Reader = MemoryReader;

    fn commit(&mut self, now: Wall, batch: &Batch) -> Result<Outcomes, CommitError> {
        if self.poisoned {
            let cause = Cause::new("the store failed before and was not reopened");
            return Err(CommitError::Fatal { cause, outcomes: None });
        }
        let fault = self.faults.pop_front().flatten();
        for _ in 0..MOST_TRIES {
            self.check_seal(batch)?;
            let done = match self.run(now, batch) {
                Ok((transaction, out)) => self.finish(transaction, out, fault),
                Err(Stopped::Conflict) => Err(Conflict),
                Err(Stopped::Corrupt(cause)) => return Err(CommitError::Corrupt(cause)),
            };
            if let Ok(result) = done {
                return result;
            }
        }
        let cause = Cause::new("other transactions changed the same rows each time");
        Err(CommitError::NotCommitted(cause))
    }

    fn was_committed(&mut self, batch: BatchId) -> Result<bool, StoreError> {
        if self.poisoned {
            return Err(StoreError::Fatal(Cause::new("the store was not reopened")));
        }
        if self.shared.locks().has_live(batch.process) {
            return Err(StoreError::Busy(Cause::new("its transaction is not over yet")));
        }
        let tables = self.tables();
        let marker = tables.markers.get(&batch.process);
        Ok(marker.is_some_and(|marker| marker.covers(batch)))
    }

    fn reopen(&mut self) -> Result<(), StoreError> {
        self.poisoned = false;
        Ok(())
    }

    fn durability(&self) -> Durability {
        Durability::Memory
    }

    fn change_check(&self) -> Option<Millis> {
        (Arc::strong_count(&self.shared).max(Arc::strong_count(&self.shared.tables)) > 1)
            .then_some(Millis::new(100))
    }

    fn news(&mut self, held: &[LeaseToken]) -> Result<News, StoreError> {
        let tables = self.tables();
        let version = tables.version;
        let skipped = self.has_skipped.swap(false, Ordering::Relaxed);
        if version == self.seen && !skipped {
            return Ok(News::default());
        }
        let lost = held.iter().filter_map(|token| {
            let job = tables.jobs.get(&token.job);
            LostLease::check(*token, job.map(|job| (job.state.view(), job.epoch)))
        });
        let lost = lost.collect();
        drop(tables);
        self.seen = version;
        Ok(News { wrote: true, lost })
    }

    fn reader(&self) -> Result<MemoryReader, StoreError> {
        Ok(MemoryReader { tables: Arc::clone(&self.shared.tables) })
    }
}

#[cfg(test)]
mod tests {

    use windlass_core::store::{ClaimFor, FigureKey, SlotFigures, Taker};
    use windlass_core::{
        Demand, FigureSet, Kind, NewJob, Payload, Policy, QueueName, Span, WorkerId,
    };

    use super::*;

    #[test]
    fn a_store_in_memory_does_not_claim_to_survive_its_process() {
        assert_eq!(MemoryStore::new().durability(), Durability::Memory);
    }

    /// A claim walked every queue and kind that had jobs, also those with nothing ready.
    #[test]
    fn only_kinds_with_ready_jobs_are_listed_for_claims() {
        let mut store = MemoryStore::new();
        let mut seq = 0;
        let mut commit = |store: &mut MemoryStore, fill: &dyn Fn(&mut Batch)| {
            seq += 1;
            let id = BatchId { process: ProcessId(1), seq };
            let mut batch = Batch::new(id, Policy::default());
            fill(&mut batch);
            store.commit(Wall::new(1), &batch).expect("it commits");
        };
        let job = |queue: usize, kind: &str| {
            let mut new = NewJob::new(Kind::new(kind).expect("a kind"), Payload::null());
            new.queue = QueueName::new(&format!("queue-{queue}")).expect("a name");
            new
        };
        commit(&mut store, &|batch| {
            batch.enqueues = (0..20).map(|queue| job(queue, "a")).collect();
            let taker = Taker { worker: WorkerId::new("w").unwrap(), max: 20, length: None };
            batch.claims = vec![ClaimFor { demand: Demand::ALL, takers: vec![taker] }];
        });
        assert!(store.tables().heads.is_empty(), "all of them run");
        commit(&mut store, &|batch| batch.enqueues = vec![job(3, "a"), job(3, "b"), job(9, "b")]);
        assert_eq!(store.tables().heads.len(), 3);
        assert_eq!(store.verify(), Vec::<String>::new());
    }

    /// An invalid answer ended the process. A store that cannot be trusted is one of the errors
    /// that a commit may give.
    #[test]
    fn a_row_that_cannot_be_read_is_corrupt_and_no_panic() {
        let (process, slot) = (ProcessId(1), Wall::new(0));
        let key = FigureKey { span: Span::Live, slot, process };
        let mut store = MemoryStore::new();
        store.tables().figures.insert(key, b"no figures".to_vec());
        let mut batch = Batch::new(BatchId { process, seq: 1 }, Policy::default());
        batch.figures.push(SlotFigures { slot, figures: FigureSet::default() });
        let result = store.commit(Wall::new(1), &batch);
        assert!(matches!(result, Err(CommitError::Corrupt(_))), "{result:?}");
    }
}
