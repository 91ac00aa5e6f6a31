//! The real binary over real sockets, on both stores.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod access;
mod common;
mod document;
mod ending;
mod events;
mod kinds;
mod limits;
mod routes;
mod secure;
mod verdicts;
mod workers;
