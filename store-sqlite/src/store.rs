//! The store: one connection that writes, one transaction per batch.

use std::path::Path;
use std::sync::Arc;
use std::task::Waker;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OptionalExtension};
use windlass_core::store::{
    Batch, Cause, CommitError, CommitPoint, LostLease, Marker, News, Outcomes, SEAL, Seal, Store,
    StoreError,
};
use windlass_core::{BatchId, LeaseToken, Millis, ProcessId, Wall};
use windlass_store_file::{Cache, Notifier, leave_reserve};

use crate::answer::Transaction;
use crate::busy::{self, LockWait};
use crate::error::{OpenError, TxError};
use crate::files::Files;
use crate::find::Rows;
use crate::hook::Hook;
use crate::names::Names;
use crate::open::{self, Place};
use crate::reader::{Pool, SqliteReader};
use crate::rows::{epoch, id_code, view_of};
use crate::space;
use crate::stale_wal;
use crate::wal::{self, WalFile};

/// The time between two checks whether another process has written.
const CHANGE_CHECK: Millis = Millis::new(250);

/// How often a batch is applied at most when rows are not as they were read. No other process can
/// write while a transaction is open, so a conflict means that what was cached of the store was
/// wrong.
const CONFLICT_TRIES: u32 = 3;

/// Jobs in a SQLite file.
#[derive(Debug)]
pub struct SqliteStore {
    pub(crate) place: Place,
    /// Declared before the writer, so that it is closed first: the last connection to close removes
    /// the WAL, and a reader cannot checkpoint it.
    pool: Arc<Pool>,
    /// The connection that writes; or why the store is broken, until it is reopened.
    pub(crate) conn: Result<Connection, Cause>,
    /// Checkpointed pages may be lost: see `wal.rs`.
    distrusted: bool,
    files: Files,
    wal: WalFile,
    /// Whether more pages are free than the database keeps.
    excess_free: bool,
    names: Names,
    pub(crate) cache: Cache,
    /// The mark of the store, as of the version of the cache.
    seal: Option<Seal>,
    /// The version at the latest check for news; at first, the one at which it was opened.
    seen: i64,
    hook: Option<Hook>,
    notifier: Notifier,
}

impl SqliteStore {
    /// Opens a store; the file and its directory are made if they do not exist.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::open_at(Place { path: path.as_ref().into(), vfs: None })
    }

    /// Opens a store through a VFS that was registered with SQLite under this name, for the writer
    /// and the readers alike: for tests, and for special file systems.
    pub fn open_with_vfs(path: impl AsRef<Path>, vfs: &str) -> Result<Self, OpenError> {
        Self::open_at(Place { path: path.as_ref().into(), vfs: Some(vfs.into()) })
    }

    fn open_at(place: Place) -> Result<Self, OpenError> {
        let conn = stale_wal::checked(&place, || {
            open::make(&place)?;
            wal::checkpoint_alone(&place, LockWait::None)?;
            open_durable(&place)
        })?;
        let pool = Pool::new(place.clone());
        let version = data_version(&conn);
        Ok(Self {
            seen: version.map_err(|source| OpenError::sqlite(&place.path, source))?,
            files: Files::of(&place.path),
            wal: WalFile::of(&place.path, &conn),
            notifier: Notifier::new(&place.path),
            excess_free: false,
            place,
            pool,
            conn: Ok(conn),
            distrusted: false,
            names: Names::default(),
            cache: Cache::default(),
            seal: None,
            hook: None,
        })
    }

    /// The path of the database.
    pub fn path(&self) -> &Path {
        &self.place.path
    }

    /// Calls `hook` at points inside each commit from now on, for tests that run several commits at
    /// once. It is called with [`Waiting`](CommitPoint::Waiting) also while
    /// [`was_committed`](Store::was_committed) waits.
    pub fn on_commit(&mut self, hook: impl FnMut(CommitPoint) + Send + 'static) {
        self.hook = Some(Hook::new(hook));
    }

    fn run(&mut self, now: Wall, batch: &Batch, tries: u32) -> Result<Outcomes, CommitError> {
        let _watched = self.hook.as_ref().map(Hook::while_waiting);
        let conn = usable(&self.conn);
        let conn = conn.map_err(|cause| CommitError::Fatal { cause, outcomes: None })?;
        self.files.check(&self.place).map_err(|changed| changed.before_commit())?;
        leave_reserve(&self.place.path, batch)?;
        let (begun, waited) = busy::timed(|| execute(conn, "BEGIN IMMEDIATE"));
        begun.map_err(|error| error.before_commit())?;
        // The instant that counts is the one at which the lock was got.
        let now = now.plus(waited);
        let worked = data_version(conn).map_err(TxError::from).and_then(|version| {
            if !self.cache.begin(version) {
                self.names.clear_queue_ids();
                self.seal = seal(conn)?;
            }
            batch.check_seal(self.seal.as_ref())?;
            let rows = Rows { conn, names: &mut self.names };
            let outcomes =
                Transaction::new(rows, &mut self.cache, now).apply(batch, self.hook.as_ref())?;
            if outcomes.wrote && (self.excess_free || batch.purge.is_some()) {
                self.excess_free = space::give_back(conn)?;
            }
            Ok(outcomes)
        });
        let outcomes = match worked {
            Ok(outcomes) if outcomes.wrote => outcomes,
            Ok(outcomes) => {
                // Nothing was written, so there is nothing to sync.
                execute(conn, "ROLLBACK").map_err(|error| error.before_commit())?;
                return Ok(outcomes);
            }
            Err(error) => {
                self.undo();
                if tries > 1 && matches!(error, TxError::Conflict(_)) {
                    return self.run(now, batch, tries - 1);
                }
                return Err(error.before_commit());
            }
        };
        match execute(conn, "COMMIT") {
            Ok(()) => {
                if batch.sets_seal() {
                    // It is read again.
                    self.cache.clear();
                }
                self.files.check(&self.place).or_else(|changed| changed.after_commit())?;
                self.checkpoint();
                Ok(outcomes)
            }
            Err(error) => {
                let undone = !conn.is_autocommit();
                self.undo();
                Err(error.of_commit(undone, outcomes))
            }
        }
    }

    /// Rolls back a transaction that failed. Names that it has numbered are dropped from the cache.
    fn undo(&mut self) {
        self.names.clear();
        self.cache.clear();
        let open = self.conn.as_ref().ok().filter(|conn| !conn.is_autocommit());
        // If the rollback fails, the connection cannot be used any more.
        if let Some(Err(error)) = open.map(|conn| execute(conn, "ROLLBACK")) {
            self.fail(&error.cause());
        }
    }

    /// Refuses everything until the store is reopened. The WAL is left as it is.
    fn fail(&mut self, cause: &Cause) {
        if let Ok(conn) = &self.conn {
            // If this fails, closing the connection checkpoints the WAL, as SQLite does by default.
            let _ = conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
            self.conn = Err(cause.clone());
        }
    }

    /// Checkpoints the WAL if it has grown long. The commit before it is durable in any case.
    fn checkpoint(&mut self) {
        let Ok(Err(error)) = self.conn.as_ref().map(|conn| self.wal.after_commit(conn)) else {
            return;
        };
        if !error.passes() {
            self.distrusted = true;
            let cause = format!("cannot checkpoint the WAL: {}", error.cause());
            self.fail(&Cause::new(&cause));
        }
    }

    fn marker(conn: &Connection, batch: BatchId) -> Result<bool, TxError> {
        let process = batch.process.0.cast_signed();
        let sql = "SELECT process, seq, at FROM markers WHERE process = ?1";
        let mut statement = conn.prepare_cached(sql)?;
        let marker = statement.query_row([process], marker).optional()?;
        Ok(marker.is_some_and(|marker| marker.covers(batch)))
    }

    /// Reopens the file. What a failed sync may have left in memory only is written again.
    fn reopen_file(&mut self) -> Result<(), OpenError> {
        self.fail(&Cause::new("it is being reopened"));
        self.pool.clear();
        self.names.clear();
        self.cache.clear();
        let alone = wal::checkpoint_alone(&self.place, LockWait::Exclusive)?;
        if self.distrusted && !alone {
            return Err(OpenError::NotAlone { path: self.place.path.clone() });
        }
        let conn = open_durable(&self.place)?;
        self.wal = WalFile::of(&self.place.path, &conn);
        self.conn = Ok(conn);
        self.files = Files::of(&self.place.path);
        self.distrusted = false;
        // Versions of two connections cannot be compared: the next change check reports news.
        self.seen = i64::MIN;
        Ok(())
    }
}

/// Opens the connection that writes. All that it sees is durable.
fn open_durable(place: &Place) -> Result<Connection, OpenError> {
    let conn = open::writer(place)?;
    wal::sync(&conn).map_err(|source| OpenError::sqlite(&place.path, source))?;
    Ok(conn)
}

impl Drop for SqliteStore {
    /// The last connection to close a database checkpoints its WAL and removes it, by its name: not
    /// if that may be the WAL of another database.
    fn drop(&mut self) {
        if let Err(changed) = self.files.check(&self.place) {
            self.fail(&Cause::new(&changed.to_string()));
        }
    }
}

impl Store for SqliteStore {
    type Reader = SqliteReader;

    fn commit(&mut self, now: Wall, batch: &Batch) -> Result<Outcomes, CommitError> {
        let result = self.run(now, batch, CONFLICT_TRIES);
        if result.as_ref().is_ok_and(|outcomes| outcomes.wrote) {
            self.notifier.notify(now);
        }
        if let Err(CommitError::Fatal { cause, .. } | CommitError::Corrupt(cause)) = &result {
            self.fail(cause);
        }
        result
    }

    fn was_committed(&mut self, batch: BatchId) -> Result<bool, StoreError> {
        let _watched = self.hook.as_ref().map(Hook::while_waiting);
        let conn = usable(&self.conn).map_err(StoreError::Fatal)?;
        // The transaction may be that of another handle: it has ended once the lock is free.
        execute(conn, "BEGIN IMMEDIATE").map_err(|error| error.of_read())?;
        let found = Self::marker(conn, batch);
        self.undo();
        found.map_err(|error| error.of_read())
    }

    fn reopen(&mut self) -> Result<(), StoreError> {
        self.files.check_database(&self.place).map_err(|changed| changed.of_read())?;
        self.reopen_file().map_err(|error| {
            let cause = Cause::new(&error.to_string());
            match error {
                OpenError::Foreign { .. } | OpenError::Newer { .. } => StoreError::Corrupt(cause),
                _ => StoreError::Busy(cause),
            }
        })
    }

    fn change_check(&self) -> Option<Millis> {
        Some(CHANGE_CHECK)
    }

    fn news(&mut self, held: &[LeaseToken]) -> Result<News, StoreError> {
        let conn = usable(&self.conn).map_err(StoreError::Fatal)?;
        self.files.check(&self.place).map_err(|changed| changed.of_read())?;
        let version = data_version(conn).map_err(|error| TxError::from(error).of_read())?;
        let wrote = self.seen != version;
        let lost = if wrote { lost(conn, held) } else { Ok(Vec::new()) };
        let lost = lost.map_err(|error| error.of_read())?;
        self.seen = version;
        Ok(News { wrote, lost })
    }

    fn wake_on_news(&mut self, waker: Waker) {
        // Without hints the change check finds the same, later.
        let _ = self.notifier.listen(waker);
    }

    fn reader(&self) -> Result<SqliteReader, StoreError> {
        self.pool.reader()
    }
}

/// A number that changes with every commit of another connection, and not with our own.
pub(crate) fn data_version(conn: &Connection) -> rusqlite::Result<i64> {
    let mut statement = conn.prepare_cached("PRAGMA data_version")?;
    statement.query_row([], |row| row.get(0))
}

/// The mark of the store, if it has one.
fn seal(conn: &Connection) -> Result<Option<Seal>, TxError> {
    let sql = "SELECT value FROM settings WHERE key = ?1";
    let text = conn.prepare_cached(sql)?.query_row([SEAL], |row| row.get::<_, String>(0));
    Ok(text.optional()?.map(|text| Seal::parse(&text)))
}

/// Which of these leases are gone.
fn lost(conn: &Connection, held: &[LeaseToken]) -> Result<Vec<LostLease>, TxError> {
    let mut statement = conn.prepare_cached("SELECT view, epoch FROM jobs WHERE id = ?1")?;
    let mut found = Vec::new();
    for token in held {
        let mut rows = statement.query([id_code(token.job)])?;
        let job = match rows.next()? {
            Some(row) => Some((view_of(row.get(0)?)?, epoch(row.get(1)?))),
            None => None,
        };
        found.extend(LostLease::check(*token, job));
    }
    Ok(found)
}

/// A row of `markers`.
pub(crate) fn marker(row: &rusqlite::Row<'_>) -> rusqlite::Result<Marker> {
    let process = ProcessId(row.get::<_, i64>(0)?.cast_unsigned());
    let seq = row.get::<_, i64>(1)?.cast_unsigned();
    Ok(Marker { batch: BatchId { process, seq }, at: Wall::new(row.get(2)?) })
}

fn usable(conn: &Result<Connection, Cause>) -> Result<&Connection, Cause> {
    let refused = |cause| Cause::new(&format!("the store failed and was not reopened: {cause}"));
    conn.as_ref().map_err(refused)
}

fn execute(conn: &Connection, sql: &str) -> Result<(), TxError> {
    conn.prepare_cached(sql)?.execute([])?;
    Ok(())
}
