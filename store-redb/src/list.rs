//! Lists of jobs, newest first. Every filter seeks: where a table holds several queues, kinds or
//! priorities one behind the other, their lists are merged.

use std::ops::Bound;

use redb::{ReadableTable, TableDefinition, Value};
use windlass_core::store::{Cursor, Filter, Listing, Page};
use windlass_core::{IdempotencyKey, Job, JobId, QueueName, Rank, View, Wall};
use windlass_store_file::newest_of;

use crate::find::Rows;
use crate::groups;
use crate::rows;
use crate::tables::{
    Access, COUNTS, Found, JOBS, KEYED, LEASED, PAIRS, READY, SETTLED, cursor_key, job_id, job_key,
    keyed_key, last_id, last_place, pair, pair_key, ready_bounds, ready_key, ready_place,
    settled_key, time_key, time_place, time_table,
};

/// A queue and a kind.
type Pair = (u32, u32);

/// Ready jobs of one queue and kind that are ordered by when they fell due.
struct Group {
    pair: Pair,
    class: i16,
    turn: u64,
}

impl<A: Access> Rows<'_, A> {
    /// A page of a list.
    pub(crate) fn list(
        &mut self,
        filter: &Filter,
        after: Option<Cursor>,
        limit: usize,
    ) -> Found<Page> {
        let mut listing = Listing::new(filter, after, limit);
        while let Some((after, rows)) = listing.wanted() {
            listing.add(self.newest(filter, after, rows)?);
        }
        Ok(listing.page())
    }

    /// When the ready job of a queue that has waited longest fell due.
    pub(crate) fn oldest_ready(&mut self, queue: &QueueName) -> Found<Option<Wall>> {
        let ready = Filter { view: Some(View::Queued), ..Filter::default() };
        let pairs = self.pairs(&Filter { queue: Some(queue.clone()), ..ready })?;
        let first = self.groups(&pairs)?.into_iter().map(|(_, first)| first).min();
        let jobs = self.jobs(first.map(|first| first.id).as_slice())?;
        Ok(jobs.into_iter().flatten().map(|job| job.run_at).next())
    }

    /// The next jobs behind `after` by the filter's order: all that it includes, perhaps others.
    fn newest(&mut self, filter: &Filter, after: Option<Cursor>, limit: usize) -> Found<Vec<Job>> {
        if let Some(id) = filter.id {
            return self.named(filter, after, &[id]);
        }
        if let Some(key) = &filter.key {
            let ids = self.with_key(key)?;
            return self.named(filter, after, &ids);
        }
        if let Some(group) = filter.group {
            let found = groups::newest(self.access, group, after, limit)?;
            let ids: Vec<JobId> = found.iter().map(|place| place.id).collect();
            return self.indexed(&ids);
        }
        let narrow = filter.queue.is_some() || filter.kind.is_some();
        let found = match filter.view {
            None if !narrow => self.by_id(after, limit)?,
            Some(View::Queued) => {
                let pairs = self.pairs(filter)?;
                let groups = self.groups(&pairs)?;
                newest_of(&groups, after, limit, |(group, _), after, limit| {
                    self.of_group(group, after, limit)
                })?
            }
            // Leased jobs are few: no more than the workers have slots.
            Some(View::Processing) => self.last(LEASED, after, limit)?,
            Some(view) if !narrow => match time_table(view) {
                Some(table) => self.last(table, after, limit)?,
                None => Vec::new(),
            },
            view => {
                let pairs = self.pairs(filter)?;
                newest_of(&pairs, after, limit, |pair, after, limit| match view {
                    None => self.of_pair(*pair, after, limit),
                    Some(view) => self.settled(*pair, view, after, limit),
                })?
            }
        };
        let ids: Vec<JobId> = found.iter().map(|place| place.id).collect();
        self.indexed(&ids)
    }

    /// Those of these jobs that are behind `after`, in the filter's order.
    fn named(&mut self, filter: &Filter, after: Option<Cursor>, ids: &[JobId]) -> Found<Vec<Job>> {
        let mut jobs: Vec<Job> = self.jobs(ids)?.into_iter().flatten().collect();
        jobs.retain(|job| {
            filter.includes(job) && after.is_none_or(|after| filter.place(job) < after)
        });
        jobs.sort_by_key(|job| std::cmp::Reverse(filter.place(job)));
        Ok(jobs)
    }

    fn with_key(&self, key: &IdempotencyKey) -> Found<Vec<JobId>> {
        let (first, last) = (keyed_key(key.as_str(), 0), keyed_key(key.as_str(), u64::MAX));
        let mut found = Vec::new();
        for row in self.access.open(KEYED)?.range(first.as_slice()..=last.as_slice())? {
            let (row, ()) = (row?.0, ());
            // Between them are longer keys that start alike.
            if row.value().len() == first.len() {
                found.push(last_id(row.value())?);
            }
        }
        Ok(found)
    }

    fn by_id(&self, after: Option<Cursor>, limit: usize) -> Found<Vec<Cursor>> {
        let jobs = self.access.open(JOBS)?;
        let to = after.map_or(Bound::Unbounded, |after| Bound::Excluded(after.id.get()));
        let ids = jobs.range::<u64>((Bound::Unbounded, to))?.rev().take(limit);
        ids.map(|row| Ok(unordered(job_id(row?.0.value())?))).collect()
    }

    /// The last places of a table by time.
    pub(crate) fn last<V: Value + 'static>(
        &self,
        table: TableDefinition<'_, &'static [u8; 16], V>,
        after: Option<Cursor>,
        limit: usize,
    ) -> Found<Vec<Cursor>> {
        let table = self.access.open(table)?;
        let to = after.map(cursor_key);
        let to = to.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let places = table.range::<&[u8; 16]>((Bound::Unbounded, to))?.rev().take(limit);
        places.map(|row| time_place(row?.0.value())).collect()
    }

    /// The queues and kinds that may have jobs which the filter includes.
    fn pairs(&mut self, filter: &Filter) -> Found<Vec<Pair>> {
        let (mut queue, mut kind) = (None, None);
        if let Some(name) = &filter.queue {
            queue = self.names.queues.number(self.access, name)?;
        }
        if let Some(name) = &filter.kind {
            kind = self.names.kinds.number(self.access, name)?;
        }
        if queue.is_some() != filter.queue.is_some() || kind.is_some() != filter.kind.is_some() {
            return Ok(Vec::new());
        }
        let (first, last) = (pair_key(queue.unwrap_or(0), 0), u32::MAX);
        let last = pair_key(queue.unwrap_or(last), last);
        let mut found = Vec::new();
        for row in self.access.open(COUNTS)?.range::<&[u8; 8]>(&first..=&last)? {
            let (key, row) = row?;
            let counted = pair(*key.value());
            let counts = rows::counts(row.value())?;
            let empty = filter.view.is_some_and(|view| counts.get(view) == 0);
            if !empty && kind.is_none_or(|kind| kind == counted.1) {
                found.push(counted);
            }
        }
        Ok(found)
    }

    /// The groups of ready jobs of these queues and kinds, each with the place of its first job.
    fn groups(&self, pairs: &[Pair]) -> Found<Vec<(Group, Cursor)>> {
        let ready = self.access.open(READY)?;
        let mut found = Vec::new();
        for pair in pairs {
            let (first, last) = ready_bounds(pair.0, pair.1);
            let mut from = Bound::Included(first);
            loop {
                let range = (from.as_ref(), Bound::Included(&last));
                let Some(row) = ready.range::<&[u8; 34]>(range)?.next() else { break };
                let (_, Rank { class, turn, due, id }) = ready_place(row?.0.value())?;
                found.push((Group { pair: *pair, class, turn }, Cursor { at: due, id }));
                let end = Rank { class, turn, due: Wall::MAX, id: JobId::LAST };
                from = Bound::Excluded(ready_key(pair.0, pair.1, end));
            }
        }
        Ok(found)
    }

    fn of_group(&self, group: &Group, after: Option<Cursor>, limit: usize) -> Found<Vec<Cursor>> {
        let Group { pair: (queue, kind), class, turn } = *group;
        let key = |due, id| ready_key(queue, kind, Rank { class, turn, due, id });
        let first = key(Wall::new(i64::MIN), JobId::FIRST);
        let last = match after {
            Some(after) => Bound::Excluded(key(after.at, after.id)),
            None => Bound::Included(key(Wall::MAX, JobId::LAST)),
        };
        let ready = self.access.open(READY)?;
        let range = ready.range::<&[u8; 34]>((Bound::Included(&first), last.as_ref()))?;
        range.rev().take(limit).map(|row| last_place(row?.0.value())).collect()
    }

    fn of_pair(
        &self,
        (queue, kind): Pair,
        after: Option<Cursor>,
        limit: usize,
    ) -> Found<Vec<Cursor>> {
        let first = job_key(queue, kind, 0);
        let last = job_key(queue, kind, after.map_or(u64::MAX, |after| after.id.get()));
        let pairs = self.access.open(PAIRS)?;
        let range = pairs.range::<&[u8; 16]>(&first..&last)?;
        range.rev().take(limit).map(|row| Ok(unordered(last_id(row?.0.value())?))).collect()
    }

    fn settled(
        &self,
        (queue, kind): Pair,
        view: View,
        after: Option<Cursor>,
        limit: usize,
    ) -> Found<Vec<Cursor>> {
        let first = settled_key(queue, kind, view, [0; 16]);
        let last = after.map_or(time_key(Wall::MAX, u64::MAX), cursor_key);
        let last = settled_key(queue, kind, view, last);
        let settled = self.access.open(SETTLED)?;
        let range = settled.range::<&[u8; 25]>(&first..&last)?;
        range.rev().take(limit).map(|row| last_place(row?.0.value())).collect()
    }
}

/// A place in a list ordered by id alone.
fn unordered(id: JobId) -> Cursor {
    Cursor { at: Wall::new(0), id }
}
