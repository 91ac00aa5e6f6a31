//! Settings: names, bounds, precedence.
//!
//! One table has them all. A flag wins over the environment, the environment over the store
//! (`config set`), the store over the default. Running processes follow the store.

mod flags;
mod follow;
mod given;
mod levels;
mod table;
mod value;

pub(crate) use flags::{Flags, parser};
pub(crate) use follow::Followed;
pub(crate) use given::Given;
pub(crate) use levels::Levels;
pub(crate) use table::{Id, Setting, TABLE, find};
pub(crate) use value::Value;
