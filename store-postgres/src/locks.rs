//! The numbers of advisory locks: those of one store do not meet those of another schema.
//!
//! A number has the schema in its upper half, what is locked in four bits, and which one of these
//! in the rest. Two that share a number wait for each other, and nothing worse happens.

use windlass_core::{GroupId, ProcessId};

/// The locks of one store.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LockIds {
    base: i64,
}

/// The bits that tell one from another of its kind.
pub(crate) const WHICH: i64 = (1 << 28) - 1;

impl LockIds {
    pub(crate) fn new(schema: &str) -> Self {
        Self { base: i64::from(hash(schema.as_bytes()).cast_signed()) << 32 }
    }

    fn id(self, what: i64, which: i64) -> i64 {
        self.base | what << 28 | which & WHICH
    }

    /// Held by one node while it migrates.
    pub(crate) fn migration(self) -> i64 {
        self.id(0, 0)
    }

    /// Held by each transaction of a process: a session that gets it knows that none is open.
    pub(crate) fn process(self, process: ProcessId) -> i64 {
        self.id(1, i64::from(hash(&process.0.to_le_bytes())))
    }

    /// Shared by all batches; held alone by those that change queues, kinds or pairs.
    pub(crate) fn names(self) -> i64 {
        self.id(2, 0)
    }

    /// Held alone by a batch that counts the jobs of a limited queue.
    pub(crate) fn queue(self, queue: i32) -> i64 {
        self.id(3, queue.into())
    }

    /// Shared by batches that lock keys one by one; held alone by one with very many.
    pub(crate) fn all_keys(self) -> i64 {
        self.id(4, 0)
    }

    /// The number of a key's lock, without the hash of the key.
    pub(crate) fn key_base(self) -> i64 {
        self.id(5, 0)
    }

    /// Held alone by a batch that folds figures.
    pub(crate) fn figures(self) -> i64 {
        self.id(6, 0)
    }

    /// Held alone by a batch that counts in an error group.
    pub(crate) fn group(self, group: GroupId) -> i64 {
        self.id(8, i64::from(hash(&group.0)))
    }

    /// Held alone by a batch that changes bulk actions.
    pub(crate) fn bulk(self) -> i64 {
        self.id(9, 0)
    }

    /// Held alone by a batch that sets settings.
    pub(crate) fn settings(self) -> i64 {
        self.id(11, 0)
    }

    /// Shared by the nodes that listen to hints, for as long as they do.
    pub(crate) fn listening(self) -> i64 {
        self.id(10, 0)
    }

    /// Held by the one node that does the housekeeping.
    pub(crate) fn housekeeping(self) -> i64 {
        self.id(7, 0)
    }
}

/// FNV-1a.
fn hash(bytes: &[u8]) -> u32 {
    let mix = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    bytes.iter().fold(0x811c_9dc5, mix)
}
