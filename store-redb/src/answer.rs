//! Answers the questions of a batch from the tables. It finds; `windlass_core::Apply` decides.
//!
//! redb runs one write transaction at a time, so every row found here is held until it ends.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Bound;

use redb::{ReadableTable, ReadableTableMetadata, WriteTransaction};
use windlass_core::store::{
    Admits, Answers, BulkAsk, Candidate, Candidates, DeadFound, DeadJob, DeadPage, EmptyQueues,
    ExpiredPage, Filter, FinishedPage, JobPage, KeyFound, KindFound, Questions, QueueFound,
    QueueSweep, Want,
};
use windlass_core::{
    IdempotencyKey, Job, JobId, Kind, Millis, Queue, QueueName, Usage, View, Wall, WorkerId,
};
use windlass_store_file::{Cache, Pair};

use crate::bulk;
use crate::bytes::utf8;
use crate::figures;
use crate::find::Rows;
use crate::groups;
use crate::names::{Known, Names};
use crate::rows::{self, bad};
use crate::settings;
use crate::tables::{
    Access, COUNTS, FAILED, Found, KEYS, LEASED, MARKERS, ORPHANS, QUEUES, WORKERS, orphan_key,
    pair_key, pair_numbers, time_table,
};

/// An open transaction that writes, before it has written anything.
pub(crate) struct Transaction<'a> {
    rows: Rows<'a, &'a WriteTransaction>,
    cache: &'a mut Cache,
    now: Wall,
    /// What counts against the limits of queues, as far as it was read.
    usages: BTreeMap<u32, Usage>,
}

impl<'a> Transaction<'a> {
    pub(crate) fn new(
        access: &'a WriteTransaction,
        names: &'a mut Names,
        cache: &'a mut Cache,
        now: Wall,
    ) -> Self {
        Self { rows: Rows { access, names }, cache, now, usages: BTreeMap::new() }
    }

    /// Answers everything. No table is opened that nothing is asked of.
    pub(crate) fn answer(&mut self, asked: &Questions) -> Found<Answers> {
        let mut answers = Answers { now: self.now, ..Answers::default() };
        if asked.bulk != BulkAsk::No {
            answers.bulk = bulk::all(self.rows.access)?;
        }
        answers.jobs = self.jobs(&asked.jobs)?;
        answers.keys = self.keys(&asked.keys)?;
        answers.kinds = self.kinds(&asked.kinds)?;
        answers.workers = self.workers(&asked.workers)?;
        answers.settings = settings::named(self.rows.access, &asked.settings)?;
        if let Some(limit) = asked.due {
            answers.due = self.page(View::Scheduled, self.now, limit)?;
        }
        if let Some(page) = asked.expired {
            answers.expired = self.expired(page)?;
        }
        for FinishedPage { view, age, limit } in &asked.finished {
            answers.finished.push(self.page(*view, self.now.minus(*age), *limit)?);
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
        answers.groups = groups::named(self.rows.access, &asked.groups)?;
        if answers.groups.contains(&None) {
            answers.group_count = groups::number(self.rows.access)?;
        }
        if let Some(page) = asked.idle_groups {
            answers.idle_groups = groups::idle(self.rows.access, self.now, page)?;
        }
        answers.figures = figures::data(self.rows.access, &asked.figures)?;
        for page in &asked.old_figures {
            answers.old_figures.push(figures::old(self.rows.access, self.now, *page)?);
        }
        for want in &asked.wants {
            answers.candidates.push(self.candidates(want)?);
        }
        self.rows.payloads(&asked.payloads, |payload| answers.payloads.push(payload))?;
        if asked.ids > 0 {
            let first = self.rows.next_id()?;
            answers.ids = (0..asked.ids as u64).map(|at| first.plus(at)).collect();
        }
        self.queues(asked, &mut answers)?;
        Ok(answers)
    }

    // Named rows.

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
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let table = self.rows.access.open(KEYS)?;
        let mut records = Vec::with_capacity(keys.len());
        for key in keys {
            let row = table.get(key.as_str().as_bytes())?;
            records.push(row.map(|row| rows::key_record(key.clone(), row.value())).transpose()?);
        }
        let ids: Vec<JobId> = records.iter().flatten().map(|record| record.job).collect();
        let mut jobs = self.rows.jobs(&ids)?.into_iter();
        let found = records.into_iter().map(|record| {
            let record = record?;
            Some(KeyFound { record, job: jobs.next().flatten() })
        });
        Ok(found.collect())
    }

    /// A queue has jobs of a kind if these are counted.
    fn kinds(&mut self, of: &[(QueueName, Kind)]) -> Found<Vec<KindFound>> {
        if of.is_empty() {
            return Ok(Vec::new());
        }
        let Rows { access, names } = &mut self.rows;
        let counts = access.open(COUNTS)?;
        let mut found = Vec::with_capacity(of.len());
        for (queue, kind) in of {
            let Some(queue) = names.queues.number(*access, queue)? else {
                found.push(KindFound::New { others: 0 });
                continue;
            };
            let kind = names.kinds.number(*access, kind)?;
            let row = kind.map(|kind| counts.get(&pair_key(queue, kind))).transpose()?;
            found.push(if row.flatten().is_some() {
                KindFound::Known
            } else {
                let (first, last) = (pair_key(queue, 0), pair_key(queue, u32::MAX));
                KindFound::New { others: counts.range::<&[u8; 8]>(&first..=&last)?.count() }
            });
        }
        Ok(found)
    }

    fn workers(&mut self, ids: &[WorkerId]) -> Found<Vec<Option<bool>>> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let table = self.rows.access.open(WORKERS)?;
        let stopping = |id: &WorkerId| {
            let row = table.get(id.as_str().as_bytes())?;
            let seen = row.map(|row| rows::worker(id.clone(), row.value())).transpose()?;
            Ok(seen.map(|seen| seen.stopping))
        };
        ids.iter().map(stopping).collect()
    }

    // Pages of sweeps.

    /// The first jobs of a view up to `to`, by their instant.
    fn page(&mut self, view: View, to: Wall, limit: usize) -> Found<JobPage> {
        let Some(table) = time_table(view) else { return Ok(JobPage::default()) };
        let (ids, next) = self.rows.by_time(table, None, to, limit)?;
        Ok(JobPage { jobs: self.rows.unleased(&ids)?, next })
    }

    fn expired(&mut self, page: ExpiredPage) -> Found<JobPage> {
        let to = if page.all { Wall::MAX } else { self.now };
        let (ids, next) = self.rows.by_time(LEASED, page.after, to, page.limit)?;
        Ok(JobPage { jobs: self.rows.indexed(&ids)?, next })
    }

    fn dead(&mut self, asked: &DeadPage) -> Found<DeadFound> {
        let DeadPage { queue, kind, group, after, limit } = asked.clone();
        let places = match group {
            Some(group) => groups::newest(self.rows.access, group, after, limit)?,
            None => self.rows.last(FAILED, after, limit)?,
        };
        let ids: Vec<JobId> = places.iter().map(|place| place.id).collect();
        let page = self.rows.unleased(&ids)?;
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

    fn orphans(&self, limit: usize) -> Found<Vec<IdempotencyKey>> {
        let orphans = self.rows.access.open(ORPHANS)?;
        // The first key that ends a millisecond later is not among them.
        let end = orphan_key(self.now.plus(Millis::new(1)), &[]);
        let to = if self.now == Wall::MAX { Bound::Unbounded } else { Bound::Excluded(&*end) };
        let keys = orphans.range::<&[u8]>((Bound::Unbounded, to))?.take(limit);
        let key = |row: &[u8]| {
            let text = row.get(8..).ok_or_else(|| bad("an orphaned key without its name"))?;
            IdempotencyKey::new(utf8(text)?).map_err(bad)
        };
        keys.map(|row| key(row?.0.value())).collect()
    }

    fn has_silent(&self, before: Wall) -> Found<bool> {
        for row in self.rows.access.open(MARKERS)?.iter()? {
            let (process, row) = row?;
            if rows::marker(process.value(), row.value())?.at < before {
                return Ok(true);
            }
        }
        for row in self.rows.access.open(WORKERS)?.iter()? {
            let (id, row) = row?;
            let id = WorkerId::new(utf8(id.value())?).map_err(bad)?;
            if rows::worker(id, row.value())?.last < before {
                return Ok(true);
            }
        }
        Ok(false)
    }

    // Candidates and queues.

    fn candidates(&mut self, want: &Want) -> Found<Candidates> {
        let mut heads = std::mem::take(&mut self.cache.heads);
        if !heads.is_loaded() {
            heads.load(&self.rows.heads()?);
        }
        let this = RefCell::new(&mut *self);
        let mut opens: Option<Wall> = None;
        let (jobs, next_bytes) = heads.best(
            want,
            |pair| {
                let admits = this.borrow_mut().admits(want, pair)?;
                if let Admits::Later(at) = admits {
                    opens = opens.into_iter().chain([at]).min();
                }
                Ok(admits == Admits::Yes)
            },
            |pair, after, limit| this.borrow_mut().rows.ready(pair, after, limit),
            |ranks, budget| this.borrow_mut().rows.candidates(ranks, budget),
        )?;
        self.cache.heads = heads;
        let ids: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
        let mut found = Candidates { jobs: Vec::with_capacity(jobs.len()), next_bytes, opens };
        let mut jobs = jobs.into_iter();
        self.rows.payloads(&ids, |payload| {
            if let Some(job) = jobs.next() {
                found.jobs.push(Candidate { job, payload });
            }
        })?;
        Ok(found)
    }

    /// Whether the ready jobs of a queue and kind are candidates.
    fn admits(&mut self, want: &Want, pair: Pair) -> Found<Admits> {
        let (number, kind) = pair_numbers(pair)?;
        let Self { rows, cache, usages, .. } = self;
        let Some(queue) = queue(rows, cache, number)? else {
            return Err(bad(format!("queue {number} has ready jobs, but does not exist")));
        };
        let kind = rows.names.kinds.name(rows.access, kind)?;
        let now = self.now;
        want.admits(queue, &kind, now, || Ok(usage(rows, usages, number)?.of(&kind)))
    }

    /// The queues of a page that have no jobs.
    fn empty_queues(&mut self, page: &QueueSweep) -> Found<EmptyQueues> {
        let Self { rows, cache, usages, .. } = self;
        let looked_at = Known::page(rows.access, page.after.as_ref(), page.limit)?;
        let mut found = EmptyQueues::default();
        for (_, number) in &looked_at {
            if usage(rows, usages, *number)?.counts.is_empty() {
                found.queues.extend(queue(rows, cache, *number)?.cloned());
            }
        }
        let last = looked_at.last().filter(|_| looked_at.len() == page.limit);
        found.next = last.map(|(name, _)| name.clone());
        Ok(found)
    }

    /// Adds the queues that belong to the answers.
    fn queues(&mut self, asked: &Questions, answers: &mut Answers) -> Found<()> {
        let Self { rows, cache, usages, .. } = self;
        let needed = answers.queues_needed(asked);
        let mut found = Vec::with_capacity(needed.len());
        for name in &needed {
            let Some(number) = rows.names.queues.number(rows.access, name)? else { continue };
            let Some(queue) = queue(rows, cache, number)? else { continue };
            let counted = queue.is_limited() || asked.counted.binary_search(name).is_ok();
            let usage = if counted { Some(usage(rows, usages, number)?) } else { None };
            let usage = usage.cloned().map(Box::new);
            found.push(QueueFound { queue: queue.clone(), usage });
        }
        if found.len() < needed.len() || !asked.counted.is_empty() {
            let all = rows.access.open(QUEUES)?.len()?;
            answers.queue_count = usize::try_from(all).unwrap_or(usize::MAX);
        }
        answers.queues = found;
        Ok(())
    }
}

/// A queue by its number, read once.
fn queue<'c>(
    rows: &mut Rows<'_, &WriteTransaction>,
    cache: &'c mut Cache,
    number: u32,
) -> Found<Option<&'c Queue>> {
    let queues = &mut cache.queues;
    if queues.get(number.into()).is_none()
        && let Some(queue) = rows.queue(number)?
    {
        queues.insert(number.into(), queue);
    }
    Ok(queues.get(number.into()))
}

/// What counts against the limits of a queue, read once in a transaction.
fn usage<'u>(
    rows: &mut Rows<'_, &WriteTransaction>,
    usages: &'u mut BTreeMap<u32, Usage>,
    number: u32,
) -> Found<&'u Usage> {
    match usages.entry(number) {
        Entry::Occupied(known) => Ok(known.into_mut()),
        Entry::Vacant(unknown) => Ok(unknown.insert(rows.usage(number)?)),
    }
}
