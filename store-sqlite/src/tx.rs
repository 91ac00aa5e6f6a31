//! The transaction port in SQL. It finds and keeps; `windlass_core::apply` decides.

use rusqlite::{Connection, OptionalExtension, Params, params};
use windlass_core::store::{Changes, Cursor, DeadJob, LeaseCursor, Room, Tx};
use windlass_core::{
    Counts, Fingerprint, IdempotencyKey, Job, JobId, KeyRecord, Kind, LeaseLength, MaxQueued,
    MaxRetries, MaxRunning, Payload, Queue, QueueName, QueueRow, QueueSettings, Queues, Rank, View,
    Wall, WorkerId,
};
use windlass_store_file::Recent;

use crate::error::TxError;
use crate::names::Names;
use crate::rows::{
    bad, excerpt, id_code, job, job_columns, job_id, optional, rank_code, small, text, view_code,
};

macro_rules! queue_columns {
    () => {
        "id, paused, max_queued, concurrency, visibility_timeout, max_retries, timeout, retry"
    };
}

/// An open transaction, or a snapshot for reading.
pub(crate) struct SqliteTx<'a> {
    pub(crate) conn: &'a Connection,
    pub(crate) names: &'a mut Names,
    /// None in a snapshot for reading.
    pub(crate) recent: Option<&'a mut Recent>,
    pub(crate) now: Wall,
}

pub(crate) type Found<T> = Result<T, TxError>;

impl SqliteTx<'_> {
    /// The jobs that a query finds, in its order.
    pub(crate) fn find(&mut self, sql: &str, params: impl Params) -> Found<Vec<Job>> {
        let mut statement = self.conn.prepare_cached(sql)?;
        let mut rows = statement.query(params)?;
        let mut jobs = Vec::new();
        while let Some(row) = rows.next()? {
            jobs.push(job(self.conn, self.names, row)?);
        }
        Ok(jobs)
    }

    /// The first instant in a view.
    pub(crate) fn first_at(&self, view: View) -> Found<Option<Wall>> {
        let sql = "SELECT at FROM jobs WHERE view = ?1 ORDER BY at LIMIT 1";
        let mut statement = self.conn.prepare_cached(sql)?;
        let at = statement.query_row([view_code(view)], |row| row.get(0)).optional()?;
        Ok(at.map(Wall::new))
    }

    /// The queue in a row of `queues`, with its counters.
    fn queue_row(&mut self, row: &rusqlite::Row<'_>) -> Found<QueueRow> {
        let id: i64 = row.get(0)?;
        let retry: Option<i64> = row.get(7)?;
        let retry = retry.map(|retry| self.names.retry(self.conn, retry)).transpose()?;
        let concurrency = row.get::<_, Option<i64>>(3)?.map(small).transpose()?;
        let max_retries = row.get::<_, Option<i64>>(5)?.map(small).transpose()?;
        let settings = QueueSettings {
            max_queued: optional(row.get(2)?, MaxQueued::new)?,
            concurrency: concurrency.map(MaxRunning::new).transpose().map_err(bad)?,
            visibility_timeout: optional(row.get(4)?, LeaseLength::new)?,
            max_retries: max_retries.map(MaxRetries::new).transpose().map_err(bad)?,
            timeout: optional(row.get(6)?, windlass_core::JobTimeout::new)?,
            retry,
        };
        let queue = Queue { name: self.names.queue(self.conn, id)?, paused: row.get(1)?, settings };
        Ok(QueueRow { queue, kinds: self.counts(id)? })
    }

    fn counts(&mut self, queue: i64) -> Found<Vec<(Kind, Counts)>> {
        let sql = "SELECT kind, queued, scheduled, processing, done, failed, cancelled \
                   FROM counts WHERE queue = ?1";
        let mut statement = self.conn.prepare_cached(sql)?;
        let mut rows = statement.query([queue])?;
        let mut kinds = Vec::new();
        while let Some(row) = rows.next()? {
            let mut counts = [0; View::ALL.len()];
            for (at, count) in counts.iter_mut().enumerate() {
                *count = u64::try_from(row.get::<_, i64>(at + 1)?).unwrap_or(0);
            }
            kinds.push((self.names.kind(self.conn, row.get(0)?)?, Counts::new(counts)));
        }
        kinds.retain(|(_, counts)| !counts.is_empty());
        kinds.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(kinds)
    }

    /// One queue by its number.
    pub(crate) fn queue(&mut self, id: i64) -> Found<Option<QueueRow>> {
        let sql = concat!("SELECT ", queue_columns!(), " FROM queues WHERE id = ?1");
        let mut statement = self.conn.prepare_cached(sql)?;
        let mut rows = statement.query([id])?;
        rows.next()?.map(|row| self.queue_row(row)).transpose()
    }

    /// Every queue, by name.
    pub(crate) fn all_queues(&mut self) -> Found<Vec<QueueRow>> {
        let sql = concat!("SELECT ", queue_columns!(), " FROM queues ORDER BY name");
        let mut statement = self.conn.prepare_cached(sql)?;
        let mut rows = statement.query([])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            found.push(self.queue_row(row)?);
        }
        Ok(found)
    }

    pub(crate) fn payload(&self, id: JobId) -> Found<Payload> {
        let mut statement = self.conn.prepare_cached("SELECT text FROM payloads WHERE job = ?1")?;
        let mut rows = statement.query([id_code(id)])?;
        let Some(row) = rows.next()? else {
            return Err(TxError::BadRow(format!("job {id} has no payload")));
        };
        Payload::new(text(row, 0)?.unwrap_or_default()).map_err(bad)
    }
}

impl SqliteTx<'_> {
    /// The payloads of jobs with consecutive ids, as long as there is room; says whether there was.
    /// One walk is quicker than a search for each.
    fn payload_run(&self, ids: &[JobId], room: &mut Room, found: &mut Vec<Payload>) -> Found<bool> {
        let (Some(first), Some(last)) = (ids.first(), ids.last()) else { return Ok(true) };
        let sql = "SELECT job, text FROM payloads WHERE job BETWEEN ?1 AND ?2 ORDER BY job";
        let mut statement = self.conn.prepare_cached(sql)?;
        let mut rows = statement.query([id_code(*first), id_code(*last)])?;
        for id in ids {
            let row = rows.next()?.filter(|row| row.get(0) == Ok(id_code(*id)));
            let Some(row) = row else {
                return Err(TxError::BadRow(format!("job {id} has no payload")));
            };
            let text = text(row, 1)?.unwrap_or_default();
            if !room.takes(text.len()) {
                return Ok(false);
            }
            found.push(Payload::new(text).map_err(bad)?);
        }
        Ok(true)
    }
}

impl Tx for SqliteTx<'_> {
    type Error = TxError;

    fn now(&self) -> Wall {
        self.now
    }

    fn jobs(&mut self, ids: &[JobId]) -> Found<Vec<Option<Job>>> {
        let sql = concat!("SELECT ", job_columns!(), " FROM jobs WHERE id = ?1");
        let mut statement = self.conn.prepare_cached(sql)?;
        let mut found = Vec::with_capacity(ids.len());
        for id in ids {
            if let Some(job) = self.recent.as_mut().and_then(|recent| recent.take(*id)) {
                found.push(Some(job));
                continue;
            }
            let mut rows = statement.query([id_code(*id)])?;
            let row = rows.next()?;
            found.push(row.map(|row| job(self.conn, self.names, row)).transpose()?);
        }
        Ok(found)
    }

    fn keys(&mut self, keys: &[IdempotencyKey]) -> Found<Vec<Option<KeyRecord>>> {
        let sql = "SELECT job, request, created_at, orphan_until FROM keys WHERE key = ?1";
        let mut statement = self.conn.prepare_cached(sql)?;
        let mut found = Vec::with_capacity(keys.len());
        for key in keys {
            let mut rows = statement.query([key.as_str()])?;
            let row = rows.next()?;
            found.push(row.map(|row| key_record(key.clone(), row, 0)).transpose()?);
        }
        Ok(found)
    }

    fn queues(&mut self, queues: &Queues) -> Found<Vec<QueueRow>> {
        let Queues::Only(names) = queues else { return self.all_queues() };
        let mut found = Vec::with_capacity(names.len());
        for name in names {
            if let Some(id) = self.names.queue_id(self.conn, name)? {
                found.extend(self.queue(id)?);
            }
        }
        Ok(found)
    }

    fn queue_count(&mut self) -> Found<usize> {
        let sql = "SELECT count(*) FROM queues";
        let count: i64 = self.conn.prepare_cached(sql)?.query_row([], |row| row.get(0))?;
        Ok(usize::try_from(count).unwrap_or(usize::MAX))
    }

    fn heads(&mut self, of: &[(QueueName, Kind)], limit: usize) -> Found<Vec<Vec<Job>>> {
        let first = (i64::MIN, i64::MIN, 0);
        of.iter().map(|(queue, kind)| self.ready_behind(queue, kind, first, limit)).collect()
    }

    fn ready(
        &mut self,
        queue: &QueueName,
        kind: &Kind,
        after: Rank,
        limit: usize,
    ) -> Found<Vec<Job>> {
        self.ready_behind(queue, kind, rank_code(after), limit)
    }

    fn due(&mut self, now: Wall, limit: usize) -> Found<Vec<Job>> {
        let sql = concat!(
            "SELECT ",
            job_columns!(),
            " FROM jobs WHERE view = 1 AND at <= ?1 ORDER BY at, id LIMIT ?2"
        );
        self.find(sql, params![now.get(), count(limit)])
    }

    fn expired(&mut self, now: Wall, after: Option<LeaseCursor>, limit: usize) -> Found<Vec<Job>> {
        let sql = concat!(
            "SELECT ",
            job_columns!(),
            " FROM jobs WHERE view = 2 AND at <= ?1 AND (at, id) > (?2, ?3) \
             ORDER BY at, id LIMIT ?4"
        );
        let (until, id) =
            after.map_or((i64::MIN, 0), |after| (after.until.get(), id_code(after.id)));
        self.find(sql, params![now.get(), until, id, count(limit)])
    }

    fn finished(&mut self, view: View, before: Wall, limit: usize) -> Found<Vec<Job>> {
        let sql = concat!(
            "SELECT ",
            job_columns!(),
            " FROM jobs WHERE view = ?1 AND at <= ?2 ORDER BY at, id LIMIT ?3"
        );
        self.find(sql, params![view_code(view), before.get(), count(limit)])
    }

    fn dead(
        &mut self,
        queue: Option<&QueueName>,
        kind: Option<&Kind>,
        after: Option<Cursor>,
        limit: usize,
    ) -> Found<(Vec<DeadJob>, Option<Cursor>)> {
        let jobs = self.newest(View::Failed, after, limit)?;
        let last = jobs.last().filter(|_| jobs.len() == limit);
        let next = last.and_then(|job| Some(Cursor { at: job.finished_at()?, id: job.id }));
        let mut found = Vec::new();
        for job in jobs {
            let wanted = queue.is_none_or(|queue| *queue == job.queue)
                && kind.is_none_or(|kind| *kind == job.kind);
            if wanted {
                let error = self.last_error(job.id)?;
                found.push(DeadJob { job, error });
            }
        }
        Ok((found, next))
    }

    fn payloads(&mut self, ids: &[JobId], bytes: usize) -> Found<Vec<Payload>> {
        let mut found = Vec::with_capacity(ids.len());
        let mut room = Room::new(bytes);
        for run in ids.chunk_by(|a, b| a.get() + 1 == b.get()) {
            if !self.payload_run(run, &mut room, &mut found)? {
                break;
            }
        }
        Ok(found)
    }

    fn orphan_keys(&mut self, now: Wall, limit: usize) -> Found<Vec<IdempotencyKey>> {
        let sql = "SELECT key FROM keys WHERE orphan_until IS NOT NULL AND orphan_until <= ?1 \
                   ORDER BY orphan_until, key LIMIT ?2";
        let mut statement = self.conn.prepare_cached(sql)?;
        let mut rows = statement.query(params![now.get(), count(limit)])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            found.push(IdempotencyKey::new(text(row, 0)?.unwrap_or_default()).map_err(bad)?);
        }
        Ok(found)
    }

    fn next_due(&mut self) -> Found<Option<Wall>> {
        self.first_at(View::Scheduled)
    }

    fn next_expiry(&mut self) -> Found<Option<Wall>> {
        self.first_at(View::Processing)
    }

    fn has_silent(&mut self, before: Wall) -> Found<bool> {
        let sql = "SELECT EXISTS (SELECT 1 FROM markers WHERE at < ?1) \
                   OR EXISTS (SELECT 1 FROM workers WHERE last_seen < ?1)";
        Ok(self.conn.prepare_cached(sql)?.query_row([before.get()], |row| row.get(0))?)
    }

    fn stop_marks(&mut self, ids: &[WorkerId]) -> Found<Vec<Option<bool>>> {
        let sql = "SELECT stopping FROM workers WHERE id = ?1";
        let mut statement = self.conn.prepare_cached(sql)?;
        let mut mark = |id: &WorkerId| {
            let mut rows = statement.query([id.as_str()])?;
            Ok(rows.next()?.map(|row| row.get(0)).transpose()?)
        };
        ids.iter().map(&mut mark).collect()
    }

    fn next_id(&mut self) -> Found<JobId> {
        let sql = "SELECT value FROM meta WHERE key = 'last_id'";
        let last: i64 = self.conn.prepare_cached(sql)?.query_row([], |row| row.get(0))?;
        job_id(last.saturating_add(1))
    }

    fn write(&mut self, changes: Changes) -> Found<()> {
        crate::write::write(self.conn, self.names, &changes, self.now)?;
        if let Some(recent) = &mut self.recent {
            recent.absorb(changes);
        }
        Ok(())
    }
}

impl SqliteTx<'_> {
    fn ready_behind(
        &mut self,
        queue: &QueueName,
        kind: &Kind,
        (rank, run_at, id): (i64, i64, i64),
        limit: usize,
    ) -> Found<Vec<Job>> {
        let queue = self.names.queue_id(self.conn, queue)?;
        let kind = self.names.kind_id(self.conn, kind)?;
        let (Some(queue), Some(kind)) = (queue, kind) else { return Ok(Vec::new()) };
        let sql = concat!(
            "SELECT ",
            job_columns!(),
            " FROM jobs WHERE view = 0 AND queue = ?1 AND kind = ?2 \
             AND (rank, run_at, id) > (?3, ?4, ?5) ORDER BY rank, run_at, id LIMIT ?6"
        );
        self.find(sql, params![queue, kind, rank, run_at, id, count(limit)])
    }

    /// The newest jobs of a view, behind `after`.
    pub(crate) fn newest(
        &mut self,
        view: View,
        after: Option<Cursor>,
        limit: usize,
    ) -> Found<Vec<Job>> {
        let sql = concat!(
            "SELECT ",
            job_columns!(),
            " FROM jobs WHERE view = ?1 AND (at, id) < (?2, ?3) ORDER BY at DESC, id DESC LIMIT ?4"
        );
        let (at, id) =
            after.map_or((i64::MAX, i64::MAX), |after| (after.at.get(), id_code(after.id)));
        self.find(sql, params![view_code(view), at, id, count(limit)])
    }

    pub(crate) fn last_error(&self, id: JobId) -> Found<Option<windlass_core::Excerpt>> {
        let sql = "SELECT text, cut FROM errors WHERE job = ?1";
        let mut statement = self.conn.prepare_cached(sql)?;
        let mut rows = statement.query([id_code(id)])?;
        let row = rows.next()?;
        Ok(row.map(|row| excerpt(row, 0)).transpose()?.flatten())
    }
}

/// The record of a key, from the columns `job, request, created_at, orphan_until`.
pub(crate) fn key_record(
    key: IdempotencyKey,
    row: &rusqlite::Row<'_>,
    at: usize,
) -> Found<KeyRecord> {
    let request: [u8; 16] = row.get(at + 1)?;
    Ok(KeyRecord {
        key,
        job: job_id(row.get(at)?)?,
        request: Fingerprint(u128::from_le_bytes(request)),
        created_at: Wall::new(row.get(at + 2)?),
        orphan_until: row.get::<_, Option<i64>>(at + 3)?.map(Wall::new),
    })
}

/// A limit as SQLite counts.
pub(crate) fn count(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}
