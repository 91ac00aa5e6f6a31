//! Finds rows in SQL, for the transaction of a batch and for snapshots that only read.

use rusqlite::{Connection, OptionalExtension, Params, params};
use windlass_core::store::{ByteBudget, Candidate, Cursor};
use windlass_core::{
    Counts, Excerpt, Fingerprint, Flow, GroupId, IdempotencyKey, Job, JobId, KeyRecord, Kind,
    LeaseLength, MaxQueued, MaxRetries, MaxRunning, Pause, Payload, Queue, QueueRow, QueueSettings,
    Rank, Tats, View, Wall,
};
use windlass_store_file::Pair;

use crate::error::TxError;
use crate::groups;
use crate::names::{Names, pair_range};
use crate::rows::{
    PAYLOAD, bad, excerpt, id_code, in_view, job, job_id, optional, payload_bytes, rank, rank_code,
    select_jobs, small, text, view_code,
};

macro_rules! queue_columns {
    () => {
        "id, paused, max_queued, concurrency, visibility_timeout, max_retries, timeout, retry, \
         paused_at, paused_by, flow"
    };
}

/// The rows of an open transaction, or of a snapshot for reading.
pub(crate) struct Rows<'a> {
    pub(crate) conn: &'a Connection,
    pub(crate) names: &'a mut Names,
}

pub(crate) type Found<T> = Result<T, TxError>;

impl Rows<'_> {
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
        let sql = in_view!(view, ["SELECT at FROM jobs WHERE "], " ORDER BY at LIMIT 1");
        let mut statement = self.conn.prepare_cached(sql)?;
        let at = statement.query_row([view_code(view)], |row| row.get(0)).optional()?;
        Ok(at.map(Wall::new))
    }

    /// The queue in a row of `queues`.
    fn queue_of(&mut self, row: &rusqlite::Row<'_>) -> Found<Queue> {
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
            flow: Flow::parse(text(row, 10)?).map_err(bad)?,
        };
        let (at, by): (Option<i64>, Option<String>) = (row.get(8)?, row.get(9)?);
        let pause = Pause { at: at.map(Wall::new), by: by.map(Into::into) };
        let paused = row.get::<_, bool>(1)?.then_some(pause);
        Ok(Queue { name: self.names.queue(self.conn, id)?, paused, settings })
    }

    /// The counters of a queue's kinds.
    pub(crate) fn counts(&mut self, queue: i64) -> Found<Vec<(Kind, Counts)>> {
        let sql = "SELECT pair & 4294967295, queued, scheduled, processing, done, failed, \
                   cancelled, retrying FROM counts WHERE pair BETWEEN ?1 AND ?2";
        let mut statement = self.conn.prepare_cached(sql)?;
        let mut rows = statement.query(pair_range(queue))?;
        let mut kinds = Vec::new();
        while let Some(row) = rows.next()? {
            let number = |at| Found::Ok(u64::try_from(row.get::<_, i64>(at)?).unwrap_or(0));
            let mut counts = [0; View::ALL.len()];
            for (at, count) in counts.iter_mut().enumerate() {
                *count = number(at + 1)?;
            }
            let counts = Counts::new(counts).with_retrying(number(View::ALL.len() + 1)?);
            kinds.push((self.names.kind(self.conn, row.get(0)?)?, counts));
        }
        kinds.retain(|(_, counts)| !counts.is_empty());
        kinds.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(kinds)
    }

    /// The state of a queue's rates.
    pub(crate) fn tats(&self, queue: i64) -> Found<Tats> {
        let mut statement = self.conn.prepare_cached("SELECT tats FROM rates WHERE queue = ?1")?;
        let mut rows = statement.query([queue])?;
        let Some(row) = rows.next()? else { return Ok(Tats::default()) };
        Tats::parse(text(row, 0)?).map_err(bad)
    }

    /// One queue by its number.
    pub(crate) fn queue(&mut self, id: i64) -> Found<Option<Queue>> {
        let sql = concat!("SELECT ", queue_columns!(), " FROM queues WHERE id = ?1");
        let mut statement = self.conn.prepare_cached(sql)?;
        let mut rows = statement.query([id])?;
        rows.next()?.map(|row| self.queue_of(row)).transpose()
    }

    /// Every queue, by name.
    pub(crate) fn all_queues(&mut self) -> Found<Vec<QueueRow>> {
        let sql = concat!("SELECT ", queue_columns!(), " FROM queues ORDER BY name");
        let mut statement = self.conn.prepare_cached(sql)?;
        let mut rows = statement.query([])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            let (id, queue) = (row.get(0)?, self.queue_of(row)?);
            found.push(QueueRow { queue, kinds: self.counts(id)?, tats: self.tats(id)? });
        }
        Ok(found)
    }

    pub(crate) fn payload(&self, id: JobId) -> Found<Payload> {
        let mut statement = self.conn.prepare_cached("SELECT text FROM bodies WHERE job = ?1")?;
        let mut rows = statement.query([id_code(id)])?;
        let Some(row) = rows.next()? else {
            return Err(TxError::BadRow(format!("job {id} has no payload")));
        };
        Payload::new(text(row, 0)?.unwrap_or_default()).map_err(bad)
    }
}

impl Rows<'_> {
    /// The payloads of these jobs, in this order. Those of neighbours are found by one walk, which
    /// is quicker than a search for each.
    pub(crate) fn payloads(&self, ids: &[JobId]) -> Found<Vec<Payload>> {
        let mut found = Vec::with_capacity(ids.len());
        let sql = "SELECT job, text FROM bodies WHERE job BETWEEN ?1 AND ?2 ORDER BY job";
        let mut statement = self.conn.prepare_cached(sql)?;
        for run in ids.chunk_by(|a, b| a.get() + 1 == b.get()) {
            let (Some(first), Some(last)) = (run.first(), run.last()) else { continue };
            let mut rows = statement.query([id_code(*first), id_code(*last)])?;
            for id in run {
                let row = rows.next()?.filter(|row| row.get(0) == Ok(id_code(*id)));
                let Some(row) = row else {
                    return Err(TxError::BadRow(format!("job {id} has no payload")));
                };
                found.push(Payload::new(text(row, 1)?.unwrap_or_default()).map_err(bad)?);
            }
        }
        Ok(found)
    }

    /// These jobs, in this order; `None` for one that does not exist.
    pub(crate) fn jobs(&mut self, ids: &[JobId]) -> Found<Vec<Option<Job>>> {
        let sql = concat!(select_jobs!(), "WHERE id = ?1");
        let mut statement = self.conn.prepare_cached(sql)?;
        let mut found = Vec::with_capacity(ids.len());
        for id in ids {
            let mut rows = statement.query([id_code(*id)])?;
            let row = rows.next()?;
            found.push(row.map(|row| job(self.conn, self.names, row)).transpose()?);
        }
        Ok(found)
    }

    /// The ranks of the first ready jobs of a queue and kind behind a rank, best first.
    pub(crate) fn ready(
        &mut self,
        pair: Pair,
        after: Option<Rank>,
        limit: usize,
    ) -> Found<Vec<Rank>> {
        let sql = "SELECT class, turn, due, id FROM jobs INDEXED BY ready \
                   WHERE view = 0 AND queue = ?1 AND kind = ?2 \
                   AND (class, turn, due, id) > (?3, ?4, ?5, ?6) \
                   ORDER BY class, turn, due, id LIMIT ?7";
        let Pair { queue, kind } = pair;
        let (class, turn, due, id) = after.map_or((i64::MIN, 0, i64::MIN, 0), rank_code);
        let mut statement = self.conn.prepare_cached(sql)?;
        let mut rows = statement.query(params![queue, kind, class, turn, due, id, count(limit)])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            found.push(rank(row, [0, 1, 2], 3)?);
        }
        Ok(found)
    }

    /// The ready jobs with these ranks and their payloads, as many as fit into the budget; and the
    /// payload length of the first that does not. Neighbours are found by one walk.
    pub(crate) fn candidates(
        &mut self,
        ranks: &[Rank],
        budget: &mut ByteBudget,
    ) -> Found<(Vec<Candidate>, Option<u32>)> {
        let sql = concat!(select_jobs!(), "WHERE id BETWEEN ?1 AND ?2 ORDER BY id");
        let mut statement = self.conn.prepare_cached(sql)?;
        let mut found = Vec::with_capacity(ranks.len());
        for run in ranks.chunk_by(|a, b| a.id.plus(1) == b.id) {
            let (Some(first), Some(last)) = (run.first(), run.last()) else { continue };
            let mut rows = statement.query([id_code(first.id), id_code(last.id)])?;
            for rank in run {
                let row = rows.next()?.filter(|row| row.get(0) == Ok(id_code(rank.id)));
                let Some(row) = row else { return Err(TxError::Conflict(rank.id)) };
                let bytes = payload_bytes(row)?;
                if !budget.takes(bytes as usize) {
                    return Ok((found, Some(bytes)));
                }
                let job = job(self.conn, self.names, row)?;
                if job.rank != *rank || job.state.view() != View::Queued {
                    return Err(TxError::Conflict(rank.id));
                }
                let payload = Payload::new(text(row, PAYLOAD)?.unwrap_or_default()).map_err(bad)?;
                found.push(Candidate { job, payload });
            }
        }
        Ok((found, None))
    }

    /// The id the next new job gets.
    pub(crate) fn next_id(&self) -> Found<JobId> {
        let sql = "SELECT value FROM meta WHERE key = 'last_id'";
        let last: i64 = self.conn.prepare_cached(sql)?.query_row([], |row| row.get(0))?;
        job_id(last.saturating_add(1))
    }

    /// The newest jobs of a view, behind `after`.
    pub(crate) fn newest(
        &mut self,
        view: View,
        after: Option<Cursor>,
        limit: usize,
    ) -> Found<Vec<Job>> {
        let sql = in_view!(
            view,
            [select_jobs!(), "WHERE "],
            " AND (at, id) < (?2, ?3) ORDER BY at DESC, id DESC LIMIT ?4"
        );
        let (at, id) =
            after.map_or((i64::MAX, i64::MAX), |after| (after.at.get(), id_code(after.id)));
        self.find(sql, params![view_code(view), at, id, count(limit)])
    }

    /// The newest dead letters of an error group, behind `after`.
    pub(crate) fn of_group(
        &mut self,
        group: GroupId,
        after: Option<Cursor>,
        limit: usize,
    ) -> Found<Vec<Job>> {
        let ids = groups::newest(self.conn, group, after, limit)?;
        Ok(self.jobs(&ids)?.into_iter().flatten().collect())
    }

    pub(crate) fn last_error(&self, id: JobId) -> Found<Option<Excerpt>> {
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
