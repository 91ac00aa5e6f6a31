//! The ceiling of the SQLite store: the same rows in the same tables, written by a bare loop with
//! the same durability and batch size. It knows no rules, checks nothing and answers nobody.

use std::error::Error;
use std::path::Path;

use rusqlite::{Connection, params};
use windlass_store_sqlite::SqliteStore;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// A bare connection to a database with our schema.
pub(crate) struct SqliteCeiling {
    conn: Connection,
    payload: String,
    last_id: i64,
}

const INSERT: &str = "INSERT INTO jobs (id, view, at, queue, kind, rank, run_at, attempts, \
    max_retries, epoch, generation, visibility_timeout, retry, created_at, updated_at) \
    VALUES (?1, 0, ?2, 1, 1, 0, ?2, 0, 3, 0, 0, 30000, 1, ?2, ?2)";
const CLAIM: &str = "UPDATE jobs SET view = 2, at = ?2, attempts = 1, epoch = 1, updated_at = ?3, \
    started_at = ?3, lease_length = 30000, worker = 'bench' WHERE id = ?1";
const COMPLETE: &str = "UPDATE jobs SET view = 3, at = ?2, updated_at = ?2, lease_length = NULL, \
    worker = NULL WHERE id = ?1";
const FIND: &str = "SELECT id, view, at, queue, kind, rank, run_at, attempts, max_retries, epoch, \
    generation, visibility_timeout, retry, created_at, updated_at FROM jobs \
    WHERE view = 0 AND queue = 1 AND kind = 1 ORDER BY rank, run_at, id LIMIT ?1";

impl SqliteCeiling {
    /// Makes the file with our own schema and settings, then goes its own way.
    pub(crate) fn open(path: &Path, payload: usize) -> Outcome<Self> {
        drop(SqliteStore::open(path)?);
        let conn = Connection::open(path)?;
        conn.execute_batch(
            "PRAGMA synchronous = FULL; PRAGMA temp_store = MEMORY; PRAGMA cache_size = -32768; \
             PRAGMA wal_autocheckpoint = 4000; \
             INSERT INTO queues (id, name) VALUES (1, 'default'); \
             INSERT INTO kinds (id, name) VALUES (1, 'default'); \
             INSERT INTO retries VALUES (1, 2, 2000, 1000, 3600000, 250); \
             INSERT INTO counts (queue, kind) VALUES (1, 1);",
        )?;
        let payload = format!("\"{}\"", "x".repeat(payload.saturating_sub(2)));
        Ok(Self { conn, payload, last_id: 0 })
    }

    /// Writes jobs.
    pub(crate) fn enqueue(&mut self, jobs: usize, batch: usize) -> Outcome<()> {
        let mut left = jobs;
        while left > 0 {
            let count = batch.min(left);
            self.begin()?;
            {
                let mut insert = self.conn.prepare_cached(INSERT)?;
                for id in self.last_id + 1..=self.last_id + i64::try_from(count)? {
                    insert.execute(params![id, NOW])?;
                }
                let sql = "INSERT INTO payloads (job, text) VALUES (?1, ?2)";
                let mut insert = self.conn.prepare_cached(sql)?;
                for id in self.last_id + 1..=self.last_id + i64::try_from(count)? {
                    insert.execute(params![id, self.payload])?;
                }
            }
            self.last_id += i64::try_from(count)?;
            let sql = "UPDATE meta SET value = ?1 WHERE key = 'last_id'";
            self.conn.prepare_cached(sql)?.execute([self.last_id])?;
            self.count("queued", i64::try_from(count)?)?;
            self.commit()?;
            left -= count;
        }
        Ok(())
    }

    /// Claims and completes them: each commit completes what the one before has claimed.
    pub(crate) fn work(&mut self, jobs: usize, batch: usize) -> Outcome<()> {
        let mut left = jobs;
        let mut held: Vec<i64> = Vec::new();
        while left > 0 || !held.is_empty() {
            self.begin()?;
            {
                let mut complete = self.conn.prepare_cached(COMPLETE)?;
                for id in &held {
                    complete.execute(params![id, NOW])?;
                }
            }
            held = self.claim(batch.min(left))?;
            left -= held.len();
            self.count("processing", 0)?;
            self.commit()?;
        }
        Ok(())
    }

    fn claim(&self, count: usize) -> Outcome<Vec<i64>> {
        if count == 0 {
            return Ok(Vec::new());
        }
        let mut find = self.conn.prepare_cached(FIND)?;
        let found = find.query_map([i64::try_from(count)?], |row| row.get(0))?;
        let found: Vec<i64> = found.collect::<rusqlite::Result<_>>()?;
        let mut claim = self.conn.prepare_cached(CLAIM)?;
        let mut payload = self.conn.prepare_cached("SELECT text FROM payloads WHERE job = ?1")?;
        for id in &found {
            claim.execute(params![id, NOW + 30_000, NOW])?;
            let text: String = payload.query_row([id], |row| row.get(0))?;
            std::hint::black_box(text);
        }
        Ok(found)
    }

    fn begin(&self) -> Outcome<()> {
        self.conn.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        Ok(())
    }

    fn count(&self, view: &str, by: i64) -> Outcome<()> {
        let sql = format!("UPDATE counts SET {view} = {view} + ?1 WHERE queue = 1 AND kind = 1");
        self.conn.prepare_cached(&sql)?.execute([by])?;
        let sql = "INSERT OR REPLACE INTO markers (process, seq, at) VALUES (1, ?1, ?2)";
        self.conn.prepare_cached(sql)?.execute([self.last_id, NOW])?;
        Ok(())
    }

    fn commit(&self) -> Outcome<()> {
        self.conn.prepare_cached("COMMIT")?.execute([])?;
        Ok(())
    }
}

const NOW: i64 = 1_700_000_000_000;
