//! The contract between the core and a store.
//!
//! A store finds rows, holds them, and writes what the core decided; it never decides.
//! [`Store::commit`] is a loop around [`Apply`](crate::Apply): answer its [`Questions`], write its
//! [`Changes`], return its [`Outcomes`]. All of these are plain data.

mod answers;
mod audit;
mod batch;
mod bulk;
mod changes;
mod copy;
mod error;
mod figures;
mod instance;
mod news;
mod outcome;
mod questions;
mod read;
mod repair;
mod seal;

use alloc::vec::Vec;
use core::task::Waker;

use crate::bulk::{Step, plan};
use crate::{BatchId, LeaseToken, Millis, Wall};

pub use answers::{
    Answers, BadAnswer, Candidate, Candidates, DeadFound, DeadJob, EmptyQueues, JobPage, KeyFound,
    KindFound, QueueFound,
};
pub use audit::{Audit, Disagreement, Dump, audit};
pub use batch::{
    Admin, Batch, ClaimFor, ClockView, DeadFilter, ExpectedSetting, Heartbeat, Purge, QueueSweep,
    Reap, Retention, Settle, Taker, Worker, WorkerKind,
};
pub use bulk::{BulkAsk, BulkRow};
pub use changes::{ByteBudget, Changes, CountDelta, Doc, DocWrite, Marker, Moved};
pub use copy::{CopyDone, CopyEnd, CopyError, CopyPlace, CopyRows, CopyStep, Copying, PageSize};
pub use error::{Cause, CommitError, StoreError};
pub use figures::{FigureKey, FigurePage, FigureRange, FigureRow, SlotFigures};
pub use instance::Instance;
pub use news::{LostLease, News};
pub use outcome::{
    AdminDone, AdminRefused, Change, Claimed, JobRefused, LeaseExtended, Leased, Next, Outcomes,
    Promoted, Purged, QueuesSwept, Reaped, TooManyQueues,
};
pub(crate) use questions::sorted;
pub use questions::{Admits, DeadPage, ExpiredPage, FinishedPage, IdleGroups, Questions, Want};
pub use read::{Cursor, Filter, JobDetail, Listing, Page, Reader, WorkerRow};
pub use repair::{lost_error, repaired_key, restored_key};
pub use seal::{CopyId, SEAL, Seal, is_seal};

/// A place where jobs are kept.
///
/// # Durability
///
/// When [`commit`](Store::commit) returns `Ok`, everything the batch did survives a kill of the
/// process and, on a disk whose sync is honest, a power cut. Nothing is acknowledged before.
/// A batch that changed nothing ([`Outcomes::wrote`] is false) needs no sync.
///
/// # Many processes
///
/// Several processes may commit to one store at the same time. Each write names the row it
/// replaces ([`Moved::from`]); where that row has changed, the store rolls back and applies the
/// batch again with fresh answers, a bounded number of times. Only when these are used up is a
/// conflict [`NotCommitted`](CommitError::NotCommitted).
///
/// # Marked stores
///
/// A store whose jobs are moved elsewhere has a mark among its settings ([`Seal`]). In the
/// transaction, before anything is applied, a store asks [`Batch::check_seal`] with the mark that
/// is committed at that moment: a batch is never committed behind a mark that it has not seen.
pub trait Store {
    /// Reads committed states beside the writer.
    type Reader: Reader;

    /// Runs a batch in one transaction: all of it or nothing, durable on return.
    ///
    /// `now` is the wall clock of the process. A store that several machines share uses its own
    /// clock instead, read after it holds the rows. [`Outcomes::now`] says which instant was used.
    fn commit(&mut self, now: Wall, batch: &Batch) -> Result<Outcomes, CommitError>;

    /// Whether this batch was committed, after [`CommitError::Unknown`].
    ///
    /// The answer is final: the transaction is known to be over, and after `false` the batch can
    /// never become committed.
    fn was_committed(&mut self, batch: BatchId) -> Result<bool, StoreError>;

    /// Reopens the store after [`CommitError::Fatal`] and verifies it. On return everything that
    /// can be read is durable.
    fn reopen(&mut self) -> Result<(), StoreError>;

    /// What a commit of this store survives. A durable store need not say.
    fn durability(&self) -> Durability {
        Durability::Synced
    }

    /// How often to ask for [`news`](Store::news), if other processes may write to this store.
    fn change_check(&self) -> Option<Millis> {
        None
    }

    /// What other processes have done since the last call. `held` are the leases that this process
    /// runs.
    fn news(&mut self, held: &[LeaseToken]) -> Result<News, StoreError> {
        let _ = held;
        Ok(News::default())
    }

    /// Calls `waker` from now on when another process may have written, from any thread. A hint to
    /// ask for [`news`](Store::news) before the next [`change_check`](Store::change_check): it may
    /// come too often, late or never.
    fn wake_on_news(&mut self, waker: Waker) {
        drop(waker);
    }

    /// The next step of each bulk action, for a batch.
    fn plan_bulk(&mut self) -> Result<Vec<Step>, StoreError> {
        plan(&mut self.reader()?)
    }

    /// A reader of committed states, which may live on another thread.
    fn reader(&self) -> Result<Self::Reader, StoreError>;
}

/// A moment inside [`Store::commit`], for tests that run several commits at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitPoint {
    /// The questions are answered and the rows are held; nothing is written yet.
    Answered,
    /// Another transaction holds what this one needs.
    Waiting,
}

/// What something that a store has committed survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Durability {
    /// Nothing: it is gone with the process.
    Memory,
    /// A kill of the process and, on a disk whose sync is honest, a power cut.
    Synced,
    /// Also the loss of that disk: another machine has confirmed it.
    Replicated,
}
