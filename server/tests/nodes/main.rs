//! Several real servers on one PostgreSQL database: figures, races between nodes, nodes that are
//! killed or stopped, a database that goes away, secrets, and stores that cannot be used.
//!
//! Where PostgreSQL is not installed these tests say that they were not run; in CI that fails.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod cluster;
#[path = "../e2e/common.rs"]
#[expect(dead_code, reason = "it serves the tests of one server too, which use all of it")]
mod common;
mod exits;
mod figures;
mod migrate;
mod outage;
mod races;
mod secrets;
mod storm;
