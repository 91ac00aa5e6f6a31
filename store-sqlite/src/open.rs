//! Opening a database: the settings durability depends on, each read back; the schema, brought up
//! to date in one transaction per step.

use std::cmp::Ordering;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};
use windlass_store_file::{directory_of, make_directory, make_file, sync_directory};

use crate::busy::{self, LockWait};
use crate::error::OpenError;
use crate::groups;

/// Written into the header of every database of ours: "WDLS".
const APPLICATION_ID: i64 = 0x5744_4c53;
/// The schema, one step per file. A step is never changed once it was released.
const MIGRATIONS: [&str; 12] = [
    include_str!("migrations/0001_first.sql"),
    include_str!("migrations/0002_workers.sql"),
    include_str!("migrations/0003_rank.sql"),
    include_str!("migrations/0004_bodies.sql"),
    include_str!("migrations/0005_figures.sql"),
    include_str!("migrations/0006_queue_numbers.sql"),
    include_str!("migrations/0007_instance.sql"),
    include_str!("migrations/0008_error_groups.sql"),
    include_str!("migrations/0009_bulk.sql"),
    include_str!("migrations/0010_status.sql"),
    include_str!("migrations/0011_worker_version.sql"),
    include_str!("migrations/0012_flow.sql"),
];
/// The newest schema known here.
#[expect(clippy::cast_possible_wrap, reason = "there are a handful")]
const KNOWN_SCHEMA: i64 = MIGRATIONS.len() as i64;
/// The schema from which on dead letters are grouped.
const GROUPED: i64 = 8;
/// Older libraries can lose a committed transaction when a WAL is reset.
const NEEDED_LIBRARY: (i32, &str) = (3_051_003, "3.51.3");
/// How large the WAL may stay after a burst, in bytes.
const WAL_KEPT: i64 = 64 * 1024 * 1024;

/// The path of a database, and the VFS of SQLite through which it is opened.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) path: PathBuf,
    /// The name of the VFS; `None` is the default one.
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
    keep_wal(&conn, true, path)?;
    refuse_foreign(&conn, path)?;
    keep_wal(&conn, false, path)?;
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

/// Opens a connection to a store that this process does not write: no migration, and no file is
/// made. `quiet` says that no process has the database open: then no lock is taken either, and the
/// caller has to make sure of it after each read.
pub(crate) fn read_only(place: &Place, quiet: bool) -> Result<Connection, OpenError> {
    let path = &place.path;
    let conn = any_schema(place, quiet)?;
    let found: i64 = conn
        .query_row("PRAGMA user_version", [], |row| row.get(0))
        .map_err(|source| OpenError::sqlite(path, source))?;
    match found.cmp(&KNOWN_SCHEMA) {
        Ordering::Less => Err(OpenError::Older { path: path.into(), found, known: KNOWN_SCHEMA }),
        Ordering::Greater => {
            Err(OpenError::Newer { path: path.into(), found, known: KNOWN_SCHEMA })
        }
        Ordering::Equal => Ok(conn),
    }
}

/// The same, whatever the schema.
pub(crate) fn any_schema(place: &Place, quiet: bool) -> Result<Connection, OpenError> {
    let path = &place.path;
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = if quiet {
        let address = Place { path: immutable(path), vfs: place.vfs.clone() };
        let opened = connect(&address, flags | OpenFlags::SQLITE_OPEN_URI);
        opened.map_err(|error| error.at(path))?
    } else {
        connect(place, flags)?
    };
    refuse_foreign(&conn, path)?;
    let id = read_back(&conn, "application_id");
    if id.map_err(|source| OpenError::sqlite(path, source))? != APPLICATION_ID.to_string() {
        return Err(OpenError::Foreign { path: path.into(), what: "it is empty".into() });
    }
    Ok(conn)
}

/// The address of a file that does not change, as SQLite reads it.
fn immutable(path: &Path) -> PathBuf {
    let mut address = b"file:".to_vec();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'%' | b'?' | b'#' => address.extend(format!("%{byte:02X}").bytes()),
            byte => address.push(*byte),
        }
    }
    address.extend(b"?immutable=1");
    OsString::from_vec(address).into()
}

/// Opens a connection with exclusive access. It does not use shared memory.
pub(crate) fn alone(place: &Place, wait: LockWait) -> Result<Connection, OpenError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = connect_bare(place, flags, wait)?;
    keep_wal(&conn, true, &place.path)?;
    // Before anything is read: afterwards the shared memory is in use.
    set(&conn, &place.path, "locking_mode", "EXCLUSIVE", "exclusive")?;
    refuse_foreign(&conn, &place.path)?;
    set(&conn, &place.path, "synchronous", "FULL", "2")?;
    keep_wal(&conn, false, &place.path)?;
    Ok(conn)
}

fn connect_bare(place: &Place, flags: OpenFlags, wait: LockWait) -> Result<Connection, OpenError> {
    let sqlite = |source| OpenError::sqlite(&place.path, source);
    let conn = match &place.vfs {
        Some(vfs) => Connection::open_with_flags_and_vfs(&place.path, flags, vfs.as_str()),
        None => Connection::open_with_flags(&place.path, flags),
    };
    let conn = conn.map_err(sqlite)?;
    wait.set(&conn).map_err(sqlite)?;
    Ok(conn)
}

/// Whether closing the last connection leaves the WAL as it is: while it is not known to belong to
/// the file, it must not be written into it.
fn keep_wal(conn: &Connection, keep: bool, path: &Path) -> Result<(), OpenError> {
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, keep)
        .map_err(|source| OpenError::sqlite(path, source))?;
    Ok(())
}

fn connect(place: &Place, flags: OpenFlags) -> Result<Connection, OpenError> {
    let path = &place.path;
    let conn = connect_bare(place, flags, LockWait::Writer)?;
    // Otherwise SQLite looks at the parameters of a statement, and compiles it again for others.
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
    // Checkpoints are run by `wal.rs`.
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
    // The mode of the journal: another connection may set it on the same fresh file.
    busy::retried(|| conn.execute_batch(&format!("PRAGMA {pragma} = {value}"))).map_err(sqlite)?;
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
    loop {
        let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate).map_err(sqlite)?;
        let found: i64 =
            tx.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(sqlite)?;
        if found > KNOWN_SCHEMA {
            return Err(OpenError::Newer { path: path.into(), found, known: KNOWN_SCHEMA });
        }
        let step = usize::try_from(found).ok().and_then(|at| MIGRATIONS.get(at));
        let Some(step) = step else { return Ok(()) };
        tx.execute_batch(step).map_err(sqlite)?;
        if found + 1 == GROUPED {
            groups::regroup(&tx).map_err(|error| OpenError::inside(path, error))?;
        }
        tx.pragma_update(None, "application_id", APPLICATION_ID).map_err(sqlite)?;
        tx.pragma_update(None, "user_version", found + 1).map_err(sqlite)?;
        tx.commit().map_err(sqlite)?;
    }
}
