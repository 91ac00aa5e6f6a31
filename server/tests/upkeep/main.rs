//! The upkeep of a store with the real binary: settings, workers, status, checks, backups, the
//! demo. What can be asked of the store and of a server is asked of both.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod abandoned;
mod backup;
mod common;
mod copy;
mod dead_workers;
mod demo;
mod doctor;
mod figures;
mod held;
mod many;
mod modes;
mod reads;
mod restore;
mod settings;
mod status;
mod workers;
