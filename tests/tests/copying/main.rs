//! Copies between all kinds of stores: the same rows arrive, wherever a copy was interrupted, and
//! nothing is written where it is refused.

mod faults;
mod pairs;
mod refused;
