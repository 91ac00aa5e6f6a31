//! Limited queues of a batch: held, and their jobs counted, before any row is held.

use std::collections::BTreeSet;

use windlass_core::store::{EmptyQueues, Questions, QueueSweep};
use windlass_core::{Counts, Queue, QueueName};

use crate::answer::Transaction;
use crate::find;
use crate::rows::{get, id_codes};
use crate::session::{Flight, Found, params};

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
            let counts = flight.add(COUNTS, params![wanted.iter().copied().collect::<Vec<i32>>()]);
            let mut returned = self.session.fly(flight, self.hook)?;
            self.check_version(&returned.take(version))?;
            return self.learn_counts(&wanted, &returned.take(counts));
        }
        let mut returned = self.session.fly(flight, self.hook)?;
        self.check_version(&returned.take(version))?;
        for row in returned.take_of(peek) {
            wanted.extend(Some(get(&row, 0)?).filter(|queue| limited.contains(queue)));
        }
        self.count_held(&wanted)
    }

    /// Holds these queues, and counts their jobs.
    pub(crate) fn count_held(&mut self, queues: &BTreeSet<i32>) -> Found<()> {
        if queues.is_empty() {
            return Ok(());
        }
        let mut flight = Flight::default();
        self.lock_queues(&mut flight, queues);
        let counts = flight.add(COUNTS, params![queues.iter().copied().collect::<Vec<i32>>()]);
        let mut returned = self.session.fly(flight, self.hook)?;
        self.learn_counts(queues, &returned.take(counts))
    }

    fn lock_queues(&self, flight: &mut Flight, queues: &BTreeSet<i32>) {
        if !self.alone {
            let ids: Vec<i64> = queues.iter().map(|queue| self.locks.queue(*queue)).collect();
            flight.add(LOCK_ALL, params![ids]);
        }
    }

    fn learn_counts(&mut self, queues: &BTreeSet<i32>, rows: &[tokio_postgres::Row]) -> Found<()> {
        self.counts.extend(queues.iter().map(|queue| (*queue, Counts::default())));
        for row in rows {
            self.counts.insert(get(row, 0)?, find::counts(row, 1)?);
        }
        Ok(())
    }

    /// The queues of a page that have no jobs. The names are held alone, so none gets one.
    pub(crate) fn empty_queues(&mut self, page: &QueueSweep) -> Found<EmptyQueues> {
        let after = |name: &QueueName| page.after.as_ref().is_none_or(|after| name > after);
        let behind = self.names.queues_by_name().filter(|(_, queue)| after(&queue.name));
        let looked: Vec<(i32, Queue)> =
            behind.take(page.limit).map(|(id, queue)| (id, queue.clone())).collect();
        let unknown = looked.iter().map(|(id, _)| *id);
        let unknown = unknown.filter(|id| !self.counts.contains_key(id)).collect();
        self.count_held(&unknown)?;
        let next = looked.last().filter(|_| looked.len() == page.limit);
        let next = next.map(|(_, queue)| queue.name.clone());
        let is_empty = |id: &i32| self.counts.get(id).is_none_or(Counts::is_empty);
        let empty = looked.into_iter().filter(|(id, _)| is_empty(id));
        Ok(EmptyQueues { queues: empty.map(|(_, queue)| queue).collect(), next })
    }
}

const LOCK_ALL: &str = "SELECT pg_advisory_xact_lock(id) FROM unnest($1::bigint[]) AS id";
const COUNTS: &str = "SELECT queue, sum(queued)::bigint, sum(scheduled)::bigint, \
    sum(processing)::bigint, sum(done)::bigint, sum(failed)::bigint, sum(cancelled)::bigint, \
    sum(retrying)::bigint \
    FROM counts WHERE queue = ANY($1::integer[]) GROUP BY queue";
/// The queues of jobs that are named, or that keys name.
const PEEK: &str = "SELECT queue FROM jobs WHERE id = ANY($1::bigint[]) \
    UNION SELECT queue FROM keys JOIN jobs ON id = job WHERE key = ANY($2::text[])";
