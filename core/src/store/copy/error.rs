//! Why a copy was refused or has stopped.

use alloc::string::String;
use alloc::vec::Vec;

use thiserror::Error;

use crate::WorkerId;
use crate::store::{CommitError, Seal, StoreError};

/// Why a copy was refused or has stopped.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CopyError {
    /// The target holds something else than the beginning of this copy. Nothing was written.
    #[error(
        "{target} is not empty: it holds {what}; give a store that holds nothing, or another \
         schema or file"
    )]
    NotEmpty {
        /// Name of the target.
        target: String,
        /// The first kind of rows that was found.
        what: &'static str,
    },
    /// Processes are running on a store. Nothing was written.
    #[error(
        "{store} is in use by {}: stop every server and worker process on it, and wait half a \
         minute for one that was killed on another machine",
        names(workers)
    )]
    InUse {
        /// Name of the store that is in use.
        store: String,
        /// At most five of the running processes.
        workers: Vec<WorkerId>,
    },
    /// A store belongs to another copy. Nothing was written.
    #[error("{store}: {seal}")]
    Sealed {
        /// Name of the sealed store.
        store: String,
        /// Says which copy it belongs to.
        seal: Seal,
    },
    /// The target was filled by a copy that was given up. Nothing was written.
    #[error(
        "{target} is the unfinished copy of {from} by an earlier run that was given up: delete \
         it, and start with an empty store"
    )]
    Leftover {
        /// Name of the unfinished copy.
        target: String,
        /// Name of the store that the earlier run copied.
        from: String,
    },
    /// A copy was finished earlier, and the target is in use.
    #[error("{from} was already moved to {to}; nothing to do")]
    AlreadyMoved {
        /// Name of the source.
        from: String,
        /// Name of the target.
        to: String,
    },
    /// Source and target are the same store.
    #[error("{0} cannot be copied to itself")]
    Same(String),
    /// The rows written are not the rows read. Both stores stay sealed.
    #[error(
        "the copy differs from its source in its {section}: {source_rows} rows with checksum \
         {source_sum} there, {target_rows} with {target_sum} here; nothing was put into use. Use \
         the source again with `windlass copy --undo`, and report this"
    )]
    #[expect(missing_docs, reason = "the message says what they are")]
    Differs {
        section: &'static str,
        source_rows: u64,
        source_sum: String,
        target_rows: u64,
        target_sum: String,
    },
    /// A store could not be read.
    #[error("{store} cannot be read: {error}")]
    Read {
        /// Name of the store that failed.
        store: String,
        /// The error of the store.
        error: StoreError,
    },
    /// A store could not be written. What was committed before stays.
    #[error("{store} cannot be written: {error}")]
    Write {
        /// Name of the store that failed.
        store: String,
        /// The error of the commit.
        error: CommitError,
    },
}

fn names(workers: &[WorkerId]) -> String {
    let names: Vec<&str> = workers.iter().map(WorkerId::as_str).collect();
    names.join(", ")
}
