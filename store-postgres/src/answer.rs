//! Answers the questions of a batch: in one flight where it can, with every row held that is named
//! or found. It finds; `windlass_core::Apply` decides.

use std::collections::{BTreeMap, BTreeSet};

use windlass_core::store::{
    Answers, Batch, CommitPoint, EmptyQueues, KindFound, Outcomes, Questions, QueueFound,
    QueueSweep,
};
use windlass_core::{
    Apply, ApplyStep, Counts, Gate, IdempotencyKey, Job, JobId, Payload, Queue, QueueName, View,
    Wall, limits,
};

use crate::error::TxError;
use crate::figures;
use crate::find::{self, Claim, PagePlaces};
use crate::heads::Heads;
use crate::hook::Hook;
use crate::ids::IdStock;
use crate::locks::{LockIds, WHICH};
use crate::named;
use crate::names::{Names, Pair, VERSION};
use crate::rows::{bad, count, get, id_codes};
use crate::session::{Flight, Found, Landed, Place, Session, params};
use crate::write::Written;

/// More queues than this are not locked one by one.
const MOST_QUEUE_LOCKS: usize = 64;
/// More keys than this are not locked one by one: PostgreSQL has room for some thousand locks.
const MOST_KEY_LOCKS: usize = 512;

/// An open transaction that writes.
pub(crate) struct Transaction<'a> {
    pub(crate) session: &'a mut Session,
    pub(crate) names: &'a mut Names,
    pub(crate) ids: &'a mut IdStock,
    pub(crate) locks: LockIds,
    pub(crate) batch: &'a Batch,
    /// The instant to go by; `None` for the server's clock.
    pub(crate) clock: Option<Wall>,
    pub(crate) hook: Option<&'a Hook>,
    /// Where claims start; `None` for the start.
    pub(crate) heads: Option<&'a Heads>,
    begun: bool,
    /// The names are held alone: nobody else has a transaction open.
    alone: bool,
    /// The jobs of limited queues, which are held.
    counts: BTreeMap<i32, Counts>,
    now: Wall,
}

/// The places of the answers in a flight.
#[derive(Default)]
struct Places {
    version: Option<Place>,
    named: Option<named::Places>,
    keys: Option<Place>,
    keyed: Option<Place>,
    workers: Option<Place>,
    due: Option<PagePlaces>,
    expired: Option<PagePlaces>,
    finished: Vec<PagePlaces>,
    dead: Vec<PagePlaces>,
    orphans: Option<Place>,
    silent: Option<Place>,
    figures: Option<Place>,
    old_figures: Vec<Place>,
    claims: Vec<Claim>,
    payloads: Option<Place>,
    ids: Option<Place>,
    now: Option<Place>,
}

/// What a batch came to before its commit.
pub(crate) struct Applied {
    pub(crate) outcomes: Outcomes,
    pub(crate) written: Option<Written>,
    pub(crate) skipped: bool,
}

impl<'a> Transaction<'a> {
    pub(crate) fn new(
        session: &'a mut Session,
        names: &'a mut Names,
        ids: &'a mut IdStock,
        locks: LockIds,
        batch: &'a Batch,
    ) -> Self {
        Self {
            session,
            names,
            ids,
            locks,
            batch,
            clock: None,
            hook: None,
            heads: None,
            begun: false,
            alone: false,
            counts: BTreeMap::new(),
            now: Wall::new(i64::MIN),
        }
    }

    /// Applies a batch: answers what it asks, prepares what it writes. What is written is sent
    /// with the commit.
    pub(crate) fn apply(&mut self) -> Found<Applied> {
        let (mut apply, mut asked) = Apply::new(self.batch);
        let mut skipped = false;
        let changes = loop {
            let answers = self.answer(&asked)?;
            skipped |= answers.skipped;
            match apply.answer(answers)? {
                ApplyStep::Ask(more) => asked = more,
                ApplyStep::Write(changes) => break changes,
            }
        };
        if let Some(hook) = self.hook {
            hook.call(CommitPoint::Answered);
        }
        let written = (!changes.is_empty()).then(|| self.write(&changes)).transpose()?;
        Ok(Applied { outcomes: apply.finish(), written, skipped })
    }

    pub(crate) fn now(&self) -> Wall {
        self.now
    }

    fn answer(&mut self, asked: &Questions) -> Found<Answers> {
        if !self.begun {
            self.hold_limited(asked)?;
        }
        let mut flight = Flight::default();
        let places = self.ask(&mut flight, asked);
        let mut landed = self.session.fly(flight, self.hook)?;
        // First, so that the ids are kept if the rest is of no use.
        let ids = self.ids.take(asked.ids, &landed.take_of(places.ids))?;
        let rows = landed.take_of(places.version);
        self.check_version(&rows)?;
        let answers = self.read(asked, places, &mut landed)?;
        Ok(Answers { ids, ..answers })
    }

    /// The start of the transaction: who it is, and how the names are held.
    fn begin(&mut self, flight: &mut Flight, asked: &Questions) -> Place {
        self.begun = true;
        self.alone |= self.changes_names(asked);
        flight.add("BEGIN ISOLATION LEVEL READ COMMITTED", vec![]);
        let sql = if self.alone {
            "SELECT pg_advisory_xact_lock($1), pg_advisory_xact_lock($2)"
        } else {
            "SELECT pg_advisory_xact_lock($1), pg_advisory_xact_lock_shared($2)"
        };
        let process = self.locks.process(self.batch.id.process);
        flight.add(sql, params![process, self.locks.names()]);
        flight.add(VERSION, vec![])
    }

    /// Whether the batch changes or deletes queues, or may make a queue or a pair not known yet.
    fn changes_names(&self, asked: &Questions) -> bool {
        !asked.changed.is_empty()
            || asked.empty_queues.is_some()
            || asked.queues.iter().any(|name| self.names.queue_id(name).is_none())
            || asked.kinds.iter().any(|(queue, kind)| !self.names.has_pair(queue, kind))
    }

    fn check_version(&self, rows: &[tokio_postgres::Row]) -> Found<()> {
        let Some(row) = rows.first() else { return Ok(()) };
        let version: i64 = get(row, 0)?;
        if Some(version) == self.names.version { Ok(()) } else { Err(TxError::StaleNames) }
    }

    /// Holds the limited queues that the batch may count, before any row is held, and counts them.
    fn hold_limited(&mut self, asked: &Questions) -> Found<()> {
        let limited: BTreeSet<i32> = self.names.limited().map(|(id, _)| id).collect();
        let counted = asked.counted.iter().filter_map(|name| self.names.queue_id(name));
        let mut wanted: BTreeSet<i32> = counted.collect();
        if limited.is_empty() && wanted.is_empty() {
            return Ok(());
        }
        let sweeps = asked.due.is_some()
            || asked.expired.is_some()
            || !asked.finished.is_empty()
            || !asked.dead.is_empty();
        let named = |queue: &QueueName| {
            sweeps
                || asked.queues.binary_search(queue).is_ok()
                || asked.wants.iter().any(|want| want.demand.queues.includes(queue))
        };
        let by_name = self.names.limited().filter(|(_, queue)| named(&queue.name));
        wanted.extend(by_name.map(|(id, _)| id));
        let peeks = !asked.jobs.is_empty() || !asked.keys.is_empty();
        if wanted.is_empty() && !peeks {
            return Ok(());
        }
        self.alone |= wanted.len() > MOST_QUEUE_LOCKS;
        let mut flight = Flight::default();
        let version = self.begin(&mut flight, asked);
        let peek = (peeks && !limited.is_empty()).then(|| {
            let keys: Vec<String> = asked.keys.iter().map(|key| key.as_str().to_owned()).collect();
            flight.add(PEEK, params![id_codes(&asked.jobs), keys])
        });
        if peek.is_none() {
            self.lock_queues(&mut flight, &wanted);
            let counts = flight.add(COUNTS, params![wanted.iter().copied().collect::<Vec<i32>>()]);
            let mut landed = self.session.fly(flight, self.hook)?;
            self.check_version(&landed.take(version))?;
            return self.learn_counts(&wanted, &landed.take(counts));
        }
        let mut landed = self.session.fly(flight, self.hook)?;
        self.check_version(&landed.take(version))?;
        for row in landed.take_of(peek) {
            wanted.extend(Some(get(&row, 0)?).filter(|queue| limited.contains(queue)));
        }
        self.count_held(&wanted)
    }

    /// Holds these queues, and counts their jobs.
    fn count_held(&mut self, queues: &BTreeSet<i32>) -> Found<()> {
        if queues.is_empty() {
            return Ok(());
        }
        let mut flight = Flight::default();
        self.lock_queues(&mut flight, queues);
        let counts = flight.add(COUNTS, params![queues.iter().copied().collect::<Vec<i32>>()]);
        let mut landed = self.session.fly(flight, self.hook)?;
        self.learn_counts(queues, &landed.take(counts))
    }

    fn lock_queues(&self, flight: &mut Flight, queues: &BTreeSet<i32>) {
        if !self.alone {
            let ids: Vec<i64> = queues.iter().map(|queue| self.locks.queue(*queue)).collect();
            flight.add(LOCK_ALL, params![ids]);
        }
    }

    fn learn_counts(&mut self, queues: &BTreeSet<i32>, rows: &[tokio_postgres::Row]) -> Found<()> {
        self.counts.extend(queues.iter().map(|queue| (*queue, Counts::default())));
        for row in rows {
            self.counts.insert(get(row, 0)?, find::counts(row, 1)?);
        }
        Ok(())
    }

    /// Puts the statements that answer these questions into a flight.
    fn ask(&mut self, flight: &mut Flight, asked: &Questions) -> Places {
        let mut places = Places::default();
        if !self.begun {
            places.version = Some(self.begin(flight, asked));
        }
        let clock = self.clock.map(Wall::get);
        if !asked.keys.is_empty() {
            let keys = self.lock_keys(flight, &asked.keys);
            places.keys = Some(flight.add(find::KEYS, params![keys.clone()]));
            places.keyed = Some(flight.add(find::KEYED, params![keys]));
        }
        places.named = named::ask(flight, self.batch, &asked.jobs);
        if !asked.workers.is_empty() {
            let ids: Vec<String> = asked.workers.iter().map(|id| id.as_str().to_owned()).collect();
            places.workers = Some(flight.add(find::WORKERS, params![ids]));
        }
        if !asked.old_figures.is_empty() {
            flight.add("SELECT pg_advisory_xact_lock($1)", params![self.locks.figures()]);
        }
        places.figures = figures::ask(flight, &asked.figures);
        for page in &asked.old_figures {
            places.old_figures.push(figures::ask_old(flight, clock, *page));
        }
        places.due = asked.due.map(|limit| find::ask_due(flight, clock, limit));
        places.expired = asked.expired.map(|page| find::ask_expired(flight, clock, page));
        for page in &asked.finished {
            places.finished.push(find::ask_finished(flight, clock, *page));
        }
        for page in &asked.dead {
            places.dead.push(find::ask_dead(flight, page));
        }
        if let Some(limit) = asked.orphans {
            places.orphans = Some(flight.add(find::ORPHANS, params![clock, count(limit)]));
        }
        if let Some(age) = asked.silent {
            let age = age.get().cast_signed();
            places.silent = Some(flight.add(find::SILENT, params![clock, age]));
        }
        for want in &asked.wants {
            let pairs = self.pairs(want);
            places.claims.push(Claim::ask(flight, want, &pairs, self.heads));
        }
        if !asked.payloads.is_empty() {
            places.payloads = Some(flight.add(find::PAYLOADS, params![id_codes(&asked.payloads)]));
        }
        places.ids = self.ids.ask(flight, asked.ids);
        if clock.is_none() {
            places.now = Some(flight.add(find::NOW, vec![]));
        }
        places
    }

    fn lock_keys(&self, flight: &mut Flight, keys: &[IdempotencyKey]) -> Vec<String> {
        let keys: Vec<String> = keys.iter().map(|key| key.as_str().to_owned()).collect();
        if keys.len() > MOST_KEY_LOCKS {
            flight.add("SELECT pg_advisory_xact_lock($1)", params![self.locks.all_keys()]);
        } else {
            let all = self.locks.all_keys();
            flight.add("SELECT pg_advisory_xact_lock_shared($1)", params![all]);
            flight.add(LOCK_KEYS, params![keys.clone(), self.locks.key_base(), WHICH]);
        }
        keys
    }

    /// The pairs whose ready jobs are candidates.
    fn pairs(&self, want: &windlass_core::store::Want) -> Vec<Pair> {
        let mut latest: Option<(i32, bool)> = None;
        let wanted = |pair: &Pair| {
            let open = match latest {
                Some((queue, open)) if queue == pair.0 => open,
                _ => self.is_open(pair.0, want),
            };
            latest = Some((pair.0, open));
            open && self.names.kind_name(pair.1).is_ok_and(|kind| want.demand.kinds.includes(kind))
        };
        self.names.pairs().filter(wanted).collect()
    }

    fn is_open(&self, queue: i32, want: &windlass_core::store::Want) -> bool {
        let Some(queue_row) = self.names.queue(queue) else { return false };
        let name = &queue_row.name;
        let running = self.counts.get(&queue).map_or(0, |counts| counts.get(View::Processing));
        let open = queue_row.gate(running) == Gate::Open;
        want.demand.queues.includes(name)
            && want.closed.binary_search(name).is_err()
            && (open || want.opened.binary_search(name).is_ok())
    }

    fn read(&mut self, asked: &Questions, places: Places, landed: &mut Landed) -> Found<Answers> {
        let jobs = self.jobs(asked, places.named, landed)?;
        let mut answers = Answers { jobs, ..Answers::default() };
        let rows = (landed.take_of(places.keys), landed.take_of(places.keyed));
        answers.keys = find::keys_found(self.names, &asked.keys, &rows.0, &rows.1)?;
        let rows = landed.take_of(places.workers);
        answers.workers = find::stop_marks(&asked.workers, &rows)?;
        let names = &*self.names;
        if let Some(page) = places.due {
            answers.due = page.read(names, landed, &mut answers.skipped)?;
        }
        if let Some(page) = places.expired {
            answers.expired = page.read(names, landed, &mut answers.skipped)?;
        }
        for page in places.finished {
            answers.finished.push(page.read(names, landed, &mut answers.skipped)?);
        }
        for (page, asked) in places.dead.into_iter().zip(&asked.dead) {
            answers.dead.push(page.read_dead(names, landed, asked, &mut answers.skipped)?);
        }
        for row in landed.take_of(places.orphans) {
            answers.orphans.push(IdempotencyKey::new(get(&row, 0)?).map_err(bad)?);
        }
        let silent = landed.take_of(places.silent);
        answers.silent = silent.first().map(|row| get(row, 0)).transpose()?.unwrap_or(false);
        answers.figures = figures::read(&asked.figures, &landed.take_of(places.figures))?;
        for place in places.old_figures {
            answers.old_figures.push(figures::rows(&landed.take(place))?);
        }
        let mut large = Vec::new();
        for (claim, want) in places.claims.into_iter().zip(&asked.wants) {
            let read = claim.read(names, landed, want, &mut large, &mut answers.skipped)?;
            answers.candidates.push(read);
        }
        answers.payloads = payloads(&asked.payloads, &landed.take_of(places.payloads))?;
        let now = landed.take_of(places.now);
        let now = now.first().map(|row| get(row, 0)).transpose()?.map(Wall::new);
        // The clock may be set back; within a transaction it is not.
        self.now = self.now.max(now.or(self.clock).unwrap_or(self.now));
        answers.now = self.now;
        self.fill_large(&mut answers, &large)?;
        self.kinds(asked, &mut answers)?;
        self.queues(asked, &mut answers)?;
        if let Some(page) = &asked.empty_queues {
            answers.empty_queues = self.empty_queues(page)?;
        }
        Ok(answers)
    }

    /// The jobs that were named. One that moved while it was looked for is looked for again.
    fn jobs(
        &mut self,
        asked: &Questions,
        places: Option<named::Places>,
        landed: &mut Landed,
    ) -> Found<Vec<Option<Job>>> {
        let Some(places) = places else { return Ok(Vec::new()) };
        let mut found: BTreeMap<JobId, Job> = places.read(self.names, landed)?;
        let mut gone: BTreeSet<JobId> = BTreeSet::new();
        for _ in 0..named::TRIES {
            let missing = |id: &&JobId| !found.contains_key(id) && !gone.contains(id);
            let missing: Vec<JobId> = asked.jobs.iter().filter(missing).copied().collect();
            if missing.is_empty() {
                return Ok(asked.jobs.iter().map(|id| found.remove(id)).collect());
            }
            let mut flight = Flight::default();
            let places = named::ask_everywhere(&mut flight, &missing);
            let mut landed = self.session.fly(flight, self.hook)?;
            found.append(&mut places.read(self.names, &mut landed)?);
            let exist = places.existing(&mut landed)?;
            gone.extend(missing.into_iter().filter(|id| !exist.contains(id)));
        }
        Err(TxError::Conflict("a named job moves faster than it can be held".into()))
    }

    /// Reads payloads that were too large to be read before it was known that they are wanted.
    fn fill_large(&mut self, answers: &mut Answers, large: &[JobId]) -> Found<()> {
        if large.is_empty() {
            return Ok(());
        }
        let rows = self.session.query(find::PAYLOADS, params![id_codes(large)])?;
        let mut texts: BTreeMap<JobId, Payload> = BTreeMap::new();
        for row in &rows {
            let id = crate::rows::job_id(get(row, 0)?)?;
            texts.insert(id, Payload::new(get(row, 1)?).map_err(bad)?);
        }
        for found in answers.candidates.iter_mut().flat_map(|found| &mut found.jobs) {
            if let Some(text) = texts.get(&found.job.id) {
                found.payload = text.clone();
            }
        }
        Ok(())
    }

    /// Whether queues have jobs of kinds. Counters are only read where a queue is near its limit
    /// of kinds: below it the answer makes no difference.
    fn kinds(&mut self, asked: &Questions, answers: &mut Answers) -> Found<()> {
        let mut exact: BTreeMap<i32, BTreeSet<i32>> = BTreeMap::new();
        for (queue, kind) in &asked.kinds {
            let Some(id) = self.names.queue_id(queue) else {
                answers.kinds.push(KindFound::New { others: 0 });
                continue;
            };
            let known = self.names.has_pair(queue, kind);
            let pairs = self.names.pairs_of(id).count();
            if pairs + asked.kinds.len() <= limits::KINDS_PER_QUEUE {
                let new = KindFound::New { others: pairs };
                answers.kinds.push(if known { KindFound::Known } else { new });
                continue;
            }
            let kinds = match exact.remove(&id) {
                Some(kinds) => kinds,
                None => find::kinds_with_jobs(self.session, id)?,
            };
            let has = self.names.kind_id(kind).is_some_and(|kind| kinds.contains(&kind));
            let new = KindFound::New { others: kinds.len() };
            answers.kinds.push(if has { KindFound::Known } else { new });
            exact.insert(id, kinds);
        }
        Ok(())
    }

    /// The queues of a page that have no jobs. The names are held alone, so none gets one.
    fn empty_queues(&mut self, page: &QueueSweep) -> Found<EmptyQueues> {
        let after = |name: &QueueName| page.after.as_ref().is_none_or(|after| name > after);
        let behind = self.names.queues_by_name().filter(|(_, queue)| after(&queue.name));
        let looked: Vec<(i32, Queue)> =
            behind.take(page.limit).map(|(id, queue)| (id, queue.clone())).collect();
        let unknown = looked.iter().map(|(id, _)| *id);
        let unknown = unknown.filter(|id| !self.counts.contains_key(id)).collect();
        self.count_held(&unknown)?;
        let next = looked.last().filter(|_| looked.len() == page.limit);
        let next = next.map(|(_, queue)| queue.name.clone());
        let is_empty = |id: &i32| self.counts.get(id).is_none_or(Counts::is_empty);
        let empty = looked.into_iter().filter(|(id, _)| is_empty(id));
        Ok(EmptyQueues { queues: empty.map(|(_, queue)| queue).collect(), next })
    }

    /// Adds the queues that belong to the answers.
    fn queues(&mut self, asked: &Questions, answers: &mut Answers) -> Found<()> {
        let needed = answers.queues_needed(asked);
        let named = |name: &&QueueName| self.names.queue_id(name);
        let ids: Vec<(i32, bool)> = needed
            .iter()
            .filter_map(|name| Some((named(name)?, asked.counted.binary_search(name).is_ok())))
            .collect();
        let is_counted = |(id, counted): &(i32, bool)| {
            *counted || self.names.queue(*id).is_some_and(Queue::is_limited)
        };
        let late = ids.iter().filter(|one| is_counted(one)).map(|(id, _)| *id);
        let late: BTreeSet<i32> = late.filter(|id| !self.counts.contains_key(id)).collect();
        let counted: Vec<bool> = ids.iter().map(is_counted).collect();
        // Rows of these are held already; most were found by the look at the start.
        self.count_held(&late)?;
        let mut found = Vec::with_capacity(ids.len());
        for ((id, _), counted) in ids.into_iter().zip(counted) {
            let Some(queue) = self.names.queue(id).cloned() else { continue };
            let counts = counted.then(|| self.counts.get(&id).copied().unwrap_or_default());
            found.push(QueueFound { queue, counts });
        }
        answers.queues = found;
        answers.queue_count = self.names.queue_count();
        Ok(())
    }
}

fn payloads(asked: &[JobId], rows: &[tokio_postgres::Row]) -> Found<Vec<Payload>> {
    let mut texts: BTreeMap<JobId, Payload> = BTreeMap::new();
    for row in rows {
        let id = crate::rows::job_id(get(row, 0)?)?;
        texts.insert(id, Payload::new(get(row, 1)?).map_err(bad)?);
    }
    let missing = |id: &JobId| TxError::BadRow(format!("job {id} has no payload"));
    asked.iter().map(|id| texts.remove(id).ok_or_else(|| missing(id))).collect()
}

const LOCK_ALL: &str = "SELECT pg_advisory_xact_lock(id) FROM unnest($1::bigint[]) AS id";
/// Locks keys in the order of their hashes, those included that do not exist.
const LOCK_KEYS: &str = "SELECT pg_advisory_xact_lock(id) FROM \
    (SELECT DISTINCT $2::bigint | (hashtextextended(key, 0) & $3::bigint) AS id \
     FROM unnest($1::text[]) AS key ORDER BY 1) AS ids";
const COUNTS: &str = "SELECT queue, sum(queued)::bigint, sum(scheduled)::bigint, \
    sum(processing)::bigint, sum(done)::bigint, sum(failed)::bigint, sum(cancelled)::bigint \
    FROM counts WHERE queue = ANY($1::integer[]) GROUP BY queue";
/// The queues of jobs that are named, or that keys name.
const PEEK: &str = "SELECT queue FROM jobs WHERE id = ANY($1::bigint[]) \
    UNION SELECT queue FROM keys JOIN jobs ON id = job WHERE key = ANY($2::text[])";
