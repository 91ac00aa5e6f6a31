//! Who keeps dead rows: the transactions and replication slots whose snapshot (xmin) is old. While
//! one is held, PostgreSQL removes no row that died after it, in any table of the database.

use std::time::Duration;

use windlass_core::store::StoreError;

use crate::check::PgMaintenance;
use crate::rows::get;
use crate::session::{Found, Session, params};

/// The oldest snapshot that keeps dead rows of this database.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OldestXmin {
    /// How long the oldest transaction that holds one is open.
    pub seconds: f64,
    /// How many transactions have begun since, on the whole server; of standbys and replication
    /// slots this is all that is known.
    pub xids: u64,
    /// Who holds it, if it is old: a process with its user and program, a prepared transaction or
    /// a replication slot.
    pub holder: Option<String>,
}

/// A transaction or replication slot that holds a snapshot.
#[derive(Debug)]
pub(crate) struct Holder {
    /// The process, prepared transaction or slot; the same as long as the snapshot is held.
    pub(crate) name: String,
    /// Its state and age, as a sentence goes on after the name.
    pub(crate) does: String,
    /// How an operator can end it.
    pub(crate) advice: String,
    seconds: Option<f64>,
    xids: i64,
    pub(crate) is_old: bool,
}

impl PgMaintenance {
    /// The oldest snapshot; its holder is named from an age of `old` on. `None` if this user may
    /// not see the transactions of others.
    pub fn oldest_xmin(&self, old: Duration) -> Result<Option<OldestXmin>, StoreError> {
        self.pool.reader().read(|reading| {
            if !sees_all(reading.session)? {
                return Ok(None);
            }
            let held = holders(reading.session, old)?;
            let seconds = held.iter().filter_map(|holder| holder.seconds).fold(0.0, f64::max);
            let xids = held.first().map_or(0, |oldest| oldest.xids.unsigned_abs());
            let holder = held.into_iter().find(|holder| holder.is_old).map(|holder| holder.name);
            Ok(Some(OldestXmin { seconds, xids, holder }))
        })
    }
}

/// Whether this user sees what the sessions of others do.
pub(crate) fn sees_all(session: &mut Session) -> Found<bool> {
    let rows = session.query(SEES_ALL, params![])?;
    Ok(rows.first().map(|row| get(row, 0)).transpose()?.unwrap_or(false))
}

const SEES_ALL: &str = "SELECT pg_has_role('pg_read_all_stats', 'USAGE')";

/// The holders of snapshots that keep dead rows of this database, the oldest first.
pub(crate) fn holders(session: &mut Session, old: Duration) -> Found<Vec<Holder>> {
    let rows = session.query(HOLDERS, params![old.as_secs_f64(), OLD_XIDS])?;
    let holder = |row| {
        Ok(Holder {
            name: get(row, 0)?,
            does: get(row, 1)?,
            advice: get(row, 2)?,
            seconds: get(row, 3)?,
            xids: get(row, 4)?,
            is_old: get(row, 5)?,
        })
    };
    rows.iter().map(holder).collect()
}

/// A snapshot is old once this number of transactions has begun after it, whatever its age.
const OLD_XIDS: i64 = 1_000_000;

/// A vacuum holds a snapshot that keeps nothing. A walsender has one if its standby sends feedback
/// without a slot; it is of no database.
/// `old` is the age from which on one is old, in seconds.
macro_rules! held {
    ($old:literal) => {
        concat!(
            "SELECT 'process ' || pid || ' (' || coalesce(usename, '?') || ', '
            || coalesce(nullif(application_name, ''), 'no application_name') || ')' AS name,
            coalesce('has a transaction open for '
                || extract(epoch FROM clock_timestamp() - xact_start)::bigint || ' s'
                || coalesce(' (' || state || ')', ''), 'reads for a standby') AS does,
            'end it, or: SELECT pg_terminate_backend(' || pid || ')' AS advice,
            extract(epoch FROM clock_timestamp() - xact_start)::double precision AS seconds,
            greatest(age(backend_xmin), age(backend_xid)) AS xids,
            xact_start <= clock_timestamp() - make_interval(secs => ",
            $old,
            ") AS is_old
        FROM pg_stat_activity
        WHERE coalesce(datname, current_database()) = current_database()
        AND pid <> pg_backend_pid() AND backend_type <> 'autovacuum worker'
        AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
        AND pid NOT IN (SELECT pid FROM pg_stat_progress_vacuum)
        UNION ALL SELECT 'prepared transaction ' || quote_literal(gid) || ' of ' || owner,
            'is open for ' || extract(epoch FROM clock_timestamp() - prepared)::bigint || ' s',
            'end it with COMMIT PREPARED or ROLLBACK PREPARED',
            extract(epoch FROM clock_timestamp() - prepared)::double precision,
            age(transaction),
            prepared <= clock_timestamp() - make_interval(secs => ",
            $old,
            ")
        FROM pg_prepared_xacts WHERE database = current_database()
        UNION ALL SELECT 'replication slot ' || slot_name,
            CASE WHEN active THEN 'is behind' ELSE 'is not in use' END,
            'start its standby, or: SELECT pg_drop_replication_slot('
                || quote_literal(slot_name) || ')',
            NULL, age(xmin), NOT active
        FROM pg_replication_slots WHERE xmin IS NOT NULL"
        )
    };
}

const HOLDERS: &str = concat!(
    "SELECT name, does, advice, seconds, xids::bigint, coalesce(is_old OR xids >= $2::bigint, \
     false) FROM (",
    held!("$1::double precision"),
    ") held ORDER BY xids DESC, seconds DESC NULLS LAST"
);

/// The age of the oldest snapshot in transactions; null if it is not known for sure.
pub(crate) const AGE: &str = concat!(
    "SELECT CASE WHEN pg_has_role('pg_read_all_stats', 'USAGE') \
    THEN coalesce(max(xids), 0)::bigint \
     END FROM (",
    held!("0"),
    ") held"
);
