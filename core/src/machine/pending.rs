//! What waits for the next batch: lines of commands, and one entry per request they belong to.
//!
//! A line keeps its order. What a failed commit gives back goes to the front, as it was.

use alloc::collections::VecDeque;
use alloc::vec::{IntoIter, Vec};

use crate::store::{Admin, Heartbeat, Settle};
use crate::{NewJob, RequestId};

/// Everything that waits for the next batch.
#[derive(Debug, Default)]
pub(super) struct Pending {
    pub(super) settles: Line<Settle>,
    pub(super) heartbeats: Line<Heartbeat>,
    pub(super) admin: Line<Admin>,
    pub(super) enqueues: Line<NewJob>,
}

impl Pending {
    pub(super) fn is_empty(&self) -> bool {
        let reports = self.settles.is_empty() && self.heartbeats.is_empty();
        reports && self.admin.is_empty() && self.enqueues.is_empty()
    }

    /// Drops everything. Clients must have been answered before.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// The source of commands, which gets their outcomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// A client's request for one command.
    One(RequestId),
    /// A client's request for a list of commands.
    List(RequestId),
    /// A local run.
    Local,
    /// The machine itself.
    Machine,
}

impl Origin {
    /// The request to answer, if a client waits.
    pub(super) fn request(self) -> Option<RequestId> {
        match self {
            Self::One(request) | Self::List(request) => Some(request),
            Self::Local | Self::Machine => None,
        }
    }
}

/// The next commands of a line, or of a batch, that belong together.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) origin: Origin,
    /// Number of commands, at least one.
    pub(super) len: usize,
    /// Number of batches that they were in before.
    pub(super) tries: u32,
}

/// Commands of one family, waiting in order.
#[derive(Debug)]
pub(super) struct Line<T> {
    commands: Vec<T>,
    entries: VecDeque<Entry>,
}

impl<T> Default for Line<T> {
    fn default() -> Self {
        Self { commands: Vec::new(), entries: VecDeque::new() }
    }
}

impl<T> Line<T> {
    /// Number of commands that wait.
    pub(super) fn len(&self) -> usize {
        self.commands.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The commands that wait.
    pub(super) fn commands(&self) -> &[T] {
        &self.commands
    }

    /// Adds one command.
    pub(super) fn push(&mut self, origin: Origin, command: T) {
        self.commands.push(command);
        self.entries.push_back(Entry { origin, len: 1, tries: 0 });
    }

    /// Adds commands that belong together.
    pub(super) fn extend(&mut self, origin: Origin, commands: Vec<T>) {
        self.entries.push_back(Entry { origin, len: commands.len(), tries: 0 });
        self.commands.extend(commands);
    }

    /// Moves commands into a batch, whole requests at a time, until `limit` is reached; always at
    /// least one request.
    pub(super) fn take(&mut self, limit: usize, batch: &mut Vec<T>) -> Vec<Entry> {
        let mut len = 0;
        let fits = |entry: &&Entry| {
            let first = len == 0;
            len += entry.len;
            first || len <= limit
        };
        let count = self.entries.iter().take_while(fits).count();
        let taken: Vec<Entry> = self.entries.drain(..count).collect();
        let len: usize = taken.iter().map(|entry| entry.len).sum();
        if len == self.commands.len() && batch.is_empty() {
            core::mem::swap(batch, &mut self.commands);
        } else {
            batch.extend(self.commands.drain(..len));
        }
        taken
    }

    /// Puts commands of a failed commit back to the front, without those of entries for which
    /// `give_up` says so.
    pub(super) fn restore(
        &mut self,
        entries: &[Entry],
        commands: Vec<T>,
        mut give_up: impl FnMut(Entry) -> bool,
    ) {
        let mut back = Vec::with_capacity(commands.len() + self.commands.len());
        let mut kept = VecDeque::with_capacity(entries.len() + self.entries.len());
        deal(entries, commands, |entry, mine| {
            if !give_up(entry) {
                kept.push_back(Entry { tries: entry.tries + 1, ..entry });
                back.extend(mine);
            }
        });
        back.append(&mut self.commands);
        kept.append(&mut self.entries);
        (self.commands, self.entries) = (back, kept);
    }

    /// Drops everything that a client waits for; returns the requests.
    pub(super) fn dismiss(&mut self) -> Vec<RequestId> {
        let entries = Vec::from(core::mem::take(&mut self.entries));
        let requests = entries.iter().filter_map(|entry| entry.origin.request()).collect();
        let commands = core::mem::take(&mut self.commands);
        self.restore(&entries, commands, |entry| entry.origin.request().is_some());
        for entry in &mut self.entries {
            entry.tries -= 1;
        }
        requests
    }
}

/// Gives each entry its own part of a list: its commands, or their results. What it does not take
/// is dropped.
pub(super) fn deal<R>(
    entries: &[Entry],
    list: Vec<R>,
    mut to: impl FnMut(Entry, &mut Part<'_, R>),
) {
    let mut rest = list.into_iter();
    for entry in entries {
        let mut part = rest.by_ref().take(entry.len);
        to(*entry, &mut part);
        part.for_each(drop);
    }
}

/// The part of a list that belongs to an entry.
pub(super) type Part<'l, R> = core::iter::Take<&'l mut IntoIter<R>>;
