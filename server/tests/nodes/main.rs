//! Several real servers on one store, a PostgreSQL database or a file: figures, races between
//! nodes, nodes that are killed or stopped, locks of other programs, clocks that differ, a database
//! that goes away, fails over, is full or cannot be reached, secrets, and stores that cannot be
//! used.
//!
//! Where PostgreSQL is not installed these tests say that they were not run; in CI that fails.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod clocks;
mod cluster;
#[path = "../e2e/common.rs"]
#[expect(dead_code, reason = "it serves the tests of one server too, which use all of it")]
mod common;
mod exits;
mod failover;
mod figures;
mod foreign;
mod frozen;
mod load;
mod migrate;
mod outage;
mod races;
mod secrets;
mod storm;
mod wire;
mod xmin;
