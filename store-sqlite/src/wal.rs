//! The write-ahead log (WAL): when it is checkpointed, and that no failed checkpoint is ignored.
//!
//! A commit is durable in the WAL. SQLite would run checkpoints by itself, and swallow errors. But
//! a sync that failed may have dropped pages which an earlier checkpoint, cut short by a reader,
//! had written: no later checkpoint writes them again, and once the WAL is reset they are lost. So
//! checkpoints are run here, and after an error the whole WAL is checkpointed again, from the first
//! page on, with exclusive access.

use std::cell::Cell;
use std::fs::OpenOptions;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use rusqlite::{Connection, ErrorCode};

use crate::busy::LockWait;
use crate::error::{OpenError, TxError};
use crate::files::beside;
use crate::open::{self, Place};

/// The length of the WAL, in pages, from which on it is checkpointed.
const PAGES: i64 = 4_000;
/// The length of the WAL, in pages, from which on its file gets its full size at once.
const BUSY: i64 = 100;
/// That full size, in bytes: [`PAGES`], each with its header, and room for the commit that goes
/// beyond them.
const FULL_SIZE: u64 = 5_000 * (4_096 + 24) + 32;
/// The length of the WAL, in pages, from which on a checkpoint waits for readers, so that the WAL
/// can be reset.
const LONG: i64 = 4 * PAGES;

thread_local! {
    /// The length of the WAL in pages, as the latest commit on this thread left it.
    static LENGTH: Cell<i64> = const { Cell::new(0) };
}

/// The WAL file of a database, and what this process knows of its size.
#[derive(Debug)]
pub(crate) struct WalFile {
    path: PathBuf,
    /// Whether the file has its full size, or cannot get it.
    grown: bool,
    /// The length, in pages, from which on a checkpoint waits for readers.
    wait_at: i64,
}

impl WalFile {
    /// The WAL of the database at this path, to which this connection writes.
    pub(crate) fn of(database: &Path, conn: &Connection) -> Self {
        conn.wal_hook(Some(|_, pages| {
            LENGTH.set(pages.into());
            Ok(())
        }));
        Self { path: beside(database, "-wal"), grown: false, wait_at: LONG }
    }

    /// Runs a checkpoint if the WAL has grown long. To be called after every commit, on its thread,
    /// before another store commits there.
    pub(crate) fn after_commit(&mut self, conn: &Connection) -> Result<(), TxError> {
        let length = LENGTH.get();
        if length >= BUSY && !self.grown {
            self.grow(conn)?;
        }
        if length >= self.wait_at {
            self.restart(conn, length)
        } else {
            if length >= PAGES {
                checkpoint(conn, "PASSIVE")?;
            }
            Ok(())
        }
    }

    /// Checkpoints the WAL and waits for its readers: readers that follow each other without a gap
    /// would let it grow without limit. A reader that stays is waited for once per [`LONG`] pages.
    fn restart(&mut self, conn: &Connection, length: i64) -> Result<(), TxError> {
        LockWait::Readers.set(conn)?;
        let complete = checkpoint(conn, "RESTART");
        LockWait::Writer.set(conn)?;
        self.wait_at = if complete? { LONG } else { length + LONG };
        Ok(())
    }

    /// Gives the WAL its full size at once. To overwrite a file costs less than half of appending
    /// to it, where each sync has to bring the new length to the disk too.
    ///
    /// The file is written past its end here, without SQLite: SQLite holds no lock on this file,
    /// and while this connection holds the write lock no other appends to it. Zeros are no frames.
    fn grow(&mut self, conn: &Connection) -> Result<(), TxError> {
        conn.execute_batch("BEGIN IMMEDIATE")?;
        // If this fails (no space, for example), the file grows as it is written.
        let _ = fill_up(&self.path);
        self.grown = true;
        conn.execute_batch("ROLLBACK")?;
        Ok(())
    }
}

/// Writes zeros behind the end of a file, up to the full size of a WAL.
fn fill_up(path: &Path) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).open(path)?;
    let before = file.seek(SeekFrom::End(0))?;
    let zeros = vec![0; 1 << 20];
    let mut left = FULL_SIZE.saturating_sub(before);
    let filled = loop {
        if left == 0 {
            break file.sync_all();
        }
        let step = usize::try_from(left).unwrap_or(usize::MAX).min(zeros.len());
        if let Err(error) = file.write_all(&zeros[..step]) {
            break Err(error);
        }
        left -= step as u64;
    };
    if filled.is_err() {
        // Leave the last space on the disk to jobs.
        file.set_len(before)?;
    }
    filled
}

/// Checkpoints the whole WAL, from its first page on, and truncates it. Needs exclusive access:
/// returns false if another connection has the database open.
///
/// What a process wrote to the WAL and had not synced when it ended is read by the next one; so
/// this is called before anything is read.
pub(crate) fn checkpoint_alone(place: &Place, wait: LockWait) -> Result<bool, OpenError> {
    let result = open::alone(place, wait).and_then(|conn| {
        let sqlite = |source| OpenError::sqlite(&place.path, source);
        checkpoint(&conn, "TRUNCATE").map_err(sqlite)
    });
    match result {
        Ok(done) => Ok(done),
        Err(OpenError::Sqlite { source, .. })
            if source.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) =>
        {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Makes an empty commit. It syncs what other processes have written to the WAL, and the truncation
/// of a WAL: old frames that reappear after a crash would undo what was checkpointed.
pub(crate) fn sync(conn: &Connection) -> rusqlite::Result<()> {
    let version: i64 = conn.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    conn.pragma_update(None, "user_version", version)
}

/// Checkpoints the WAL. False if another connection kept it from completing.
fn checkpoint(conn: &Connection, mode: &str) -> rusqlite::Result<bool> {
    let sql = format!("PRAGMA wal_checkpoint({mode})");
    conn.query_row(&sql, [], |row| Ok(!row.get::<_, bool>(0)?))
}
