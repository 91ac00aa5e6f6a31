//! The contract between the core and a store.
//!
//! A store finds and keeps; it never decides. [`Store::commit`] opens a transaction, hands it to
//! [`apply`](crate::apply()) as a [`Tx`], and makes the result durable. What a batch asks for and
//! what came of it are plain data: [`Batch`] and [`Outcomes`].

mod audit;
mod batch;
mod error;
mod outcome;
mod port;
mod read;

use crate::{BatchId, Millis, Wall};

pub use audit::{Disagreement, Dump, audit};
pub use batch::{
    Admin, Batch, Beat, ClaimFor, DeadFilter, Purge, Reap, Retention, Settle, Taker, Worker,
    WorkerKind,
};
pub use error::{Cause, CommitError, StoreError};
pub use outcome::{
    AdminDone, AdminRefused, Beaten, Change, Claimed, JobRefused, Leased, Outcomes, Promoted,
    Purged, Reaped,
};
pub use port::{Changes, CountDelta, DeadJob, Doc, DocWrite, LeaseCursor, Marker, Moved, Room, Tx};
pub use read::{Cursor, Filter, JobDetail, Page, Reader, WorkerRow};

/// A place where jobs are kept.
///
/// # Durability
///
/// When [`commit`](Store::commit) returns `Ok`, everything the batch did survives a kill of the
/// process and, on a disk whose sync is honest, a power cut. Nothing is acknowledged before.
/// A batch that changed nothing ([`Outcomes::wrote`] is false) needs no sync.
pub trait Store {
    /// What reads beside the writer. It sees committed states only.
    type Reader: Reader;

    /// Runs a batch in one transaction: all of it or nothing, durable on return.
    ///
    /// `now` is the wall clock of the process; a store that several machines share uses its own
    /// clock instead, and says so in [`Outcomes::now`].
    fn commit(&mut self, now: Wall, batch: &Batch) -> Result<Outcomes, CommitError>;

    /// Whether this batch was committed, after [`CommitError::Unknown`].
    ///
    /// The answer is final: after `false` the batch can never become committed.
    fn look(&mut self, batch: BatchId) -> Result<bool, StoreError>;

    /// Opens the store anew after [`CommitError::Fatal`] and verifies it. On return everything
    /// that can be read is durable.
    fn reopen(&mut self) -> Result<(), StoreError>;

    /// What a commit of this store survives. A durable store need not say.
    fn durability(&self) -> Durability {
        Durability::Synced
    }

    /// How often to ask [`changed`](Store::changed), if other processes may write to this store.
    fn change_check(&self) -> Option<Millis> {
        None
    }

    /// Whether another process has committed since the last call.
    fn changed(&mut self) -> Result<bool, StoreError> {
        Ok(false)
    }

    /// A reader of committed states, which may live on another thread.
    fn reader(&self) -> Result<Self::Reader, StoreError>;
}

/// What something that a store has committed survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Durability {
    /// Nothing: it is gone with the process.
    Memory,
    /// A kill of the process and, on a disk whose sync is honest, a power cut.
    Synced,
}
