//! Opening a database: the settings durability rests on, each read back; the schema, brought up to
//! date in one transaction per step.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};
use windlass_store_file::{directory_of, make_directory, make_file, sync_directory};

use crate::busy::wait_for_locks;
use crate::error::OpenError;

/// Written into the header of every database of ours: "WDLS".
const APPLICATION_ID: i64 = 0x5744_4c53;
/// The schema, one step per file. A step is never changed once it was released.
const MIGRATIONS: [&str; 3] = [
    include_str!("migrations/0001_first.sql"),
    include_str!("migrations/0002_workers.sql"),
    include_str!("migrations/0003_rank.sql"),
];
/// Older libraries can lose a committed transaction when a WAL is reset.
const NEEDED_LIBRARY: (i32, &str) = (3_051_003, "3.51.3");
/// How long to wait for another process's transaction.
pub(crate) const BUSY: Duration = Duration::from_secs(5);
/// How large the WAL may stay after a burst, in bytes.
const WAL_KEPT: i64 = 64 * 1024 * 1024;

/// Where a database lies, and through which file system layer of SQLite's it is reached.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) path: PathBuf,
    /// The default one if not set.
    pub(crate) vfs: Option<String>,
}

/// Makes the file if it does not exist.
pub(crate) fn make(place: &Place) -> Result<(), OpenError> {
    if rusqlite::version_number() < NEEDED_LIBRARY.0 {
        let (found, needed) = (rusqlite::version(), NEEDED_LIBRARY.1);
        return Err(OpenError::Library { found, needed });
    }
    create(&place.path)
}

/// Opens the connection that writes to a file that exists.
pub(crate) fn writer(place: &Place) -> Result<Connection, OpenError> {
    let path = &place.path;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut conn = connect(place, flags)?;
    refuse_foreign(&conn, path)?;
    prepare_writer(&conn, path)?;
    migrate(&mut conn, path)?;
    conn.set_prepared_statement_cache_capacity(128);
    Ok(conn)
}

/// Opens a connection that only reads.
pub(crate) fn reader(place: &Place) -> Result<Connection, OpenError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = connect(place, flags)?;
    conn.set_prepared_statement_cache_capacity(64);
    set(&conn, &place.path, "query_only", "1", "1")?;
    Ok(conn)
}

/// Opens a connection beside which there is no other. It takes no notice of shared memory.
pub(crate) fn alone(place: &Place, wait: Duration) -> Result<Connection, OpenError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = connect_bare(place, flags, wait)?;
    // Before anything is read: afterwards the shared memory is in use.
    set(&conn, &place.path, "locking_mode", "EXCLUSIVE", "exclusive")?;
    refuse_foreign(&conn, &place.path)?;
    set(&conn, &place.path, "synchronous", "FULL", "2")?;
    Ok(conn)
}

fn connect_bare(place: &Place, flags: OpenFlags, busy: Duration) -> Result<Connection, OpenError> {
    let sqlite = |source| OpenError::sqlite(&place.path, source);
    let conn = match &place.vfs {
        Some(vfs) => Connection::open_with_flags_and_vfs(&place.path, flags, vfs.as_str()),
        None => Connection::open_with_flags(&place.path, flags),
    };
    let mut conn = conn.map_err(sqlite)?;
    wait_for_locks(&mut conn, busy).map_err(sqlite)?;
    Ok(conn)
}

fn connect(place: &Place, flags: OpenFlags) -> Result<Connection, OpenError> {
    let path = &place.path;
    let conn = connect_bare(place, flags, BUSY)?;
    // Otherwise SQLite looks at the parameters of a statement, and compiles it anew for others.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)
        .map_err(|source| OpenError::sqlite(path, source))?;
    set(&conn, path, "trusted_schema", "0", "0")?;
    set(&conn, path, "temp_store", "MEMORY", "2")?;
    set(&conn, path, "cache_size", "-32768", "-32768")?;
    Ok(conn)
}

/// Makes the directory and the file. Their names are durable before anything is written to them.
fn create(path: &Path) -> Result<(), OpenError> {
    let failed = |source| OpenError::Create { path: path.into(), source };
    let dir = directory_of(path);
    make_directory(dir).map_err(failed)?;
    // Opened by other means only before SQLite has it: closing the file drops its locks.
    if !path.exists() {
        match make_file(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(failed(error));
            }
            _ => sync_directory(dir).map_err(failed)?,
        }
    }
    Ok(())
}

fn refuse_foreign(conn: &Connection, path: &Path) -> Result<(), OpenError> {
    let foreign = |what: &str| OpenError::Foreign { path: path.into(), what: what.into() };
    let read = |sql: &str| conn.query_row(sql, [], |row| row.get::<_, i64>(0));
    let sqlite = |source| OpenError::sqlite(path, source);
    let id = read("PRAGMA application_id").map_err(sqlite)?;
    let tables = read("SELECT count(*) FROM sqlite_schema").map_err(sqlite)?;
    let empty = tables == 0;
    if id != APPLICATION_ID && !empty {
        return Err(foreign("it is a database of another program"));
    }
    Ok(())
}

fn prepare_writer(conn: &Connection, path: &Path) -> Result<(), OpenError> {
    let sqlite = |source| OpenError::sqlite(path, source);
    // Takes effect only while the database is empty; later it would be a commit for nothing.
    if read_back(conn, "auto_vacuum").map_err(sqlite)? != "2" {
        conn.execute_batch("PRAGMA auto_vacuum = INCREMENTAL").map_err(sqlite)?;
    }
    set(conn, path, "journal_mode", "WAL", "wal")?;
    set(conn, path, "synchronous", "FULL", "2")?;
    set(conn, path, "foreign_keys", "0", "0")?;
    // The log is moved by `log.rs`.
    set(conn, path, "wal_autocheckpoint", "0", "0")?;
    let kept = WAL_KEPT.to_string();
    conn.execute_batch(&format!("PRAGMA journal_size_limit = {kept}")).map_err(sqlite)?;
    Ok(())
}

/// Sets a pragma and reads it back.
fn set(
    conn: &Connection,
    path: &Path,
    pragma: &'static str,
    value: &str,
    needed: &'static str,
) -> Result<(), OpenError> {
    let sqlite = |source| OpenError::sqlite(path, source);
    conn.execute_batch(&format!("PRAGMA {pragma} = {value}")).map_err(sqlite)?;
    let found = read_back(conn, pragma).map_err(sqlite)?;
    if found != needed {
        return Err(OpenError::Pragma { path: path.into(), pragma, found, needed });
    }
    Ok(())
}

fn read_back(conn: &Connection, pragma: &str) -> rusqlite::Result<String> {
    conn.query_row(&format!("PRAGMA {pragma}"), [], |row| {
        Ok(match row.get_ref(0)? {
            rusqlite::types::ValueRef::Integer(number) => number.to_string(),
            other => other.as_str().unwrap_or("?").to_string(),
        })
    })
}

fn migrate(conn: &mut Connection, path: &Path) -> Result<(), OpenError> {
    let sqlite = |source| OpenError::sqlite(path, source);
    let known = i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX);
    loop {
        let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate).map_err(sqlite)?;
        let found: i64 =
            tx.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(sqlite)?;
        if found > known {
            return Err(OpenError::Newer { path: path.into(), found, known });
        }
        let step = usize::try_from(found).ok().and_then(|at| MIGRATIONS.get(at));
        let Some(step) = step else { return Ok(()) };
        tx.execute_batch(step).map_err(sqlite)?;
        tx.pragma_update(None, "application_id", APPLICATION_ID).map_err(sqlite)?;
        tx.pragma_update(None, "user_version", found + 1).map_err(sqlite)?;
        tx.commit().map_err(sqlite)?;
    }
}
