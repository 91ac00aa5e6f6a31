//! Reads of committed states. Each call takes the lock once and sees one state.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::{PoisonError, RwLockReadGuard};

use windlass_core::store::{
    BulkRow, CopyPlace, CopyRows, Cursor, Dump, FigureRange, FigureRow, Filter, JobDetail, Listing,
    Page, PageSize, Reader, StoreError, WorkerRow,
};
use windlass_core::{
    Attempt, Epoch, GroupId, GroupRow, Job, JobId, KeyRecord, QueueName, QueueRow, SettingKey,
    SettingValue, View, Wall,
};

use crate::tables::{QueueTable, Shared, Tables, grouped};

/// A reader of a [`MemoryStore`](crate::MemoryStore), for any thread.
#[derive(Debug, Clone)]
pub struct MemoryReader {
    pub(crate) tables: Shared<Tables>,
}

impl MemoryReader {
    fn tables(&self) -> RwLockReadGuard<'_, Tables> {
        self.tables.read().unwrap_or_else(PoisonError::into_inner)
    }
}

type Found<T> = Result<T, StoreError>;

impl Reader for MemoryReader {
    fn jobs(&mut self, ids: &[JobId]) -> Found<Vec<Option<JobDetail>>> {
        let tables = self.tables();
        Ok(ids.iter().map(|id| tables.detail(*id)).collect())
    }

    fn list(&mut self, filter: &Filter, after: Option<Cursor>, limit: usize) -> Found<Page> {
        let tables = self.tables();
        let mut listing = Listing::new(filter, after, limit);
        while let Some((after, rows)) = listing.wanted() {
            let places = tables.places(filter, after).take(rows);
            listing.add(places.filter_map(|place| tables.jobs.get(&place.id).cloned()).collect());
        }
        Ok(listing.page())
    }

    fn queues(&mut self) -> Found<Vec<QueueRow>> {
        Ok(self.tables().queues.values().map(QueueTable::row).collect())
    }

    fn queue(&mut self, name: &QueueName) -> Found<Option<QueueRow>> {
        Ok(self.tables().queues.get(name).map(QueueTable::row))
    }

    fn oldest_ready(&mut self, queue: &QueueName) -> Found<Option<Wall>> {
        let tables = self.tables();
        let first = tables.queues.get(queue).and_then(|queue| queue.waiting.first());
        Ok(first.and_then(|cursor| tables.jobs.get(&cursor.id)).map(|job| job.run_at))
    }

    fn next_due(&mut self) -> Found<Option<Wall>> {
        Ok(self.tables().scheduled.first().map(|cursor| cursor.at))
    }

    fn attempts(&mut self, id: JobId) -> Found<Vec<Attempt>> {
        let tables = self.tables();
        let all = tables.attempts.range((id, Epoch::NEVER)..=(id, Epoch::new(u64::MAX)));
        Ok(all.map(|(_, attempt)| attempt.clone()).collect())
    }

    fn workers(&mut self) -> Found<Vec<WorkerRow>> {
        Ok(self.tables().worker_rows())
    }

    fn error_groups(&mut self) -> Found<Vec<GroupRow>> {
        Ok(self.tables().groups.values().cloned().collect())
    }

    fn error_group(&mut self, id: GroupId) -> Found<Option<GroupRow>> {
        Ok(self.tables().groups.get(&id).cloned())
    }

    fn settings(&mut self) -> Found<Vec<(SettingKey, SettingValue)>> {
        let tables = self.tables();
        Ok(tables.settings.iter().map(|(key, value)| (key.clone(), value.clone())).collect())
    }

    fn figures(&mut self, ranges: &[FigureRange]) -> Found<Vec<FigureRow>> {
        let tables = self.tables();
        let rows = ranges.iter().flat_map(|FigureRange { span, from, to }| {
            tables.figure_rows(*span, Bound::Included(*from), Bound::Excluded(*to))
        });
        Ok(rows.collect())
    }

    fn bulk(&mut self) -> Found<Vec<BulkRow>> {
        Ok(self.tables().bulk_rows())
    }

    fn copy_page(&mut self, after: &CopyPlace, size: PageSize) -> Found<CopyRows> {
        Ok(self.tables().copy_page(after, size))
    }

    fn dump(&mut self) -> Found<Dump> {
        let tables = self.tables();
        let row = |key, data: &Vec<u8>| FigureRow { key, data: data.clone() };
        Ok(Dump {
            next_id: tables.next_id(),
            jobs: tables.jobs.keys().filter_map(|id| tables.detail(*id)).collect(),
            queues: tables.queues.values().map(QueueTable::row).collect(),
            keys: tables.keys.values().cloned().collect(),
            attempts: tables.attempts.values().cloned().collect(),
            workers: tables.worker_rows(),
            settings: tables.settings.iter().map(|(k, v)| (k.clone(), v.clone())).collect(),
            markers: tables.markers.values().copied().collect(),
            groups: tables.groups.values().cloned().collect(),
            figures: tables.figures.iter().map(|(key, data)| row(*key, data)).collect(),
            bulk: tables.bulk_rows(),
        })
    }
}

impl Tables {
    pub(crate) fn finished(&self, view: View) -> Option<&BTreeSet<Cursor>> {
        match view {
            View::Done => Some(&self.done),
            View::Failed => Some(&self.failed),
            View::Cancelled => Some(&self.cancelled),
            View::Queued | View::Scheduled | View::Processing => None,
        }
    }

    /// The places of jobs in a filter's order, behind `after`. The narrowest key table is walked.
    pub(crate) fn places(
        &self,
        filter: &Filter,
        after: Option<Cursor>,
    ) -> Box<dyn Iterator<Item = Cursor> + '_> {
        if let Some(group) = filter.group {
            return Box::new(self.of_group(group, after));
        }
        let down = move |set| down(set, after);
        match filter.view {
            Some(View::Queued) => match filter.queue.as_ref() {
                Some(name) => {
                    let waiting = self.queues.get(name).map(|queue| &queue.waiting);
                    Box::new(waiting.into_iter().flat_map(down))
                }
                None => Box::new(self.merged_waiting(after)),
            },
            Some(View::Scheduled) => Box::new(down(&self.scheduled)),
            Some(View::Processing) => Box::new(down(&self.leased)),
            Some(view) => Box::new(self.finished(view).into_iter().flat_map(down)),
            None => {
                let to = after.map_or(Bound::Unbounded, |after| Bound::Excluded(after.id));
                let ids = self.jobs.range((Bound::Unbounded, to)).rev();
                Box::new(ids.map(|(id, _)| Cursor { at: Wall::new(0), id: *id }))
            }
        }
    }

    fn of_group(&self, group: GroupId, after: Option<Cursor>) -> impl Iterator<Item = Cursor> {
        let (first, last) = (Cursor { at: Wall::new(i64::MIN), id: JobId::FIRST }, LAST);
        let to =
            after.map_or(Bound::Included((group, last)), |after| Bound::Excluded((group, after)));
        let found = self.grouped.range((Bound::Included((group, first)), to)).rev();
        found.map(|(_, place)| *place)
    }

    /// Ready jobs of all queues: the greatest of the queues' own greatest, again and again.
    fn merged_waiting(&self, after: Option<Cursor>) -> impl Iterator<Item = Cursor> {
        let heads = self.queues.values().map(|queue| down(&queue.waiting, after).peekable());
        let mut heads: Vec<_> = heads.collect();
        std::iter::from_fn(move || {
            let tops = heads.iter_mut().enumerate().map(|(at, head)| (head.peek().copied(), at));
            let (_, best) = tops.max()?;
            heads[best].next()
        })
    }
}

/// Behind every place.
const LAST: Cursor = Cursor { at: Wall::MAX, id: JobId::LAST };

/// The places of a key table from the greatest down, behind `after`.
fn down(set: &BTreeSet<Cursor>, after: Option<Cursor>) -> impl Iterator<Item = Cursor> + use<'_> {
    let to = after.map_or(Bound::Unbounded, Bound::Excluded);
    set.range((Bound::Unbounded, to)).rev().copied()
}

/// Whether the key tables hold exactly what the rows say.
pub(crate) fn keys_agree(tables: &Tables) -> Vec<String> {
    let mut found = Vec::new();
    let mut fresh = Tables::default();
    let jobs: Vec<Job> = tables.jobs.values().cloned().collect();
    let changes = windlass_core::store::Changes { inserts: jobs, ..Default::default() };
    fresh.write(changes, Wall::new(0));
    let mut say = |same: bool, name: &str| {
        if !same {
            found.push(format!("the {name} keys do not match the rows"));
        }
    };
    say(fresh.scheduled == tables.scheduled, "scheduled");
    say(fresh.leased == tables.leased, "leased");
    say(fresh.done == tables.done, "done");
    say(fresh.failed == tables.failed, "failed");
    say(fresh.cancelled == tables.cancelled, "cancelled");
    let groups: BTreeSet<_> = tables.jobs.values().filter_map(grouped).collect();
    say(groups == tables.grouped, "error group");
    let there = |id: &JobId| tables.jobs.contains_key(id);
    say(tables.docs.keys().all(|(id, _)| there(id)), "document");
    say(tables.errors.keys().all(there), "error");
    let orphan = |record: &KeyRecord| Some((record.orphan_until?, record.key.clone()));
    let orphans: BTreeSet<_> = tables.keys.values().filter_map(orphan).collect();
    say(orphans == tables.orphans, "orphan");
    let ready = |tables: &Tables| -> Vec<_> {
        let queues = tables.queues.iter().filter(|(_, queue)| !queue.waiting.is_empty());
        let kinds = |queue: &QueueTable| -> Vec<_> {
            let kinds = queue.kinds.iter().filter(|(_, kind)| !kind.ready.is_empty());
            kinds.map(|(kind, table)| (kind.clone(), table.ready.clone())).collect()
        };
        queues.map(|(name, q)| (name.clone(), q.waiting.clone(), kinds(q))).collect()
    };
    say(ready(&fresh) == ready(tables), "ready");
    say(fresh.heads == tables.heads, "best ready");
    let limited = tables.queues.values().filter(|table| table.queue.is_limited());
    let limited: BTreeSet<_> = limited.map(|table| table.queue.name.clone()).collect();
    say(limited == tables.limited, "limited queue");
    found
}
