//! The store: one connection that writes, one transaction per batch.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Waker;
use std::thread;
use std::time::Duration;

use tokio::time::Instant;
use windlass_core::store::{
    Batch, Cause, CommitError, CommitPoint, Durability, LostLease, Marker, News, Outcomes, Store,
    StoreError,
};
use windlass_core::{BatchId, Epoch, JobId, LeaseToken, Millis, ProcessId, View, Wall};

use crate::answer::Transaction;
use crate::backoff::Backoff;
use crate::error::{OpenError, TxError};
use crate::heads::Heads;
use crate::hook::Hook;
use crate::ids::IdStock;
use crate::locks::LockIds;
use crate::names::Names;
use crate::open::Opener;
use crate::reader::{PgReader, Pool};
use crate::rows::{get, id_codes, job_id, view_of};
use crate::session::{Flight, Found, Session, params};
use crate::upkeep::Upkeep;
use crate::url::StoreUrl;

/// How often a process looks whether another has written, on average.
const CHANGE_CHECK_MS: u64 = 250;
/// How far that differs from process to process, up and down.
const CHANGE_JITTER_MS: u64 = 25;

/// How often a batch is applied when others are in its way, within the deadline of an answer.
const CONFLICT_TRIES: u32 = 12;

/// The clock that instants are taken from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// The clock of the PostgreSQL server, for all nodes alike.
    Server,
    /// The instant given to [`Store::commit`]: for tests, which own time.
    Caller,
}

/// How a store is opened.
#[derive(Debug, Clone, Copy)]
pub struct PgOptions {
    /// The clock that instants are taken from.
    pub clock: Clock,
    /// How long any answer of the server may take.
    pub deadline: Duration,
    /// How many job ids are taken from the sequence at once; those left when a process ends are
    /// never used. With zero none are left: a batch puts back what it took and did not use.
    pub id_block: usize,
    /// Whether to bring an old schema to the newest version; otherwise it is refused.
    pub migrate: bool,
}

impl Default for PgOptions {
    fn default() -> Self {
        let deadline = Duration::from_secs(15);
        Self { clock: Clock::Server, deadline, id_block: 1_000, migrate: true }
    }
}

/// Jobs in a PostgreSQL database.
#[derive(Debug)]
pub struct PgStore {
    pub(crate) opener: Opener,
    pub(crate) pool: Arc<Pool>,
    options: PgOptions,
    locks: LockIds,
    /// The connection that writes; `None` after it was lost.
    session: Option<Session>,
    /// Standbys confirm commits too.
    replicated: bool,
    names: Names,
    ids: IdStock,
    /// The latest marker of each process at the latest check for news.
    seen: BTreeMap<ProcessId, u64>,
    /// The latest commit of each process that used this handle.
    own: BTreeMap<ProcessId, u64>,
    /// Rows were left out since the latest check for news.
    skipped: bool,
    /// When a lost connection may be made again.
    backoff: Backoff,
    /// Where claims start while dead rows cannot be removed.
    heads: Heads,
    hook: Option<Hook>,
    /// How often it looks whether another process has written.
    change_check_ms: u64,
    /// Hints and upkeep, from the first call of `wake_on_news` on.
    upkeep: Option<Upkeep>,
}

impl PgStore {
    /// Opens a store by its URL: `postgres://user@host:port/database?schema=windlass`. The schema
    /// is made if it does not exist.
    pub fn connect(url: &str) -> Result<Self, OpenError> {
        Self::open(StoreUrl::parse(url)?, PgOptions::default())
    }

    /// Opens a store. May be called in async code: it blocks, like opening a file, but enters no
    /// runtime on the calling thread.
    pub fn open(url: StoreUrl, options: PgOptions) -> Result<Self, OpenError> {
        thread::scope(|scope| {
            let opening = scope.spawn(|| Self::open_here(url, options));
            opening.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    fn open_here(url: StoreUrl, options: PgOptions) -> Result<Self, OpenError> {
        let locks = LockIds::new(&url.schema);
        let opener = Opener { url, deadline: options.deadline };
        let (mut session, replicated) = opener.checked()?;
        opener.migrate(&mut session, locks, options.migrate)?;
        opener.check_rights(&mut session)?;
        let mut store = Self {
            pool: Pool::new(opener.clone(), options.clock),
            options,
            locks,
            session: None,
            replicated,
            names: Names::default(),
            ids: IdStock::new(options.id_block),
            seen: BTreeMap::new(),
            own: BTreeMap::new(),
            skipped: false,
            backoff: Backoff::default(),
            heads: Heads::default(),
            hook: None,
            change_check_ms: change_check_ms(session.pid),
            upkeep: None,
            opener,
        };
        let markers = markers(&mut session).map_err(|error| store.opener.refused(&error))?;
        store.seen = markers;
        store.session = Some(session);
        Ok(store)
    }

    /// Where the store is, without the password.
    pub fn url(&self) -> &StoreUrl {
        &self.opener.url
    }

    /// Calls `hook` at points inside each commit from now on, for tests that run several commits at
    /// once. It is called with [`Waiting`](CommitPoint::Waiting) also while
    /// [`was_committed`](Store::was_committed) waits.
    pub fn on_commit(&mut self, hook: impl FnMut(CommitPoint) + Send + 'static) {
        self.hook = Some(Hook::new(self.opener.clone(), hook));
    }

    /// The connection that writes; a lost one is made again, and the server and its schema are
    /// checked again: another node may have migrated it. After a failed try the next one is put
    /// off: calls until then fail at once.
    fn session(&mut self) -> Result<&mut Session, Cause> {
        if self.session.as_ref().is_some_and(Session::is_closed) {
            self.session = None;
        }
        if self.session.is_none() {
            self.backoff.check(Instant::now())?;
            let opened = self.opener.checked().and_then(|(mut session, replicated)| {
                self.opener.migrate(&mut session, self.locks, false)?;
                self.opener.check_rights(&mut session)?;
                Ok((session, replicated))
            });
            let (session, replicated) = opened.map_err(|error| {
                let why = error.to_string();
                let cause = Cause::new(&why);
                self.backoff.failed(Instant::now(), why);
                cause
            })?;
            self.backoff.clear();
            self.replicated = replicated;
            self.names.invalidate();
            self.session = Some(session);
        }
        self.session.as_mut().ok_or_else(|| Cause::new("there is no connection"))
    }

    /// One try of a batch.
    fn attempt(&mut self, now: Wall, batch: &Batch) -> Result<Outcomes, Failed> {
        self.session().map_err(|cause| Failed::Final(CommitError::NotCommitted(cause)))?;
        let Some(session) = &mut self.session else {
            return Err(Failed::Before(TxError::Lost("there is no connection".into())));
        };
        if self.names.version.is_none() {
            self.names = Names::load(session).map_err(Failed::Before)?;
        }
        let mut transaction =
            Transaction::new(session, &mut self.names, &mut self.ids, self.locks, batch);
        transaction.clock = (self.options.clock == Clock::Caller).then_some(now);
        transaction.hook = self.hook.as_ref();
        let walks = self.upkeep.as_ref().is_some_and(Upkeep::is_useless);
        transaction.heads = walks.then_some(&self.heads);
        let began = Instant::now();
        let applied = transaction.apply().map_err(Failed::Before)?;
        let answered = Instant::now();
        self.heads.looked(&applied.looks, answered, answered - began);
        self.skipped |= applied.skipped;
        let Some(written) = applied.written else {
            // Nothing was written: nothing is to be made durable.
            session.roll_back().map_err(Failed::Before)?;
            self.ids.give_back(session).map_err(Failed::Before)?;
            return Ok(applied.outcomes);
        };
        // Until here the commit was not sent.
        session.prepare(&written.flight).map_err(Failed::Before)?;
        match session.fly(written.flight, self.hook.as_ref()) {
            Ok(_) => {
                self.heads.learn(&written.moves);
                if let Some(last) = written.last_id {
                    self.ids.used(last);
                }
                // Without it there is a gap, and nothing worse.
                let _ = self.ids.give_back(session);
                if written.new_names {
                    self.names.invalidate();
                }
                self.own.insert(batch.id.process, batch.id.seq);
                if let Some(upkeep) = self.upkeep.as_ref().filter(|_| written.leaves_ready) {
                    upkeep.hint();
                }
                Ok(applied.outcomes)
            }
            Err(TxError::Lost(why)) => {
                self.session = None;
                self.names.invalidate();
                // Jobs may have these.
                if let Some(last) = written.last_id {
                    self.ids.used(last);
                }
                let (cause, outcomes) = (Cause::new(&why), Box::new(applied.outcomes));
                Err(Failed::Final(CommitError::Unknown { cause, outcomes }))
            }
            Err(error) => Err(Failed::Before(error)),
        }
    }

    /// Ends a transaction that failed before its commit.
    fn undo(&mut self, error: &TxError) {
        self.names.invalidate();
        let lost = matches!(error, TxError::Lost(_));
        if error.is_duplicate() {
            self.ids.clear();
        }
        let ended = |session: &mut Session| {
            session.roll_back().and_then(|()| self.ids.give_back(session)).is_ok()
        };
        if lost || !self.session.as_mut().is_some_and(ended) {
            self.session = None;
        }
    }

    /// Reads with the connection that writes.
    fn read<R>(&mut self, read: impl FnOnce(&mut Session) -> Found<R>) -> Result<R, StoreError> {
        let session = self.session().map_err(StoreError::Busy)?;
        read(session).map_err(|error| {
            self.undo(&error);
            error.of_read()
        })
    }
}

/// The interval of the process that this server process serves: no two nodes that began together
/// go on in step.
fn change_check_ms(pid: i32) -> u64 {
    let jitter = u64::from(pid.unsigned_abs()) % (2 * CHANGE_JITTER_MS + 1);
    CHANGE_CHECK_MS - CHANGE_JITTER_MS + jitter
}

/// Why a try did not end as committed.
enum Failed {
    /// The transaction was rolled back, or never began.
    Before(TxError),
    /// The error to return; it is not retried.
    Final(CommitError),
}

impl Store for PgStore {
    type Reader = PgReader;

    fn commit(&mut self, now: Wall, batch: &Batch) -> Result<Outcomes, CommitError> {
        let began = Instant::now();
        for tried in 1.. {
            let error = match self.attempt(now, batch) {
                Ok(outcomes) => return Ok(outcomes),
                Err(Failed::Final(error)) => return Err(error),
                Err(Failed::Before(error)) => error,
            };
            self.undo(&error);
            let is_late = began.elapsed() >= self.options.deadline;
            if tried == CONFLICT_TRIES || is_late || !error.is_conflict() {
                return Err(error.before_commit());
            }
            if let Some((session, pause)) = self.session.as_ref().zip(error.pause()) {
                session.sleep(pause);
            }
        }
        unreachable!("the last try returns")
    }

    fn was_committed(&mut self, batch: BatchId) -> Result<bool, StoreError> {
        let (lock, process) = (self.locks.process(batch.process), batch.process.0.cast_signed());
        let hook = self.hook.clone();
        self.read(|session| {
            // A transaction of this process that is not over holds the lock.
            let mut flight = Flight::default();
            flight.add("BEGIN ISOLATION LEVEL READ COMMITTED", vec![]);
            flight.add("SELECT pg_advisory_xact_lock($1)", params![lock]);
            let sql = "SELECT process, seq, at FROM markers WHERE process = $1::bigint";
            let marker = flight.add(sql, params![process]);
            flight.add("COMMIT", vec![]);
            let rows = session.fly(flight, hook.as_ref())?.take(marker);
            let marker = rows.first().map(read_marker).transpose()?;
            Ok(marker.is_some_and(|marker| marker.covers(batch)))
        })
    }

    fn reopen(&mut self) -> Result<(), StoreError> {
        self.session = None;
        self.pool.clear();
        self.backoff.clear();
        self.session().map(|_| ()).map_err(StoreError::Busy)
    }

    fn durability(&self) -> Durability {
        if self.replicated { Durability::Replicated } else { Durability::Synced }
    }

    fn change_check(&self) -> Option<Millis> {
        Some(Millis::new(self.change_check_ms))
    }

    fn news(&mut self, held: &[LeaseToken]) -> Result<News, StoreError> {
        let markers = self.read(markers)?;
        let own = &self.own;
        let others = |(process, seq): &(&ProcessId, &u64)| own.get(process) != Some(seq);
        let mut new = markers.iter().filter(others);
        let wrote = self.skipped || new.any(|(process, seq)| self.seen.get(process) != Some(seq));
        let lost = if wrote { self.read(|session| lost(session, held))? } else { Vec::new() };
        if wrote {
            self.heads.are_stale();
        }
        (self.seen, self.skipped) = (markers, false);
        Ok(News { wrote, lost })
    }

    fn wake_on_news(&mut self, waker: Waker) {
        self.upkeep = Some(Upkeep::start(self.opener.clone(), self.locks, waker));
    }

    fn reader(&self) -> Result<PgReader, StoreError> {
        Ok(self.pool.reader())
    }
}

/// The latest marker of each process.
fn markers(session: &mut Session) -> Found<BTreeMap<ProcessId, u64>> {
    let rows = session.query("SELECT process, seq, at FROM markers", vec![])?;
    let mut found = BTreeMap::new();
    for row in &rows {
        let marker = read_marker(row)?;
        found.insert(marker.batch.process, marker.batch.seq);
    }
    Ok(found)
}

/// A row of `markers`.
pub(crate) fn read_marker(row: &tokio_postgres::Row) -> Found<Marker> {
    let process = ProcessId(get::<i64>(row, 0)?.cast_unsigned());
    let seq = get::<i64>(row, 1)?.cast_unsigned();
    Ok(Marker { batch: BatchId { process, seq }, at: Wall::new(get(row, 2)?) })
}

/// Which of these leases are gone.
fn lost(session: &mut Session, held: &[LeaseToken]) -> Found<Vec<LostLease>> {
    if held.is_empty() {
        return Ok(Vec::new());
    }
    let ids: Vec<JobId> = held.iter().map(|token| token.job).collect();
    let rows = session.query(VIEWS, params![id_codes(&ids)])?;
    let mut jobs: BTreeMap<JobId, (View, Epoch)> = BTreeMap::new();
    for row in &rows {
        let epoch = Epoch::new(get::<i64>(row, 2)?.cast_unsigned());
        jobs.insert(job_id(get(row, 0)?)?, (view_of(get(row, 1)?)?, epoch));
    }
    let check = |token: &LeaseToken| LostLease::check(*token, jobs.get(&token.job).copied());
    Ok(held.iter().filter_map(check).collect())
}

/// The views and epochs of jobs, from one state.
const VIEWS: &str = "SELECT id, 2::smallint, epoch FROM leased WHERE id = ANY($1::bigint[]) \
    UNION ALL SELECT id, 0::smallint, epoch FROM ready WHERE id = ANY($1::bigint[]) \
    UNION ALL SELECT id, 1::smallint, epoch FROM scheduled WHERE id = ANY($1::bigint[]) \
    UNION ALL SELECT id, view, epoch FROM done WHERE id = ANY($1::bigint[])";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_look_for_news_about_four_times_a_second_and_not_in_step() {
        let all: Vec<u64> = (4_000..4_100).map(change_check_ms).collect();
        assert_eq!(all.iter().min(), Some(&225));
        assert_eq!(all.iter().max(), Some(&275));
        assert!(all.windows(2).all(|two| two[0] != two[1]));
    }
}
