//! The simulation of Windlass: the same machine and the same `apply` that production runs, in a
//! world where processes crash, clocks jump, disks fail and messages are lost, all from one seed.
//!
//! [`world`] is what happens, [`ledger`] what has become of each job, [`invariants`] what must hold
//! after every step. `docs/SIMULATION.md` says how to read a failure.

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
