//! What the stores that lie in files have in common: files for their owner alone, names that are
//! durable, and noticing that somebody meddles with a file that is in use.
//!
//! It knows files, and nothing of what is in them.

mod make;
mod watch;

pub use make::{directory_of, make_directory, make_file, sync_directory};
pub use watch::{Meddled, Watched};
