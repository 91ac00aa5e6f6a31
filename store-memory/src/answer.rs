//! Answers the questions of a batch from the tables. It finds; `windlass_core::Apply` decides.
//! Found rows that another transaction holds are left out.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::convert::Infallible;
use std::ops::Bound;

use windlass_core::store::{
    Admits, Answers, BulkAsk, ByteBudget, Candidate, Candidates, Cursor, DeadFound, DeadJob,
    DeadPage, EmptyQueues, ExpiredPage, FigurePage, FigureRow, Filter, FinishedPage, IdleGroups,
    JobPage, KeyFound, KindFound, Questions, QueueFound, QueueSweep, Want,
};
use windlass_core::{
    GroupId, GroupRow, IdempotencyKey, Job, JobId, Kind, Payload, QueueName, Queues, Rank, View,
    Wall,
};

use crate::locks::{Locks, Resource, TransactionId};
use crate::tables::{QueueTable, Tables};

/// The best rank of a queue and kind that has ready jobs.
type Head<'a> = (Rank, &'a QueueName, &'a Kind);

/// Answers the questions of one transaction, and keeps what they found.
pub(crate) struct Finder<'a> {
    tables: &'a Tables,
    locks: &'a Locks,
    by: TransactionId,
    /// The jobs that were left out because another transaction holds them.
    skipped: RefCell<Vec<JobId>>,
}

impl<'a> Finder<'a> {
    pub(crate) fn new(tables: &'a Tables, locks: &'a Locks, by: TransactionId) -> Self {
        Self { tables, locks, by, skipped: RefCell::default() }
    }

    /// The jobs that were left out.
    pub(crate) fn into_skipped(self) -> Vec<JobId> {
        self.skipped.into_inner()
    }

    /// Answers everything but new ids, from one state.
    pub(crate) fn answer(&self, asked: &Questions, now: Wall) -> Answers {
        let tables = self.tables;
        let mut answers = Answers {
            now,
            bulk: if asked.bulk == BulkAsk::No { Vec::new() } else { tables.bulk_rows() },
            jobs: asked.jobs.iter().map(|id| tables.jobs.get(id).cloned()).collect(),
            keys: asked.keys.iter().map(|key| self.key(key)).collect(),
            queues: Vec::new(),
            queue_count: tables.queues.len(),
            kinds: asked.kinds.iter().map(|(queue, kind)| self.kind(queue, kind)).collect(),
            workers: asked
                .workers
                .iter()
                .map(|id| tables.workers.get(id).map(|seen| seen.stopping))
                .collect(),
            settings: asked.settings.iter().map(|key| tables.settings.get(key).cloned()).collect(),
            due: asked.due.map(|limit| self.due(now, limit)).unwrap_or_default(),
            expired: asked.expired.map(|page| self.expired(now, page)).unwrap_or_default(),
            finished: asked.finished.iter().map(|page| self.old(now, *page)).collect(),
            dead: asked.dead.iter().map(|page| self.dead(page)).collect(),
            orphans: asked.orphans.map(|limit| self.orphans(now, limit)).unwrap_or_default(),
            silent: asked.silent.is_some_and(|age| self.has_silent(now.minus(age))),
            empty_queues: asked.empty_queues.as_ref().map(|p| self.empty(p)).unwrap_or_default(),
            groups: asked.groups.iter().map(|id| tables.groups.get(id).cloned()).collect(),
            group_count: tables.groups.len(),
            idle_groups: asked.idle_groups.map(|page| self.idle(now, page)).unwrap_or_default(),
            figures: asked.figures.iter().map(|key| tables.figures.get(key).cloned()).collect(),
            old_figures: asked.old_figures.iter().map(|page| self.figures(now, *page)).collect(),
            candidates: asked.wants.iter().map(|want| self.candidates(want, now)).collect(),
            payloads: asked.payloads.iter().filter_map(|id| tables.payload(*id)).collect(),
            ids: Vec::new(),
            skipped: false,
        };
        answers.queues = self.queues_of(asked, &answers);
        answers.skipped = !self.skipped.borrow().is_empty();
        answers
    }

    /// A job that was found, unless another transaction holds it.
    fn free(&self, id: JobId) -> Option<&'a Job> {
        let free = self.locks.is_free(self.by, &Resource::Job(id));
        if !free {
            self.skipped.borrow_mut().push(id);
        }
        self.tables.jobs.get(&id).filter(|_| free)
    }

    fn key(&self, key: &IdempotencyKey) -> Option<KeyFound> {
        let record = self.tables.keys.get(key)?.clone();
        let job = self.tables.jobs.get(&record.job).cloned();
        Some(KeyFound { record, job })
    }

    fn kind(&self, queue: &QueueName, kind: &Kind) -> KindFound {
        match self.tables.queues.get(queue) {
            Some(table) if table.kinds.contains_key(kind) => KindFound::Known,
            table => KindFound::New { others: table.map_or(0, |table| table.kinds.len()) },
        }
    }

    fn due(&self, now: Wall, limit: usize) -> JobPage {
        self.page(&self.tables.scheduled, None, now, limit)
    }

    fn expired(&self, now: Wall, page: ExpiredPage) -> JobPage {
        let to = if page.all { Wall::MAX } else { now };
        self.page(&self.tables.leased, page.after, to, page.limit)
    }

    fn old(&self, now: Wall, page: FinishedPage) -> JobPage {
        let set = self.tables.finished(page.view);
        set.map(|set| self.page(set, None, now.minus(page.age), page.limit)).unwrap_or_default()
    }

    /// The first jobs of a key table behind `after` up to `to`, and the instant of the next one.
    fn page(
        &self,
        set: &BTreeSet<Cursor>,
        after: Option<Cursor>,
        to: Wall,
        limit: usize,
    ) -> JobPage {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut places = set.range((from, Bound::Unbounded)).peekable();
        let mut jobs = Vec::new();
        while jobs.len() < limit
            && let Some(place) = places.next_if(|place| place.at <= to)
        {
            jobs.extend(self.free(place.id).cloned());
        }
        JobPage { jobs, next: places.peek().map(|place| place.at) }
    }

    fn dead(&self, asked: &DeadPage) -> DeadFound {
        let DeadPage { queue, kind, group, after, limit } = asked.clone();
        let view = Some(View::Failed);
        let filter = Filter { view, queue, kind, group, ..Filter::default() };
        let page: Vec<Cursor> = self.tables.places(&filter, after).take(limit).collect();
        let next = page.last().copied().filter(|_| page.len() == limit);
        let jobs = page.iter().filter_map(|place| self.free(place.id));
        let jobs = jobs.filter(|job| filter.includes(job)).map(|job| {
            let error = self.tables.errors.get(&job.id).cloned();
            DeadJob { job: job.clone(), error }
        });
        DeadFound { jobs: jobs.collect(), next }
    }

    fn idle(&self, now: Wall, page: IdleGroups) -> Vec<GroupId> {
        let before = now.minus(page.age);
        let idle = |row: &&GroupRow| row.idle_since().is_some_and(|since| since <= before);
        let idle = self.tables.groups.values().filter(idle).take(page.limit);
        idle.map(|row| row.id).collect()
    }

    fn orphans(&self, now: Wall, limit: usize) -> Vec<IdempotencyKey> {
        let over = self.tables.orphans.iter().take_while(|(until, _)| *until <= now);
        let free = |key: &&IdempotencyKey| {
            self.locks.is_free(self.by, &Resource::Key(IdempotencyKey::clone(key)))
        };
        over.map(|(_, key)| key).filter(free).take(limit).cloned().collect()
    }

    fn has_silent(&self, before: Wall) -> bool {
        let marker = self.tables.markers.values().any(|marker| marker.at < before);
        marker || self.tables.workers.values().any(|seen| seen.last < before)
    }

    /// The queues of a page that have no jobs. One that another transaction holds is left out.
    fn empty(&self, page: &QueueSweep) -> EmptyQueues {
        let from = page.after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let looked_at = self.tables.queues.range((from, Bound::Unbounded)).take(page.limit);
        let looked_at: Vec<&QueueTable> = looked_at.map(|(_, table)| table).collect();
        let last = looked_at.last().filter(|_| looked_at.len() == page.limit);
        let next = last.map(|table| table.queue.name.clone());
        let free = |name: &QueueName| {
            self.locks.is_free(self.by, &Resource::Queue(QueueName::clone(name)))
        };
        let empty = looked_at.iter().filter(|table| table.kinds.is_empty());
        let empty = empty.filter(|table| free(&table.queue.name));
        EmptyQueues { queues: empty.map(|table| table.queue.clone()).collect(), next }
    }

    fn figures(&self, now: Wall, page: FigurePage) -> Vec<FigureRow> {
        let (from, to) = (Wall::new(i64::MIN), now.minus(page.age));
        let rows = self.tables.figure_rows(page.span, Bound::Included(from), Bound::Included(to));
        let free = |row: &FigureRow| self.locks.is_free(self.by, &Resource::Figures(row.key));
        rows.filter(free).take(page.limit).collect()
    }

    /// The ready jobs of a queue and kind, if they are wanted and may start; else when to look
    /// again, if a rate forbids it.
    fn wanted(
        &self,
        want: &Want,
        now: Wall,
        name: &QueueName,
        kind: &Kind,
    ) -> (Option<&'a BTreeSet<Rank>>, Option<Wall>) {
        let Some(queue) = self.tables.queues.get(name) else { return (None, None) };
        let in_use = || Ok::<_, Infallible>(queue.row().usage().of(kind));
        match want.admits(&queue.queue, kind, now, in_use) {
            Ok(Admits::Yes) => (queue.kinds.get(kind).map(|table| &table.ready), None),
            Ok(Admits::Later(at)) => (None, Some(at)),
            Ok(Admits::No) => (None, None),
        }
    }

    /// The best rank of every queue and kind that may be wanted, best first.
    fn heads(&self, want: &Want) -> Box<dyn Iterator<Item = Head<'a>> + 'a> {
        let tables = self.tables;
        let Queues::Only(names) = &want.demand.queues else {
            return Box::new(tables.heads.iter().map(|(best, (queue, kind))| (*best, queue, kind)));
        };
        let queues = names.iter().filter_map(|name| tables.queues.get_key_value(name));
        let kinds = queues.flat_map(|(name, table)| {
            let kinds = table.kinds.iter();
            kinds.filter_map(move |(kind, table)| Some((*table.ready.first()?, name, kind)))
        });
        let mut heads: Vec<Head<'a>> = kinds.collect();
        heads.sort_unstable_by_key(|(best, ..)| *best);
        Box::new(heads.into_iter())
    }

    /// The best-ranked ready jobs of a demand, merged from its queues and kinds.
    fn candidates(&self, want: &Want, now: Wall) -> Candidates {
        let from = want.after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut closed = self.heads(want).peekable();
        let mut lists = Vec::new();
        let mut heads: BinaryHeap<Reverse<(Rank, usize)>> = BinaryHeap::new();
        let (mut found, mut budget) = (Candidates::default(), ByteBudget::new(want.bytes));
        loop {
            let best = heads.peek().map(|Reverse((rank, _))| *rank);
            let before = |head: &Head<'_>| best.is_none_or(|best| head.0 < best);
            if let Some((_, queue, kind)) = closed.next_if(before) {
                let (ready, again) = self.wanted(want, now, queue, kind);
                found.opens = found.opens.into_iter().chain(again).min();
                if let Some(ready) = ready {
                    let mut list = ready.range((from, Bound::Unbounded));
                    heads.extend(list.next().map(|rank| Reverse((*rank, lists.len()))));
                    lists.push(list);
                }
                continue;
            }
            let Some(Reverse((rank, at))) = heads.pop() else { break };
            let Some(job) = self.free(rank.id) else {
                heads.extend(lists[at].next().map(|rank| Reverse((*rank, at))));
                continue;
            };
            if found.jobs.len() == want.limit || !budget.takes(job.payload_bytes as usize) {
                found.next_bytes = Some(job.payload_bytes);
                break;
            }
            let payload = self.tables.payload(rank.id).unwrap_or_else(Payload::null);
            found.jobs.push(Candidate { job: job.clone(), payload });
            heads.extend(lists[at].next().map(|rank| Reverse((*rank, at))));
        }
        found
    }

    /// The queues that were named, and those of every job that was found.
    fn queues_of(&self, asked: &Questions, answers: &Answers) -> Vec<QueueFound> {
        let names = answers.queues_needed(asked).into_iter();
        let tables = names.filter_map(|name| self.tables.queues.get(name));
        let found = tables.map(|table| {
            let queue = table.queue.clone();
            let counted = queue.is_limited() || asked.counted.contains(&queue.name);
            QueueFound { usage: counted.then(|| Box::new(table.row().usage())), queue }
        });
        found.collect()
    }
}
