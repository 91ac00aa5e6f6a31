//! One transaction on its way, in steps that never block: ask, write, commit. Between any two of
//! them other transactions may do the same. Dropped before its commit, it is rolled back.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockWriteGuard};

use windlass_core::store::{Answers, BulkAsk, Changes, Moved, Questions, is_seal};
use windlass_core::{JobId, ProcessId, Queue, QueueName, Wall};

use crate::answer::Finder;
use crate::locks::{Blocked, Holding, Locks, Mode, Resource, TransactionId};
use crate::tables::Tables;

/// Everything that the handles of one store share. The lock table is locked before the tables,
/// and these before what is durable.
#[derive(Debug, Default)]
pub(crate) struct SharedState {
    pub(crate) tables: Arc<RwLock<Tables>>,
    /// What a crash would leave, where that differs from what is read.
    pub(crate) durable: RwLock<Option<Tables>>,
    locks: Mutex<Locks>,
    ended: Condvar,
}

impl SharedState {
    pub(crate) fn new(tables: Tables) -> Self {
        Self { tables: Arc::new(RwLock::new(tables)), ..Self::default() }
    }

    pub(crate) fn tables(&self) -> RwLockWriteGuard<'_, Tables> {
        self.tables.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn durable(&self) -> RwLockWriteGuard<'_, Option<Tables>> {
        self.durable.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn locks(&self) -> MutexGuard<'_, Locks> {
        self.locks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Blocks until one of the other transactions has ended, if there are any. A victim of a
    /// deadlock that tried again at once could meet it over and over, until the other thread runs.
    pub(crate) fn give_way(&self) {
        let mut locks = self.locks();
        let releases = locks.releases;
        while locks.releases == releases && locks.has_any() {
            locks = self.ended.wait(locks).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Blocks until some transaction has ended since there were this many releases.
    pub(crate) fn wait(&self, releases: u64) {
        let mut locks = self.locks();
        while locks.releases == releases {
            locks = self.ended.wait(locks).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// The result of a question.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "it is taken apart at once")]
pub enum Asked {
    /// It is answered, and what was named or found is held.
    Answers(Answers),
    /// Another transaction holds a row that was named. Ask the same again later; what is held so
    /// far stays held.
    Wait,
    /// The same, and that transaction waits for this one: roll back and start over.
    Deadlock,
    /// A job that was found before, and not locked, is gone: roll back and start over.
    Conflict,
}

/// A row is not as the changes say it was: roll back and start over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conflict;

/// The version of the store before a commit and after it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Versions {
    pub(crate) before: u64,
    pub(crate) after: u64,
}

/// A transaction of a [`MemoryStore`](crate::MemoryStore), made by
/// [`begin`](crate::MemoryStore::begin).
#[derive(Debug)]
pub struct Transaction {
    shared: Arc<SharedState>,
    id: TransactionId,
    holding: Holding,
    now: Wall,
    staged: Option<Changes>,
    skipped: Vec<JobId>,
    /// Set where rows were left out, for the news of the handle.
    has_skipped: Arc<AtomicBool>,
}

impl Transaction {
    pub(crate) fn new(
        shared: &Arc<SharedState>,
        process: ProcessId,
        has_skipped: &Arc<AtomicBool>,
    ) -> Self {
        let mut locks = shared.locks();
        let (id, holding) = (locks.begin(process), locks.holding);
        drop(locks);
        Self {
            shared: Arc::clone(shared),
            id,
            holding,
            now: Wall::new(i64::MIN),
            staged: None,
            skipped: Vec::new(),
            has_skipped: Arc::clone(has_skipped),
        }
    }

    /// Answers questions. `now` is the store's clock at this moment; it counts once every lock is
    /// held.
    pub fn ask(&mut self, asked: &Questions, now: Wall) -> Asked {
        let shared = Arc::clone(&self.shared);
        let mut locks = shared.locks();
        let mut tables = shared.tables();
        match self.answer(&mut locks, &tables, asked, now) {
            Ok(answers) if answers.payloads.len() < asked.payloads.len() => Asked::Conflict,
            Ok(answers) => {
                tables.rounds += 1;
                tables.rows_read += answers.jobs_found().count() as u64;
                self.now = self.now.max(now);
                Asked::Answers(answers)
            }
            Err(Blocked::Wait) => Asked::Wait,
            Err(Blocked::Deadlock) => Asked::Deadlock,
        }
    }

    fn answer(
        &mut self,
        locks: &mut Locks,
        tables: &Tables,
        asked: &Questions,
        now: Wall,
    ) -> Result<Answers, Blocked> {
        if asked.bulk == BulkAsk::Hold {
            locks.take(self.id, Resource::Bulk, Mode::Exclusive)?;
        }
        for id in &asked.jobs {
            locks.take(self.id, Resource::Job(*id), Mode::Exclusive)?;
        }
        for key in &asked.keys {
            locks.take(self.id, Resource::Key(key.clone()), Mode::Exclusive)?;
        }
        for key in &asked.settings {
            locks.take(self.id, Resource::Setting(key.clone()), Mode::Exclusive)?;
        }
        for key in &asked.figures {
            locks.take(self.id, Resource::Figures(*key), Mode::Exclusive)?;
        }
        for id in &asked.groups {
            locks.take(self.id, Resource::Group(*id), Mode::Exclusive)?;
        }
        let finder = Finder::new(tables, locks, self.id);
        let mut answers = finder.answer(asked, now);
        let skipped = finder.into_skipped();
        for (queue, mode) in queue_locks(tables, asked, &answers) {
            locks.take(self.id, Resource::Queue(queue), mode)?;
        }
        self.hold_found(locks, &answers)?;
        if !skipped.is_empty() {
            self.has_skipped.store(true, Ordering::Relaxed);
            self.skipped.extend(skipped);
        }
        let first = locks.reserve(self.id, tables.last_id, asked.ids);
        let ids = (0..asked.ids as u64).map(|at| first.saturating_add(at));
        answers.ids = ids.map(|id| JobId::new(id).unwrap_or(JobId::LAST)).collect();
        Ok(answers)
    }

    /// Holds what was found: it is free, or it would have been left out.
    fn hold_found(&self, locks: &mut Locks, answers: &Answers) -> Result<(), Blocked> {
        // Keys, queues and figures have no precondition: they are locked in any case.
        for key in &answers.orphans {
            locks.take(self.id, Resource::Key(key.clone()), Mode::Exclusive)?;
        }
        for queue in &answers.empty_queues.queues {
            locks.take(self.id, Resource::Queue(queue.name.clone()), Mode::Exclusive)?;
        }
        for row in answers.old_figures.iter().flatten() {
            locks.take(self.id, Resource::Figures(row.key), Mode::Exclusive)?;
        }
        if self.holding == Holding::Optimistic {
            return Ok(());
        }
        let swept = answers.finished.iter().chain([&answers.due, &answers.expired]);
        let swept = swept.flat_map(|page| &page.jobs).map(|job| job.id);
        let dead = answers.dead.iter().flat_map(|page| &page.jobs).map(|dead| dead.job.id);
        for id in swept.chain(dead) {
            locks.take(self.id, Resource::Job(id), Mode::Exclusive)?;
        }
        for candidate in answers.candidates.iter().flat_map(|found| &found.jobs) {
            locks.take(self.id, Resource::Job(candidate.job.id), Mode::Exclusive)?;
        }
        Ok(())
    }

    /// Stages what is to be written.
    pub fn write(&mut self, changes: Changes) -> Result<(), Conflict> {
        if self.holding == Holding::Locking {
            check(&self.shared.tables(), &changes)?;
        }
        self.staged = Some(changes);
        Ok(())
    }

    /// The jobs that were left out because other transactions held them.
    pub fn skipped(&self) -> &[JobId] {
        &self.skipped
    }

    /// Commits what was staged. If it is not `synced`, a crash would lose it until another commit.
    pub fn commit(self, synced: bool) -> Result<(), Conflict> {
        self.apply(synced).map(|_| ())
    }

    pub(crate) fn apply(mut self, synced: bool) -> Result<Versions, Conflict> {
        let shared = Arc::clone(&self.shared);
        let mut tables = shared.tables();
        let before = tables.version;
        let Some(changes) = self.staged.take().filter(|changes| !changes.is_empty()) else {
            return Ok(Versions { before, after: before });
        };
        if self.holding == Holding::Optimistic {
            check(&tables, &changes)?;
        }
        // The mark may have come since the transaction began.
        if tables.seal().is_some() && !changes.settings.iter().any(|(key, _)| is_seal(key)) {
            return Err(Conflict);
        }
        let mut durable = shared.durable();
        if synced {
            *durable = None;
        } else {
            durable.get_or_insert_with(|| tables.clone());
        }
        tables.write(changes, self.now);
        Ok(Versions { before, after: tables.version })
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        self.shared.locks().end(self.id);
        self.shared.ended.notify_all();
    }
}

/// The queues that answers depend on, in order, and how each is held. The count of a limited queue
/// decides whether it has candidates at all, so it is held wherever a demand includes it.
fn queue_locks(tables: &Tables, asked: &Questions, answers: &Answers) -> Vec<(QueueName, Mode)> {
    let needed = answers.queues_needed(asked);
    // Both are by name; a queue that was not found does not exist.
    let mut found = answers.queues.iter().map(|found| &found.queue).peekable();
    let mut locks = Vec::with_capacity(needed.len());
    for name in &needed {
        let queue = found.next_if(|queue| queue.name.same(name));
        let limited = queue.is_none_or(Queue::is_limited);
        let changed = asked.changed.contains(name) || asked.counted.contains(name);
        if limited || changed {
            locks.push(((*name).clone(), Mode::Exclusive));
        } else if !asked.wants.is_empty() || asked.queues.contains(name) {
            locks.push(((*name).clone(), Mode::Shared));
        }
    }
    let wanted =
        |name: &QueueName| asked.wants.iter().any(|want| want.demand.queues.includes(name));
    let others = tables.limited.iter().filter(|name| needed.binary_search(name).is_err());
    let known = locks.len();
    locks.extend(others.filter(|name| wanted(name)).map(|name| (name.clone(), Mode::Exclusive)));
    if locks.len() > known {
        locks.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
    }
    locks
}

/// Whether every row that is replaced is as the changes say, and no new one exists.
fn check(tables: &Tables, changes: &Changes) -> Result<(), Conflict> {
    let same = |moved: &Moved| {
        tables.jobs.get(&moved.job.id).is_some_and(|job| job.index_key() == moved.from)
    };
    let kept = changes.updates.iter().chain(&changes.removes).all(same);
    let new = changes.inserts.iter().all(|job| !tables.jobs.contains_key(&job.id));
    if kept && new { Ok(()) } else { Err(Conflict) }
}
