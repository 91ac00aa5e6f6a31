//! Reads of committed states. Each call is one snapshot, beside the writer and never in its way.

use std::collections::BinaryHeap;
use std::ops::Bound;
use std::sync::Arc;

use redb::{ReadTransaction, ReadableTable};
use windlass_core::store::{
    Cursor, Dump, Filter, JobDetail, Listing, Marker, Page, Reader, StoreError, WorkerRow,
};
use windlass_core::{
    Attempt, BatchId, Epoch, IdempotencyKey, Job, JobId, KeyRecord, Payload, QueueName, QueueRow,
    SettingKey, SettingValue, View, Wall, WorkerId,
};

use crate::bytes::utf8;
use crate::find::Rows;
use crate::names::Names;
use crate::rows::{self, bad};
use crate::slot::Slot;
use crate::tables::{
    ATTEMPTS, Access, COUNTS, Found, JOBS, KEYS, LEASED, MARKERS, PAYLOADS, PROGRESS, RESULTS,
    SETTINGS, WAITING, WORKERS, attempt_key, attempt_place, cursor_key, job_id, pair, time_place,
    time_table, waiting_key, waiting_place,
};

/// A reader of a [`RedbStore`](crate::RedbStore), for any thread.
#[derive(Debug)]
pub struct RedbReader {
    slot: Arc<Slot>,
    names: Names,
    /// Which opening of the file the names are of.
    opening: u64,
}

impl RedbReader {
    pub(crate) fn new(slot: Arc<Slot>) -> Self {
        Self { slot, names: Names::default(), opening: 0 }
    }

    fn read<R>(
        &mut self,
        read: impl FnOnce(&mut Snapshot<'_>) -> Found<R>,
    ) -> Result<R, StoreError> {
        let names = &mut self.names;
        let opening = &mut self.opening;
        self.slot.read(|txn, opened| {
            if *opening != opened {
                names.forget();
                *opening = opened;
            }
            read(&mut Rows { access: txn, names })
        })
    }
}

type Snapshot<'a> = Rows<'a, &'a ReadTransaction>;

impl Reader for RedbReader {
    fn jobs(&mut self, ids: &[JobId]) -> Result<Vec<Option<JobDetail>>, StoreError> {
        self.read(|rows| {
            let jobs = rows.jobs(ids)?;
            jobs.into_iter().map(|job| job.map(|job| rows.detail(job)).transpose()).collect()
        })
    }

    fn list(
        &mut self,
        filter: &Filter,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        self.read(|rows| rows.list(filter, after, limit))
    }

    fn queues(&mut self) -> Result<Vec<QueueRow>, StoreError> {
        self.read(queues)
    }

    fn queue(&mut self, name: &QueueName) -> Result<Option<QueueRow>, StoreError> {
        self.read(|rows| rows.queue_row(name))
    }

    fn oldest_ready(&mut self, queue: &QueueName) -> Result<Option<Wall>, StoreError> {
        self.read(|rows| {
            let Some(number) = rows.names.queues.number(rows.access, queue)? else {
                return Ok(None);
            };
            let waiting = rows.access.open(WAITING)?;
            let (first, last) = waiting_bounds(number, None);
            let head = waiting.range::<&[u8; 20]>(&first..&last)?.next().transpose()?;
            Ok(head.map(|(key, _)| waiting_place(key.value())).transpose()?.map(|at| at.at))
        })
    }

    fn next_due(&mut self) -> Result<Option<Wall>, StoreError> {
        self.read(|rows| rows.next_due())
    }

    fn attempts(&mut self, id: JobId) -> Result<Vec<Attempt>, StoreError> {
        self.read(|rows| {
            let (first, last) =
                (attempt_key(id, Epoch::NEVER), attempt_key(id, Epoch::new(u64::MAX)));
            rows.attempts(Bound::Included(&first), Bound::Included(&last))
        })
    }

    fn workers(&mut self) -> Result<Vec<WorkerRow>, StoreError> {
        self.read(|rows| rows.workers())
    }

    fn settings(&mut self) -> Result<Vec<(SettingKey, SettingValue)>, StoreError> {
        self.read(|rows| rows.settings())
    }

    fn dump(&mut self) -> Result<Dump, StoreError> {
        self.read(dump)
    }
}

fn queues(rows: &mut Snapshot<'_>) -> Found<Vec<QueueRow>> {
    rows.all_queues()
}

fn dump(rows: &mut Snapshot<'_>) -> Found<Dump> {
    rows.dump()
}

impl<A: Access> Rows<'_, A> {
    fn detail(&mut self, job: Job) -> Found<JobDetail> {
        let payload = self.text(PAYLOADS, job.id)?;
        let payload = payload.ok_or_else(|| bad(format!("job {} has no payload", job.id)))?;
        let (result, progress) = (self.text(RESULTS, job.id)?, self.text(PROGRESS, job.id)?);
        let last_error = self.last_error(job.id)?;
        Ok(JobDetail { job, payload, result, progress, last_error })
    }

    fn text(
        &self,
        table: redb::TableDefinition<'_, u64, &'static [u8]>,
        id: JobId,
    ) -> Found<Option<Payload>> {
        let table = self.access.open(table)?;
        let text = table.get(id.get())?;
        text.map(|text| Payload::new(utf8(text.value())?).map_err(bad)).transpose()
    }

    fn list(&mut self, filter: &Filter, after: Option<Cursor>, limit: usize) -> Found<Page> {
        let access = self.access;
        match filter.view {
            None => {
                let jobs = access.open(JOBS)?;
                let to = after.map_or(Bound::Unbounded, |after| Bound::Excluded(after.id.get()));
                let ids = jobs.range::<u64>((Bound::Unbounded, to))?.rev();
                let place = |id: u64| Ok(Cursor { at: Wall::new(0), id: job_id(id)? });
                self.page(filter, after, limit, ids.map(|row| place(row?.0.value())))
            }
            Some(View::Processing) => {
                let leased = access.open(LEASED)?;
                let to = after.map(cursor_key);
                let to = to.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
                let places = leased.range::<&[u8; 16]>((Bound::Unbounded, to))?.rev();
                self.page(filter, after, limit, places.map(|row| time_place(row?.0.value())))
            }
            Some(View::Queued) => self.list_ready(filter, after, limit),
            Some(view) => {
                let Some(table) = time_table(view) else { return Ok(Page::default()) };
                let table = access.open(table)?;
                let to = after.map(cursor_key);
                let to = to.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
                let places = table.range::<&[u8; 16]>((Bound::Unbounded, to))?.rev();
                self.page(filter, after, limit, places.map(|row| time_place(row?.0.value())))
            }
        }
    }

    /// Takes jobs at these places until the page is complete.
    fn page(
        &mut self,
        filter: &Filter,
        after: Option<Cursor>,
        limit: usize,
        mut places: impl Iterator<Item = Found<Cursor>>,
    ) -> Found<Page> {
        let mut listing = Listing::new(filter, after, limit);
        // The places go on where the last rows ended, so they are not looked for again.
        while let Some((_, rows)) = listing.wanted() {
            let ids = places.by_ref().take(rows).map(|place| Ok(place?.id));
            let ids: Vec<JobId> = ids.collect::<Found<_>>()?;
            listing.add(self.indexed(&ids)?);
        }
        Ok(listing.page())
    }

    /// Ready jobs: the greatest of the queues' own greatest, again and again.
    fn list_ready(&mut self, filter: &Filter, after: Option<Cursor>, limit: usize) -> Found<Page> {
        let waiting = self.access.open(WAITING)?;
        let numbers = match &filter.queue {
            Some(name) => self.names.queues.number(self.access, name)?.into_iter().collect(),
            None => self.queues_with_ready()?,
        };
        let mut heads = Vec::with_capacity(numbers.len());
        for number in numbers {
            let (first, last) = waiting_bounds(number, after);
            let keys = waiting.range::<&[u8; 20]>(&first..&last)?.rev();
            heads.push(keys.map(|row| waiting_place(row?.0.value())));
        }
        let mut tops = BinaryHeap::with_capacity(heads.len());
        for (at, head) in heads.iter_mut().enumerate() {
            tops.extend(head.next().transpose()?.map(|place| (place, at)));
        }
        let places = std::iter::from_fn(|| {
            let (place, at) = tops.pop()?;
            match heads[at].next().transpose() {
                Ok(next) => tops.extend(next.map(|place| (place, at))),
                Err(error) => return Some(Err(error)),
            }
            Some(Ok(place))
        });
        self.page(filter, after, limit, places)
    }

    fn queues_with_ready(&self) -> Found<Vec<u32>> {
        let mut numbers = Vec::new();
        for row in self.access.open(COUNTS)?.iter()? {
            let (key, row) = row?;
            let (queue, _) = pair(*key.value());
            let ready = rows::counts(row.value())?.get(View::Queued) > 0;
            if ready && numbers.last() != Some(&queue) {
                numbers.push(queue);
            }
        }
        Ok(numbers)
    }

    fn attempts(&self, first: Bound<&[u8; 16]>, last: Bound<&[u8; 16]>) -> Found<Vec<Attempt>> {
        let mut found = Vec::new();
        for row in self.access.open(ATTEMPTS)?.range::<&[u8; 16]>((first, last))? {
            let (key, row) = row?;
            let (job, epoch) = attempt_place(key.value())?;
            found.push(rows::attempt(job, epoch, row.value())?);
        }
        Ok(found)
    }

    fn workers(&self) -> Found<Vec<WorkerRow>> {
        let mut found = Vec::new();
        for row in self.access.open(WORKERS)?.iter()? {
            let (id, row) = row?;
            let id = WorkerId::new(utf8(id.value())?).map_err(bad)?;
            let rows::Seen { worker, first: started_at, last: last_seen, stopping } =
                rows::worker(id, row.value())?;
            let running = Vec::new();
            found.push(WorkerRow { worker, started_at, last_seen, stopping, running });
        }
        for row in self.access.open(LEASED)?.iter()? {
            let (key, row) = row?;
            let (holder, _) = rows::holder(row.value(), None)?;
            if let Ok(at) = found.binary_search_by(|row: &WorkerRow| row.worker.id.cmp(&holder)) {
                found[at].running.push(time_place(key.value())?.id);
            }
        }
        for row in &mut found {
            row.running.sort_unstable();
        }
        Ok(found)
    }

    fn settings(&self) -> Found<Vec<(SettingKey, SettingValue)>> {
        let mut found = Vec::new();
        for row in self.access.open(SETTINGS)?.iter()? {
            let (key, value) = row?;
            let key = SettingKey::new(utf8(key.value())?).map_err(bad)?;
            found.push((key, SettingValue::new(utf8(value.value())?).map_err(bad)?));
        }
        Ok(found)
    }

    fn key_records(&self) -> Found<Vec<KeyRecord>> {
        let mut found = Vec::new();
        for row in self.access.open(KEYS)?.iter()? {
            let (key, row) = row?;
            let key = IdempotencyKey::new(utf8(key.value())?).map_err(bad)?;
            found.push(rows::key_record(key, row.value())?);
        }
        Ok(found)
    }

    fn markers(&self) -> Found<Vec<Marker>> {
        let mut found = Vec::new();
        for row in self.access.open(MARKERS)?.iter()? {
            let (process, row) = row?;
            found.push(rows::marker(process.value(), row.value())?);
        }
        Ok(found)
    }

    pub(crate) fn dump(&mut self) -> Found<Dump> {
        let mut ids = Vec::new();
        for row in self.access.open(JOBS)?.iter()? {
            ids.push(job_id(row?.0.value())?);
        }
        let jobs = self.indexed(&ids)?;
        let jobs: Found<Vec<JobDetail>> = jobs.into_iter().map(|job| self.detail(job)).collect();
        Ok(Dump {
            next_id: self.next_id()?,
            jobs: jobs?,
            queues: self.all_queues()?,
            keys: self.key_records()?,
            attempts: self.attempts(Bound::Unbounded, Bound::Unbounded)?,
            workers: self.workers()?,
            settings: self.settings()?,
            markers: self.markers()?,
        })
    }

    /// Whether this batch was committed.
    pub(crate) fn was_committed(&self, batch: BatchId) -> Found<bool> {
        let markers = self.access.open(MARKERS)?;
        let row = markers.get(batch.process.0)?;
        let marker = row.map(|row| rows::marker(batch.process.0, row.value())).transpose()?;
        Ok(marker.is_some_and(|marker| marker.covers(batch)))
    }
}

/// Where the ready jobs of a queue start and, before `after`, end.
fn waiting_bounds(queue: u32, after: Option<Cursor>) -> ([u8; 20], [u8; 20]) {
    let first = waiting_key(queue, Wall::new(i64::MIN), 0);
    let last = match after {
        Some(after) => waiting_key(queue, after.at, after.id.get()),
        None => waiting_key(queue, Wall::MAX, u64::MAX),
    };
    (first, last)
}
