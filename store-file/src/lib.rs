//! What the stores that lie in files have in common: files for their owner alone, names that are
//! durable, detecting changes to a file in use, space left free, rows kept at hand.
//!
//! It knows nothing of how jobs lie in the files.
//!
//! In the book: [the layers of the code](../../book/ARCHITECTURE.html).

mod cache;
mod copy;
mod heads;
mod lookup;
mod make;
mod newest;
mod notify;
mod recent;
mod replace;
mod reserve;
mod watch;

pub use cache::Cache;
pub use copy::{hold, no_room_for, remove_leftovers};
pub use heads::{Heads, Pair};
pub use lookup::Lookup;
pub use make::{directory_of, make_directory, make_file, sync_directory};
pub use newest::newest_of;
pub use notify::Notifier;
pub use recent::Recent;
pub use replace::Alone;
pub use reserve::{Space, free, leave_reserve, short_of_space, space};
pub use watch::{FileChanged, FileState, Watched};
