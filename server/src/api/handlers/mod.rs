//! What each route does: parse, one request to the runtime, render. No rule is decided here.

pub(crate) mod bulk;
pub(crate) mod dashboard;
pub(crate) mod dead;
pub(crate) mod enqueue;
pub(crate) mod errors;
pub(crate) mod history;
pub(crate) mod jobs;
pub(crate) mod queue_deletion;
pub(crate) mod queues;
pub(crate) mod search;
pub(crate) mod settings;
pub(crate) mod system;
pub(crate) mod upkeep;
pub(crate) mod work;
