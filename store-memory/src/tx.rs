//! The transaction port over the tables. It finds and keeps; `windlass_core::apply` decides.

use std::convert::Infallible;
use std::ops::Bound;

use windlass_core::store::{Changes, Cursor, DeadJob, LeaseCursor, Room, Tx};
use windlass_core::{
    IdempotencyKey, Job, JobId, KeyRecord, Kind, Payload, QueueName, QueueRow, Queues, Rank, View,
    Wall, WorkerId,
};

use crate::tables::{QueueTable, Tables};

/// An open transaction: it owns the tables for as long as it lasts.
pub(crate) struct MemoryTx<'a> {
    pub(crate) tables: &'a mut Tables,
    pub(crate) now: Wall,
}

impl MemoryTx<'_> {
    /// The rows of the jobs that `find` finds; they are counted.
    fn rows(&mut self, find: impl FnOnce(&Tables) -> Vec<JobId>) -> Vec<Job> {
        let ids = find(self.tables);
        self.tables.rows_read += ids.len() as u64;
        ids.iter().filter_map(|id| self.tables.jobs.get(id).cloned()).collect()
    }
}

impl MemoryTx<'_> {
    fn ready_from(
        &mut self,
        queue: &QueueName,
        kind: &Kind,
        from: Bound<Rank>,
        limit: usize,
    ) -> Vec<Job> {
        self.rows(|tables| {
            let queue = tables.queues.get(queue);
            let Some(table) = queue.and_then(|queue| queue.kinds.get(kind)) else {
                return Vec::new();
            };
            let ranks = table.ready.range((from, Bound::Unbounded));
            ranks.take(limit).map(|rank| rank.id).collect()
        })
    }
}

type Found<T> = Result<T, Infallible>;

impl Tx for MemoryTx<'_> {
    type Error = Infallible;

    fn now(&self) -> Wall {
        self.now
    }

    fn jobs(&mut self, ids: &[JobId]) -> Found<Vec<Option<Job>>> {
        self.tables.rows_read += ids.len() as u64;
        Ok(ids.iter().map(|id| self.tables.jobs.get(id).cloned()).collect())
    }

    fn keys(&mut self, keys: &[IdempotencyKey]) -> Found<Vec<Option<KeyRecord>>> {
        Ok(keys.iter().map(|key| self.tables.keys.get(key).cloned()).collect())
    }

    fn queues(&mut self, queues: &Queues) -> Found<Vec<QueueRow>> {
        Ok(match queues {
            Queues::All => self.tables.queues.values().map(QueueTable::row).collect(),
            Queues::Only(names) => {
                let found = names.iter().filter_map(|name| self.tables.queues.get(name));
                found.map(QueueTable::row).collect()
            }
        })
    }

    fn queue_count(&mut self) -> Found<usize> {
        Ok(self.tables.queues.len())
    }

    fn heads(&mut self, of: &[(QueueName, Kind)], limit: usize) -> Found<Vec<Vec<Job>>> {
        let first = Bound::Unbounded;
        Ok(of.iter().map(|(queue, kind)| self.ready_from(queue, kind, first, limit)).collect())
    }

    fn ready(
        &mut self,
        queue: &QueueName,
        kind: &Kind,
        after: Rank,
        limit: usize,
    ) -> Found<Vec<Job>> {
        Ok(self.ready_from(queue, kind, Bound::Excluded(after), limit))
    }

    fn due(&mut self, now: Wall, limit: usize) -> Found<Vec<Job>> {
        Ok(self.rows(|tables| {
            let due = tables.scheduled.range(..=Cursor { at: now, id: JobId::LAST });
            due.take(limit).map(|cursor| cursor.id).collect()
        }))
    }

    fn expired(&mut self, now: Wall, after: Option<LeaseCursor>, limit: usize) -> Found<Vec<Job>> {
        let to = LeaseCursor { until: now, id: JobId::LAST };
        if after.is_some_and(|after| after >= to) {
            return Ok(Vec::new());
        }
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        Ok(self.rows(|tables| {
            let expired = tables.leased.range((from, Bound::Included(to)));
            expired.take(limit).map(|cursor| cursor.id).collect()
        }))
    }

    fn finished(&mut self, view: View, before: Wall, limit: usize) -> Found<Vec<Job>> {
        Ok(self.rows(|tables| {
            let Some(set) = tables.finished(view) else { return Vec::new() };
            let old = set.range(..=Cursor { at: before, id: JobId::LAST });
            old.take(limit).map(|cursor| cursor.id).collect()
        }))
    }

    fn dead(
        &mut self,
        queue: Option<&QueueName>,
        kind: Option<&Kind>,
        after: Option<Cursor>,
        limit: usize,
    ) -> Found<(Vec<DeadJob>, Option<Cursor>)> {
        let to = after.map_or(Bound::Unbounded, Bound::Excluded);
        let page = self.tables.failed.range((Bound::Unbounded, to)).rev().take(limit);
        let page: Vec<Cursor> = page.copied().collect();
        let next = page.last().copied().filter(|_| page.len() == limit);
        self.tables.rows_read += page.len() as u64;
        let wanted = |job: &&Job| {
            queue.is_none_or(|queue| job.queue == *queue)
                && kind.is_none_or(|kind| job.kind == *kind)
        };
        let jobs = page.iter().filter_map(|cursor| self.tables.jobs.get(&cursor.id));
        let dead = jobs.filter(wanted).map(|job| {
            let error = self.tables.errors.get(&job.id).cloned();
            DeadJob { job: job.clone(), error }
        });
        Ok((dead.collect(), next))
    }

    fn payloads(&mut self, ids: &[JobId], bytes: usize) -> Found<Vec<Payload>> {
        let (null, mut room) = (Payload::null, Room::new(bytes));
        let payloads = ids.iter().map(|id| self.tables.payload(*id).unwrap_or_else(null));
        Ok(payloads.take_while(|payload| room.takes(payload.as_str().len())).collect())
    }

    fn orphan_keys(&mut self, now: Wall, limit: usize) -> Found<Vec<IdempotencyKey>> {
        let over = self.tables.orphans.iter().take_while(|(until, _)| *until <= now);
        Ok(over.take(limit).map(|(_, key)| key.clone()).collect())
    }

    fn next_due(&mut self) -> Found<Option<Wall>> {
        Ok(self.tables.scheduled.first().map(|cursor| cursor.at))
    }

    fn next_expiry(&mut self) -> Found<Option<Wall>> {
        Ok(self.tables.leased.first().map(|cursor| cursor.until))
    }

    fn has_silent(&mut self, before: Wall) -> Found<bool> {
        let marker = self.tables.markers.values().any(|marker| marker.at < before);
        Ok(marker || self.tables.workers.values().any(|seen| seen.last < before))
    }

    fn stop_marks(&mut self, ids: &[WorkerId]) -> Found<Vec<Option<bool>>> {
        let workers = &self.tables.workers;
        Ok(ids.iter().map(|id| workers.get(id).map(|seen| seen.stopping)).collect())
    }

    fn next_id(&mut self) -> Found<JobId> {
        Ok(self.tables.next_id())
    }

    fn write(&mut self, changes: Changes) -> Found<()> {
        self.tables.write(changes, self.now);
        Ok(())
    }
}
