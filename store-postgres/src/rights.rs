//! Whether the user of a store has the rights that a node needs: without one of them every batch
//! that needs it would fail, so a store is not opened then.

use crate::error::OpenError;
use crate::open::Opener;
use crate::rows::get;
use crate::session::{Found, Session, params};

/// More missing rights than this are not named.
const MOST_NAMED: usize = 4;

/// A right that is missing.
#[derive(Debug)]
pub(crate) struct Missing {
    /// The right, and on what.
    pub(crate) what: String,
    /// The statement by which the owner of the tables grants it.
    pub(crate) grant: String,
}

/// The rights that the user of this connection has not.
pub(crate) fn missing(session: &mut Session) -> Found<Vec<Missing>> {
    let rows = session.query(MISSING, params![])?;
    rows.iter().map(|row| Ok(Missing { what: get(row, 0)?, grant: get(row, 1)? })).collect()
}

impl Opener {
    /// Refuses a store with missing rights.
    pub(crate) fn check_rights(&self, session: &mut Session) -> Result<(), OpenError> {
        let missing = missing(session).map_err(|error| self.refused(&error))?;
        let Some(first) = missing.first() else { return Ok(()) };
        let grants: Vec<&str> =
            missing.iter().take(MOST_NAMED).map(|missing| missing.grant.as_str()).collect();
        let more = match missing.len().saturating_sub(MOST_NAMED) {
            0 => String::new(),
            more => format!(" ({more} more are missing: docs/POSTGRESQL.md has all grants)"),
        };
        let grants = grants.join("; ");
        let why = format!("{}; as the owner of the tables run: {grants}{more}", first.what);
        let sqlstate = Some("42501".to_owned());
        Err(OpenError::Refused { url: self.url.to_string(), why, sqlstate })
    }
}

const MISSING: &str = "
    SELECT current_user || ' has no right to ' || r.wanted || ' on table ' || c.relname,
        'GRANT ' || r.wanted || ' ON ' || quote_ident(current_schema()) || '.'
        || quote_ident(c.relname) || ' TO ' || quote_ident(current_user)
        FROM pg_class c CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE'])
        AS r (wanted) WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r'
        AND c.relname = ANY(ARRAY['meta', 'queues', 'kinds', 'retries', 'pairs', 'jobs', 'ready',
        'scheduled', 'leased', 'done', 'results', 'progress', 'errors', 'attempts', 'counts',
        'keys', 'workers', 'settings', 'markers', 'figures', 'error_groups', 'bulk', 'rates'])
        AND NOT has_table_privilege(c.oid, r.wanted)
    UNION ALL SELECT current_user || ' has no right to use the sequence ' || c.relname,
        'GRANT USAGE, SELECT, UPDATE ON SEQUENCE ' || quote_ident(current_schema()) || '.'
        || quote_ident(c.relname) || ' TO ' || quote_ident(current_user)
        FROM pg_class c WHERE c.relnamespace = current_schema()::regnamespace
        AND CASE WHEN c.relkind = 'S' AND c.relname = 'ids'
        THEN NOT has_sequence_privilege(c.oid, 'USAGE') END
    ORDER BY 1";
