//! For operators: does the store agree with itself, can it be mended, can it be copied.

use std::fs::File;
use std::path::Path;

use rusqlite::{Connection, TransactionBehavior};
use windlass_core::Rank;
use windlass_core::store::{Cause, Disagreement, Reader, StoreError, audit};
use windlass_store_file::{directory_of, make_file, sync_directory};

use crate::error::{OpenError, TxError};
use crate::names::Names;
use crate::open::{self, Place};
use crate::reader::Pool;
use crate::rows::{job, job_columns, rank_code};
use crate::store::SqliteStore;

/// Checks and copies a store that is in use, from any thread: see [`SqliteStore::maintenance`].
#[derive(Debug, Clone)]
pub struct SqliteMaintenance {
    /// Connections are opened for each call: one kept here would outlive the store, and the last to
    /// close a database leaves its log behind unless it can write.
    place: Place,
}

impl SqliteStore {
    /// A handle that checks and copies the store while it is in use.
    pub fn maintenance(&self) -> SqliteMaintenance {
        SqliteMaintenance { place: self.place.clone() }
    }

    /// See [`SqliteMaintenance::verify`].
    pub fn verify(&self) -> Result<Vec<Disagreement>, StoreError> {
        self.maintenance().verify()
    }

    /// See [`SqliteMaintenance::backup`].
    pub fn backup(&self, to: &Path) -> Result<(), OpenError> {
        self.maintenance().backup(to)
    }

    /// Makes derived data agree with the rows again: counters are counted anew, indexes built
    /// anew, and what belongs to no job is removed. No job is touched.
    pub fn repair(&mut self) -> Result<(), StoreError> {
        let mut conn = open::writer(&self.place).map_err(unopened)?;
        mend(&mut conn).map_err(|error| error.of_read())
    }
}

impl SqliteMaintenance {
    /// Recomputes counters, keys and indexes from the rows, and lists everything that disagrees.
    /// Empty is good. It reads the whole store, beside those who write.
    pub fn verify(&self) -> Result<Vec<Disagreement>, StoreError> {
        let conn = open::reader(&self.place).map_err(unopened)?;
        let mut found = integrity(&conn).map_err(|error| TxError::from(error).of_read())?;
        if !found.is_empty() {
            return Ok(found);
        }
        found.extend(strays(&conn).map_err(|error| TxError::from(error).of_read())?);
        found.extend(audit(&Pool::new(self.place.clone()).reader()?.dump()?));
        Ok(found)
    }

    /// Copies the store, as it is at one instant, to a file that does not exist yet; others may go
    /// on writing.
    pub fn backup(&self, to: &Path) -> Result<(), OpenError> {
        let created = |source| OpenError::Create { path: to.into(), source };
        make_file(to).map_err(created)?;
        let copied = self.copy_to(to);
        if copied.is_err() {
            // Half a copy is worse than none.
            let _ = std::fs::remove_file(to);
        }
        copied
    }

    fn copy_to(&self, to: &Path) -> Result<(), OpenError> {
        let sqlite = |source| OpenError::Sqlite { path: to.into(), source };
        let created = |source| OpenError::Create { path: to.into(), source };
        let name = to.to_str().ok_or_else(|| OpenError::Foreign {
            path: to.into(),
            what: "its name is no UTF-8".into(),
        })?;
        let conn = open::writer(&self.place)?;
        conn.execute("VACUUM INTO ?1", [name]).map_err(sqlite)?;
        File::open(to).and_then(|file| file.sync_all()).map_err(created)?;
        sync_directory(directory_of(to)).map_err(created)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is mapped over errors")]
fn unopened(error: OpenError) -> StoreError {
    StoreError::Busy(Cause::new(&error.to_string()))
}

/// What SQLite itself finds: broken pages, indexes that do not match their table.
fn integrity(conn: &Connection) -> rusqlite::Result<Vec<Disagreement>> {
    let mut statement = conn.prepare("PRAGMA integrity_check")?;
    let lines = statement.query_map([], |row| row.get::<_, String>(0))?;
    let lines: rusqlite::Result<Vec<String>> = lines.collect();
    Ok(lines?.into_iter().filter(|line| line != "ok").map(Disagreement).collect())
}

/// The tables whose rows belong to a job.
const OF_JOBS: [&str; 5] = ["payloads", "results", "progress", "errors", "attempts"];

/// Texts and attempts that belong to no job.
fn strays(conn: &Connection) -> rusqlite::Result<Vec<Disagreement>> {
    let mut found = Vec::new();
    for table in OF_JOBS {
        let sql =
            format!("SELECT DISTINCT job FROM {table} WHERE job NOT IN (SELECT id FROM jobs)");
        let mut statement = conn.prepare(&sql)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let job: i64 = row.get(0)?;
            found.push(Disagreement(format!("{table} of job {job}, which does not exist")));
        }
    }
    Ok(found)
}

fn mend(conn: &mut Connection) -> Result<(), TxError> {
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    rank_anew(&tx)?;
    for table in OF_JOBS {
        let sql = format!("DELETE FROM {table} WHERE job NOT IN (SELECT id FROM jobs)");
        tx.execute(&sql, [])?;
    }
    tx.execute_batch(
        "DELETE FROM counts;
         INSERT INTO counts (queue, kind, queued, scheduled, processing, done, failed, cancelled)
             SELECT queue, kind, sum(view = 0), sum(view = 1), sum(view = 2), sum(view = 3),
                    sum(view = 4), sum(view = 5)
             FROM jobs GROUP BY queue, kind;
         DELETE FROM keys WHERE orphan_until IS NULL AND job NOT IN (SELECT id FROM jobs);
         UPDATE keys SET orphan_until = NULL
             WHERE orphan_until IS NOT NULL AND job IN (SELECT id FROM jobs);
         INSERT INTO keys (key, job, request, created_at)
             SELECT idempotency_key, max(id), zeroblob(16), created_at FROM jobs
             WHERE idempotency_key IS NOT NULL AND view < 3 GROUP BY idempotency_key
             ON CONFLICT DO NOTHING;
         INSERT INTO errors (job, text, cut)
             SELECT id, 'the error was lost', 0 FROM jobs
             WHERE view = 4 AND id NOT IN (SELECT job FROM errors);
         UPDATE jobs SET payload_bytes = bytes FROM
             (SELECT job, octet_length(text) AS bytes FROM payloads)
             WHERE job = id AND payload_bytes <> bytes;
         UPDATE meta SET value = max(value, (SELECT ifnull(max(id), 0) FROM jobs))
             WHERE key = 'last_id';
         REINDEX;",
    )?;
    Ok(tx.commit()?)
}

/// Gives jobs the rank that core computes, where the row says otherwise.
fn rank_anew(conn: &Connection) -> Result<(), TxError> {
    let sql = concat!("SELECT ", job_columns!(), " FROM jobs");
    let mut names = Names::default();
    let mut statement = conn.prepare(sql)?;
    let mut rows = statement.query([])?;
    let sql = "UPDATE jobs SET class = ?2, turn = ?3, due = ?4 WHERE id = ?1";
    let mut update = conn.prepare(sql)?;
    while let Some(row) = rows.next()? {
        let job = job(conn, &mut names, row)?;
        let rank = Rank::of(&job);
        if job.rank != rank {
            let (class, turn, due, id) = rank_code(rank);
            update.execute([id, class, turn, due])?;
        }
    }
    Ok(())
}
