//! The store: one connection that writes, one transaction per batch.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OptionalExtension};
use windlass_core::store::{Batch, Cause, CommitError, Outcomes, Store, StoreError};
use windlass_core::{BatchId, Millis, Wall, apply};
use windlass_store_file::leave_reserve;

use crate::error::{OpenError, TxError};
use crate::files::Files;
use crate::log::{self, Log};
use crate::names::Names;
use crate::open::{self, Place};
use crate::reader::{Pool, SqliteReader};
use crate::recent::Versioned;
use crate::space;
use crate::tx::SqliteTx;

/// How often a process looks whether another has written.
const CHANGE_CHECK: Millis = Millis::new(250);

/// How long to wait, when a store is opened anew, until nobody else has it open.
const ALONE: Duration = Duration::from_secs(1);

/// Jobs in a SQLite file.
#[derive(Debug)]
pub struct SqliteStore {
    pub(crate) place: Place,
    /// Above the writer, so that it is closed before: the last to go leaves no log behind, and a
    /// reader cannot move it.
    pool: Arc<Pool>,
    /// The connection that writes; or why the store is broken, until it is opened anew.
    pub(crate) conn: Result<Connection, Cause>,
    /// Pages moved into the database may be lost: see `log.rs`.
    distrusted: bool,
    files: Files,
    log: Log,
    /// More pages are free than need be kept.
    spacious: bool,
    names: Names,
    recent: Versioned,
    seen: Option<i64>,
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
        open::make(&place)?;
        log::move_alone(&place, Duration::ZERO)?;
        let mut conn = open_durable(&place)?;
        let pool = Pool::new(place.clone());
        Ok(Self {
            files: Files::of(&place.path),
            log: Log::of(&place.path, &mut conn)?,
            spacious: false,
            place,
            pool,
            conn: Ok(conn),
            distrusted: false,
            names: Names::default(),
            recent: Versioned::default(),
            seen: None,
        })
    }

    /// Where the store lies.
    pub fn path(&self) -> &Path {
        &self.place.path
    }

    fn run(&mut self, now: Wall, batch: &Batch) -> Result<Outcomes, CommitError> {
        let conn = usable(&self.conn);
        let conn = conn.map_err(|cause| CommitError::Fatal { cause, outcomes: None })?;
        self.files.check(&self.place).map_err(|meddled| meddled.before_commit())?;
        leave_reserve(&self.place.path, batch)?;
        let begun = execute(conn, "BEGIN IMMEDIATE");
        begun.map_err(|error| error.before_commit())?;
        let worked = data_version(conn).and_then(|version| {
            let recent = Some(self.recent.begin(version));
            let mut tx = SqliteTx { conn, names: &mut self.names, recent, now };
            let outcomes = apply(&mut tx, batch)?;
            if outcomes.wrote && (self.spacious || batch.purge.is_some()) {
                self.spacious = space::give_back(conn)?;
            }
            Ok(outcomes)
        });
        let outcomes = match worked {
            Ok(outcomes) if outcomes.wrote => outcomes,
            Ok(outcomes) => {
                // Nothing was written: nothing is to be made durable.
                execute(conn, "ROLLBACK").map_err(|error| error.before_commit())?;
                return Ok(outcomes);
            }
            Err(error) => {
                self.undo();
                return Err(error.before_commit());
            }
        };
        match execute(conn, "COMMIT") {
            Ok(()) => {
                self.files.check(&self.place).or_else(|meddled| meddled.after_commit())?;
                self.tend_log();
                Ok(outcomes)
            }
            Err(error) => {
                let undone = !conn.is_autocommit();
                self.undo();
                Err(error.of_commit(undone, outcomes))
            }
        }
    }

    /// Ends a transaction that failed. Names it has given out are forgotten.
    fn undo(&mut self) {
        self.names.forget();
        self.recent.rows.forget();
        let open = self.conn.as_ref().ok().filter(|conn| !conn.is_autocommit());
        // If even this fails, the connection cannot be used any more.
        if let Some(Err(error)) = open.map(|conn| execute(conn, "ROLLBACK")) {
            self.fail(&error.cause());
        }
    }

    /// Refuses everything until the store is opened anew. The log is left as it is.
    fn fail(&mut self, cause: &Cause) {
        if let Ok(conn) = &self.conn {
            // If this fails, the log is moved when the connection closes, as it would be otherwise.
            let _ = conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
            self.conn = Err(cause.clone());
        }
    }

    /// Moves the log if it has grown long. The commit before it stands, whatever happens here.
    fn tend_log(&mut self) {
        let Ok(Err(error)) = self.conn.as_mut().map(|conn| self.log.tend(conn)) else { return };
        if !error.passes() {
            self.distrusted = true;
            let cause = format!("the log could not be moved into the database: {}", error.cause());
            self.fail(&Cause::new(&cause));
        }
    }

    fn marker(conn: &Connection, batch: BatchId) -> Result<bool, TxError> {
        let process = batch.process.0.cast_signed();
        let sql = "SELECT seq FROM markers WHERE process = ?1";
        let seq: Option<i64> =
            conn.prepare_cached(sql)?.query_row([process], |row| row.get(0)).optional()?;
        Ok(seq.is_some_and(|seq| seq.cast_unsigned() >= batch.seq))
    }

    /// Opens the file anew. What a failed sync may have left in memory only is written again.
    fn open_anew(&mut self) -> Result<(), OpenError> {
        self.fail(&Cause::new("it is being opened anew"));
        self.pool.clear();
        self.names.forget();
        self.recent.rows.forget();
        let alone = log::move_alone(&self.place, ALONE)?;
        if self.distrusted && !alone {
            return Err(OpenError::NotAlone { path: self.place.path.clone() });
        }
        let mut conn = open_durable(&self.place)?;
        self.log = Log::of(&self.place.path, &mut conn)?;
        self.conn = Ok(conn);
        self.files = Files::of(&self.place.path);
        self.distrusted = false;
        // Versions of two connections cannot be compared: whoever asks next looks at everything.
        self.seen = self.seen.map(|_| i64::MIN);
        Ok(())
    }
}

/// Opens the connection that writes. All that it sees is durable.
fn open_durable(place: &Place) -> Result<Connection, OpenError> {
    let conn = open::writer(place)?;
    log::sync(&conn).map_err(|source| OpenError::sqlite(&place.path, source))?;
    Ok(conn)
}

impl Drop for SqliteStore {
    /// The last to close a database moves its log and removes it, by its name: not if that may be
    /// the log of another.
    fn drop(&mut self) {
        if let Err(meddled) = self.files.check(&self.place) {
            self.fail(&Cause::new(&meddled.to_string()));
        }
    }
}

impl Store for SqliteStore {
    type Reader = SqliteReader;

    fn commit(&mut self, now: Wall, batch: &Batch) -> Result<Outcomes, CommitError> {
        let result = self.run(now, batch);
        if let Err(CommitError::Fatal { cause, .. } | CommitError::Corrupt(cause)) = &result {
            self.fail(cause);
        }
        result
    }

    fn look(&mut self, batch: BatchId) -> Result<bool, StoreError> {
        let conn = usable(&self.conn).map_err(StoreError::Fatal)?;
        Self::marker(conn, batch).map_err(|error| error.of_read())
    }

    fn reopen(&mut self) -> Result<(), StoreError> {
        self.files.check_database(&self.place).map_err(|meddled| meddled.of_read())?;
        self.open_anew().map_err(|error| {
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

    fn changed(&mut self) -> Result<bool, StoreError> {
        let conn = usable(&self.conn).map_err(StoreError::Fatal)?;
        self.files.check(&self.place).map_err(|meddled| meddled.of_read())?;
        let version = data_version(conn).map_err(|error| error.of_read())?;
        let before = self.seen.replace(version);
        Ok(before.is_some_and(|before| before != version))
    }

    fn reader(&self) -> Result<SqliteReader, StoreError> {
        self.pool.reader()
    }
}

/// A number that changes with every commit of another connection, and not with our own.
fn data_version(conn: &Connection) -> Result<i64, TxError> {
    let mut statement = conn.prepare_cached("PRAGMA data_version")?;
    Ok(statement.query_row([], |row| row.get(0))?)
}

fn usable(conn: &Result<Connection, Cause>) -> Result<&Connection, Cause> {
    let refused = |cause| Cause::new(&format!("not opened anew since it failed: {cause}"));
    conn.as_ref().map_err(refused)
}

fn execute(conn: &Connection, sql: &str) -> Result<(), TxError> {
    conn.prepare_cached(sql)?.execute([])?;
    Ok(())
}
