//! What waits for the next batch: lines of commands, each with whoever asked.
//!
//! A line keeps its order. What a failed commit gives back goes to the front, as it was.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::store::{Admin, Beat, Settle};
use crate::{NewJob, RequestId};

/// Everything that waits for the next batch.
#[derive(Debug, Default)]
pub(super) struct Pending {
    pub(super) settles: Line<Settle>,
    pub(super) beats: Line<Beat>,
    pub(super) admin: Line<Admin>,
    pub(super) enqueues: Line<NewJob>,
}

impl Pending {
    pub(super) fn is_empty(&self) -> bool {
        let reports = self.settles.len == 0 && self.beats.len == 0;
        reports && self.admin.len == 0 && self.enqueues.len == 0
    }

    /// How many bytes of payloads wait with new jobs.
    pub(super) fn bytes(&self) -> usize {
        self.enqueues.bytes
    }

    /// Drops everything. Clients must have been told before.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// Who asked for a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asker {
    /// A client, who waits for the answer.
    Request(RequestId),
    /// A local run.
    Local,
    /// The machine itself.
    Machine,
}

/// One command, or several that belong together.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Few<T> {
    One(T),
    Many(Vec<T>),
}

impl<T> Few<T> {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Many(many) => many.len(),
        }
    }
}

impl<T: Weight> Few<T> {
    fn bytes(&self) -> usize {
        match self {
            Self::One(one) => one.bytes(),
            Self::Many(many) => many.iter().map(Weight::bytes).sum(),
        }
    }
}

/// Commands with whoever asked for them.
#[derive(Debug)]
struct Ask<T> {
    from: Asker,
    tries: u32,
    what: Few<T>,
}

/// Who asked for the next commands of a batch, and for how many.
#[derive(Debug, Clone, Copy)]
pub(super) struct Taken {
    pub(super) from: Asker,
    pub(super) tries: u32,
    /// `None` for a single one.
    count: Option<usize>,
}

/// Commands of one family, waiting in order.
#[derive(Debug)]
pub(super) struct Line<T> {
    asks: VecDeque<Ask<T>>,
    len: usize,
    bytes: usize,
}

/// Something that takes room while it waits.
pub(super) trait Weight {
    /// How many bytes it takes beside itself.
    fn bytes(&self) -> usize {
        0
    }
}

impl Weight for Settle {}
impl Weight for Beat {}
impl Weight for Admin {}
impl Weight for NewJob {
    fn bytes(&self) -> usize {
        self.payload.as_str().len()
    }
}

impl<T> Default for Line<T> {
    fn default() -> Self {
        Self { asks: VecDeque::new(), len: 0, bytes: 0 }
    }
}

impl<T: Weight> Line<T> {
    /// How many commands wait.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn push(&mut self, from: Asker, what: Few<T>) {
        self.len += what.len();
        self.bytes += what.bytes();
        self.asks.push_back(Ask { from, tries: 0, what });
    }

    /// Moves commands into a batch, whole requests at a time, until `limit` is reached.
    pub(super) fn take(&mut self, limit: usize, batch: &mut Vec<T>) -> Vec<Taken> {
        let mut taken = Vec::with_capacity(self.asks.len().min(limit));
        batch.reserve(self.len.min(limit));
        while let Some(ask) = self.asks.front() {
            if !batch.is_empty() && batch.len() + ask.what.len() > limit {
                break;
            }
            let Some(Ask { from, tries, what }) = self.asks.pop_front() else { break };
            self.len -= what.len();
            self.bytes -= what.bytes();
            let count = match what {
                Few::One(command) => {
                    batch.push(command);
                    None
                }
                Few::Many(mut commands) => {
                    let count = commands.len();
                    batch.append(&mut commands);
                    Some(count)
                }
            };
            taken.push(Taken { from, tries, count });
        }
        taken
    }

    /// Puts commands of a failed commit back to the front. Those for which `give_up` says so are
    /// dropped.
    pub(super) fn restore(
        &mut self,
        taken: Vec<Taken>,
        commands: Vec<T>,
        mut give_up: impl FnMut(Taken) -> bool,
    ) {
        let mut back = Vec::with_capacity(taken.len());
        deal(taken, commands, |taken, what| {
            if !give_up(taken) {
                back.push(Ask { from: taken.from, tries: taken.tries + 1, what });
            }
        });
        for ask in back.into_iter().rev() {
            self.len += ask.what.len();
            self.bytes += ask.what.bytes();
            self.asks.push_front(ask);
        }
    }

    /// Drops everything that a client waits for, and says who.
    pub(super) fn dismiss(&mut self) -> Vec<RequestId> {
        let mut who = Vec::new();
        self.asks.retain(|ask| match ask.from {
            Asker::Request(request) => {
                who.push(request);
                self.len -= ask.what.len();
                self.bytes -= ask.what.bytes();
                false
            }
            Asker::Local | Asker::Machine => true,
        });
        who
    }
}

/// Deals the results of a batch's commands out to those who asked for them.
pub(super) fn deal<R>(taken: Vec<Taken>, results: Vec<R>, mut to: impl FnMut(Taken, Few<R>)) {
    let mut results = results.into_iter();
    for taken in taken {
        match taken.count {
            Some(count) => to(taken, Few::Many(results.by_ref().take(count).collect())),
            None => {
                if let Some(one) = results.next() {
                    to(taken, Few::One(one));
                }
            }
        }
    }
}
