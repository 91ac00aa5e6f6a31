//! The ceiling of the SQLite store: the same rows in the same tables, written by a bare loop with
//! the same settings, checkpoints and batch size. It has no rules, no checks and no callers.

use std::cell::Cell;
use std::path::Path;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, Row, params};
use windlass_store_sqlite::SqliteStore;

use crate::contender::{Contender, LEASE, NOW, PROCESS, WORKER, payload, seed};
use crate::measure::Outcome;

/// A bare connection to a database with the store's schema.
pub(crate) struct SqliteCeiling {
    conn: Connection,
    payload: String,
    in_row: bool,
    last_id: i64,
    commits: i64,
    held: Vec<i64>,
}

/// The columns of `jobs`; the payload comes last where it is in the row.
macro_rules! columns {
    () => {
        "id, view, at, queue, kind, class, turn, due, attempts, epoch, generation, payload_bytes, \
         updated_at, run_at, started_at, spent, lease_length, worker"
    };
}

/// The columns of `bodies`; the payload comes last where it is not in the row of `jobs`.
macro_rules! fixed_columns {
    () => {
        "job, priority, max_retries, visibility_timeout, retry, created_at, timeout, \
         idempotency_key"
    };
}

const INSERT: &str = concat!(
    "INSERT INTO jobs (",
    columns!(),
    ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18)"
);
const INSERT_IN_ROW: &str = concat!(
    "INSERT INTO jobs (",
    columns!(),
    ", payload) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, \
     ?17, ?18, ?19)"
);
const BODY: &str = concat!(
    "INSERT INTO bodies (",
    fixed_columns!(),
    ", text) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)"
);
const FIND: &str = concat!(
    "SELECT ",
    columns!(),
    ", ",
    fixed_columns!(),
    ", text FROM jobs CROSS JOIN bodies ON job = id WHERE view = 0 AND queue = 1 AND kind = 1 \
     ORDER BY class, turn, due, id LIMIT ?1"
);
const FIND_IN_ROW: &str = concat!(
    "SELECT ",
    columns!(),
    ", ",
    fixed_columns!(),
    ", payload FROM jobs CROSS JOIN bodies ON job = id WHERE view = 0 AND queue = 1 AND kind = 1 \
     ORDER BY class, turn, due, id LIMIT ?1"
);
const CLAIM: &str = "UPDATE jobs SET view = 2, at = ?2, attempts = ?3, epoch = ?4, \
    updated_at = ?5, started_at = ?6, lease_length = ?7, worker = ?8, spent = NULL WHERE id = ?1";
const COMPLETE: &str = "UPDATE jobs SET view = ?2, at = ?3, updated_at = ?4, spent = ?5 \
    WHERE id = ?1";
const COUNT: &str = "UPDATE counts SET queued = queued + ?1, processing = processing + ?2, \
    done = done + ?3 WHERE pair = 1 << 32 | 1";
const MARK: &str = "INSERT OR REPLACE INTO markers (process, seq, at) VALUES (?1, ?2, ?3)";
const LAST_ID: &str = "UPDATE meta SET value = ?1 WHERE key = 'last_id'";

/// Pages of WAL at which it is checkpointed, as in the store.
const LOG_PAGES: i64 = 4_000;

thread_local! {
    /// The length of the log in pages, as the latest commit on this thread left it.
    static LOG_LENGTH: Cell<i64> = const { Cell::new(0) };
}

impl SqliteCeiling {
    /// Makes the file with our own schema, then writes with a plain loop. The payload is in its own
    /// table, or in the row of its job.
    pub(crate) fn open(path: &Path, payload_bytes: usize, in_row: bool) -> Outcome<Self> {
        seed(SqliteStore::open(path)?)?;
        let conn = Connection::open(path)?;
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        conn.execute_batch(
            "PRAGMA synchronous = FULL; PRAGMA temp_store = MEMORY; PRAGMA cache_size = -32768; \
             PRAGMA foreign_keys = 0; PRAGMA trusted_schema = 0; PRAGMA wal_autocheckpoint = 0; \
             PRAGMA journal_size_limit = 67108864; \
             INSERT INTO counts VALUES (1 << 32 | 1, 0, 0, 0, 0, 0, 0, 0);",
        )?;
        if in_row {
            conn.execute_batch("ALTER TABLE jobs ADD COLUMN payload TEXT")?;
        }
        let last_id =
            conn.query_row("SELECT value FROM meta WHERE key = 'last_id'", [], |row| row.get(0))?;
        let payload = payload(payload_bytes);
        conn.wal_hook(Some(|_, pages| {
            LOG_LENGTH.set(pages.into());
            Ok(())
        }));
        Ok(Self { conn, payload, in_row, last_id, commits: 2, held: Vec::new() })
    }

    fn run(&self, sql: &str) -> Outcome<()> {
        self.conn.prepare_cached(sql)?.execute([])?;
        Ok(())
    }

    fn insert(&self, from: i64, to: i64) -> Outcome<()> {
        let none = None::<i64>;
        // As in the store: room for the first lease.
        let room = " ".repeat(31);
        let bytes = i64::try_from(self.payload.len())?;
        if self.in_row {
            let mut insert = self.conn.prepare_cached(INSERT_IN_ROW)?;
            for id in from..=to {
                insert.execute(params![
                    id,
                    0,
                    NOW,
                    1,
                    1,
                    0,
                    0,
                    NOW,
                    0,
                    0,
                    0,
                    bytes,
                    NOW,
                    none,
                    none,
                    none,
                    LEASE,
                    room,
                    self.payload
                ])?;
            }
        } else {
            let mut insert = self.conn.prepare_cached(INSERT)?;
            for id in from..=to {
                insert.execute(params![
                    id, 0, NOW, 1, 1, 0, 0, NOW, 0, 0, 0, bytes, NOW, none, none, none, LEASE, room
                ])?;
            }
        }
        let text = if self.in_row { "" } else { self.payload.as_str() };
        let mut insert = self.conn.prepare_cached(BODY)?;
        for id in from..=to {
            insert.execute(params![id, 0, 3, LEASE, 1, NOW, none, none, text])?;
        }
        Ok(())
    }

    fn claim(&self, count: usize) -> Outcome<Vec<i64>> {
        let sql = if self.in_row { FIND_IN_ROW } else { FIND };
        let mut find = self.conn.prepare_cached(sql)?;
        let found = find.query_map([i64::try_from(count)?], found)?;
        // A claim hands out all payloads of its batch at once.
        let found: Vec<Found> = found.collect::<rusqlite::Result<_>>()?;
        let worker = format!("{WORKER:<24}");
        let mut claim = self.conn.prepare_cached(CLAIM)?;
        let mut ids = Vec::with_capacity(found.len());
        for Found { numbers, fixed, .. } in &found {
            let id = numbers[0];
            let (attempts, epoch, until) = (numbers[8] + 1, numbers[9] + 1, NOW + fixed[3]);
            claim.execute(params![id, until, attempts, epoch, NOW, NOW, LEASE, worker])?;
            ids.push(id);
        }
        std::hint::black_box(found);
        Ok(ids)
    }

    fn complete(&self, ids: &[i64]) -> Outcome<()> {
        let mut complete = self.conn.prepare_cached(COMPLETE)?;
        for id in ids {
            complete.execute(params![id, 3, NOW, NOW, None::<i64>])?;
        }
        Ok(())
    }

    /// Writes counters and the commit's mark, commits, and checkpoints the WAL if it is long.
    fn commit(&mut self, queued: i64, processing: i64, done: i64) -> Outcome<()> {
        self.commits += 1;
        self.conn.prepare_cached(COUNT)?.execute([queued, processing, done])?;
        let process = PROCESS.cast_signed();
        self.conn.prepare_cached(MARK)?.execute([process, self.commits, NOW])?;
        self.run("COMMIT")?;
        if LOG_LENGTH.get() >= LOG_PAGES {
            self.conn.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))?;
        }
        Ok(())
    }
}

/// Columns that a claim returns.
#[expect(dead_code, reason = "it is read because a worker wants it")]
struct Found {
    numbers: [i64; 13],
    run_at: Option<i64>,
    started_at: Option<i64>,
    spent: Option<i64>,
    fixed: [i64; 6],
    timeout: Option<i64>,
    key: Option<String>,
    payload: String,
}

fn found(row: &Row<'_>) -> rusqlite::Result<Found> {
    let (mut numbers, mut fixed) = ([0; 13], [0; 6]);
    for (at, number) in numbers.iter_mut().enumerate() {
        *number = row.get(at)?;
    }
    for (at, number) in fixed.iter_mut().enumerate() {
        *number = row.get(18 + at)?;
    }
    Ok(Found {
        numbers,
        run_at: row.get(13)?,
        started_at: row.get(14)?,
        spent: row.get(15)?,
        fixed,
        timeout: row.get(24)?,
        key: row.get(25)?,
        payload: row.get(26)?,
    })
}

impl Contender for SqliteCeiling {
    fn enqueue(&mut self, jobs: usize) -> Outcome<()> {
        let count = i64::try_from(jobs)?;
        self.run("BEGIN IMMEDIATE")?;
        self.insert(self.last_id + 1, self.last_id + count)?;
        self.last_id += count;
        self.conn.prepare_cached(LAST_ID)?.execute([self.last_id])?;
        self.commit(count, 0, 0)
    }

    fn work(&mut self, jobs: usize) -> Outcome<()> {
        self.run("BEGIN IMMEDIATE")?;
        let done = std::mem::take(&mut self.held);
        self.complete(&done)?;
        if jobs > 0 {
            self.held = self.claim(jobs)?;
        }
        let (claimed, done) = (i64::try_from(self.held.len())?, i64::try_from(done.len())?);
        self.commit(-claimed, claimed - done, done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_writes_is_a_store_of_ours_without_a_fault() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bare.db");
        let mut ceiling = SqliteCeiling::open(&path, 100, false).unwrap();
        ceiling.enqueue(20).unwrap();
        ceiling.work(10).unwrap();
        ceiling.work(5).unwrap();
        drop(ceiling);
        let store = SqliteStore::open(&path).unwrap();
        assert_eq!(store.verify().unwrap(), []);
        crate::store::tests::assert_counts(&store, [5, 0, 5, 10, 0, 0]);
    }

    #[test]
    fn with_the_payload_in_the_row_it_does_the_same_work() {
        let dir = tempfile::tempdir().unwrap();
        let mut ceiling = SqliteCeiling::open(&dir.path().join("bare.db"), 9_000, true).unwrap();
        ceiling.enqueue(20).unwrap();
        ceiling.work(10).unwrap();
        ceiling.work(0).unwrap();
        let sql = "SELECT count(*) FROM jobs WHERE view = 3 AND length(payload) = 9000";
        let done: i64 = ceiling.conn.query_row(sql, [], |row| row.get(0)).unwrap();
        assert_eq!(done, 10);
    }
}
