//! The store in memory: the same contract as the durable ones, over ordered maps.
//!
//! For tests of programs that use Windlass, and for the simulator. Nothing survives the process;
//! instead a [crash image](MemoryStore::crash_image) shows what a crash now would leave, and
//! commits can be made to [fail](MemoryStore::fail_next) in every way a real store can. Several
//! handles may commit at once; a [`Transaction`] can be taken through its steps one by one.
//! [Testing your jobs](../../book/TESTING.html) shows how programs use it.
//!
//! ```
//! use windlass_core::store::{Batch, Reader, Store};
//! use windlass_core::{BatchId, Kind, NewJob, Payload, Policy, ProcessId, Wall};
//! use windlass_store_memory::MemoryStore;
//!
//! let mut store = MemoryStore::new();
//! let mut batch = Batch::new(BatchId { process: ProcessId(1), seq: 1 }, Policy::default());
//! batch.enqueues.push(NewJob::new(Kind::default(), Payload::null()));
//! let outcomes = store.commit(Wall::new(0), &batch).unwrap();
//! let id = outcomes.enqueues[0].as_ref().unwrap().id;
//! let found = store.reader().unwrap().jobs(&[id]).unwrap();
//! assert_eq!(found[0].as_ref().unwrap().payload, Payload::null());
//! ```

mod answer;
mod copy;
mod locks;
mod reader;
mod store;
mod tables;
mod transaction;

pub use locks::Holding;
pub use reader::MemoryReader;
pub use store::{Fault, MOST_TRIES, MemoryStore};
pub use transaction::{Asked, Conflict, Transaction};
