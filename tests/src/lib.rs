//! The suites that every store passes, and the tools they are written with.

pub mod conformance;
pub mod fixture;
pub mod stage;
