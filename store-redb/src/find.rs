//! Finds rows in the tables, for the transaction of a batch and for snapshots that only read.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

use redb::{ReadableTable, TableDefinition, Value};
use windlass_core::store::{ByteBudget, Cursor};
use windlass_core::{
    Counts, Excerpt, GroupId, Job, JobId, Kind, Lease, Payload, Queue, QueueName, QueueRow,
    QueueSettings, Rank, State, Tats, Usage, View, Wall,
};
use windlass_store_file::{Heads, Pair};

use crate::bytes::utf8;
use crate::error::TxError;
use crate::groups;
use crate::names::Names;
use crate::rows::{self, JobRow, QueueBytes, bad};
use crate::sorted::get_all;
use crate::tables::{
    Access, COUNTS, ERRORS, Found, JOBS, LAST_ID, LEASED, META, PAYLOADS, QUEUES, RATES, READY,
    SCHEDULED, cursor_key, pair, pair_key, pair_numbers, ready_bounds, ready_key, ready_place,
    time_key, time_place,
};

/// The rows of a transaction or of a snapshot.
pub(crate) struct Rows<'a, A> {
    pub(crate) access: A,
    pub(crate) names: &'a mut Names,
}

impl<A: Access> Rows<'_, A> {
    // Jobs.

    /// These jobs, in this order; `None` for one that does not exist.
    pub(crate) fn jobs(&mut self, ids: &[JobId]) -> Found<Vec<Option<Job>>> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let mut found: Vec<Option<Job>> = Vec::with_capacity(ids.len());
        let mut running: Vec<(usize, JobRow)> = Vec::new();
        get_all(&self.access.open(JOBS)?, ids, |row| {
            let at = found.len();
            let row = row.map(rows::job_row).transpose()?;
            found.push(match row {
                // The holder of its lease is in another table.
                Some(row) if row.view == View::Processing => {
                    running.push((at, row));
                    None
                }
                row => row.map(|row| self.job(ids[at], &row, None)).transpose()?,
            });
            Ok(ControlFlow::Continue(()))
        })?;
        let leases = self.leases(running.iter().map(|(at, row)| (ids[*at], row)))?;
        for ((at, row), lease) in running.into_iter().zip(leases) {
            found[at] = Some(self.job(ids[at], &row, Some(lease))?);
        }
        Ok(found)
    }

    /// Jobs that an index names: they exist.
    pub(crate) fn indexed(&mut self, ids: &[JobId]) -> Found<Vec<Job>> {
        let jobs = self.jobs(ids)?.into_iter().zip(ids);
        jobs.map(|(job, id)| job.ok_or_else(|| missing(*id))).collect()
    }

    /// Jobs that an index names, none of which is leased. This is the most frequent read, and a
    /// job is large: it is moved as little as possible.
    pub(crate) fn unleased(&mut self, ids: &[JobId]) -> Found<Vec<Job>> {
        let mut found: Vec<Job> = Vec::with_capacity(ids.len());
        get_all(&self.access.open(JOBS)?, ids, |row| {
            let id = ids[found.len()];
            let row = rows::job_row(row.ok_or_else(|| missing(id))?)?;
            found.push(self.job(id, &row, None)?);
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(found)
    }

    /// The job in a row, with its lease if it has one.
    pub(crate) fn job(&mut self, id: JobId, row: &JobRow, lease: Option<Lease>) -> Found<Job> {
        let dead = row.view == View::Failed;
        let group = if dead { groups::of_job(self.access, id)? } else { GroupId::LOST };
        let state = rows::state(row, group).or(lease.map(State::Processing));
        let state = state.ok_or_else(|| bad(format!("job {id} is leased, but has no holder")))?;
        let (queue, kind, retry) = self.names.of(self.access, row.numbers)?;
        Ok(Job {
            id,
            queue,
            kind,
            priority: row.priority,
            rank: row.rank(id),
            state,
            attempts: row.attempts,
            max_retries: row.max_retries,
            epoch: row.epoch,
            generation: row.generation,
            run_at: row.run_at,
            timeout: row.timeout,
            visibility_timeout: row.visibility_timeout,
            retry,
            idempotency_key: row.idempotency_key.clone(),
            payload_bytes: row.payload_bytes,
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
            let holder = holder.ok_or_else(|| bad("a leased job has no holder"))?;
            let latest = leases.last().map(|lease| &lease.worker);
            let (worker, length) = rows::holder(holder, latest)?;
            leases.push(Lease { worker, until: untils[leases.len()], length });
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(leases)
    }

    /// Every queue and kind with ready jobs, and the best ranks of each. It walks the table, and
    /// searches for the next pair where one has many.
    pub(crate) fn heads(&self) -> Found<Vec<(Pair, Rank)>> {
        let ready = self.access.open(READY)?;
        let mut found: Vec<(Pair, Rank)> = Vec::new();
        let mut from = Bound::Unbounded;
        loop {
            let mut of_pair = 0;
            let range = ready.range::<&[u8; 34]>((from.as_ref(), Bound::Unbounded))?;
            for row in range {
                let next = ready_place(row?.0.value())?;
                let same = found.last().is_some_and(|last| last.0 == next.0);
                of_pair = if same { of_pair + 1 } else { 1 };
                found.push(next);
                if of_pair == Heads::LOADED {
                    break;
                }
            }
            let Some((pair, _)) = found.last().filter(|_| of_pair == Heads::LOADED) else {
                return Ok(found);
            };
            let (queue, kind) = pair_numbers(*pair)?;
            from = Bound::Excluded(ready_bounds(queue, kind).1);
        }
    }

    /// The ranks of the first ready jobs of a queue and kind behind a rank, best first.
    pub(crate) fn ready(
        &mut self,
        pair: Pair,
        after: Option<Rank>,
        limit: usize,
    ) -> Found<Vec<Rank>> {
        let (queue, kind) = pair_numbers(pair)?;
        let (first, last) = ready_bounds(queue, kind);
        let after = after.map(|rank| ready_key(queue, kind, rank));
        let from = after.as_ref().map_or(Bound::Included(&first), Bound::Excluded);
        let ready = self.access.open(READY)?;
        let found = ready.range::<&[u8; 34]>((from, Bound::Included(&last)))?.take(limit);
        found.map(|row| Ok(ready_place(row?.0.value())?.1)).collect()
    }

    /// The ready jobs with these ranks, as many as have payloads that fit into the budget; and the
    /// payload length of the first that does not.
    pub(crate) fn candidates(
        &mut self,
        ranks: &[Rank],
        budget: &mut ByteBudget,
    ) -> Found<(Vec<Job>, Option<u32>)> {
        let ids: Vec<JobId> = ranks.iter().map(|rank| rank.id).collect();
        let mut found: Vec<Job> = Vec::with_capacity(ids.len());
        let mut next = None;
        get_all(&self.access.open(JOBS)?, &ids, |row| {
            let rank = ranks[found.len()];
            let row = rows::job_row(row.ok_or_else(|| missing(rank.id))?)?;
            if row.view != View::Queued || row.rank(rank.id) != rank {
                return Err(bad(format!("job {} is not ready as it was", rank.id)));
            }
            if !budget.takes(row.payload_bytes as usize) {
                next = Some(row.payload_bytes);
                return Ok(ControlFlow::Break(()));
            }
            found.push(self.job(rank.id, &row, None)?);
            Ok(ControlFlow::Continue(()))
        })?;
        Ok((found, next))
    }

    /// The jobs in a table by time behind `after` up to `to`, and the instant of the next one.
    pub(crate) fn by_time<V: Value + 'static>(
        &self,
        table: TableDefinition<'_, &'static [u8; 16], V>,
        after: Option<Cursor>,
        to: Wall,
        limit: usize,
    ) -> Found<(Vec<JobId>, Option<Wall>)> {
        let table = self.access.open(table)?;
        let after = after.map(cursor_key);
        let from = after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut ids = Vec::new();
        for row in table.range::<&[u8; 16]>((from, Bound::Unbounded))? {
            let Cursor { at, id } = time_place(row?.0.value())?;
            if at > to || ids.len() == limit {
                return Ok((ids, Some(at)));
            }
            ids.push(id);
        }
        Ok((ids, None))
    }

    /// When the next scheduled job falls due.
    pub(crate) fn next_due(&self) -> Found<Option<Wall>> {
        let table = self.access.open(SCHEDULED)?;
        let first = table.first()?.map(|(key, _)| time_place(key.value())).transpose()?;
        Ok(first.map(|place| place.at))
    }

    /// The id the next new job gets.
    pub(crate) fn next_id(&self) -> Found<JobId> {
        let last = self.access.open(META)?.get(LAST_ID)?.map_or(0, |last| last.value());
        Ok(JobId::new(last.saturating_add(1)).unwrap_or(JobId::LAST))
    }

    // What is kept beside jobs.

    /// The payloads of these jobs, in this order, one after the other.
    pub(crate) fn payloads(&self, ids: &[JobId], mut take: impl FnMut(Payload)) -> Found<()> {
        if ids.is_empty() {
            return Ok(());
        }
        let mut at = 0;
        get_all(&self.access.open(PAYLOADS)?, ids, |text| {
            let text = text.ok_or_else(|| bad(format!("job {} has no payload", ids[at])))?;
            take(Payload::new(utf8(text)?).map_err(bad)?);
            at += 1;
            Ok(ControlFlow::Continue(()))
        })
    }

    pub(crate) fn last_error(&self, id: JobId) -> Found<Option<Excerpt>> {
        let errors = self.access.open(ERRORS)?;
        let row = errors.get(id.get())?;
        row.map(|row| rows::error(row.value())).transpose()
    }

    // Queues.

    /// One queue by its number.
    pub(crate) fn queue(&mut self, number: u32) -> Found<Option<Queue>> {
        let queues = self.access.open(QUEUES)?;
        let Some(row) = queues.get(number)? else { return Ok(None) };
        let name = self.names.queues.name(self.access, number)?;
        self.queue_of(name, rows::queue(row.value())?).map(Some)
    }

    /// One queue with its counters.
    pub(crate) fn queue_row(&mut self, name: &QueueName) -> Found<Option<QueueRow>> {
        let Some(number) = self.names.queues.number(self.access, name)? else { return Ok(None) };
        let Some(queue) = self.queue(number)? else { return Ok(None) };
        let counts = self.access.open(COUNTS)?;
        let (first, last) = (pair_key(number, 0), pair_key(number, u32::MAX));
        let mut kinds = Vec::new();
        for row in counts.range::<&[u8; 8]>(&first..=&last)? {
            let (key, row) = row?;
            let kind = self.names.kinds.name(self.access, pair(*key.value()).1)?;
            kinds.push((kind, rows::counts(row.value())?));
        }
        Ok(Some(queue_row(queue, kinds, self.tats(number)?)))
    }

    /// The state of a queue's rates.
    pub(crate) fn tats(&self, number: u32) -> Found<Tats> {
        let rates = self.access.open(RATES)?;
        let Some(row) = rates.get(number)? else { return Ok(Tats::default()) };
        Tats::parse(Some(utf8(row.value())?)).map_err(bad)
    }

    /// What counts against the limits of a queue.
    pub(crate) fn usage(&mut self, number: u32) -> Found<Usage> {
        let counts = self.access.open(COUNTS)?;
        let (first, last) = (pair_key(number, 0), pair_key(number, u32::MAX));
        let mut kinds = Vec::new();
        for row in counts.range::<&[u8; 8]>(&first..=&last)? {
            let (key, row) = row?;
            let kind = self.names.kinds.name(self.access, pair(*key.value()).1)?;
            kinds.push((kind, rows::counts(row.value())?));
        }
        Ok(Usage::new(kinds.iter().map(|(kind, counts)| (kind, counts)), self.tats(number)?))
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
            let kinds = kinds.remove(&number).unwrap_or_default();
            found.push(queue_row(queue, kinds, self.tats(number)?));
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
            flow: row.flow,
        };
        Ok(Queue { name, paused: row.paused, settings })
    }
}

fn missing(id: JobId) -> TxError {
    TxError::BadRow(format!("job {id} is indexed, but does not exist"))
}

fn queue_row(queue: Queue, mut kinds: Vec<(Kind, Counts)>, tats: Tats) -> QueueRow {
    kinds.retain(|(_, counts)| !counts.is_empty());
    kinds.sort_by(|(a, _), (b, _)| a.cmp(b));
    QueueRow { queue, kinds, tats }
}
