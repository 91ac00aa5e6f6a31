//! The store on redb: jobs in one file of one process, durable to the last fsync.
//!
//! Tables find and keep rows; `windlass_core::Apply` decides. Every commit is made in two phases
//! with a sync each: when it returns, its pages and the switch to them are on disk. A second
//! process is refused; for several on one file there is the SQLite store.
//!
//! In the book: [choosing a store](../../book/LIBRARY.html#choose-a-store),
//! [running it](../../book/OPERATIONS.html#store), and what is
//! [assumed of the disk](../../book/GUARANTEES.html#what-we-assume).
//!
//! ```
//! use windlass_core::store::{Batch, Store};
//! use windlass_core::{BatchId, Kind, NewJob, Payload, Policy, ProcessId, Wall};
//! use windlass_store_redb::RedbStore;
//!
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("jobs.redb");
//! let mut store = RedbStore::open(&path)?;
//! let mut batch = Batch::new(BatchId { process: ProcessId(1), seq: 1 }, Policy::default());
//! batch.enqueues.push(NewJob::new(Kind::default(), Payload::null()));
//! let outcomes = store.commit(Wall::new(0), &batch)?;
//! assert_eq!(outcomes.enqueues[0].as_ref().map(|receipt| receipt.id.get()), Ok(1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod answer;
mod bulk;
mod bytes;
mod check;
mod copy;
mod error;
mod figures;
mod find;
mod groups;
mod index;
mod job_row;
mod list;
mod names;
mod open;
mod overlay;
mod reader;
mod repair;
mod rows;
mod settings;
mod slot;
mod sorted;
mod store;
mod tables;
mod write;

pub use check::RedbMaintenance;
pub use error::OpenError;
pub use reader::RedbReader;
pub use store::RedbStore;
