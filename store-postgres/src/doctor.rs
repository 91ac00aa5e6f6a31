//! What an operator should know about the server of a store: who keeps dead rows, rights that are
//! missing, settings that harm. Whether the rows agree is the matter of `check.rs`.

use std::fmt;
use std::time::Duration;

use windlass_core::store::StoreError;

use crate::check::{PgMaintenance, unopened};
use crate::rows::get;
use crate::session::{Found, Session, params};

/// Something to look at, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What was found.
    pub what: String,
    /// What to do.
    pub advice: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.what, self.advice)
    }
}

/// From this number of dead rows on they are reported, if they are more than the live rows.
const MANY_DEAD: i64 = 100_000;

impl PgMaintenance {
    /// What to look at on the server: a transaction is old if it is open for longer than `old`.
    /// Empty is good. No job is looked at.
    pub fn findings(&self, old: Duration) -> Result<Vec<Finding>, StoreError> {
        let old = old.as_secs_f64();
        let opener = self.opener();
        let mut session = opener.session().map_err(|error| unopened(&error))?;
        let mut found = Vec::new();
        if let Err(error) = opener.check(&mut session) {
            let advice = "correct it and restart the nodes: they refuse to start with it".into();
            found.push(Finding { what: error.to_string(), advice });
        }
        for look in [holders, dead_rows, rights, settings] {
            found.append(&mut look(&mut session, old).map_err(|error| error.of_read())?);
        }
        Ok(found)
    }
}

/// Who holds the oldest snapshots, in this database or in all.
fn holders(session: &mut Session, old: f64) -> Found<Vec<Finding>> {
    let rows = session.query(HOLDERS, params![old])?;
    let found = rows.iter().map(|row| {
        let advice = get(row, 1)?;
        let held = "; meanwhile dead rows stay, tables grow and claims become slow";
        Ok(Finding { what: format!("{}{held}", get::<String>(row, 0)?), advice })
    });
    found.collect()
}

const HOLDERS: &str = "
    SELECT 'process ' || pid || ' (' || coalesce(usename, '?') || ', '
        || coalesce(nullif(application_name, ''), 'no application_name') || ', '
        || coalesce(state, '?') || ') has a transaction open for '
        || extract(epoch FROM now() - xact_start)::bigint || ' s',
        'end it, or: SELECT pg_terminate_backend(' || pid || ')'
        FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
        AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
        AND xact_start < now() - make_interval(secs => $1::double precision)
    UNION ALL SELECT 'the prepared transaction ' || quote_literal(gid) || ' of ' || owner
        || ' is open for ' || extract(epoch FROM now() - prepared)::bigint || ' s',
        'end it with COMMIT PREPARED or ROLLBACK PREPARED'
        FROM pg_prepared_xacts WHERE database = current_database()
        AND prepared < now() - make_interval(secs => $1::double precision)
    UNION ALL SELECT 'the replication slot ' || slot_name || ' is not in use and keeps old rows',
        'start its standby, or: SELECT pg_drop_replication_slot('
        || quote_literal(slot_name) || ')'
        FROM pg_replication_slots WHERE NOT active AND xmin IS NOT NULL";

fn dead_rows(session: &mut Session, _: f64) -> Found<Vec<Finding>> {
    let rows = session.query(DEAD, params![MANY_DEAD])?;
    let found = rows.iter().map(|row| {
        let (table, dead, live) =
            (get::<String>(row, 0)?, get::<i64>(row, 1)?, get::<i64>(row, 2)?);
        let what = format!("table {table} has {dead} dead rows beside {live} live ones");
        let advice = "end old transactions, if any is named; a server of this store, whose user \
                      owns the table, or autovacuum removes them then";
        Ok(Finding { what, advice: advice.into() })
    });
    found.collect()
}

const DEAD: &str = "SELECT relname::text, n_dead_tup, n_live_tup FROM pg_stat_user_tables \
    WHERE schemaname = current_schema() AND n_dead_tup >= $1 AND n_dead_tup > n_live_tup \
    ORDER BY relname";

fn rights(session: &mut Session, _: f64) -> Found<Vec<Finding>> {
    let rows = session.query(RIGHTS, params![])?;
    let found = rows.iter().map(|row| {
        let (what, advice) = (get::<String>(row, 0)?, get::<String>(row, 1)?);
        Ok(Finding { what, advice })
    });
    found.collect()
}

const RIGHTS: &str = "
    SELECT current_user || ' has no right to ' || r.wanted || ' on table ' || c.relname,
        'GRANT ' || r.wanted || ' ON ' || c.oid::regclass || ' TO ' || quote_ident(current_user)
        FROM pg_class c CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE'])
        AS r (wanted) WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r'
        AND NOT has_table_privilege(c.oid, r.wanted)
    UNION ALL SELECT current_user || ' has no right to use the sequence ' || c.relname,
        'GRANT USAGE, SELECT, UPDATE ON SEQUENCE ' || c.oid::regclass || ' TO '
        || quote_ident(current_user)
        FROM pg_class c WHERE c.relnamespace = current_schema()::regnamespace
        AND CASE WHEN c.relkind = 'S' THEN NOT has_sequence_privilege(c.oid, 'USAGE') END
    UNION ALL SELECT current_user || ' does not own table ' || c.relname
        || ', so that nodes cannot vacuum it',
        'ALTER TABLE ' || c.oid::regclass || ' OWNER TO ' || quote_ident(current_user)
        || ', or leave it to autovacuum'
        FROM pg_class c WHERE c.relnamespace = current_schema()::regnamespace
        AND c.relname = ANY(ARRAY['ready', 'leased', 'scheduled', 'counts', 'markers'])
        AND NOT pg_has_role(c.relowner, 'USAGE')";

fn settings(session: &mut Session, _: f64) -> Found<Vec<Finding>> {
    let rows = session.query(SETTINGS, params![])?;
    let found = rows.iter().map(|row| {
        let name: String = get(row, 0)?;
        let (what, advice) = match name.as_str() {
            "autovacuum" => (
                "autovacuum is off: the tables of finished jobs grow for ever",
                "ALTER SYSTEM SET autovacuum = on; SELECT pg_reload_conf()",
            ),
            _ => (
                "track_counts is off: neither nodes nor autovacuum see dead rows",
                "ALTER SYSTEM SET track_counts = on; SELECT pg_reload_conf()",
            ),
        };
        Ok(Finding { what: what.into(), advice: advice.into() })
    });
    found.collect()
}

const SETTINGS: &str = "SELECT name FROM pg_settings \
    WHERE name IN ('autovacuum', 'track_counts') AND setting = 'off' ORDER BY name";
