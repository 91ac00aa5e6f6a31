//! The transaction port over the tables. It finds and keeps; `windlass_core::apply` decides.
//!
//! What is found in a transaction and what is found in a snapshot is found by the same code.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

use redb::{ReadableTable, ReadableTableMetadata, WriteTransaction};
use windlass_core::store::{Changes, Cursor, DeadJob, LeaseCursor, Room, Tx};
use windlass_core::{
    Counts, Excerpt, IdempotencyKey, Job, JobId, KeyRecord, Kind, Lease, Payload, Queue, QueueName,
    QueueRow, QueueSettings, Queues, Rank, State, View, Wall, WorkerId,
};
use windlass_store_file::Recent;

use crate::bytes::utf8;
use crate::error::TxError;
use crate::names::Names;
use crate::rows::{self, JobRow, QueueBytes, bad};
use crate::sorted::get_all;
use crate::tables::{
    Access, COUNTS, ERRORS, FAILED, Found, JOBS, KEYS, LAST_ID, LEASED, MARKERS, META, ORPHANS,
    PAYLOADS, QUEUES, READY, WORKERS, cursor_key, job_id, lease_key, orphan_key, pair, pair_key,
    ready_bounds, ready_id, ready_key, time_key, time_place, time_table,
};

/// The rows of a transaction or of a snapshot.
pub(crate) struct Rows<'a, A> {
    pub(crate) access: A,
    pub(crate) names: &'a mut Names,
}

impl<A: Access> Rows<'_, A> {
    /// These jobs, in this order; `None` for one that does not exist.
    pub(crate) fn jobs(&mut self, ids: &[JobId]) -> Found<Vec<Option<Job>>> {
        let keys: Vec<u64> = ids.iter().map(|id| id.get()).collect();
        let mut found: Vec<Option<Job>> = Vec::with_capacity(ids.len());
        let mut running: Vec<(usize, JobRow)> = Vec::new();
        get_all(&self.access.open(JOBS)?, &keys, |row| {
            let at = found.len();
            let row = row.map(rows::job_row).transpose()?;
            found.push(match row {
                // Its holder stands elsewhere.
                Some(row) if row.view == View::Processing => {
                    running.push((at, row));
                    None
                }
                row => row.map(|row| self.job(ids[at], row, None)).transpose()?,
            });
            Ok(ControlFlow::Continue(()))
        })?;
        let leases = self.leases(running.iter().map(|(at, row)| (ids[*at], row)))?;
        for ((at, row), lease) in running.into_iter().zip(leases) {
            found[at] = Some(self.job(ids[at], row, Some(lease))?);
        }
        Ok(found)
    }

    /// Jobs that an index names: they exist.
    pub(crate) fn indexed(&mut self, ids: &[JobId]) -> Found<Vec<Job>> {
        let mut there = Vec::with_capacity(ids.len());
        for (job, id) in self.jobs(ids)?.into_iter().zip(ids) {
            let missing = || TxError::BadRow(format!("job {id} is indexed, but does not exist"));
            there.push(job.ok_or_else(missing)?);
        }
        Ok(there)
    }

    /// The job in a row, with its lease if it has one.
    pub(crate) fn job(&mut self, id: JobId, row: JobRow, lease: Option<Lease>) -> Found<Job> {
        let state = rows::state(&row).or(lease.map(State::Processing));
        let state = state.ok_or_else(|| bad(format!("job {id} is leased, but nobody holds it")))?;
        let (queue, kind, retry) = self.names.of(self.access, row.numbers)?;
        Ok(Job {
            id,
            queue,
            kind,
            priority: row.priority,
            state,
            attempts: row.attempts,
            max_retries: row.max_retries,
            epoch: row.epoch,
            generation: row.generation,
            run_at: row.run_at,
            timeout: row.timeout,
            visibility_timeout: row.visibility_timeout,
            retry,
            idempotency_key: row.idempotency_key,
            created_at: row.created_at,
            updated_at: row.updated_at,
            started_at: row.started_at,
        })
    }

    /// The leases of those of these jobs that are leased.
    pub(crate) fn leases<'r>(
        &self,
        rows: impl Iterator<Item = (JobId, &'r JobRow)>,
    ) -> Found<Vec<Lease>> {
        let running = rows.filter(|(_, row)| row.view == View::Processing);
        let (untils, keys): (Vec<Wall>, Vec<[u8; 16]>) =
            running.map(|(id, row)| (row.at, time_key(row.at, id.get()))).unzip();
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let mut leases: Vec<Lease> = Vec::with_capacity(keys.len());
        get_all(&self.access.open(LEASED)?, &keys, |holder| {
            let holder = holder.ok_or_else(|| bad("a job is leased, but nobody holds it"))?;
            let latest = leases.last().map(|lease| &lease.worker);
            let (worker, length) = rows::holder(holder, latest)?;
            leases.push(Lease { worker, until: untils[leases.len()], length });
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(leases)
    }

    /// The first ready jobs of a queue and kind, behind a rank if one is given.
    fn ready_behind(
        &mut self,
        queue: &QueueName,
        kind: &Kind,
        after: Option<Rank>,
        limit: usize,
    ) -> Found<Vec<Job>> {
        let queue = self.names.queues.number(self.access, queue)?;
        let kind = self.names.kinds.number(self.access, kind)?;
        let (Some(queue), Some(kind)) = (queue, kind) else { return Ok(Vec::new()) };
        let (first, last) = ready_bounds(queue, kind);
        let after = after.map(|rank| ready_key(queue, kind, rank));
        let from = after.as_ref().map_or(Bound::Included(&first), Bound::Excluded);
        let ready = self.access.open(READY)?;
        let keys = ready.range::<&[u8; 26]>((from, Bound::Included(&last)))?.take(limit);
        let ids: Found<Vec<JobId>> = keys.map(|row| job_id(ready_id(row?.0.value()))).collect();
        self.indexed(&ids?)
    }

    /// The first jobs of a view up to `to`, by their instant.
    fn first_of(&mut self, view: View, to: Wall, limit: usize) -> Found<Vec<Job>> {
        let Some(table) = time_table(view) else { return Ok(Vec::new()) };
        let table = self.access.open(table)?;
        let last = time_key(to, u64::MAX);
        let keys = table.range::<&[u8; 16]>(..=&last)?.take(limit);
        let ids: Found<Vec<JobId>> = keys.map(|row| Ok(time_place(row?.0.value())?.id)).collect();
        self.indexed(&ids?)
    }

    /// The leased jobs whose lease ends by `to`, behind `after`.
    fn leased_until(
        &mut self,
        to: Wall,
        after: Option<LeaseCursor>,
        limit: usize,
    ) -> Found<Vec<Job>> {
        let leased = self.access.open(LEASED)?;
        let (after, last) = (after.map(lease_key), time_key(to, u64::MAX));
        if after.is_some_and(|after| after >= last) {
            return Ok(Vec::new());
        }
        let from = after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let keys = leased.range::<&[u8; 16]>((from, Bound::Included(&last)))?.take(limit);
        let ids: Found<Vec<JobId>> = keys.map(|row| Ok(time_place(row?.0.value())?.id)).collect();
        drop(leased);
        self.indexed(&ids?)
    }

    /// When the next scheduled job falls due.
    pub(crate) fn next_due(&self) -> Found<Option<Wall>> {
        let table = self.access.open(crate::tables::SCHEDULED)?;
        let first = table.first()?.map(|(key, _)| time_place(key.value())).transpose()?;
        Ok(first.map(|place| place.at))
    }

    /// When the next lease runs out.
    fn next_expiry(&self) -> Found<Option<Wall>> {
        let table = self.access.open(LEASED)?;
        let first = table.first()?.map(|(key, _)| time_place(key.value())).transpose()?;
        Ok(first.map(|place| place.at))
    }

    fn keys(&self, keys: &[IdempotencyKey]) -> Found<Vec<Option<KeyRecord>>> {
        let table = self.access.open(KEYS)?;
        let mut found = Vec::with_capacity(keys.len());
        for key in keys {
            let row = table.get(key.as_str().as_bytes())?;
            found.push(row.map(|row| rows::key_record(key.clone(), row.value())).transpose()?);
        }
        Ok(found)
    }

    /// One queue with its counters.
    pub(crate) fn queue(&mut self, name: &QueueName) -> Found<Option<QueueRow>> {
        let Some(number) = self.names.queues.number(self.access, name)? else { return Ok(None) };
        let queues = self.access.open(QUEUES)?;
        let Some(row) = queues.get(number)? else { return Ok(None) };
        let queue = self.queue_of(name.clone(), rows::queue(row.value())?)?;
        let counts = self.access.open(COUNTS)?;
        let (first, last) = (pair_key(number, 0), pair_key(number, u32::MAX));
        let mut kinds = Vec::new();
        for row in counts.range::<&[u8; 8]>(&first..=&last)? {
            let (key, row) = row?;
            let kind = self.names.kinds.name(self.access, pair(*key.value()).1)?;
            kinds.push((kind, rows::counts(row.value())?));
        }
        Ok(Some(queue_row(queue, kinds)))
    }

    /// Every queue with its counters, by name.
    pub(crate) fn all_queues(&mut self) -> Found<Vec<QueueRow>> {
        let mut kinds: BTreeMap<u32, Vec<(Kind, Counts)>> = BTreeMap::new();
        for row in self.access.open(COUNTS)?.iter()? {
            let (key, row) = row?;
            let (queue, kind) = pair(*key.value());
            let kind = self.names.kinds.name(self.access, kind)?;
            kinds.entry(queue).or_default().push((kind, rows::counts(row.value())?));
        }
        let mut found = Vec::new();
        for row in self.access.open(QUEUES)?.iter()? {
            let (number, row) = row?;
            let number = number.value();
            let name = self.names.queues.name(self.access, number)?;
            let queue = self.queue_of(name, rows::queue(row.value())?)?;
            found.push(queue_row(queue, kinds.remove(&number).unwrap_or_default()));
        }
        found.sort_by(|a, b| a.queue.name.cmp(&b.queue.name));
        Ok(found)
    }

    fn queue_of(&mut self, name: QueueName, row: QueueBytes) -> Found<Queue> {
        let retry = row.retry.map(|retry| self.names.retries.name(self.access, retry));
        let settings = QueueSettings {
            max_queued: row.max_queued,
            concurrency: row.concurrency,
            visibility_timeout: row.visibility_timeout,
            max_retries: row.max_retries,
            timeout: row.timeout,
            retry: retry.transpose()?,
        };
        Ok(Queue { name, paused: row.paused, settings })
    }

    /// Dead-lettered jobs, newest failure first.
    fn newest_dead(&mut self, after: Option<Cursor>, limit: usize) -> Found<Vec<Job>> {
        let failed = self.access.open(FAILED)?;
        let to = after.map(cursor_key);
        let to = to.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let keys = failed.range::<&[u8; 16]>((Bound::Unbounded, to))?.rev().take(limit);
        let ids: Found<Vec<JobId>> = keys.map(|row| Ok(time_place(row?.0.value())?.id)).collect();
        self.indexed(&ids?)
    }

    pub(crate) fn payloads(&self, ids: &[JobId], bytes: usize) -> Found<Vec<Payload>> {
        let mut room = Room::new(bytes);
        let keys: Vec<u64> = ids.iter().map(|id| id.get()).collect();
        let mut found: Vec<Payload> = Vec::with_capacity(ids.len());
        get_all(&self.access.open(PAYLOADS)?, &keys, |text| {
            let missing = || bad(format!("job {} has no payload", ids[found.len()]));
            let text = text.ok_or_else(missing)?;
            if !room.takes(text.len()) {
                return Ok(ControlFlow::Break(()));
            }
            found.push(Payload::new(utf8(text)?).map_err(bad)?);
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(found)
    }

    pub(crate) fn last_error(&self, id: JobId) -> Found<Option<Excerpt>> {
        let errors = self.access.open(ERRORS)?;
        let row = errors.get(id.get())?;
        row.map(|row| rows::error(row.value())).transpose()
    }

    fn orphan_keys(&self, now: Wall, limit: usize) -> Found<Vec<IdempotencyKey>> {
        let orphans = self.access.open(ORPHANS)?;
        // The first key that ends a millisecond later is not among them.
        let end = orphan_key(now.plus(windlass_core::Millis::new(1)), &[]);
        let to = if now == Wall::MAX { Bound::Unbounded } else { Bound::Excluded(&*end) };
        let keys = orphans.range::<&[u8]>((Bound::Unbounded, to))?.take(limit);
        let key = |row: &[u8]| {
            let text = row.get(8..).ok_or_else(|| bad("an orphaned key without its name"))?;
            IdempotencyKey::new(utf8(text)?).map_err(bad)
        };
        keys.map(|row| key(row?.0.value())).collect()
    }

    fn has_silent(&self, before: Wall) -> Found<bool> {
        for row in self.access.open(MARKERS)?.iter()? {
            let (process, row) = row?;
            if rows::marker(process.value(), row.value())?.at < before {
                return Ok(true);
            }
        }
        for row in self.access.open(WORKERS)?.iter()? {
            let (id, row) = row?;
            let id = WorkerId::new(utf8(id.value())?).map_err(bad)?;
            if rows::worker(id, row.value())?.last < before {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn stop_marks(&self, ids: &[WorkerId]) -> Found<Vec<Option<bool>>> {
        let table = self.access.open(WORKERS)?;
        let mark = |id: &WorkerId| {
            let row = table.get(id.as_str().as_bytes())?;
            let seen = row.map(|row| rows::worker(id.clone(), row.value())).transpose()?;
            Ok(seen.map(|seen| seen.stopping))
        };
        ids.iter().map(mark).collect()
    }

    /// The id the next new job gets.
    pub(crate) fn next_id(&self) -> Found<JobId> {
        let last = self.access.open(META)?.get(LAST_ID)?.map_or(0, |last| last.value());
        Ok(JobId::new(last.saturating_add(1)).unwrap_or(JobId::LAST))
    }
}

fn queue_row(queue: Queue, mut kinds: Vec<(Kind, Counts)>) -> QueueRow {
    kinds.retain(|(_, counts)| !counts.is_empty());
    kinds.sort_by(|(a, _), (b, _)| a.cmp(b));
    QueueRow { queue, kinds }
}

/// An open transaction that writes.
pub(crate) struct RedbTx<'a> {
    pub(crate) rows: Rows<'a, &'a WriteTransaction>,
    pub(crate) recent: &'a mut Recent,
    pub(crate) now: Wall,
}

impl Tx for RedbTx<'_> {
    type Error = TxError;

    fn now(&self) -> Wall {
        self.now
    }

    fn jobs(&mut self, ids: &[JobId]) -> Found<Vec<Option<Job>>> {
        let mut found: Vec<Option<Job>> = ids.iter().map(|id| self.recent.take(*id)).collect();
        let unknown = ids.iter().zip(&found).filter(|(_, job)| job.is_none());
        let unknown: Vec<JobId> = unknown.map(|(id, _)| *id).collect();
        if !unknown.is_empty() {
            let mut read = self.rows.jobs(&unknown)?.into_iter();
            for job in found.iter_mut().filter(|job| job.is_none()) {
                *job = read.next().flatten();
            }
        }
        Ok(found)
    }

    fn keys(&mut self, keys: &[IdempotencyKey]) -> Found<Vec<Option<KeyRecord>>> {
        self.rows.keys(keys)
    }

    fn queues(&mut self, queues: &Queues) -> Found<Vec<QueueRow>> {
        let Queues::Only(names) = queues else { return self.rows.all_queues() };
        let found: Found<Vec<Option<QueueRow>>> =
            names.iter().map(|name| self.rows.queue(name)).collect();
        Ok(found?.into_iter().flatten().collect())
    }

    fn queue_count(&mut self) -> Found<usize> {
        let count = self.rows.access.open(QUEUES)?.len()?;
        Ok(usize::try_from(count).unwrap_or(usize::MAX))
    }

    fn heads(&mut self, of: &[(QueueName, Kind)], limit: usize) -> Found<Vec<Vec<Job>>> {
        of.iter().map(|(queue, kind)| self.rows.ready_behind(queue, kind, None, limit)).collect()
    }

    fn ready(
        &mut self,
        queue: &QueueName,
        kind: &Kind,
        after: Rank,
        limit: usize,
    ) -> Found<Vec<Job>> {
        self.rows.ready_behind(queue, kind, Some(after), limit)
    }

    fn due(&mut self, now: Wall, limit: usize) -> Found<Vec<Job>> {
        self.rows.first_of(View::Scheduled, now, limit)
    }

    fn expired(&mut self, now: Wall, after: Option<LeaseCursor>, limit: usize) -> Found<Vec<Job>> {
        self.rows.leased_until(now, after, limit)
    }

    fn finished(&mut self, view: View, before: Wall, limit: usize) -> Found<Vec<Job>> {
        self.rows.first_of(view, before, limit)
    }

    fn dead(
        &mut self,
        queue: Option<&QueueName>,
        kind: Option<&Kind>,
        after: Option<Cursor>,
        limit: usize,
    ) -> Found<(Vec<DeadJob>, Option<Cursor>)> {
        let jobs = self.rows.newest_dead(after, limit)?;
        let last = jobs.last().filter(|_| jobs.len() == limit);
        let next = last.and_then(|job| Some(Cursor { at: job.finished_at()?, id: job.id }));
        let wanted = |job: &Job| {
            queue.is_none_or(|queue| *queue == job.queue)
                && kind.is_none_or(|kind| *kind == job.kind)
        };
        let mut found = Vec::new();
        for job in jobs.into_iter().filter(wanted) {
            let error = self.rows.last_error(job.id)?;
            found.push(DeadJob { job, error });
        }
        Ok((found, next))
    }

    fn payloads(&mut self, ids: &[JobId], bytes: usize) -> Found<Vec<Payload>> {
        self.rows.payloads(ids, bytes)
    }

    fn orphan_keys(&mut self, now: Wall, limit: usize) -> Found<Vec<IdempotencyKey>> {
        self.rows.orphan_keys(now, limit)
    }

    fn next_due(&mut self) -> Found<Option<Wall>> {
        self.rows.next_due()
    }

    fn next_expiry(&mut self) -> Found<Option<Wall>> {
        self.rows.next_expiry()
    }

    fn has_silent(&mut self, before: Wall) -> Found<bool> {
        self.rows.has_silent(before)
    }

    fn stop_marks(&mut self, ids: &[WorkerId]) -> Found<Vec<Option<bool>>> {
        self.rows.stop_marks(ids)
    }

    fn next_id(&mut self) -> Found<JobId> {
        self.rows.next_id()
    }

    fn write(&mut self, changes: Changes) -> Found<()> {
        crate::write::write(self.rows.access, self.rows.names, &changes, self.now)?;
        self.recent.absorb(changes);
        Ok(())
    }
}
