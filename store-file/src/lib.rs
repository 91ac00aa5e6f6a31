//! What the stores that lie in files have in common: files for their owner alone, names that are
//! durable, noticing that somebody meddles with a file in use, space left free, rows kept at hand.
//!
//! It knows nothing of how jobs lie in the files.

mod cache;
mod heads;
mod make;
mod recent;
mod reserve;
mod watch;

pub use cache::Cache;
pub use heads::{Heads, Pair};
pub use make::{directory_of, make_directory, make_file, sync_directory};
pub use recent::Recent;
pub use reserve::leave_reserve;
pub use watch::{FileChanged, Sight, Watched};
