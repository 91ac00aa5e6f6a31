//! A disk that loses what was not synced, for the crash tests of the SQLite store. For tests only.
//! In the book: [what the tests show](../../book/GUARANTEES.html).
//!
//! # The model
//!
//! A [`Disk`] registers a VFS of its own with SQLite, over the `unix` one. Everything goes through
//! to the real files of one directory: locks, shared memory and reads are those of production. For
//! databases, logs and journals the shim also writes a **log of operations**, over all files, in
//! the order in which they came. A crash is a place in that log: nothing has to be stopped for it,
//! so one run of a program gives every crash it could have had.
//!
//! [`Disk::image`] builds what such a crash leaves:
//!
//! * A write or truncation is **durable** once a later sync of *its* file succeeded. Everything
//!   else is pending, and each pending operation is kept, dropped or torn, independently of all
//!   others: the order of writes, within a file or across files, promises nothing.
//! * A torn write keeps some of its 512-byte sectors and not others. Bytes beside a write are never
//!   harmed: that is what SQLite assumes of a disk (`SQLITE_IOCAP_POWERSAFE_OVERWRITE`).
//! * What is dropped behind the end of a file reads as zeros if something behind it was kept.
//! * That a file came or went is an entry of the directory, durable once the directory was synced.
//!   Pending entries are kept up to some point in their order, as a journalling file system does.
//! * Shared memory (`-shm`) never survives. SQLite rebuilds it.
//!
//! [`Fate`] says which pending operations survive: none, all, or as a seed decides.
//!
//! [`Disk::break_down`] makes calls fail: an I/O error, a full disk, half a write, or a sync that
//! fails once and afterwards claims success for what it lost, as Linux does: the writes pending at
//! the failure never become durable, though they can be read, until they are written again.
//!
//! What is not modelled: bit rot, a disk that reorders a write behind a later sync, and errors of
//! locks and of shared memory.
//!
//! # Unsafe code
//!
//! It is confined to `vfs.rs`, which only translates between SQLite's pointers and the safe code
//! of `disk.rs` and `image.rs`. A panic in a callback aborts the process.

mod disk;
mod image;
mod vfs;

pub use disk::{Breakdown, Fault, FileKind, Weakened};
pub use image::{Fate, Image};
pub use vfs::Disk;
