//! The store: one connection that writes, one transaction per batch.

use std::path::Path;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension};
use windlass_core::store::{Batch, Cause, CommitError, Outcomes, Store, StoreError};
use windlass_core::{BatchId, Millis, Wall, apply};

use crate::error::{OpenError, TxError};
use crate::names::Names;
use crate::open::{self, Place};
use crate::reader::{Pool, SqliteReader};
use crate::tx::SqliteTx;

/// How often a process looks whether another has written.
const CHANGE_CHECK: Millis = Millis::new(100);

/// Jobs in a SQLite file.
#[derive(Debug)]
pub struct SqliteStore {
    pub(crate) place: Place,
    /// Above the writer, so that it is closed before: the last to go leaves no log behind, and a
    /// reader cannot move it.
    pool: Arc<Pool>,
    /// None while the store is broken and not opened anew.
    conn: Option<Connection>,
    names: Names,
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
        let conn = open::writer(&place)?;
        let pool = Pool::new(place.clone());
        Ok(Self { place, conn: Some(conn), names: Names::default(), pool, seen: None })
    }

    /// Where the store lies.
    pub fn path(&self) -> &Path {
        &self.place.path
    }

    fn run(&mut self, now: Wall, batch: &Batch) -> Result<Outcomes, CommitError> {
        let Some(conn) = &self.conn else {
            let cause = Cause::new("the store failed before and was not opened anew");
            return Err(CommitError::Fatal { cause, outcomes: None });
        };
        let begun = execute(conn, "BEGIN IMMEDIATE");
        begun.map_err(|error| error.before_commit())?;
        let mut tx = SqliteTx { conn, names: &mut self.names, now };
        let applied = apply(&mut tx, batch);
        let outcomes = match applied {
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
            Ok(()) => Ok(outcomes),
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
        if let Some(conn) = self.conn.as_ref().filter(|conn| !conn.is_autocommit()) {
            // If even this fails, the connection is dropped with the error that led here.
            if execute(conn, "ROLLBACK").is_err() {
                self.conn = None;
            }
        }
    }

    fn marker(&self, batch: BatchId) -> Result<bool, TxError> {
        let Some(conn) = &self.conn else {
            return Err(TxError::BadRow("the store was not opened anew".into()));
        };
        let process = batch.process.0.cast_signed();
        let sql = "SELECT seq FROM markers WHERE process = ?1";
        let seq: Option<i64> =
            conn.prepare_cached(sql)?.query_row([process], |row| row.get(0)).optional()?;
        Ok(seq.is_some_and(|seq| seq.cast_unsigned() >= batch.seq))
    }

    /// Opens the file anew. Everything in the log is moved into the database and synced: what a
    /// failed sync may have left in memory only is thereby written again.
    fn open_anew(&mut self) -> Result<(), OpenError> {
        self.conn = None;
        self.pool.clear();
        self.names.forget();
        let conn = open::writer(&self.place)?;
        let sqlite = |source| OpenError::Sqlite { path: self.place.path.clone(), source };
        let checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)";
        let busy: i64 = conn.query_row(checkpoint, [], |row| row.get(0)).map_err(sqlite)?;
        if busy != 0 {
            let busy = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY);
            let text = "the log is in use and cannot be moved into the database".to_string();
            return Err(sqlite(rusqlite::Error::SqliteFailure(busy, Some(text))));
        }
        self.conn = Some(conn);
        Ok(())
    }
}

impl Store for SqliteStore {
    type Reader = SqliteReader;

    fn commit(&mut self, now: Wall, batch: &Batch) -> Result<Outcomes, CommitError> {
        let result = self.run(now, batch);
        if matches!(result, Err(CommitError::Fatal { .. } | CommitError::Corrupt(_))) {
            self.conn = None;
        }
        result
    }

    fn look(&mut self, batch: BatchId) -> Result<bool, StoreError> {
        if self.conn.is_none() {
            return Err(StoreError::Fatal(Cause::new("the store was not opened anew")));
        }
        self.marker(batch).map_err(|error| error.of_read())
    }

    fn reopen(&mut self) -> Result<(), StoreError> {
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
        let Some(conn) = &self.conn else {
            return Err(StoreError::Fatal(Cause::new("the store was not opened anew")));
        };
        // It grows with every commit of another connection, and not with our own.
        let version = conn
            .prepare_cached("PRAGMA data_version")
            .and_then(|mut statement| statement.query_row([], |row| row.get(0)))
            .map_err(|error| TxError::from(error).of_read())?;
        let before = self.seen.replace(version);
        Ok(before.is_some_and(|before| before != version))
    }

    fn reader(&self) -> Result<SqliteReader, StoreError> {
        self.pool.reader()
    }
}

fn execute(conn: &Connection, sql: &str) -> Result<(), TxError> {
    conn.prepare_cached(sql)?.execute([])?;
    Ok(())
}
