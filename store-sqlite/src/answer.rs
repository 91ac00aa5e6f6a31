//! Answers the questions of a batch in SQL. It finds; `windlass_core::Apply` decides.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use rusqlite::params;
use windlass_core::store::{
    Admits, Answers, Batch, BulkAsk, Candidates, CommitPoint, DeadFound, DeadJob, DeadPage,
    EmptyQueues, ExpiredPage, Filter, FinishedPage, JobPage, KeyFound, KindFound, Outcomes,
    Questions, QueueFound, QueueSweep, Want,
};
use windlass_core::{
    Apply, ApplyStep, IdempotencyKey, Job, JobId, Kind, Queue, QueueName, Rank, Usage, View, Wall,
    WorkerId,
};
use windlass_store_file::{Cache, Heads, Lookup, Pair};

use crate::bulk;
use crate::figures;
use crate::find::{Found, Rows, count, key_record};
use crate::groups;
use crate::hook::Hook;
use crate::names::{pair_key, pair_range};
use crate::rows::{bad, id_code, in_view, rank, select_jobs, text, view_code};
use crate::settings;
use crate::write::write;

/// An open transaction that writes.
pub(crate) struct Transaction<'a> {
    rows: Rows<'a>,
    cache: &'a mut Cache,
    /// What counts against the limits of limited queues, read once.
    usages: Usages,
    now: Wall,
}

impl<'a> Transaction<'a> {
    pub(crate) fn new(rows: Rows<'a>, cache: &'a mut Cache, now: Wall) -> Self {
        Self { rows, cache, usages: Usages::new(), now }
    }

    /// Applies a batch: answers what it asks, writes what it decides.
    pub(crate) fn apply(mut self, batch: &Batch, hook: Option<&Hook>) -> Found<Outcomes> {
        let (mut apply, mut asked) = Apply::new(batch);
        let changes = loop {
            match apply.answer(self.answer(&asked)?)? {
                ApplyStep::Ask(more) => asked = more,
                ApplyStep::Write(changes) => break changes,
            }
        };
        if let Some(hook) = hook {
            hook.call(CommitPoint::Answered);
        }
        if !changes.is_empty() {
            let Rows { conn, names } = self.rows;
            write(conn, names, &changes, self.now)?;
            let names = std::cell::RefCell::new(names);
            let pair = |job: &Job| names.borrow_mut().pair(conn, job);
            let queue = |name: &QueueName| names.borrow_mut().ensure_queue(conn, name);
            let dropped = changes.dropped_queues.clone();
            self.cache.absorb(changes, pair, queue)?;
            for name in &dropped {
                names.borrow_mut().drop_queue(conn, name)?;
            }
        }
        Ok(apply.finish())
    }

    /// Answers all questions. No other process can write while the transaction is open, so every
    /// row in it is held.
    pub(crate) fn answer(&mut self, asked: &Questions) -> Found<Answers> {
        let mut answers = Answers { now: self.now, ..Answers::default() };
        if asked.bulk != BulkAsk::No {
            answers.bulk = bulk::all(self.rows.conn)?;
        }
        answers.jobs = self.jobs(&asked.jobs)?;
        answers.keys = self.keys(&asked.keys)?;
        for (queue, kind) in &asked.kinds {
            answers.kinds.push(self.kind(queue, kind)?);
        }
        answers.workers = self.workers(&asked.workers)?;
        answers.settings = settings::named(self.rows.conn, &asked.settings)?;
        if let Some(limit) = asked.due {
            answers.due = self.page(View::Scheduled, None, self.now, limit)?;
        }
        if let Some(page) = asked.expired {
            answers.expired = self.expired(page)?;
        }
        for FinishedPage { view, age, limit } in &asked.finished {
            answers.finished.push(self.page(*view, None, self.now.minus(*age), *limit)?);
        }
        for page in &asked.dead {
            answers.dead.push(self.dead(page)?);
        }
        if let Some(limit) = asked.orphans {
            answers.orphans = self.orphans(limit)?;
        }
        if let Some(age) = asked.silent {
            answers.silent = self.has_silent(self.now.minus(age))?;
        }
        if let Some(page) = &asked.empty_queues {
            answers.empty_queues = self.empty_queues(page)?;
        }
        answers.groups = groups::named(self.rows.conn, &asked.groups)?;
        if answers.groups.contains(&None) {
            answers.group_count = groups::number(self.rows.conn)?;
        }
        if let Some(page) = asked.idle_groups {
            answers.idle_groups = groups::idle(self.rows.conn, self.now, page)?;
        }
        answers.figures = figures::data(self.rows.conn, &asked.figures)?;
        for page in &asked.old_figures {
            answers.old_figures.push(figures::old(self.rows.conn, self.now, *page)?);
        }
        for want in &asked.wants {
            answers.candidates.push(self.candidates(want)?);
        }
        answers.payloads = self.rows.payloads(&asked.payloads)?;
        if asked.ids > 0 {
            let first = self.rows.next_id()?;
            answers.ids = (0..asked.ids as u64).map(|at| first.plus(at)).collect();
        }
        self.queues(asked, &mut answers)?;
        Ok(answers)
    }

    fn jobs(&mut self, ids: &[JobId]) -> Found<Vec<Option<Job>>> {
        let mut found: Vec<Option<Job>> =
            ids.iter().map(|id| self.cache.recent.take(*id)).collect();
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

    fn keys(&mut self, keys: &[IdempotencyKey]) -> Found<Vec<Option<KeyFound>>> {
        let sql = "SELECT job, request, created_at, orphan_until FROM keys WHERE key = ?1";
        let mut statement = self.rows.conn.prepare_cached(sql)?;
        let mut found = Vec::with_capacity(keys.len());
        for key in keys {
            let mut rows = statement.query([key.as_str()])?;
            let record = rows.next()?.map(|row| key_record(key.clone(), row, 0)).transpose()?;
            found.push(match record {
                None => None,
                Some(record) => {
                    let job = self.rows.jobs(&[record.job])?.pop().flatten();
                    Some(KeyFound { record, job })
                }
            });
        }
        Ok(found)
    }

    fn kind(&mut self, queue: &QueueName, kind: &Kind) -> Found<KindFound> {
        let Rows { conn, names } = &mut self.rows;
        let queue = names.queue_id(conn, queue)?;
        let Some(queue) = queue else { return Ok(KindFound::New { others: 0 }) };
        if let Some(kind) = names.kind_id(conn, kind)? {
            let sql = "SELECT 1 FROM counts WHERE pair = ?1";
            if conn.prepare_cached(sql)?.exists([pair_key(queue, kind)])? {
                return Ok(KindFound::Known);
            }
        }
        let sql = "SELECT count(*) FROM counts WHERE pair BETWEEN ?1 AND ?2";
        let mut statement = conn.prepare_cached(sql)?;
        let others: i64 = statement.query_row(pair_range(queue), |row| row.get(0))?;
        Ok(KindFound::New { others: usize::try_from(others).map_err(bad)? })
    }

    fn workers(&mut self, ids: &[WorkerId]) -> Found<Vec<Option<bool>>> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let sql = "SELECT stopping FROM workers WHERE id = ?1";
        let mut statement = self.rows.conn.prepare_cached(sql)?;
        let mut mark = |id: &WorkerId| {
            let mut rows = statement.query([id.as_str()])?;
            Ok(rows.next()?.map(|row| row.get(0)).transpose()?)
        };
        ids.iter().map(&mut mark).collect()
    }

    /// The first jobs of a view behind `after` up to `to`, and the instant of the next one.
    fn page(
        &mut self,
        view: View,
        after: Option<(Wall, JobId)>,
        to: Wall,
        limit: usize,
    ) -> Found<JobPage> {
        let sql = in_view!(
            view,
            [select_jobs!(), "WHERE "],
            " AND at <= ?2 AND (at, id) > (?3, ?4) ORDER BY at, id LIMIT ?5"
        );
        let (at, id) = after.map_or((i64::MIN, 0), |(at, id)| (at.get(), id_code(id)));
        let jobs = self.rows.find(sql, params![view_code(view), to.get(), at, id, count(limit)])?;
        let last = jobs.last().map(|job| (job.index_key().at.get(), id_code(job.id)));
        let (at, id) = last.unwrap_or((at, id));
        let sql = in_view!(
            view,
            ["SELECT at FROM jobs WHERE "],
            " AND (at, id) > (?2, ?3) ORDER BY at, id LIMIT 1"
        );
        let mut statement = self.rows.conn.prepare_cached(sql)?;
        let mut rows = statement.query(params![view_code(view), at, id])?;
        let next = rows.next()?.map(|row| row.get(0)).transpose()?;
        Ok(JobPage { jobs, next: next.map(Wall::new) })
    }

    fn expired(&mut self, page: ExpiredPage) -> Found<JobPage> {
        let to = if page.all { Wall::MAX } else { self.now };
        let after = page.after.map(|after| (after.at, after.id));
        self.page(View::Processing, after, to, page.limit)
    }

    fn dead(&mut self, asked: &DeadPage) -> Found<DeadFound> {
        let page = match asked.group {
            Some(group) => self.rows.of_group(group, asked.after, asked.limit)?,
            None => self.rows.newest(View::Failed, asked.after, asked.limit)?,
        };
        let DeadPage { queue, kind, group, .. } = asked.clone();
        let filter = Filter { view: Some(View::Failed), queue, kind, group, ..Filter::default() };
        let last = page.last().filter(|_| page.len() == asked.limit);
        let next = last.map(|job| filter.place(job));
        let mut jobs = Vec::new();
        for job in page.into_iter().filter(|job| filter.includes(job)) {
            let error = self.rows.last_error(job.id)?;
            jobs.push(DeadJob { job, error });
        }
        Ok(DeadFound { jobs, next })
    }

    fn orphans(&mut self, limit: usize) -> Found<Vec<IdempotencyKey>> {
        let sql = "SELECT key FROM keys WHERE orphan_until IS NOT NULL AND orphan_until <= ?1 \
                   ORDER BY orphan_until, key LIMIT ?2";
        let mut statement = self.rows.conn.prepare_cached(sql)?;
        let mut rows = statement.query(params![self.now.get(), count(limit)])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            found.push(IdempotencyKey::new(text(row, 0)?.unwrap_or_default()).map_err(bad)?);
        }
        Ok(found)
    }

    fn has_silent(&mut self, before: Wall) -> Found<bool> {
        let sql = "SELECT EXISTS (SELECT 1 FROM markers WHERE at < ?1) \
                   OR EXISTS (SELECT 1 FROM workers WHERE last_seen < ?1)";
        Ok(self.rows.conn.prepare_cached(sql)?.query_row([before.get()], |row| row.get(0))?)
    }

    /// The queues of a page that have no jobs.
    fn empty_queues(&mut self, page: &QueueSweep) -> Found<EmptyQueues> {
        let sql = "SELECT id FROM queues WHERE name > ?1 ORDER BY name LIMIT ?2";
        let after = page.after.as_ref().map_or("", QueueName::as_str);
        let mut statement = self.rows.conn.prepare_cached(sql)?;
        let ids = statement.query_map(params![after, count(page.limit)], |row| row.get(0))?;
        let ids: Vec<i64> = ids.collect::<rusqlite::Result<_>>()?;
        let mut found = EmptyQueues::default();
        for id in &ids {
            if usage(&mut self.rows, &mut self.usages, *id)?.counts.is_empty() {
                found.queues.extend(queue(&mut self.rows, &mut self.cache.queues, *id)?.cloned());
            }
        }
        if let Some(last) = ids.last().filter(|_| ids.len() == page.limit) {
            found.next = Some(self.rows.names.queue(self.rows.conn, *last)?);
        }
        Ok(found)
    }

    fn candidates(&mut self, want: &Want) -> Found<Candidates> {
        let mut heads = std::mem::take(&mut self.cache.heads);
        if !heads.is_loaded() {
            self.load(&mut heads)?;
        }
        let rows = std::cell::RefCell::new(&mut self.rows);
        let (queues, usages, now) = (&mut self.cache.queues, &mut self.usages, self.now);
        let mut opens: Option<Wall> = None;
        let (jobs, next_bytes) = heads.best(
            want,
            |pair| {
                let admits = admits(*rows.borrow_mut(), queues, usages, (want, now), pair)?;
                if let Admits::Later(at) = admits {
                    opens = opens.into_iter().chain([at]).min();
                }
                Ok(admits == Admits::Yes)
            },
            |pair, after, limit| rows.borrow_mut().ready(pair, after, limit),
            |ranks, budget| rows.borrow_mut().candidates(ranks, budget),
        )?;
        self.cache.heads = heads;
        Ok(Candidates { jobs, next_bytes, opens })
    }

    /// Finds every queue and kind with ready jobs, and the best of each. It walks the index, and
    /// searches for the next pair where one has many.
    fn load(&mut self, heads: &mut Heads) -> Found<()> {
        let sql = "SELECT queue, kind, class, turn, due, id FROM jobs INDEXED BY ready \
                   WHERE view = 0 AND (queue, kind) > (?1, ?2) \
                   ORDER BY queue, kind, class, turn, due, id";
        let mut statement = self.rows.conn.prepare_cached(sql)?;
        let mut found: Vec<(Pair, Rank)> = Vec::new();
        loop {
            let last = found.last().map_or((i64::MIN, 0), |(pair, _)| (pair.queue, pair.kind));
            let mut rows = statement.query(params![last.0, last.1])?;
            let mut of_pair = 0;
            while let Some(row) = rows.next()? {
                let next = head(row)?;
                of_pair =
                    if found.last().is_some_and(|last| last.0 == next.0) { of_pair + 1 } else { 1 };
                found.push(next);
                if of_pair == Heads::LOADED {
                    break;
                }
            }
            if of_pair < Heads::LOADED {
                break;
            }
        }
        heads.load(&found);
        Ok(())
    }

    /// Adds the queues that belong to the answers.
    fn queues(&mut self, asked: &Questions, answers: &mut Answers) -> Found<()> {
        let needed = answers.queues_needed(asked);
        let mut found = Vec::with_capacity(needed.len());
        for name in &needed {
            let Some(id) = self.rows.names.queue_id(self.rows.conn, name)? else { continue };
            let Some(queue) = queue(&mut self.rows, &mut self.cache.queues, id)? else { continue };
            let counted = queue.is_limited() || asked.counted.binary_search(name).is_ok();
            let usages = &mut self.usages;
            let usage = if counted { Some(usage(&mut self.rows, usages, id)?) } else { None };
            let usage = usage.cloned().map(Box::new);
            found.push(QueueFound { queue: queue.clone(), usage });
        }
        if found.len() < needed.len() || !asked.counted.is_empty() {
            let sql = "SELECT count(*) FROM queues";
            let mut statement = self.rows.conn.prepare_cached(sql)?;
            let all: i64 = statement.query_row([], |row| row.get(0))?;
            answers.queue_count = usize::try_from(all).map_err(bad)?;
        }
        answers.queues = found;
        Ok(())
    }
}

/// The queue, the kind and the rank of a ready job.
fn head(row: &rusqlite::Row<'_>) -> Found<(Pair, Rank)> {
    Ok((Pair { queue: row.get(0)?, kind: row.get(1)? }, rank(row, [2, 3, 4], 5)?))
}

type Queues = Lookup<Queue>;
type Usages = BTreeMap<i64, Usage>;

/// A queue by its number, read once as long as no other process writes.
fn queue<'q>(rows: &mut Rows<'_>, queues: &'q mut Queues, id: i64) -> Found<Option<&'q Queue>> {
    let number = id.cast_unsigned();
    if queues.get(number).is_none()
        && let Some(queue) = rows.queue(id)?
    {
        queues.insert(number, queue);
    }
    Ok(queues.get(number))
}

/// What counts against the limits of a queue.
fn usage<'u>(rows: &mut Rows<'_>, usages: &'u mut Usages, id: i64) -> Found<&'u Usage> {
    match usages.entry(id) {
        Entry::Occupied(known) => Ok(known.into_mut()),
        Entry::Vacant(unknown) => {
            let (kinds, tats) = (rows.counts(id)?, rows.tats(id)?);
            let kinds = kinds.iter().map(|(kind, counts)| (kind, counts));
            Ok(unknown.insert(Usage::new(kinds, tats)))
        }
    }
}

/// Whether the ready jobs of a queue and kind are candidates.
fn admits(
    rows: &mut Rows<'_>,
    queues: &mut Queues,
    usages: &mut Usages,
    (want, now): (&Want, Wall),
    pair: Pair,
) -> Found<Admits> {
    let Some(queue) = queue(rows, queues, pair.queue)? else { return Ok(Admits::No) };
    let kind = rows.names.kind(rows.conn, pair.kind)?;
    want.admits(queue, &kind, now, || Ok(usage(rows, usages, pair.queue)?.of(&kind)))
}
