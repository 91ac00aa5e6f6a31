//! What is counted of a group, in one row: changed by the commits that make, replay or remove its
//! dead letters, and by nothing else.
//!
//! A store keeps a row as a text of lines, with the sample at its end. Reading is total: a text
//! that this code cannot have written is refused.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::Display;
use core::str::FromStr;

use thiserror::Error;

use super::{ErrorGroup, GroupId, Title};
use crate::limits::{GROUP_KEPT, GROUP_QUEUES};
use crate::{Kind, Millis, QueueName, Wall};

/// The form that is written.
const VERSION: u8 = 1;

/// An error group with its counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupRow {
    /// Hash of the kind and the title.
    pub id: GroupId,
    /// The kind of its jobs.
    pub kind: Kind,
    /// What its errors have in common.
    pub title: Title,
    /// The line of its newest error; at most 1024 bytes long.
    pub sample: String,
    /// When its first dead letter failed.
    pub first_at: Wall,
    /// When its newest dead letter failed, also if that was replayed since.
    pub last_at: Wall,
    /// Dead letters it has now.
    pub live: u64,
    /// New dead letters in each of the last hours.
    pub hours: Hours,
    /// The dead letters it has now, by queue.
    pub queues: QueueShare,
}

/// Dead letters of a group by queue, by name.
///
/// At most [`GROUP_QUEUES`] are named. While others are counted together, no further queue gets a
/// name, so all jobs of a queue are counted in the same place.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QueueShare {
    /// The queues with a name; none has zero.
    pub named: Vec<(QueueName, u64)>,
    /// Those of all other queues together.
    pub others: u64,
}

/// Counts by hour of the wall clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Hours {
    /// The newest hour that has a count, in hours since the Unix epoch.
    newest: i64,
    /// The count of the newest hour first.
    counts: [u32; Self::KEPT],
}

/// A text that is no row of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("line {line} of an error group's row is malformed")]
pub struct BadGroup {
    /// The line of the text, from zero.
    pub line: usize,
}

impl GroupRow {
    /// A group that gets its first dead letter at this instant.
    pub fn new(kind: Kind, group: ErrorGroup, now: Wall) -> Self {
        Self {
            id: group.id,
            kind,
            title: group.title,
            sample: group.sample,
            first_at: now,
            last_at: now,
            live: 0,
            hours: Hours::default(),
            queues: QueueShare::default(),
        }
    }

    /// Counts a job that became a dead letter.
    pub fn add(&mut self, queue: &QueueName, at: Wall) {
        self.live = self.live.saturating_add(1);
        self.first_at = self.first_at.min(at);
        self.last_at = self.last_at.max(at);
        self.hours.add(at);
        self.queues.add(queue);
    }

    /// Counts a dead letter that was replayed or removed.
    pub fn remove(&mut self, queue: &QueueName) {
        self.live = self.live.saturating_sub(1);
        self.queues.remove(queue);
    }

    /// Since when it has had no dead letter; `None` if it has one.
    pub fn idle_since(&self) -> Option<Wall> {
        (self.live == 0).then_some(self.last_at)
    }

    /// Whether it may be removed: it has no dead letters, and the last one failed long ago.
    pub fn is_removable(&self, now: Wall) -> bool {
        self.idle_since().is_some_and(|since| since <= now.minus(GROUP_KEPT))
    }

    /// The text that a store keeps.
    pub fn to_text(&self) -> String {
        let list = |pairs: Vec<String>| pairs.join(",");
        let counts = self.hours.counts.iter().map(u32::to_string).collect();
        let named = self.queues.named.iter().map(|(name, count)| format!("{name}={count}"));
        let lines = [
            VERSION.to_string(),
            self.kind.to_string(),
            self.title.as_stored().to_string(),
            self.first_at.get().to_string(),
            self.last_at.get().to_string(),
            self.live.to_string(),
            self.hours.newest.to_string(),
            list(counts),
            self.queues.others.to_string(),
            list(named.collect()),
            self.sample.clone(),
        ];
        lines.join("\n")
    }

    /// The row of this group that was written as this text.
    pub fn from_text(id: GroupId, text: &str) -> Result<Self, BadGroup> {
        let mut lines = Lines { lines: text.splitn(11, '\n'), line: 0 };
        if lines.parse::<u8>()? != VERSION {
            return Err(BadGroup { line: 0 });
        }
        Ok(Self {
            id,
            kind: lines.read(|line| Kind::new(line).ok())?,
            title: lines.read(Title::from_stored)?,
            first_at: Wall::new(lines.parse()?),
            last_at: Wall::new(lines.parse()?),
            live: lines.parse()?,
            hours: Hours { newest: lines.parse()?, counts: lines.read(counts)? },
            queues: QueueShare { others: lines.parse()?, named: lines.read(named)? },
            sample: lines.read(|line| Some(line.to_string()))?,
        })
    }
}

impl QueueShare {
    /// Whether these are the counts by queue.
    pub(crate) fn agrees_with(&self, queues: &BTreeMap<QueueName, u64>) -> bool {
        let same = |(name, count): &(QueueName, u64)| queues.get(name) == Some(count);
        let sum: u64 = queues.values().sum();
        let named = self.named.iter().map(|(_, count)| *count);
        self.named.iter().all(same) && sum == named.fold(self.others, u64::saturating_add)
    }

    fn add(&mut self, queue: &QueueName) {
        if let Some((_, count)) = self.named.iter_mut().find(|(name, _)| name == queue) {
            *count = count.saturating_add(1);
        } else if self.others == 0 && self.named.len() < GROUP_QUEUES {
            let at = self.named.partition_point(|(name, _)| name < queue);
            self.named.insert(at, (queue.clone(), 1));
        } else {
            self.others = self.others.saturating_add(1);
        }
    }

    fn remove(&mut self, queue: &QueueName) {
        let Some(at) = self.named.iter().position(|(name, _)| name == queue) else {
            self.others = self.others.saturating_sub(1);
            return;
        };
        self.named[at].1 = self.named[at].1.saturating_sub(1);
        if self.named[at].1 == 0 {
            self.named.remove(at);
        }
    }
}

impl Hours {
    /// Hours that are counted one by one.
    pub const KEPT: usize = 24;

    pub(super) fn add(&mut self, at: Wall) {
        let hour = hour(at);
        let passed = usize::try_from(hour.saturating_sub(self.newest)).unwrap_or(0);
        if passed > 0 {
            self.counts.rotate_right(passed.min(Self::KEPT));
            self.counts[..passed.min(Self::KEPT)].fill(0);
            self.newest = hour;
        }
        // A clock that was set back counts where there is a place.
        let age = usize::try_from(self.newest - hour).unwrap_or(usize::MAX);
        if let Some(count) = self.counts.get_mut(age) {
            *count = count.saturating_add(1);
        }
    }

    /// The counts of the hours up to that of `now`, oldest first.
    pub fn until(&self, now: Wall) -> [u32; Self::KEPT] {
        let mut oldest_first = [0; Self::KEPT];
        for (count, wanted) in oldest_first.iter_mut().rev().zip((0..=hour(now)).rev()) {
            let age = usize::try_from(self.newest - wanted).ok();
            *count = age.and_then(|age| self.counts.get(age)).copied().unwrap_or(0);
        }
        oldest_first
    }
}

fn hour(at: Wall) -> i64 {
    at.get().div_euclid(Millis::minutes(60).get().cast_signed())
}

/// The lines of a text, one after the other.
struct Lines<'t> {
    lines: core::str::SplitN<'t, char>,
    line: usize,
}

impl<'t> Lines<'t> {
    fn read<T>(&mut self, read: impl FnOnce(&'t str) -> Option<T>) -> Result<T, BadGroup> {
        let bad = BadGroup { line: self.line };
        self.line += 1;
        self.lines.next().and_then(read).ok_or(bad)
    }

    fn parse<T: FromStr + Display>(&mut self) -> Result<T, BadGroup> {
        self.read(|line| line.parse().ok())
    }
}

fn counts(line: &str) -> Option<[u32; Hours::KEPT]> {
    let counts: Option<Vec<u32>> = line.split(',').map(|count| count.parse().ok()).collect();
    counts?.try_into().ok()
}

fn named(line: &str) -> Option<Vec<(QueueName, u64)>> {
    let pair = |pair: &str| {
        let (name, count) = pair.rsplit_once('=')?;
        let count = count.parse().ok().filter(|count| *count > 0)?;
        Some((QueueName::new(name).ok()?, count))
    };
    let named: Option<Vec<_>> = line.split(',').filter(|line| !line.is_empty()).map(pair).collect();
    named.filter(|named| named.len() <= GROUP_QUEUES)
}
