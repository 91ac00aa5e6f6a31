//! What the disk remembers: the log of operations, and which calls are to fail. Safe code only.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::image::{Fate, Image, build};

/// A file, also after its name is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FileId(usize);

/// What a file is to SQLite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// The database itself.
    Database,
    /// `-wal`, the write-ahead log.
    Log,
    /// A rollback journal.
    Journal,
}

/// An operation that changes what a crash leaves.
#[derive(Debug)]
pub(crate) enum Op {
    /// A file was opened for the first time; if it was not found, it was made.
    Open {
        file: FileId,
        name: String,
        content: Vec<u8>,
        found: bool,
    },
    Write {
        file: FileId,
        offset: usize,
        data: Vec<u8>,
    },
    Truncate {
        file: FileId,
        size: usize,
    },
    /// Everything before it in this file is durable; with `directory`, all names are.
    Sync {
        file: FileId,
        directory: bool,
    },
    /// What is pending in this file will never be durable.
    SyncFailed {
        file: FileId,
    },
    Delete {
        name: String,
        directory: bool,
    },
}

/// What is to go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Any call fails with an I/O error, and does nothing.
    Error,
    /// A write fails for want of space, and does nothing.
    Full,
    /// A write stores its first half and fails with an I/O error.
    ShortWrite,
    /// A sync fails; later ones claim success, but what was pending is not made durable.
    LyingSync,
}

/// A fault, and the calls it is injected into.
#[derive(Debug, Clone, Copy)]
pub struct Breakdown {
    fault: Fault,
    on: Option<FileKind>,
    spared: u64,
    lasting: bool,
}

impl Breakdown {
    /// The next call that this fault concerns fails, once.
    pub fn new(fault: Fault) -> Self {
        Self { fault, on: None, spared: 0, lasting: false }
    }

    /// The number of calls that succeed before.
    #[must_use]
    pub fn after(self, calls: u64) -> Self {
        Self { spared: calls, ..self }
    }

    /// Only calls on this kind of file count.
    #[must_use]
    pub fn on(self, kind: FileKind) -> Self {
        Self { on: Some(kind), ..self }
    }

    /// From then on every such call fails, until the disk is repaired.
    #[must_use]
    pub fn lasting(self) -> Self {
        Self { lasting: true, ..self }
    }
}

/// A `synchronous` pragma that does not take.
#[derive(Debug, Clone, Copy)]
pub struct Weakened {
    /// The level that every setting is turned into: 0 for OFF, 1 for NORMAL.
    pub level: u8,
    /// Whether reading it back tells the truth.
    pub admitted: bool,
}

/// A call of SQLite that may fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    Open,
    Read,
    Write,
    Truncate,
    Sync,
    Delete,
}

/// The disk as its open files and its owner share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shared(Arc<Mutex<State>>);

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Default)]
pub(crate) struct State {
    log: Vec<Op>,
    names: BTreeMap<String, FileId>,
    files: usize,
    calls: u64,
    breakdown: Option<Breakdown>,
    fired: u64,
    pub(crate) weakened: Option<Weakened>,
}

impl State {
    /// Counts a call, and says how it is to fail.
    pub(crate) fn fault(&mut self, call: Call, kind: FileKind) -> Option<Fault> {
        self.calls += 1;
        let breakdown = self.breakdown.as_mut()?;
        let concerns = match breakdown.fault {
            Fault::Error => true,
            Fault::Full | Fault::ShortWrite => call == Call::Write,
            Fault::LyingSync => call == Call::Sync,
        };
        if !concerns || breakdown.on.is_some_and(|on| on != kind) {
            return None;
        }
        if breakdown.spared > 0 {
            breakdown.spared -= 1;
            return None;
        }
        let fault = breakdown.fault;
        self.fired += 1;
        if !breakdown.lasting {
            self.breakdown = None;
        }
        Some(fault)
    }

    pub(crate) fn find(&self, name: &str) -> Option<FileId> {
        self.names.get(name).copied()
    }

    pub(crate) fn opened(&mut self, name: &str, content: Vec<u8>, found: bool) -> FileId {
        let file = FileId(self.files);
        self.files += 1;
        self.names.insert(name.to_string(), file);
        self.log.push(Op::Open { file, name: name.to_string(), content, found });
        file
    }

    pub(crate) fn wrote(&mut self, file: FileId, offset: usize, data: &[u8]) {
        self.log.push(Op::Write { file, offset, data: data.to_vec() });
    }

    pub(crate) fn truncated(&mut self, file: FileId, size: usize) {
        self.log.push(Op::Truncate { file, size });
    }

    pub(crate) fn synced(&mut self, file: FileId, directory: bool) {
        self.log.push(Op::Sync { file, directory });
    }

    pub(crate) fn sync_failed(&mut self, file: FileId) {
        self.log.push(Op::SyncFailed { file });
    }

    pub(crate) fn deleted(&mut self, name: &str, directory: bool) {
        if self.names.remove(name).is_some() {
            self.log.push(Op::Delete { name: name.to_string(), directory });
        }
    }

    pub(crate) fn break_down(&mut self, breakdown: Breakdown) {
        self.breakdown = Some(breakdown);
        self.fired = 0;
    }

    pub(crate) fn clear_breakdown(&mut self) {
        self.breakdown = None;
    }

    pub(crate) fn fired(&self) -> u64 {
        self.fired
    }

    pub(crate) fn calls(&self) -> u64 {
        self.calls
    }

    pub(crate) fn operations(&self) -> usize {
        self.log.len()
    }

    pub(crate) fn syncs(&self, from: usize, to: usize) -> usize {
        let range = &self.log[from..to];
        range.iter().filter(|op| matches!(op, Op::Sync { .. })).count()
    }

    pub(crate) fn image(&self, at: usize, fate: Fate) -> Image {
        build(&self.log[..at], fate)
    }

    pub(crate) fn reset(&mut self) {
        *self = Self::default();
    }
}
