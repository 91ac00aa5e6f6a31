//! The real binary over real sockets, on both stores.

mod access;
mod common;
mod document;
mod ending;
mod events;
mod limits;
mod routes;
mod workers;
