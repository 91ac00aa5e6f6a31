//! The write-ahead log: how it gets into the database, and that no failure on the way is forgotten.
//!
//! A commit is durable in the log. SQLite would move it by itself, and swallow errors. But a sync
//! that failed may have dropped pages which an earlier move, cut short by a reader, had written: no
//! later move writes them again, and with the log begun anew they are nowhere. So it is moved here,
//! and after an error everything is moved once more, from the first page on, by one who is alone.

use std::fs::OpenOptions;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use rusqlite::hooks::Wal;
use rusqlite::{Connection, ErrorCode};

use crate::busy::wait_for_locks;
use crate::error::{OpenError, TxError};
use crate::files::beside;
use crate::open::{self, Place};

/// How many pages of log there may be before they are moved.
const PAGES: i64 = 4_000;
/// How many pages show that there is work enough to give the log its full size at once.
const BUSY: i64 = 100;
/// That full size, in bytes: all the pages, each with its header, and the commit that is one too
/// many.
const FULL_SIZE: u64 = 5_000 * (4_096 + 24) + 32;
/// How many pages there may be before readers are waited for, so that the log can begin anew.
const LONG: i64 = 4 * PAGES;
/// How long they are waited for, once per `LONG` pages.
const PATIENCE: Duration = Duration::from_millis(500);

/// What this process knows of the log.
#[derive(Debug)]
pub(crate) struct WalFile {
    path: PathBuf,
    /// How many pages it had after the last commit of our connection.
    pages: Arc<AtomicI64>,
    /// Whether it was seen to have its full size, or cannot have it.
    grown: bool,
    /// From how many pages on readers are waited for.
    wait_at: i64,
}

impl WalFile {
    /// The log of the database at this path, to which this connection writes.
    pub(crate) fn of(database: &Path, conn: &mut Connection) -> Result<Self, OpenError> {
        let pages = Arc::new(AtomicI64::new(0));
        let told = Arc::clone(&pages);
        let hook = move |_: &mut Wal, pages: i32| {
            told.store(pages.into(), Ordering::Relaxed);
            Ok(())
        };
        conn.wal_hook(Some(hook)).map_err(|source| OpenError::sqlite(database, source))?;
        Ok(Self { path: beside(database, "-wal"), pages, grown: false, wait_at: LONG })
    }

    /// Moves the log if it has grown long. To be called after every commit.
    pub(crate) fn tend(&mut self, conn: &mut Connection) -> Result<(), TxError> {
        let length = self.pages.load(Ordering::Relaxed);
        if length >= BUSY && !self.grown {
            self.grow(conn)?;
        }
        if length >= self.wait_at {
            self.begin_anew(conn, length)
        } else {
            if length >= PAGES {
                checkpoint(conn, "PASSIVE")?;
            }
            Ok(())
        }
    }

    /// Moves the log, and waits for its readers: readers that follow each other without a gap
    /// would let it grow for ever. One that stays costs no commit, and is waited for seldom.
    fn begin_anew(&mut self, conn: &mut Connection, length: i64) -> Result<(), TxError> {
        wait_for_locks(conn, PATIENCE)?;
        let moved = checkpoint(conn, "RESTART");
        wait_for_locks(conn, open::BUSY)?;
        self.wait_at = if moved? { LONG } else { length + LONG };
        Ok(())
    }

    /// Gives the log its full size at once. To overwrite a file costs less than half of appending
    /// to it, where each sync has to bring the new length to the disk too.
    ///
    /// The log is written past its end here, by other means than SQLite's: it holds no lock on this
    /// file, and while we hold the right to write nobody appends to it. Zeros are no frames.
    fn grow(&mut self, conn: &Connection) -> Result<(), TxError> {
        conn.execute_batch("BEGIN IMMEDIATE")?;
        // Without space, or on a strange file system, the log grows as it is written.
        let _ = fill_up(&self.path);
        self.grown = true;
        conn.execute_batch("ROLLBACK")?;
        Ok(())
    }
}

/// Writes zeros behind the end of a file, up to the full size of a log.
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
        // The last space on a disk is not for zeros.
        file.set_len(before)?;
    }
    filled
}

/// Moves all of the log, whatever was moved before, and empties it, if nobody else has the database
/// open. False if somebody has.
///
/// What a process wrote to the log and had not synced when it ended is seen by the next one, and
/// answered from; so this comes before anything is read.
pub(crate) fn move_alone(place: &Place, wait: Duration) -> Result<bool, OpenError> {
    let moved = open::alone(place, wait).and_then(|conn| {
        let sqlite = |source| OpenError::sqlite(&place.path, source);
        checkpoint(&conn, "TRUNCATE").map_err(sqlite)
    });
    match moved {
        Ok(done) => Ok(done),
        Err(OpenError::Sqlite { source, .. })
            if source.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) =>
        {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Commits a change of nothing. It syncs all that others have in the log; and that a log which was
/// emptied is empty: come back with half of what was in it, it would undo what was moved.
pub(crate) fn sync(conn: &Connection) -> rusqlite::Result<()> {
    let version: i64 = conn.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    conn.pragma_update(None, "user_version", version)
}

/// Moves the log. False if somebody stood in the way.
fn checkpoint(conn: &Connection, mode: &str) -> rusqlite::Result<bool> {
    let sql = format!("PRAGMA wal_checkpoint({mode})");
    conn.query_row(&sql, [], |row| Ok(!row.get::<_, bool>(0)?))
}
