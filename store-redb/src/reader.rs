//! Reads of committed states. Each call is one snapshot, beside the writer and never in its way.

use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::{ReadTransaction, ReadableDatabase, ReadableTable};
use windlass_core::store::{
    BulkRow, CopyPlace, CopyRows, Cursor, Dump, FigureRange, FigureRow, Filter, JobDetail, Marker,
    Page, PageSize, Reader, SEAL, Seal, StoreError, WorkerRow,
};
use windlass_core::{
    Attempt, BatchId, Epoch, GroupId, GroupRow, IdempotencyKey, Job, JobId, KeyRecord, Payload,
    QueueName, QueueRow, SettingKey, SettingValue, Wall, WorkerId,
};

use crate::bulk;
use crate::bytes::utf8;
use crate::error::{OpenError, TxError};
use crate::figures;
use crate::find::Rows;
use crate::groups;
use crate::names::Names;
use crate::open;
use crate::rows::{self, bad};
use crate::slot::Slot;
use crate::tables::{
    ATTEMPTS, Access, Found, JOBS, KEYS, LEASED, MARKERS, PAYLOADS, PROGRESS, RESULTS, SETTINGS,
    WORKERS, attempt_key, attempt_place, job_id, time_place,
};

/// A reader of a [`RedbStore`](crate::RedbStore), for any thread.
#[derive(Debug)]
pub struct RedbReader {
    source: From,
    names: Names,
    /// Which opening of the file the names are of.
    opening: u64,
}

/// The database, open in this process or opened for this reader.
#[derive(Debug)]
enum From {
    /// The database that a store of this process has open.
    Slot(Arc<Slot>),
    /// A file, opened for each read: between reads another process may open it to write.
    File(PathBuf),
}

impl RedbReader {
    pub(crate) fn new(slot: Arc<Slot>) -> Self {
        Self { source: From::Slot(slot), names: Names::default(), opening: 0 }
    }

    /// Opens a store for reading alone. The file is not written, and an older schema is refused. A
    /// redb file belongs to one process: while another has it open to write, reads fail.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        let path = path.as_ref().to_path_buf();
        open::read_only(&path)?;
        Ok(Self { source: From::File(path), names: Names::default(), opening: 0 })
    }

    fn read<R>(
        &mut self,
        read: impl FnOnce(&mut Snapshot<'_>) -> Found<R>,
    ) -> Result<R, StoreError> {
        let names = &mut self.names;
        let opening = &mut self.opening;
        match &self.source {
            From::Slot(slot) => slot.read(|txn, opened| {
                if *opening != opened {
                    names.clear();
                    *opening = opened;
                }
                names.clear_queue_numbers();
                read(&mut Rows { access: txn, names })
            }),
            From::File(path) => {
                names.clear();
                let db = open::read_only(path).map_err(|error| error.of_reopen())?;
                let run = || read(&mut Rows { access: &db.begin_read()?, names });
                run().map_err(|error: TxError| error.of_read(error.cause()))
            }
        }
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
        self.read(|rows| rows.oldest_ready(queue))
    }

    fn next_due(&mut self) -> Result<Option<Wall>, StoreError> {
        self.read(|rows| rows.next_due())
    }

    fn attempts(&mut self, id: JobId) -> Result<Vec<Attempt>, StoreError> {
        self.read(|rows| {
            let (first, last) =
                (attempt_key(id, Epoch::NEVER), attempt_key(id, Epoch::new(u64::MAX)));
            rows.attempts(Bound::Included(&first), Bound::Included(&last), usize::MAX)
        })
    }

    fn workers(&mut self) -> Result<Vec<WorkerRow>, StoreError> {
        self.read(|rows| rows.workers())
    }

    fn error_groups(&mut self) -> Result<Vec<GroupRow>, StoreError> {
        self.read(|rows| groups::all(rows.access))
    }

    fn error_group(&mut self, id: GroupId) -> Result<Option<GroupRow>, StoreError> {
        self.read(|rows| Ok(groups::named(rows.access, &[id])?.pop().flatten()))
    }

    fn settings(&mut self) -> Result<Vec<(SettingKey, SettingValue)>, StoreError> {
        self.read(|rows| rows.settings())
    }

    fn figures(&mut self, ranges: &[FigureRange]) -> Result<Vec<FigureRow>, StoreError> {
        self.read(|rows| figures::within(rows.access, ranges))
    }

    fn bulk(&mut self) -> Result<Vec<BulkRow>, StoreError> {
        self.read(|rows| bulk::all(rows.access))
    }

    fn copy_page(&mut self, after: &CopyPlace, size: PageSize) -> Result<CopyRows, StoreError> {
        self.read(|rows| rows.copy_page(after, size))
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
    pub(crate) fn detail(&mut self, job: Job) -> Found<JobDetail> {
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

    pub(crate) fn attempts(
        &self,
        first: Bound<&[u8; 16]>,
        last: Bound<&[u8; 16]>,
        limit: usize,
    ) -> Found<Vec<Attempt>> {
        let mut found = Vec::new();
        for row in self.access.open(ATTEMPTS)?.range::<&[u8; 16]>((first, last))?.take(limit) {
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

    /// The mark of the store, if it has one.
    pub(crate) fn seal(&self) -> Found<Option<Seal>> {
        let table = self.access.open(SETTINGS)?;
        let text = table.get(SEAL.as_bytes())?;
        text.map(|text| Ok(Seal::parse(utf8(text.value())?))).transpose()
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
            attempts: self.attempts(Bound::Unbounded, Bound::Unbounded, usize::MAX)?,
            workers: self.workers()?,
            settings: self.settings()?,
            markers: self.markers()?,
            figures: figures::all(self.access)?,
            groups: groups::all(self.access)?,
            bulk: bulk::all(self.access)?,
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
