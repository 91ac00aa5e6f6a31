//! The HTTP contract: the table of routes, the handlers behind it, the shapes on the wire, the
//! refusals, and what is made of the runtime's events.

pub(crate) mod events;
pub(crate) mod exposition;
pub(crate) mod feed;
pub(crate) mod groups;
pub(crate) mod handlers;
pub(crate) mod history;
pub(crate) mod hub;
pub(crate) mod lookup;
pub(crate) mod metrics;
pub(crate) mod openapi;
pub(crate) mod others;
pub(crate) mod problem;
pub(crate) mod quantile;
pub(crate) mod routes;
pub(crate) mod shared;
pub(crate) mod snapshot;
pub(crate) mod timings;
pub(crate) mod wire;
