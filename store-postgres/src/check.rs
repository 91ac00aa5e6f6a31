//! For operators: whether the store agrees with itself, and repair.

use std::sync::Arc;

use windlass_core::Rank;
use windlass_core::store::{Cause, Disagreement, Reader, StoreError, audit};

use crate::error::{OpenError, TxError};
use crate::locks::LockIds;
use crate::names::Names;
use crate::open::Opener;
use crate::reader::{Pool, Reading};
use crate::rows::{get, id_code, job, select_done, select_leased, select_ready, select_scheduled};
use crate::session::{Flight, Found, Session, params};
use crate::store::PgStore;

/// Checks a store that is in use, from any thread: see [`PgStore::maintenance`].
#[derive(Debug, Clone)]
pub struct PgMaintenance {
    pub(crate) pool: Arc<Pool>,
}

impl PgStore {
    /// A handle that checks the store while it is in use.
    pub fn maintenance(&self) -> PgMaintenance {
        PgMaintenance { pool: Arc::clone(&self.pool) }
    }

    /// See [`PgMaintenance::verify`].
    pub fn verify(&self) -> Result<Vec<Disagreement>, StoreError> {
        self.maintenance().verify()
    }

    /// Makes derived data agree with the rows again: counters are counted, ranks are computed, thin
    /// rows get the queue and kind of their job, and what belongs to no job is removed. No job is
    /// touched. Other nodes wait meanwhile.
    pub fn repair(&mut self) -> Result<(), StoreError> {
        let mut session = self.opener.session().map_err(|error| unopened(&error))?;
        let locks = LockIds::new(&self.opener.url.schema);
        mend(&mut session, locks).map_err(|error| error.of_read())
    }
}

impl PgMaintenance {
    pub(crate) fn opener(&self) -> &Opener {
        self.pool.opener()
    }

    /// Recomputes counters, keys and ranks from the rows, and lists everything that disagrees.
    /// Empty is good. It reads the whole store, beside those who write.
    pub fn verify(&self) -> Result<Vec<Disagreement>, StoreError> {
        let mut reader = self.pool.reader();
        let mut found = reader.read(strays)?;
        if found.is_empty() {
            found.extend(audit(&reader.dump()?));
        }
        Ok(found)
    }
}

pub(crate) fn unopened(error: &OpenError) -> StoreError {
    StoreError::Busy(Cause::new(&error.to_string()))
}

/// What contradicts the layout: jobs that are not in exactly one thin table, rows of no job, thin
/// rows of another queue or kind than their job, pairs that are not listed.
const STRAYS: &str = "
    WITH thin AS (
        SELECT id, queue, kind FROM ready UNION ALL SELECT id, queue, kind FROM scheduled
        UNION ALL SELECT t.id, queue, kind FROM leased t JOIN jobs j ON j.id = t.id
        UNION ALL SELECT id, queue, kind FROM done)
    SELECT 'job ' || j.id || ' is in ' || count(t.id) || ' of ready, scheduled, leased and done'
        FROM jobs j LEFT JOIN thin t ON t.id = j.id GROUP BY j.id HAVING count(t.id) <> 1
    UNION ALL SELECT 'job ' || t.id || ' has no row in jobs' FROM
        (SELECT id FROM thin UNION SELECT id FROM leased) t
        WHERE NOT EXISTS (SELECT 1 FROM jobs j WHERE j.id = t.id)
    UNION ALL SELECT 'job ' || t.id || ' is of another queue or kind in its thin row'
        FROM thin t JOIN jobs j ON j.id = t.id
        WHERE (t.queue, t.kind) IS DISTINCT FROM (j.queue, j.kind)
    UNION ALL SELECT 'queue ' || queue || ' and kind ' || kind || ' have jobs and are not listed'
        FROM (SELECT DISTINCT queue, kind FROM jobs) p WHERE NOT EXISTS
        (SELECT 1 FROM pairs l WHERE (l.queue, l.kind) = (p.queue, p.kind))
    UNION ALL SELECT kept || ' of job ' || job || ', which does not exist' FROM
        (SELECT 'results' AS kept, job FROM results UNION ALL SELECT 'progress', job FROM progress
         UNION ALL SELECT 'errors', job FROM errors
         UNION ALL SELECT 'attempts', job FROM attempts) k
        WHERE NOT EXISTS (SELECT 1 FROM jobs j WHERE j.id = k.job)";

fn strays(reading: &mut Reading<'_>) -> Found<Vec<Disagreement>> {
    let mut flight = Flight::default();
    flight.add("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", vec![]);
    // These look at all rows.
    for set in LOOK_AT_ALL {
        flight.add(set, vec![]);
    }
    let found = flight.add(STRAYS, vec![]);
    flight.add("COMMIT", vec![]);
    let rows = reading.session.fly(flight, None)?.take(found);
    rows.iter().map(|row| Ok(Disagreement(get(row, 0)?))).collect()
}

/// Lets a transaction take its time and the planner scan tables.
const LOOK_AT_ALL: [&str; 3] = [
    "SET LOCAL statement_timeout = 0",
    "SET LOCAL enable_hashjoin = on",
    "SET LOCAL enable_seqscan = on",
];

fn mend(session: &mut Session, locks: LockIds) -> Result<(), TxError> {
    session.run(&format!("BEGIN; SELECT pg_advisory_xact_lock({})", locks.names()))?;
    session.run(&LOOK_AT_ALL.join("; "))?;
    session.run(MEND)?;
    rank_again(session)?;
    session.run("COMMIT")
}

const MEND: &str = "
    DELETE FROM ready WHERE id NOT IN (SELECT id FROM jobs);
    DELETE FROM scheduled WHERE id NOT IN (SELECT id FROM jobs);
    DELETE FROM leased WHERE id NOT IN (SELECT id FROM jobs);
    DELETE FROM done WHERE id NOT IN (SELECT id FROM jobs);
    UPDATE ready t SET queue = j.queue, kind = j.kind FROM jobs j
        WHERE j.id = t.id AND (t.queue, t.kind) <> (j.queue, j.kind);
    UPDATE scheduled t SET queue = j.queue, kind = j.kind FROM jobs j
        WHERE j.id = t.id AND (t.queue, t.kind) <> (j.queue, j.kind);
    UPDATE done t SET queue = j.queue, kind = j.kind FROM jobs j
        WHERE j.id = t.id AND (t.queue, t.kind) <> (j.queue, j.kind);
    DELETE FROM results WHERE job NOT IN (SELECT id FROM jobs);
    DELETE FROM progress WHERE job NOT IN (SELECT id FROM jobs);
    DELETE FROM errors WHERE job NOT IN (SELECT id FROM jobs);
    DELETE FROM attempts WHERE job NOT IN (SELECT id FROM jobs);
    UPDATE jobs SET payload_bytes = octet_length(payload)
        WHERE payload_bytes <> octet_length(payload);
    INSERT INTO pairs (queue, kind) SELECT DISTINCT queue, kind FROM jobs ON CONFLICT DO NOTHING;
    DELETE FROM counts;
    INSERT INTO counts
        (queue, kind, process, queued, scheduled, processing, done, failed, cancelled)
        SELECT queue, kind, 0, count(*) FILTER (WHERE view = 0), count(*) FILTER (WHERE view = 1),
               count(*) FILTER (WHERE view = 2), count(*) FILTER (WHERE view = 3),
               count(*) FILTER (WHERE view = 4), count(*) FILTER (WHERE view = 5)
        FROM (SELECT queue, kind, 0 AS view FROM ready UNION ALL
              SELECT queue, kind, 1 FROM scheduled UNION ALL
              SELECT queue, kind, 2 FROM leased t JOIN jobs j ON j.id = t.id UNION ALL
              SELECT queue, kind, view FROM done) AS thin GROUP BY queue, kind;
    DELETE FROM keys WHERE orphan_until IS NULL AND job NOT IN (SELECT id FROM jobs);
    UPDATE keys SET orphan_until = NULL
        WHERE orphan_until IS NOT NULL AND job IN (SELECT id FROM jobs);
    INSERT INTO keys (key, job, request, created_at)
        SELECT DISTINCT ON (idempotency_key) idempotency_key, id, decode(repeat('00', 16), 'hex'),
               created_at
        FROM jobs j WHERE idempotency_key IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM done d WHERE d.id = j.id)
        ORDER BY idempotency_key, id DESC ON CONFLICT DO NOTHING;
    INSERT INTO errors (job, text, cut) SELECT id, 'the error was lost', false FROM done
        WHERE view = 4 AND id NOT IN (SELECT job FROM errors);
    SELECT setval('ids', greatest((SELECT max(id) FROM jobs), (SELECT last_value FROM ids)));
    UPDATE meta SET value = value + 1 WHERE key = 'names'";

/// Gives jobs the rank that core computes, where the row says otherwise.
fn rank_again(session: &mut Session) -> Found<()> {
    let names = Names::load_in(session)?;
    for (select, update) in [
        (select_ready!(), UPDATE_RANK[0]),
        (select_scheduled!(), UPDATE_RANK[1]),
        (select_leased!(), UPDATE_RANK[2]),
        (select_done!(), UPDATE_RANK[3]),
    ] {
        for row in session.query(select, vec![])? {
            let job = job(&names, &row)?;
            let rank = Rank::of(&job);
            if job.rank != rank {
                let (class, turn, due) = (rank.class, rank.turn.cast_signed(), rank.due.get());
                session.query(update, params![id_code(job.id), class, turn, due])?;
            }
        }
    }
    Ok(())
}

macro_rules! update_rank {
    ($table:literal) => {
        concat!(
            "UPDATE ",
            $table,
            " SET class = $2::smallint, turn = $3::bigint, due = $4::bigint WHERE id = $1::bigint"
        )
    };
}

const UPDATE_RANK: [&str; 4] = [
    update_rank!("ready"),
    update_rank!("scheduled"),
    update_rank!("leased"),
    update_rank!("done"),
];
