//! A store on PostgreSQL: any number of nodes share one database, and nothing else.
//!
//! SQL finds, holds and writes rows; `windlass_core::Apply` decides. A batch is two flights of
//! pipelined statements on one connection, with its commit at the end of the second.
//!
//! In the book: [how to run it](../../book/POSTGRESQL.html), with URLs, rights and settings, and
//! [what is promised](../../book/GUARANTEES.html#on-postgresql).
//!
//! ```no_run
//! use windlass_core::store::{Batch, Store};
//! use windlass_core::{BatchId, Kind, NewJob, Payload, Policy, ProcessId, Wall};
//! use windlass_store_postgres::PgStore;
//!
//! let mut store = PgStore::connect("postgres://windlass@db.example/jobs")?;
//! let mut batch = Batch::new(BatchId { process: ProcessId(1), seq: 1 }, Policy::default());
//! batch.enqueues.push(NewJob::new(Kind::default(), Payload::null()));
//! let outcomes = store.commit(Wall::new(0), &batch)?;
//! assert!(outcomes.enqueues[0].is_ok());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod answer;
mod backoff;
mod bulk;
mod check;
mod copy;
mod details;
mod doctor;
mod error;
mod figures;
mod find;
mod groups;
mod heads;
mod hook;
mod ids;
mod limited;
mod list;
mod locks;
mod named;
mod names;
mod open;
mod reader;
mod rights;
mod rows;
mod session;
mod settings;
mod size;
mod store;
mod thin;
mod tls;
mod upkeep;
mod url;
mod vacuum;
mod write;
mod xmin;

pub use check::PgMaintenance;
pub use doctor::Finding;
pub use error::OpenError;
pub use reader::PgReader;
pub use store::{Clock, PgOptions, PgStore};
pub use url::StoreUrl;
pub use xmin::OldestXmin;
