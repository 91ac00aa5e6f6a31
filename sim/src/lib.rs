//! The simulation of Windlass: the same machine and the same `apply` that production runs, in a
//! world where processes crash, clocks jump, disks fail and messages are lost, all from one seed.
//!
//! [`world`] is what happens, [`ledger`] the history of each job, [`invariants`] what must hold
//! after every step.
//!
//! In the book: [the model, and how to read a failure](../../book/SIMULATION.html).

pub mod clock;
pub mod coverage;
pub mod disk;
pub mod faults;
pub mod invariants;
pub mod ledger;
pub mod mutants;
pub mod options;
pub mod patch;
pub mod rng;
pub mod run;
pub mod shrink;
pub mod trace;
pub mod world;
