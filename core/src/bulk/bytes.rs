//! A bulk action as the bytes that a store keeps. Reading is total: bytes that this code cannot
//! have written are refused.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use thiserror::Error;

use super::{Action, Bulk, BulkState, Canary, Pace, Target, Terms, Verdicts};
use crate::limits::{BULK_NAMED, SEARCH_QUEUES};
use crate::search::{Conditions, Pointer, Search};
use crate::store::{Cursor, Filter};
use crate::{BulkId, IdempotencyKey, JobId, JobsPerSecond, Kind, QueueName, View, Wall, WorkerId};

/// The form that is written of an action whose jobs are named, or listed by a filter.
const PLAIN: u8 = 1;
/// The form that is written of an action that searches.
const SEARCHING: u8 = 2;

/// Bytes that are no bulk action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum BadBulk {
    /// They are cut short, too long, or hold something that cannot be.
    #[error("a bulk action cannot be read")]
    Broken,
    /// A newer version of Windlass wrote them.
    #[error("a bulk action is of version {0}, newer than this program")]
    Version(u8),
}

impl Bulk {
    /// The bytes that a store keeps.
    pub fn to_bytes(&self) -> Vec<u8> {
        let Self { id: _, revision, terms, as_of, state, done, refused, .. } = self;
        let mut out = Out(Vec::from([version(self)]));
        out.number(*revision);
        out.terms(terms);
        out.wall(*as_of);
        out.number(*state as u64);
        out.number(*done);
        out.number(*refused);
        out.some(self.cursor.as_ref(), |out, cursor| {
            out.wall(cursor.at);
            out.number(cursor.id.get());
        });
        out.number(u64::from(self.took));
        out.number(u64::from(self.verdicts.passed));
        out.number(u64::from(self.verdicts.failed));
        out.ids(&self.verdicts.waiting);
        out.some(self.ended_at.as_ref(), |out, at| out.wall(*at));
        out.0
    }

    /// The bulk action that was written as these bytes.
    pub fn from_bytes(id: BulkId, bytes: &[u8]) -> Result<Self, BadBulk> {
        let (version, rest) = bytes.split_first().ok_or(BadBulk::Broken)?;
        if !(PLAIN..=SEARCHING).contains(version) {
            return Err(BadBulk::Version(*version));
        }
        let mut bytes = Bytes(rest);
        let bulk =
            bytes.bulk(id).filter(|bulk| bytes.0.is_empty() && self::version(bulk) == *version);
        bulk.ok_or(BadBulk::Broken)
    }
}

fn version(bulk: &Bulk) -> u8 {
    if matches!(bulk.terms.target, Target::Search(_)) { SEARCHING } else { PLAIN }
}

/// What was written so far. Numbers have seven bits to a byte, the least first.
struct Out(Vec<u8>);

impl Out {
    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number.to_le_bytes()[0] | 0x80);
            number >>= 7;
        }
        self.0.push(number.to_le_bytes()[0]);
    }

    fn wall(&mut self, at: Wall) {
        self.0.extend_from_slice(&at.get().to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.0.extend_from_slice(text.as_bytes());
    }

    fn ids(&mut self, ids: &[JobId]) {
        self.number(ids.len() as u64);
        for id in ids {
            self.number(id.get());
        }
    }

    fn some<T>(&mut self, value: Option<&T>, put: impl FnOnce(&mut Self, &T)) {
        self.number(u64::from(value.is_some()));
        if let Some(value) = value {
            put(self, value);
        }
    }

    fn terms(&mut self, terms: &Terms) {
        self.number(terms.action as u64);
        match &terms.target {
            Target::Jobs(ids) => {
                self.number(0);
                self.ids(ids);
            }
            Target::Filter(filter) => {
                self.number(1);
                self.filter(filter);
            }
            Target::Search(search) => {
                self.number(2);
                self.search(search);
            }
        }
        self.text(&terms.by);
        self.number(terms.of);
        self.some(terms.most.as_ref(), |out, most| out.number(*most));
        self.some(terms.pace.as_ref(), |out, pace| {
            out.number(u64::from(pace.per_s.get()));
            out.number(pace.level);
            out.wall(pace.at);
        });
        self.some(terms.canary.as_ref(), |out, canary| {
            out.number(u64::from(canary.count));
            out.number(u64::from(canary.max_failed));
        });
    }

    fn filter(&mut self, filter: &Filter) {
        let Filter { view, queue, kind, key, id, group } = filter;
        self.some(view.as_ref(), |out, view| out.number(view.index() as u64));
        self.some(queue.as_ref(), |out, queue| out.text(queue.as_str()));
        self.some(kind.as_ref(), |out, kind| out.text(kind.as_str()));
        self.some(key.as_ref(), |out, key| out.text(key.as_str()));
        self.some(id.as_ref(), |out, id| out.number(id.get()));
        self.some(group.as_ref(), |out, group| out.text(&format!("{group}")));
    }

    fn search(&mut self, search: &Search) {
        let Search { filter, queues, conditions } = search;
        self.filter(filter);
        self.number(queues.len() as u64);
        for queue in queues {
            self.text(queue.as_str());
        }
        let Conditions { from, to, worker, attempts_min, priority_min, .. } = conditions;
        self.some(from.as_ref(), |out, at| out.wall(*at));
        self.some(to.as_ref(), |out, at| out.wall(*at));
        self.some(worker.as_ref(), |out, worker| out.text(worker.as_str()));
        self.some(attempts_min.as_ref(), |out, least| out.number(u64::from(*least)));
        self.some(priority_min.as_ref(), |out, least| out.priority(*least));
        let Conditions { error_contains, payload_contains, payload, .. } = conditions;
        self.some(error_contains.as_ref(), |out, text| out.text(text));
        self.some(payload_contains.as_ref(), |out, text| out.text(text));
        self.some(payload.as_ref(), |out, (at, wanted)| {
            out.text(at.as_str());
            out.text(wanted);
        });
    }

    fn priority(&mut self, priority: i16) {
        self.0.extend_from_slice(&priority.to_le_bytes());
    }
}

/// What is left to read.
struct Bytes<'b>(&'b [u8]);

impl Bytes<'_> {
    fn bulk(&mut self, id: BulkId) -> Option<Bulk> {
        Some(Bulk {
            id,
            revision: self.number()?,
            terms: self.terms()?,
            as_of: self.wall()?,
            state: *BulkState::ALL.get(self.index()?)?,
            done: self.number()?,
            refused: self.number()?,
            cursor: self.some(|bytes| Some(Cursor { at: bytes.wall()?, id: bytes.id()? }))?,
            took: self.flag()?,
            verdicts: Verdicts {
                passed: self.small()?,
                failed: self.small()?,
                waiting: self.ids()?,
            },
            ended_at: self.some(Self::wall)?,
        })
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            let part = u64::from(byte & 0x7f);
            let shifted = part << shift;
            if shifted >> shift != part {
                return None;
            }
            number |= shifted;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    fn small(&mut self) -> Option<u32> {
        u32::try_from(self.number()?).ok()
    }

    fn index(&mut self) -> Option<usize> {
        usize::try_from(self.number()?).ok()
    }

    fn flag(&mut self) -> Option<bool> {
        match self.number()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    fn wall(&mut self) -> Option<Wall> {
        let (at, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(Wall::new(i64::from_le_bytes(*at)))
    }

    fn priority(&mut self) -> Option<i16> {
        let (priority, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(i16::from_le_bytes(*priority))
    }

    fn id(&mut self) -> Option<JobId> {
        JobId::new(self.number()?)
    }

    /// A list of ids: sorted, each once.
    fn ids(&mut self) -> Option<Vec<JobId>> {
        let length = self.index()?;
        if length > BULK_NAMED {
            return None;
        }
        let ids: Option<Vec<JobId>> = (0..length).map(|_| self.id()).collect();
        ids.filter(|ids| ids.is_sorted_by(|a, b| a < b))
    }

    fn text(&mut self) -> Option<String> {
        let length = self.index()?;
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        core::str::from_utf8(text).ok().map(String::from)
    }

    #[expect(clippy::option_option, reason = "the outer one says that the bytes are broken")]
    fn some<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<Option<T>> {
        if self.flag()? { read(self).map(Some) } else { Some(None) }
    }

    fn terms(&mut self) -> Option<Terms> {
        let action = *Action::ALL.get(self.index()?)?;
        let target = match self.number()? {
            0 => Target::Jobs(self.ids()?),
            1 => Target::Filter(self.filter()?),
            2 => Target::Search(Box::new(self.search()?)),
            _ => return None,
        };
        Some(Terms {
            action,
            target,
            by: self.text()?,
            of: self.number()?,
            most: self.some(Self::number)?,
            pace: self.some(|bytes| {
                let per_s = JobsPerSecond::new(bytes.small()?).ok()?;
                Some(Pace { per_s, level: bytes.number()?, at: bytes.wall()? })
            })?,
            canary: self
                .some(|bytes| Some(Canary { count: bytes.small()?, max_failed: bytes.small()? }))?,
        })
    }

    fn filter(&mut self) -> Option<Filter> {
        Some(Filter {
            view: self.some(|bytes| View::from_index(bytes.index()?))?,
            queue: self.some(|bytes| QueueName::new(&bytes.text()?).ok())?,
            kind: self.some(|bytes| Kind::new(&bytes.text()?).ok())?,
            key: self.some(|bytes| IdempotencyKey::new(&bytes.text()?).ok())?,
            id: self.some(Self::id)?,
            group: self.some(|bytes| bytes.text()?.parse().ok())?,
        })
    }

    fn search(&mut self) -> Option<Search> {
        let filter = self.filter()?;
        let queues = self.index().filter(|length| *length <= SEARCH_QUEUES)?;
        let queues = (0..queues).map(|_| QueueName::new(&self.text()?).ok());
        let queues = queues.collect::<Option<Vec<_>>>()?;
        let conditions = Conditions {
            from: self.some(Self::wall)?,
            to: self.some(Self::wall)?,
            worker: self.some(|bytes| WorkerId::new(&bytes.text()?).ok())?,
            attempts_min: self.some(Self::small)?,
            priority_min: self.some(Self::priority)?,
            error_contains: self.some(Self::text)?,
            payload_contains: self.some(Self::text)?,
            payload: self
                .some(|bytes| Some((Pointer::new(&bytes.text()?).ok()?, bytes.text()?)))?,
        };
        let sorted = queues.is_sorted_by(|a, b| a < b);
        sorted.then_some(Search { filter, queues, conditions })
    }
}
