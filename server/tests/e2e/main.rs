//! The real binary over real sockets, on both stores.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod access;
mod bulk;
mod common;
mod dashboard;
mod document;
mod ending;
mod events;
mod full;
mod kinds;
mod limits;
mod memory;
mod metrics;
mod routes;
mod search;
mod secure;
mod starts;
mod systemd;
mod verdicts;
mod workers;
