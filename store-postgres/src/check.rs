//! For operators: whether the store agrees with itself, and repair.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use windlass_core::store::{Audit, Cause, CopyPlace, CopyRows, Disagreement, PageSize, StoreError};
use windlass_core::{JobId, KeyRecord, LeaseToken, QueueRow, Rank};

use crate::bulk;
use crate::copy::{ids_behind, page};
use crate::details::{Details, bare_jobs};
use crate::error::OpenError;
use crate::groups;
use crate::locks::LockIds;
use crate::names::{Names, SCHEMA, check_schema};
use crate::open::Opener;
use crate::reader::{
    ALL_COUNTS, ALL_TATS, LAST_ID, Pool, Reading, SETTINGS, WORKERS, next_id, queue_rows, settings,
    workers,
};
use crate::rows::{
    count, get, id_code, id_codes, job_id, jobs, select_done, select_leased, select_ready,
    select_scheduled,
};
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
        let mut session = patient(&self.opener)?;
        let locks = LockIds::new(&self.opener.url.schema);
        repair(&mut session, locks).map_err(|error| error.of_read())
    }
}

impl PgMaintenance {
    pub(crate) fn opener(&self) -> &Opener {
        self.pool.opener()
    }

    /// Recomputes counters, keys and ranks from the rows, and lists everything that disagrees.
    /// Empty is good. It reads one state of the whole store, page by page, while others write:
    /// until it ends, dead rows cannot be removed.
    pub fn verify(&self) -> Result<Vec<Disagreement>, StoreError> {
        let mut session = patient(self.opener())?;
        check(&mut session).map_err(|error| error.of_read())
    }
}

/// How long one statement of a check or a repair may take.
const LIMIT: Duration = Duration::from_hours(1);

/// A connection for statements that look at all rows. It is not used for anything else.
fn patient(opener: &Opener) -> Result<Session, StoreError> {
    let mut session = opener.session().map_err(|error| unopened(&error))?;
    session.wait_for(LIMIT);
    Ok(session)
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
    UNION ALL SELECT 'job ' || id || ' is in an error group, but did not fail' FROM done
        WHERE error_group IS NOT NULL AND view <> 4
    UNION ALL SELECT kept || ' of job ' || job || ', which does not exist' FROM
        (SELECT 'results' AS kept, job FROM results UNION ALL SELECT 'progress', job FROM progress
         UNION ALL SELECT 'errors', job FROM errors
         UNION ALL SELECT 'attempts', job FROM attempts) k
        WHERE NOT EXISTS (SELECT 1 FROM jobs j WHERE j.id = k.job)
    LIMIT $1::bigint";

/// Most strays that are listed; jobs are not looked at if there are any.
const MOST_STRAYS: i64 = 1_000;

fn check(session: &mut Session) -> Found<Vec<Disagreement>> {
    let mut flight = Flight::default();
    flight.add("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", vec![]);
    for set in LOOK_AT_ALL {
        flight.add(set, vec![]);
    }
    let schema = flight.add(SCHEMA, vec![]);
    check_schema(&session.fly(flight, None)?.take(schema))?;
    let strays = session.query(STRAYS, params![MOST_STRAYS])?;
    if !strays.is_empty() {
        return strays.iter().map(|row| Ok(Disagreement(get(row, 0)?))).collect();
    }
    session.run(&SEEK_AGAIN.join("; "))?;
    let names = Names::load_in(session)?;
    let next_id = next_id(&session.query(LAST_ID, vec![])?)?;
    let mut checking = Checking { session, names: &names, audit: Audit::new(next_id) };
    checking.jobs()?;
    checking.pages(CopyPlace::Attempts(None))?;
    checking.pages(CopyPlace::Keys(None))?;
    checking.pages(CopyPlace::Figures(None))?;
    let counters = checking.rest()?;
    let found = checking.audit.finish(&counters);
    session.run("COMMIT")?;
    Ok(found)
}

/// Lets the statements of a transaction take their time, and the planner scan tables.
const LOOK_AT_ALL: [&str; 4] = [
    "SET LOCAL statement_timeout = 0",
    "SET LOCAL idle_in_transaction_session_timeout = 0",
    "SET LOCAL enable_hashjoin = on",
    "SET LOCAL enable_seqscan = on",
];
/// Has the planner look rows up again.
const SEEK_AGAIN: [&str; 2] = ["SET LOCAL enable_hashjoin = off", "SET LOCAL enable_seqscan = off"];

/// How much is read at a time.
const PAGE: PageSize = PageSize { rows: 1_000, bytes: 8 * 1024 * 1024 };

/// An open transaction that shows its rows to the audit.
struct Checking<'a> {
    session: &'a mut Session,
    names: &'a Names,
    audit: Audit,
}

impl Checking<'_> {
    fn jobs(&mut self) -> Found<()> {
        let mut last: Option<JobId> = None;
        loop {
            let ids = ids_behind(self.session, last, PAGE)?;
            let mut flight = Flight::default();
            let details = Details::ask(&mut flight, Some(&ids));
            let keyed = flight.add(KEYS_OF, params![id_codes(&ids)]);
            let mut returned = self.session.fly(flight, None)?;
            let mut named: BTreeMap<JobId, JobId> = BTreeMap::new();
            for row in returned.take(keyed) {
                named.insert(job_id(get(&row, 0)?)?, job_id(get(&row, 1)?)?);
            }
            for detail in details.read(self.names, &mut returned)? {
                let key_names = named.get(&detail.job.id).copied();
                self.audit.job(&detail, key_names);
            }
            last = ids.last().copied();
            if last.is_none() {
                return Ok(());
            }
        }
    }

    /// All rows of a section behind a place.
    fn pages(&mut self, mut place: CopyPlace) -> Found<()> {
        loop {
            let mut reading = Reading { session: &mut *self.session, names: self.names };
            let CopyRows { attempts, keys, figures, .. } = page(&mut reading, &place, PAGE)?;
            let last = match place {
                CopyPlace::Attempts(_) => attempts
                    .last()
                    .map(|last| LeaseToken { job: last.job, epoch: last.epoch })
                    .map(|last| CopyPlace::Attempts(Some(last))),
                CopyPlace::Keys(_) => {
                    keys.last().map(|last| CopyPlace::Keys(Some(last.key.clone())))
                }
                _ => figures.last().map(|last| CopyPlace::Figures(Some(last.key))),
            };
            // That their jobs exist was checked before.
            for attempt in &attempts {
                self.audit.attempt(attempt.job, true);
            }
            for row in &figures {
                self.audit.figures(row);
            }
            self.keys(&keys)?;
            let Some(last) = last else { return Ok(()) };
            place = last;
        }
    }

    fn keys(&mut self, keys: &[KeyRecord]) -> Found<()> {
        let ids: Vec<JobId> = keys.iter().map(|record| record.job).collect();
        let jobs = bare_jobs(self.session, self.names, &ids)?;
        for record in keys {
            let job = jobs.binary_search_by_key(&record.job, |job| job.id);
            self.audit.key(record, job.ok().map(|at| &jobs[at]));
        }
        Ok(())
    }

    /// What does not grow with the number of jobs; the counters are compared at the end.
    fn rest(&mut self) -> Found<Vec<QueueRow>> {
        let mut ask = |sql| self.session.query(sql, vec![]);
        groups::rows(&ask(groups::ALL)?)?.iter().for_each(|row| self.audit.group(row));
        bulk::rows(&ask(bulk::ALL)?)?.iter().for_each(|row| self.audit.bulk(row));
        workers(&ask(WORKERS)?, &[])?;
        settings(&ask(SETTINGS)?)?;
        queue_rows(self.names, &ask(ALL_COUNTS)?, &ask(ALL_TATS)?)
    }
}

/// The jobs that the keys of these jobs name.
const KEYS_OF: &str = "SELECT j.id, k.job FROM jobs j JOIN keys k ON k.key = j.idempotency_key \
    WHERE j.id = ANY($1::bigint[])";

fn repair(session: &mut Session, locks: LockIds) -> Found<()> {
    let begin = format!("BEGIN; SET LOCAL lock_timeout = '1min'; {}", LOOK_AT_ALL.join("; "));
    session.run(&begin)?;
    session.run(&format!("SELECT pg_advisory_xact_lock({})", locks.names()))?;
    check_schema(&session.query(SCHEMA, vec![])?)?;
    session.run(REPAIR)?;
    session.run(&SEEK_AGAIN.join("; "))?;
    rank_again(session)?;
    groups::regroup(session)?;
    session.run("COMMIT")
}

const REPAIR: &str = "
    DELETE FROM ready t WHERE NOT EXISTS (SELECT 1 FROM jobs j WHERE j.id = t.id);
    DELETE FROM scheduled t WHERE NOT EXISTS (SELECT 1 FROM jobs j WHERE j.id = t.id);
    DELETE FROM leased t WHERE NOT EXISTS (SELECT 1 FROM jobs j WHERE j.id = t.id);
    DELETE FROM done t WHERE NOT EXISTS (SELECT 1 FROM jobs j WHERE j.id = t.id);
    UPDATE ready t SET queue = j.queue, kind = j.kind FROM jobs j
        WHERE j.id = t.id AND (t.queue, t.kind) <> (j.queue, j.kind);
    UPDATE scheduled t SET queue = j.queue, kind = j.kind FROM jobs j
        WHERE j.id = t.id AND (t.queue, t.kind) <> (j.queue, j.kind);
    UPDATE done t SET queue = j.queue, kind = j.kind FROM jobs j
        WHERE j.id = t.id AND (t.queue, t.kind) <> (j.queue, j.kind);
    DELETE FROM results t WHERE NOT EXISTS (SELECT 1 FROM jobs j WHERE j.id = t.job);
    DELETE FROM progress t WHERE NOT EXISTS (SELECT 1 FROM jobs j WHERE j.id = t.job);
    DELETE FROM errors t WHERE NOT EXISTS (SELECT 1 FROM jobs j WHERE j.id = t.job);
    DELETE FROM attempts t WHERE NOT EXISTS (SELECT 1 FROM jobs j WHERE j.id = t.job);
    UPDATE jobs SET payload_bytes = octet_length(payload)
        WHERE payload_bytes <> octet_length(payload);
    INSERT INTO pairs (queue, kind) SELECT DISTINCT queue, kind FROM jobs ON CONFLICT DO NOTHING;
    DELETE FROM counts;
    INSERT INTO counts
        (queue, kind, process, queued, scheduled, processing, done, failed, cancelled, retrying)
        SELECT queue, kind, 0, count(*) FILTER (WHERE view = 0), count(*) FILTER (WHERE view = 1),
               count(*) FILTER (WHERE view = 2), count(*) FILTER (WHERE view = 3),
               count(*) FILTER (WHERE view = 4), count(*) FILTER (WHERE view = 5),
               count(*) FILTER (WHERE view IN (0, 1) AND attempts > 0)
        FROM (SELECT queue, kind, 0 AS view, attempts FROM ready UNION ALL
              SELECT queue, kind, 1, attempts FROM scheduled UNION ALL
              SELECT queue, kind, 2, attempts FROM leased t JOIN jobs j ON j.id = t.id UNION ALL
              SELECT queue, kind, view, attempts FROM done) AS thin GROUP BY queue, kind;
    DELETE FROM keys k WHERE orphan_until IS NULL
        AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.id = k.job);
    UPDATE keys k SET orphan_until = NULL WHERE orphan_until IS NOT NULL
        AND EXISTS (SELECT 1 FROM jobs j WHERE j.id = k.job);
    INSERT INTO keys (key, job, request, created_at)
        SELECT DISTINCT ON (idempotency_key) idempotency_key, id, decode(repeat('00', 16), 'hex'),
               created_at
        FROM jobs j WHERE idempotency_key IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM done d WHERE d.id = j.id)
        ORDER BY idempotency_key, id DESC ON CONFLICT DO NOTHING;
    INSERT INTO errors (job, text, cut) SELECT id, 'the error was lost', false FROM done d
        WHERE view = 4 AND NOT EXISTS (SELECT 1 FROM errors e WHERE e.job = d.id);
    SELECT setval('ids', greatest((SELECT max(id) FROM jobs), (SELECT last_value FROM ids)));
    UPDATE meta SET value = value + 1 WHERE key = 'names'";

/// A query for a page of jobs by id.
macro_rules! behind {
    ($select:expr) => {
        concat!($select, "WHERE t.id > $1::bigint ORDER BY t.id LIMIT $2::bigint")
    };
}
/// Gives jobs the rank that core computes, where the row says otherwise.
fn rank_again(session: &mut Session) -> Found<()> {
    let names = Names::load_in(session)?;
    for (select, update) in [
        (behind!(select_ready!()), UPDATE_RANK[0]),
        (behind!(select_scheduled!()), UPDATE_RANK[1]),
        (behind!(select_leased!()), UPDATE_RANK[2]),
        (behind!(select_done!()), UPDATE_RANK[3]),
    ] {
        let mut last = 0_i64;
        loop {
            let jobs = jobs(&names, &session.query(select, params![last, count(PAGE.rows)])?)?;
            let mut flight = Flight::default();
            for job in &jobs {
                let rank = Rank::of(job);
                if !job.rank.fits(job) {
                    let (class, turn, due) = (rank.class, rank.turn.cast_signed(), rank.due.get());
                    flight.add(update, params![id_code(job.id), class, turn, due]);
                }
            }
            session.fly(flight, None)?;
            let Some(job) = jobs.last() else { break };
            last = id_code(job.id);
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
