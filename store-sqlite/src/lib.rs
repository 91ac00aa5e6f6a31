//! The reference store: jobs in one SQLite file, durable to the last fsync.
//!
//! SQL finds and writes rows; `windlass_core::Apply` decides. The database is in WAL mode with
//! `synchronous=FULL`: when a commit returns, its WAL is on disk. Several processes may share a
//! file; correctness depends on the transaction alone.
//!
//! In the book: [choosing a store](../../book/LIBRARY.html#choose-a-store),
//! [running it](../../book/OPERATIONS.html#store), and what is
//! [assumed of the disk](../../book/GUARANTEES.html#what-we-assume).
//!
//! ```
//! use windlass_core::store::{Batch, Store};
//! use windlass_core::{BatchId, Kind, NewJob, Payload, Policy, ProcessId, Wall};
//! use windlass_store_sqlite::SqliteStore;
//!
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("jobs.db");
//! let mut store = SqliteStore::open(&path)?;
//! let mut batch = Batch::new(BatchId { process: ProcessId(1), seq: 1 }, Policy::default());
//! batch.enqueues.push(NewJob::new(Kind::default(), Payload::null()));
//! let outcomes = store.commit(Wall::new(0), &batch)?;
//! assert_eq!(outcomes.enqueues[0].as_ref().map(|receipt| receipt.id.get()), Ok(1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod answer;
mod bulk;
mod busy;
mod check;
#[cfg(test)]
mod conflicts;
mod copy;
mod error;
mod figures;
mod files;
mod find;
mod groups;
mod hook;
#[cfg(test)]
mod idle;
mod insert;
#[cfg(test)]
mod lengths;
mod list;
mod names;
mod open;
#[cfg(test)]
mod plans;
mod quiet;
mod reader;
mod rows;
mod settings;
mod space;
mod stale_wal;
mod store;
mod wal;
mod write;

pub use check::SqliteMaintenance;
pub use error::OpenError;
pub use reader::SqliteReader;
pub use store::SqliteStore;
