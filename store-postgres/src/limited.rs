//! Limited queues of a batch: held, and their jobs counted, before any row is held.

use std::collections::{BTreeMap, BTreeSet};

use windlass_core::store::{EmptyQueues, Questions, QueueSweep};
use windlass_core::{Counts, Kind, Millis, Queue, QueueName, Tats, Usage, Wall};

use crate::answer::Transaction;
use crate::find;
use crate::rows::{bad, get, id_codes};
use crate::session::{Flight, FlightRows, Found, Place, params};

/// More queues than this are not locked one by one.
const MOST_QUEUE_LOCKS: usize = 64;

impl Transaction<'_> {
    /// Holds the limited queues that the batch may count, before any row is held, and counts them.
    pub(crate) fn hold_limited(&mut self, asked: &Questions) -> Found<()> {
        let limited: BTreeSet<i32> = self.names.limited().map(|(id, _)| id).collect();
        let counted = asked.counted.iter().filter_map(|name| self.names.queue_id(name));
        let mut wanted: BTreeSet<i32> = counted.collect();
        if limited.is_empty() && wanted.is_empty() {
            return Ok(());
        }
        let sweeps = asked.due.is_some()
            || asked.expired.is_some()
            || !asked.finished.is_empty()
            || !asked.dead.is_empty();
        let named = |queue: &QueueName| {
            sweeps
                || asked.queues.binary_search(queue).is_ok()
                || asked.wants.iter().any(|want| want.demand.queues.includes(queue))
        };
        let by_name = self.names.limited().filter(|(_, queue)| named(&queue.name));
        wanted.extend(by_name.map(|(id, _)| id));
        let peeks = !asked.jobs.is_empty() || !asked.keys.is_empty();
        if wanted.is_empty() && !peeks {
            return Ok(());
        }
        self.alone |= wanted.len() > MOST_QUEUE_LOCKS;
        let mut flight = Flight::default();
        let version = self.begin(&mut flight, asked);
        let peek = (peeks && !limited.is_empty()).then(|| {
            let keys: Vec<String> = asked.keys.iter().map(|key| key.as_str().to_owned()).collect();
            flight.add(PEEK, params![id_codes(&asked.jobs), keys])
        });
        if peek.is_none() {
            self.lock_queues(&mut flight, &wanted);
            let places = Places::ask(&mut flight, &wanted);
            let mut returned = self.session.fly(flight, self.hook)?;
            self.check_version(&returned.take(version))?;
            return self.learn_usage(&wanted, &places, &mut returned);
        }
        let mut returned = self.session.fly(flight, self.hook)?;
        self.check_version(&returned.take(version))?;
        for row in returned.take_of(peek) {
            wanted.extend(Some(get(&row, 0)?).filter(|queue| limited.contains(queue)));
        }
        self.count_held(&wanted)
    }

    /// Holds these queues, and reads what counts against their limits.
    pub(crate) fn count_held(&mut self, queues: &BTreeSet<i32>) -> Found<()> {
        if queues.is_empty() {
            return Ok(());
        }
        let mut flight = Flight::default();
        self.lock_queues(&mut flight, queues);
        let places = Places::ask(&mut flight, queues);
        let mut returned = self.session.fly(flight, self.hook)?;
        self.learn_usage(queues, &places, &mut returned)
    }

    fn lock_queues(&self, flight: &mut Flight, queues: &BTreeSet<i32>) {
        if !self.alone {
            let ids: Vec<i64> = queues.iter().map(|queue| self.locks.queue(*queue)).collect();
            flight.add(LOCK_ALL, params![ids]);
        }
    }

    fn learn_usage(
        &mut self,
        queues: &BTreeSet<i32>,
        places: &Places,
        returned: &mut FlightRows,
    ) -> Found<()> {
        let mut kinds: BTreeMap<i32, Vec<(Kind, Counts)>> = BTreeMap::new();
        for row in returned.take(places.counts) {
            let kind = self.names.kind_name(get(&row, 1)?)?.clone();
            kinds.entry(get(&row, 0)?).or_default().push((kind, find::counts(&row, 2)?));
        }
        let mut tats: BTreeMap<i32, Tats> = BTreeMap::new();
        for row in returned.take(places.tats) {
            tats.insert(get(&row, 0)?, Tats::parse(get(&row, 1)?).map_err(bad)?);
        }
        for queue in queues {
            let kinds = kinds.remove(queue).unwrap_or_default();
            let kinds = kinds.iter().map(|(kind, counts)| (kind, counts));
            let usage = Usage::new(kinds, tats.remove(queue).unwrap_or_default());
            self.usages.insert(*queue, usage);
        }
        let now = returned.take(places.now).first().map(|row| get(row, 0)).transpose()?;
        self.limits_read_at = now.map(Wall::new);
        Ok(())
    }

    /// The instant at which rates are looked at before the rows are held: a moment ahead, since
    /// core looks again by the clock at which they are.
    pub(crate) fn rates_at(&self) -> Wall {
        let ahead = |at: Wall| at.plus(AHEAD);
        self.clock.or(self.limits_read_at.map(ahead)).unwrap_or(self.now)
    }

    /// The queues of a page that have no jobs. The names are held alone, so none gets one.
    pub(crate) fn empty_queues(&mut self, page: &QueueSweep) -> Found<EmptyQueues> {
        let after = |name: &QueueName| page.after.as_ref().is_none_or(|after| name > after);
        let behind = self.names.queues_by_name().filter(|(_, queue)| after(&queue.name));
        let looked: Vec<(i32, Queue)> =
            behind.take(page.limit).map(|(id, queue)| (id, queue.clone())).collect();
        let unknown = looked.iter().map(|(id, _)| *id);
        let unknown = unknown.filter(|id| !self.usages.contains_key(id)).collect();
        self.count_held(&unknown)?;
        let next = looked.last().filter(|_| looked.len() == page.limit);
        let next = next.map(|(_, queue)| queue.name.clone());
        let is_empty = |id: &i32| self.usages.get(id).is_none_or(|usage| usage.counts.is_empty());
        let empty = looked.into_iter().filter(|(id, _)| is_empty(id));
        Ok(EmptyQueues { queues: empty.map(|(_, queue)| queue).collect(), next })
    }
}

/// The places of what counts against limits in a flight.
struct Places {
    counts: Place,
    tats: Place,
    now: Place,
}

impl Places {
    fn ask(flight: &mut Flight, queues: &BTreeSet<i32>) -> Self {
        let ids: Vec<i32> = queues.iter().copied().collect();
        let counts = flight.add(COUNTS, params![ids.clone()]);
        let tats = flight.add(TATS, params![ids]);
        Self { counts, tats, now: flight.add(find::NOW, vec![]) }
    }
}

const LOCK_ALL: &str = "SELECT pg_advisory_xact_lock(id) FROM unnest($1::bigint[]) AS id";
const COUNTS: &str = "SELECT queue, kind, sum(queued)::bigint, sum(scheduled)::bigint, \
    sum(processing)::bigint, sum(done)::bigint, sum(failed)::bigint, sum(cancelled)::bigint, \
    sum(retrying)::bigint \
    FROM counts WHERE queue = ANY($1::integer[]) GROUP BY queue, kind";
const TATS: &str = "SELECT queue, tats FROM rates WHERE queue = ANY($1::integer[])";
/// Longer than what a flight takes after the look at the rates, as a rule.
const AHEAD: Millis = Millis::new(50);
/// The queues of jobs that are named, or that keys name.
const PEEK: &str = "SELECT queue FROM jobs WHERE id = ANY($1::bigint[]) \
    UNION SELECT queue FROM keys JOIN jobs ON id = job WHERE key = ANY($2::text[])";
