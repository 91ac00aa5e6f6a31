//! What an operator should know about the server of a store: who keeps dead rows, rights that are
//! missing, settings that harm. Whether the rows agree is the matter of `check.rs`.

use std::fmt;
use std::time::Duration;

use windlass_core::store::StoreError;

use crate::check::{PgMaintenance, unopened};
use crate::rights;
use crate::rows::get;
use crate::session::{Found, Session, params};
use crate::xmin::{self, Holder};

/// Something to look at, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The observation, with its numbers.
    pub what: String,
    /// What an operator should do.
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
        let opener = self.opener();
        let mut session = opener.session().map_err(|error| unopened(&error))?;
        let mut found = Vec::new();
        if let Err(error) = opener.check(&mut session) {
            let advice = "correct it and restart the nodes: they refuse to start with it".into();
            found.push(Finding { what: error.to_string(), advice });
        }
        for look in [holders, sight, dead_rows, missing_rights, settings] {
            found.append(&mut look(&mut session, old).map_err(|error| error.of_read())?);
        }
        Ok(found)
    }
}

/// The holders of old snapshots.
fn holders(session: &mut Session, old: Duration) -> Found<Vec<Finding>> {
    let held = xmin::holders(session, old)?;
    let found = held.into_iter().filter(|holder| holder.is_old).map(|holder| {
        let Holder { name, does, advice, .. } = holder;
        let harm = "meanwhile dead rows stay, tables grow and claims become slow";
        Finding { what: format!("{name} {does}; {harm}"), advice }
    });
    Ok(found.collect())
}

/// Whether old snapshots of others can be seen at all.
fn sight(session: &mut Session, _: Duration) -> Found<Vec<Finding>> {
    if xmin::sees_all(session)? {
        return Ok(vec![]);
    }
    let rows = session.query("SELECT current_user::text, quote_ident(current_user)", params![])?;
    let found = rows.iter().map(|row| {
        let user = get::<String>(row, 0)?;
        let what = format!("{user} may not see who keeps dead rows");
        let advice = format!("GRANT pg_read_all_stats TO {}", get::<String>(row, 1)?);
        Ok(Finding { what, advice })
    });
    found.collect()
}

fn dead_rows(session: &mut Session, _: Duration) -> Found<Vec<Finding>> {
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

/// Rights that were taken away since the store was opened, and those that only a vacuum needs.
fn missing_rights(session: &mut Session, _: Duration) -> Found<Vec<Finding>> {
    let missing = rights::missing(session)?;
    let mut found: Vec<Finding> = missing
        .into_iter()
        .map(|missing| Finding { what: missing.what, advice: missing.grant })
        .collect();
    for row in session.query(NOT_OWNED, params![])? {
        found.push(Finding { what: get(&row, 0)?, advice: get(&row, 1)? });
    }
    Ok(found)
}

const NOT_OWNED: &str = "
    SELECT current_user || ' does not own table ' || c.relname
        || ', so that nodes cannot vacuum it',
        'ALTER TABLE ' || c.oid::regclass || ' OWNER TO ' || quote_ident(current_user)
        || ', or leave it to autovacuum'
        FROM pg_class c WHERE c.relnamespace = current_schema()::regnamespace
        AND c.relname = ANY(ARRAY['ready', 'leased', 'scheduled', 'counts', 'markers'])
        AND NOT pg_has_role(c.relowner, 'USAGE')";

fn settings(session: &mut Session, _: Duration) -> Found<Vec<Finding>> {
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
