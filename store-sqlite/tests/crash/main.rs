//! What survives a power cut, a failing disk, and other programs that change the files.
//!
//! The disk is that of `windlass-store-sqlite-vfs`, which tells its model. A story of commits is
//! played once; then every crash it could have had is built and opened with the ordinary store.

mod faults;
mod files;
mod old_schema;
mod power;
mod recovery;
mod story;
mod watch;
