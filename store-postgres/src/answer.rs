//! Answers the questions of a batch: in one flight where it can, with every row held that is named
//! or found. It finds; `windlass_core::Apply` decides.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;

use windlass_core::store::{
    Admits, Answers, Batch, CommitPoint, KindFound, Outcomes, Questions, QueueFound,
};
use windlass_core::{
    Apply, ApplyStep, IdempotencyKey, Job, JobId, Payload, Queue, QueueName, Usage, Wall, limits,
};

use crate::bulk;
use crate::error::TxError;
use crate::figures;
use crate::find::{self, Claim, PagePlaces, Seen};
use crate::groups;
use crate::heads::{Heads, Look};
use crate::hook::Hook;
use crate::ids::IdStock;
use crate::locks::{LockIds, WHICH};
use crate::named;
use crate::names::{Names, Pair, VERSION};
use crate::rows::{bad, count, get, id_codes};
use crate::session::{Flight, FlightRows, Found, Place, Session, params};
use crate::settings;
use crate::write::Written;

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
    /// The names are held alone: no other process has a transaction open.
    pub(crate) alone: bool,
    /// What counts against the limits of queues, which are held.
    pub(crate) usages: BTreeMap<i32, Usage>,
    /// The server's clock when that was read.
    pub(crate) limits_read_at: Option<Wall>,
    pub(crate) now: Wall,
    /// Searches for ready jobs from the start.
    looks: Vec<Look>,
}

/// The places of the answers in a flight.
#[derive(Default)]
struct Places {
    version: Option<Place>,
    bulk: Option<Place>,
    named: Option<named::Places>,
    keys: Option<Place>,
    keyed: Option<Place>,
    workers: Option<Place>,
    settings: Option<Place>,
    due: Option<PagePlaces>,
    expired: Option<PagePlaces>,
    finished: Vec<PagePlaces>,
    dead: Vec<PagePlaces>,
    orphans: Option<Place>,
    silent: Option<Place>,
    groups: Option<groups::Places>,
    idle_groups: Option<Place>,
    figures: Option<Place>,
    old_figures: Vec<Place>,
    claims: Vec<Claim>,
    payloads: Option<Place>,
    ids: Option<Place>,
    now: Option<Place>,
}

/// The outcomes of a batch and what it writes, before its commit.
pub(crate) struct Applied {
    pub(crate) outcomes: Outcomes,
    pub(crate) written: Option<Written>,
    pub(crate) skipped: bool,
    /// Searches for ready jobs from the start.
    pub(crate) looks: Vec<Look>,
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
            usages: BTreeMap::new(),
            limits_read_at: None,
            now: Wall::new(i64::MIN),
            looks: Vec::new(),
        }
    }

    /// Applies a batch: answers what it asks, prepares what it writes. What is written is sent
    /// with the commit.
    pub(crate) fn apply(&mut self) -> Found<Applied> {
        let (mut apply, mut asked) = Apply::new(self.batch);
        let mut skipped = false;
        let changes = loop {
            let answers = self.answer(&asked)?;
            // The names are held, and are of this version.
            self.batch.check_seal(self.names.seal.as_ref())?;
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
        let looks = std::mem::take(&mut self.looks);
        Ok(Applied { outcomes: apply.finish(), written, skipped, looks })
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
        let mut returned = self.session.fly(flight, self.hook)?;
        // First, so that the ids are kept if the rest is of no use.
        let ids = self.ids.take(asked.ids, &returned.take_of(places.ids))?;
        let rows = returned.take_of(places.version);
        self.check_version(&rows)?;
        let answers = self.read(asked, places, &mut returned)?;
        Ok(Answers { ids, ..answers })
    }

    /// The start of the transaction: who it is, and how the names are held.
    pub(crate) fn begin(&mut self, flight: &mut Flight, asked: &Questions) -> Place {
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

    /// Whether the batch changes or deletes queues, writes the mark of the store, or may make a
    /// queue or a pair not known yet.
    fn changes_names(&self, asked: &Questions) -> bool {
        !asked.changed.is_empty()
            || self.batch.sets_seal()
            || asked.empty_queues.is_some()
            || asked.queues.iter().any(|name| self.names.queue_id(name).is_none())
            || asked.kinds.iter().any(|(queue, kind)| !self.names.has_pair(queue, kind))
    }

    pub(crate) fn check_version(&self, rows: &[tokio_postgres::Row]) -> Found<()> {
        let Some(row) = rows.first() else { return Ok(()) };
        let version: i64 = get(row, 0)?;
        if Some(version) == self.names.version { Ok(()) } else { Err(TxError::StaleNames) }
    }

    /// Puts the statements that answer these questions into a flight.
    fn ask(&mut self, flight: &mut Flight, asked: &Questions) -> Places {
        let mut places = Places::default();
        if !self.begun {
            places.version = Some(self.begin(flight, asked));
        }
        let clock = self.clock.map(Wall::get);
        places.bulk = bulk::ask(flight, self.locks, asked.bulk);
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
        places.settings = settings::ask(flight, self.locks, &asked.settings);
        if !asked.old_figures.is_empty() {
            flight.add("SELECT pg_advisory_xact_lock($1)", params![self.locks.figures()]);
        }
        places.groups = groups::ask(flight, self.locks, &asked.groups);
        places.idle_groups = asked.idle_groups.map(|page| groups::ask_idle(flight, clock, page));
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
            let (pairs, later) = self.pairs(want);
            places.claims.push(Claim::ask(flight, want, &pairs, later, self.heads));
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

    /// The pairs whose ready jobs are candidates, and those whose are not because of a rate, with
    /// the instant at which to look again.
    fn pairs(&self, want: &windlass_core::store::Want) -> (Vec<Pair>, Vec<(Pair, Wall)>) {
        let (mut pairs, mut later) = (Vec::new(), Vec::new());
        for (queue, kind) in self.names.pairs() {
            let (Some(row), Ok(name)) = (self.names.queue(queue), self.names.kind_name(kind))
            else {
                continue;
            };
            let in_use = || {
                let usage = self.usages.get(&queue);
                Ok::<_, Infallible>(usage.map(|usage| usage.of(name)).unwrap_or_default())
            };
            match want.admits(row, name, self.rates_at(), in_use) {
                Ok(Admits::Yes) => pairs.push((queue, kind)),
                Ok(Admits::Later(at)) => later.push(((queue, kind), at)),
                Ok(Admits::No) => {}
            }
        }
        (pairs, later)
    }

    fn read(
        &mut self,
        asked: &Questions,
        places: Places,
        returned: &mut FlightRows,
    ) -> Found<Answers> {
        let jobs = self.jobs(asked, places.named, returned)?;
        let mut answers = Answers { jobs, ..Answers::default() };
        answers.bulk = bulk::rows(&returned.take_of(places.bulk))?;
        let rows = (returned.take_of(places.keys), returned.take_of(places.keyed));
        answers.keys = find::keys_found(self.names, &asked.keys, &rows.0, &rows.1)?;
        let rows = returned.take_of(places.workers);
        answers.workers = find::stop_marks(&asked.workers, &rows)?;
        let rows = returned.take_of(places.settings);
        answers.settings = settings::values(&asked.settings, &rows)?;
        let names = &*self.names;
        if let Some(page) = places.due {
            answers.due = page.read(names, returned, &mut answers.skipped)?;
        }
        if let Some(page) = places.expired {
            answers.expired = page.read(names, returned, &mut answers.skipped)?;
        }
        for page in places.finished {
            answers.finished.push(page.read(names, returned, &mut answers.skipped)?);
        }
        for (page, asked) in places.dead.into_iter().zip(&asked.dead) {
            answers.dead.push(page.read_dead(names, returned, asked, &mut answers.skipped)?);
        }
        for row in returned.take_of(places.orphans) {
            answers.orphans.push(IdempotencyKey::new(get(&row, 0)?).map_err(bad)?);
        }
        let silent = returned.take_of(places.silent);
        answers.silent = silent.first().map(|row| get(row, 0)).transpose()?.unwrap_or(false);
        if let Some(places) = places.groups {
            (answers.groups, answers.group_count) = places.read(&asked.groups, returned)?;
        }
        answers.idle_groups = groups::ids(&returned.take_of(places.idle_groups))?;
        answers.figures = figures::read(&asked.figures, &returned.take_of(places.figures))?;
        for place in places.old_figures {
            answers.old_figures.push(figures::rows(&returned.take(place))?);
        }
        let mut seen = Seen::default();
        for (claim, want) in places.claims.into_iter().zip(&asked.wants) {
            answers.candidates.push(claim.read(names, returned, want, &mut seen)?);
        }
        answers.skipped |= seen.skipped;
        self.looks.append(&mut seen.looks);
        answers.payloads = payloads(&asked.payloads, &returned.take_of(places.payloads))?;
        let now = returned.take_of(places.now);
        let now = now.first().map(|row| get(row, 0)).transpose()?.map(Wall::new);
        // The clock may be set back; within a transaction it is not.
        self.now = self.now.max(now.or(self.clock).unwrap_or(self.now));
        answers.now = self.now;
        self.fill_large(&mut answers, &seen.large)?;
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
        returned: &mut FlightRows,
    ) -> Found<Vec<Option<Job>>> {
        let Some(places) = places else { return Ok(Vec::new()) };
        let mut found: BTreeMap<JobId, Job> = places.read(self.names, returned)?;
        let mut gone: BTreeSet<JobId> = BTreeSet::new();
        for _ in 0..named::TRIES {
            let missing = |id: &&JobId| !found.contains_key(id) && !gone.contains(id);
            let missing: Vec<JobId> = asked.jobs.iter().filter(missing).copied().collect();
            if missing.is_empty() {
                return Ok(asked.jobs.iter().map(|id| found.remove(id)).collect());
            }
            let mut flight = Flight::default();
            let places = named::ask_everywhere(&mut flight, &missing);
            let mut returned = self.session.fly(flight, self.hook)?;
            found.append(&mut places.read(self.names, &mut returned)?);
            let exist = places.existing(&mut returned)?;
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
        let late: BTreeSet<i32> = late.filter(|id| !self.usages.contains_key(id)).collect();
        let counted: Vec<bool> = ids.iter().map(is_counted).collect();
        // Rows of these are held already; most were found by the look at the start.
        self.count_held(&late)?;
        let mut found = Vec::with_capacity(ids.len());
        for ((id, _), counted) in ids.into_iter().zip(counted) {
            let Some(queue) = self.names.queue(id).cloned() else { continue };
            let usage = counted.then(|| self.usages.get(&id).cloned().unwrap_or_default());
            found.push(QueueFound { queue, usage: usage.map(Box::new) });
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

/// Locks keys in the order of their hashes, those included that do not exist.
const LOCK_KEYS: &str = "SELECT pg_advisory_xact_lock(id) FROM \
    (SELECT DISTINCT $2::bigint | (hashtextextended(key, 0) & $3::bigint) AS id \
     FROM unnest($1::text[]) AS key ORDER BY 1) AS ids";
