//! The write-ahead log: how it gets into the database, and that no failure on the way is forgotten.
//!
//! A commit is durable in the log. SQLite would move it by itself, and swallow errors. But a sync
//! that failed may have dropped pages which an earlier move, cut short by a reader, had written: no
//! later move writes them again, and with the log begun anew they are nowhere. So it is moved here,
//! and after an error everything is moved once more, from the first page on, by one who is alone.

use std::time::Duration;

use rusqlite::{Connection, ErrorCode};

use crate::error::{OpenError, TxError};
use crate::open::{self, Place};

/// How many pages of log there may be before they are moved.
const PAGES: i64 = 4_000;

/// Moves the log if it has grown long. To be called after every commit.
pub(crate) fn tend(conn: &Connection) -> Result<(), TxError> {
    let length = conn
        .prepare_cached("PRAGMA wal_checkpoint(NOOP)")?
        .query_row([], |row| row.get::<_, i64>(1))?;
    if length >= PAGES {
        checkpoint(conn, "PASSIVE")?;
    }
    Ok(())
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
