//! Whether jobs of a queue and kind may start: pause, concurrency and rate.

use alloc::vec::Vec;

use crate::{Counts, Kind, KindConcurrency, MaxRunning, Queue, Rate, Tat, View, Wall};

/// Whether jobs of a queue and kind may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// Ready jobs can be claimed.
    Open,
    /// The queue is paused.
    Paused,
    /// The queue is at its concurrency limit.
    Full,
    /// The kind is at its concurrency limit in the queue.
    KindFull,
    /// The queue, or the kind in it, is at its rate.
    RateLimited {
        /// When a job may start, if no other starts before.
        until: Wall,
    },
}

/// The limits of one kind in a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KindLimits {
    /// Maximum number of running jobs; zero pauses the kind.
    pub concurrency: Option<KindConcurrency>,
    /// Maximum number of starts per period.
    pub rate: Option<Rate>,
}

impl KindLimits {
    /// Whether it limits nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What counts against the limits of a queue.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Usage {
    /// Its jobs by view, all kinds together.
    pub counts: Counts,
    /// Number of running jobs of each kind that has some, by kind.
    pub running: Vec<(Kind, u64)>,
    /// The state of its rates.
    pub tats: Tats,
}

impl Usage {
    /// What the counters of a queue's kinds, and the state of its rates, say.
    pub fn new<'k>(kinds: impl IntoIterator<Item = (&'k Kind, &'k Counts)>, tats: Tats) -> Self {
        let mut usage = Self { tats, ..Self::default() };
        for (kind, counts) in kinds {
            usage.counts = usage.counts.plus(counts);
            let running = counts.get(View::Processing);
            if running > 0 {
                usage.running.push((kind.clone(), running));
            }
        }
        usage.running.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        usage
    }

    /// What counts against the limits of one kind.
    pub fn of(&self, kind: &Kind) -> InUse {
        let known = self.running.binary_search_by(|(known, _)| known.cmp(kind));
        InUse {
            running: self.counts.get(View::Processing),
            of_kind: known.map_or(0, |at| self.running[at].1),
            tat: self.tats.get(None),
            kind_tat: self.tats.get(Some(kind)),
        }
    }
}

/// What counts against the limits of a queue and of one kind in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InUse {
    /// Number of running jobs of the queue.
    pub running: u64,
    /// Number of those of the kind.
    pub of_kind: u64,
    /// The state of the queue's rate.
    pub tat: Tat,
    /// The state of the kind's rate.
    pub kind_tat: Tat,
}

/// The state of the rates of a queue: its own, and those of its kinds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tats(Vec<(Option<Kind>, Tat)>);

impl Tats {
    /// The state of the rate of the queue, or of a kind in it.
    pub fn get(&self, kind: Option<&Kind>) -> Tat {
        let at = self.0.binary_search_by(|(known, _)| known.as_ref().cmp(&kind));
        at.map_or_else(|_| Tat::default(), |at| self.0[at].1)
    }

    /// Replaces a state.
    pub fn put(&mut self, kind: Option<&Kind>, tat: Tat) {
        match self.0.binary_search_by(|(known, _)| known.as_ref().cmp(&kind)) {
            Ok(at) => self.0[at].1 = tat,
            Err(at) => self.0.insert(at, (kind.cloned(), tat)),
        }
    }

    /// Drops the states for which there is no rate. Says whether there were any.
    pub(crate) fn retain_rates_of(&mut self, queue: &Queue) -> bool {
        let before = self.0.len();
        self.0.retain(|(kind, _)| queue.settings.flow.rate_of(kind.as_ref()).is_some());
        self.0.len() < before
    }

    /// Each state, the queue's own first, then by kind.
    pub fn iter(&self) -> impl Iterator<Item = (Option<&Kind>, Tat)> {
        self.0.iter().map(|(kind, tat)| (kind.as_ref(), *tat))
    }

    /// Whether no rate was used.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Queue {
    /// Whether jobs of any kind without limits of its own may start.
    pub fn gate(&self, in_use: &InUse, now: Wall) -> Gate {
        let full = |most: MaxRunning| in_use.running >= u64::from(most.get());
        if self.is_paused() {
            Gate::Paused
        } else if self.settings.concurrency.is_some_and(full) {
            Gate::Full
        } else {
            limited(self.settings.flow.rate.as_ref(), in_use.tat, now)
        }
    }

    /// Whether another job of this kind may start.
    pub fn gate_of(&self, kind: &Kind, in_use: &InUse, now: Wall) -> Gate {
        let gate = self.gate(in_use, now);
        let limits = self.settings.flow.kind(kind);
        let (true, Some(limits)) = (gate == Gate::Open || gate.until().is_some(), limits) else {
            return gate;
        };
        if limits.concurrency.is_some_and(|most| in_use.of_kind >= u64::from(most.get())) {
            return Gate::KindFull;
        }
        let of_kind = limited(limits.rate.as_ref(), in_use.kind_tat, now);
        if gate.until() > of_kind.until() { gate } else { of_kind }
    }

    /// When to look again for jobs of a kind that is [rate limited](Gate::RateLimited).
    pub fn look_again_at(&self, kind: &Kind, in_use: &InUse, now: Wall) -> Wall {
        let again = |rate: &Rate, tat| {
            if rate.room(tat, now) > 0 { now } else { rate.look_again_at(tat, now) }
        };
        let flow = &self.settings.flow;
        let of_queue = flow.rate.as_ref().map_or(now, |rate| again(rate, in_use.tat));
        let of_kind = flow.rate_of(Some(kind)).map_or(now, |rate| again(rate, in_use.kind_tat));
        of_queue.max(of_kind)
    }
}

impl Gate {
    /// When it opens by itself, if it does.
    pub fn until(self) -> Option<Wall> {
        match self {
            Self::RateLimited { until } => Some(until),
            _ => None,
        }
    }
}

fn limited(rate: Option<&Rate>, tat: Tat, now: Wall) -> Gate {
    match rate {
        Some(rate) if rate.room(tat, now) == 0 => {
            Gate::RateLimited { until: rate.opens_at(tat, now) }
        }
        _ => Gate::Open,
    }
}
