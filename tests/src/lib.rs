//! The suites that every store passes, and the tools they are written with.
//!
//! In the book: [which test shows which promise](../../book/GUARANTEES.html).

pub mod concurrent;
pub mod conformance;
pub mod copying;
pub mod differential;
pub mod fixture;
pub mod kill;
pub mod model;
pub mod on_disk;
pub mod postgres_server;
pub mod proxy;
pub mod stage;
pub mod state_table;
