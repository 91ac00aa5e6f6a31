//! The commands of the real binary: on both stores directly, and over HTTP. What a person or a
//! program sees must be the same in every mode, and is compared with a snapshot.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod beside;
#[path = "../e2e/common.rs"]
#[expect(dead_code, reason = "it serves the tests over sockets too, which use all of it")]
mod common;
mod dead;
mod exits;
mod file;
mod help;
mod jobs;
mod queues;
mod redact;
mod waiting;
mod world;
