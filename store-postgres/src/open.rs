//! Opening connections: the settings durability rests on, each read back; migrations.

use std::future::poll_fn;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Connection, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::error::{OpenError, TxError, chain};
use crate::groups;
use crate::locks::LockIds;
use crate::rows::{count, get};
use crate::session::{Found, IoRuntime, Session, params, within};
use crate::upkeep;
use crate::url::{DIRECT, StoreUrl};

/// The schema, one file per step.
const MIGRATIONS: [&str; 8] = [
    include_str!("migrations/0001_first.sql"),
    include_str!("migrations/0002_error_groups.sql"),
    include_str!("migrations/0003_bulk.sql"),
    include_str!("migrations/0004_seek_by_id.sql"),
    include_str!("migrations/0005_status.sql"),
    include_str!("migrations/0006_vacuum.sql"),
    include_str!("migrations/0007_worker_version.sql"),
    include_str!("migrations/0008_flow.sql"),
];
/// The step with which dead letters are grouped.
const GROUPED: i64 = 2;

/// The number of the newest schema.
pub(crate) fn newest() -> i64 {
    count(MIGRATIONS.len())
}

/// How long a migration may take.
const MIGRATION_LIMIT: Duration = Duration::from_hours(1);

/// Opens connections to one store.
#[derive(Debug, Clone)]
pub(crate) struct Opener {
    pub(crate) url: StoreUrl,
    /// How long any answer may take.
    pub(crate) deadline: Duration,
}

/// A connection beside the one that writes.
pub(crate) struct Side {
    client: Client,
    /// The server process behind it: other nodes know its hints by that.
    pub(crate) pid: i32,
    /// The numbers that came with hints.
    pub(crate) hints: UnboundedReceiver<i32>,
    /// How long any answer may take.
    deadline: Duration,
}

impl Side {
    /// Runs statements without parameters, one by one.
    pub(crate) async fn run(&self, sql: &str) -> Found<()> {
        Ok(within(self.deadline, self.client.batch_execute(sql)).await??)
    }

    /// The same for one that may take long.
    pub(crate) async fn run_long(&self, sql: &str, deadline: Duration) -> Found<()> {
        Ok(within(deadline, self.client.batch_execute(sql)).await??)
    }

    pub(crate) async fn query(
        &self,
        sql: &str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Found<Vec<tokio_postgres::Row>> {
        Ok(within(self.deadline, self.client.query(sql, params)).await??)
    }
}

/// A stream that may be encrypted.
type Stream = <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream;

impl Opener {
    /// A connection with all its settings; the server was checked.
    pub(crate) fn checked(&self) -> Result<(Session, bool), OpenError> {
        let mut session = self.connect()?;
        let replicated = self.check(&mut session)?;
        Ok((session, replicated))
    }

    /// A connection with all its settings.
    pub(crate) fn session(&self) -> Result<Session, OpenError> {
        self.connect()
    }

    fn connect(&self) -> Result<Session, OpenError> {
        let runtime = IoRuntime::new().map_err(|error| self.unconnected(error.to_string()))?;
        let client = runtime.block_on(async {
            let (client, connection) = self.dial().await?;
            tokio::spawn(connection);
            Ok::<_, OpenError>(client)
        })?;
        let mut session = Session::new(client, runtime, self.deadline, 0);
        let prepared = self.settings(&mut session);
        prepared.map_err(|error| self.refused(&error))?;
        Ok(session)
    }

    fn unconnected(&self, why: String) -> OpenError {
        OpenError::Connect { url: self.url.to_string(), why, sqlstate: None }
    }

    async fn dial(&self) -> Result<(Client, Connection<Socket, Stream>), OpenError> {
        let tls = self.url.tls.connector().map_err(|why| self.unconnected(why))?;
        let mut config = self.url.config.clone();
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(self.deadline);
        }
        config.tcp_user_timeout(self.deadline);
        match tokio::time::timeout(self.deadline, config.connect(tls)).await {
            Ok(Ok(connected)) => Ok(connected),
            Ok(Err(error)) => {
                let sqlstate = error.code().map(|code| code.code().to_owned());
                Err(OpenError::Connect { url: self.url.to_string(), why: hint(&error), sqlstate })
            }
            Err(_) => {
                let why = "the server did not answer; check its address and the network";
                Err(self.unconnected(why.to_owned()))
            }
        }
    }

    /// A connection for hints and for the upkeep of tables, within a runtime.
    pub(crate) async fn side(&self) -> Result<Side, OpenError> {
        let (client, mut connection) = self.dial().await?;
        let (sender, hints) = unbounded_channel();
        tokio::spawn(async move {
            while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
                if let AsyncMessage::Notification(hint) = message {
                    // The other end goes with the connection.
                    let _ = sender.send(hint.payload().parse().unwrap_or_default());
                }
            }
        });
        let mut side = Side { client, pid: 0, hints, deadline: self.deadline };
        let schema = &self.url.schema;
        // A node that stops or vanishes gives up what it holds, whether its connection ends or not.
        let idle = self.side_idle().as_millis();
        let (transaction, check) = (self.deadline / 3, self.deadline / 2);
        let (transaction, check) = (transaction.as_millis().max(1), check.as_millis().max(1));
        let set = format!(
            "SET search_path = {schema}; SET lock_timeout = '1s'; \
             SET idle_session_timeout = {idle}; \
             SET idle_in_transaction_session_timeout = {transaction}; \
             SET client_connection_check_interval = {check}"
        );
        let refused = |error: TxError| self.refused(&error);
        side.run(&set).await.map_err(refused)?;
        let rows = side.query("SELECT pg_backend_pid()", &[]).await.map_err(refused)?;
        let pid = rows.first().map(|row| get(row, 0)).transpose().map_err(refused)?;
        side.pid = pid.unwrap_or_default();
        Ok(side)
    }

    /// How long a connection beside may be without a statement; it has some in every round.
    fn side_idle(&self) -> Duration {
        (self.deadline * 2).max(upkeep::ROUND * 3)
    }

    /// The settings of every connection. Statements are made to seek, so the planner is kept from
    /// anything else; it plans each once.
    fn settings(&self, session: &mut Session) -> Found<()> {
        let deadline = self.deadline.as_millis();
        let (lock, check) = ((deadline / 3).max(1), (deadline / 2).max(1));
        let schema = &self.url.schema;
        session.run(&format!(
            "SET search_path = {schema}; SET client_min_messages = warning; \
             SET statement_timeout = {deadline}; SET lock_timeout = {lock}; \
             SET idle_in_transaction_session_timeout = {deadline}; \
             SET client_connection_check_interval = {check}; \
             SET plan_cache_mode = force_generic_plan; SET jit = off; \
             SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_hashjoin = off; \
             SET enable_mergejoin = off; SET enable_material = off"
        ))?;
        let rows = session.query("SELECT pg_backend_pid()", vec![])?;
        session.pid = rows.first().map(|row| get(row, 0)).transpose()?.unwrap_or_default();
        Ok(())
    }

    /// Checks that what the server acknowledges is on its disk. Returns whether it is on that of a
    /// standby too: with `remote_write` a standby has only written it, and with `local` no standby
    /// is waited for.
    pub(crate) fn check(&self, session: &mut Session) -> Result<bool, OpenError> {
        let sql = "SELECT name, setting, source || coalesce(' ' || sourcefile || ':' || \
                   sourceline, '') FROM pg_settings WHERE name = ANY($1)";
        let asked: Vec<&str> = CHECKED.iter().map(|check| check.setting).collect();
        let rows = session.query(sql, params![asked]).map_err(|error| self.refused(&error))?;
        for row in &rows {
            let column = |at| get::<String>(row, at).map_err(|error| self.refused(&error));
            let (name, found, origin) = (column(0)?, column(1)?, column(2)?);
            let Some(check) = CHECKED.iter().find(|check| check.setting == name) else { continue };
            if !check.allowed.contains(&found.as_str()) {
                let (setting, needed, why) = (check.setting, check.allowed[0], check.why);
                let url = self.url.to_string();
                return Err(OpenError::Setting { url, setting, found, origin, needed, why });
            }
        }
        let sql = "SELECT pg_is_in_recovery() OR current_setting('transaction_read_only')::bool, \
                   current_setting('synchronous_standby_names') <> '' AND \
                   current_setting('synchronous_commit') IN ('on', 'remote_apply'), \
                   current_setting($1, true) IS NOT NULL";
        let rows = session.query(sql, params![DIRECT]).map_err(|error| self.refused(&error))?;
        let flag = |at| match rows.first() {
            Some(row) => get::<bool>(row, at).map_err(|error| self.refused(&error)),
            None => Ok(false),
        };
        if !flag(2)? {
            let (url, why) = (self.url.to_string(), POOLER.to_owned());
            // As poolers that refuse startup options say it.
            return Err(OpenError::Connect { url, why, sqlstate: Some("08P01".into()) });
        }
        if flag(0)? {
            return Err(OpenError::ReadOnly { url: self.url.to_string() });
        }
        flag(1)
    }

    /// The number of the schema; zero if there is none.
    fn version(&self, session: &mut Session) -> Result<i64, OpenError> {
        let schema = self.url.schema.clone();
        let refused = |error: TxError| self.refused(&error);
        let sql = "SELECT count(*), count(*) FILTER (WHERE relname = 'meta') FROM pg_class c \
                   JOIN pg_namespace n ON n.oid = c.relnamespace WHERE nspname = $1::text \
                   AND relkind IN ('r', 'p', 'v', 'm', 'f', 'S')";
        let rows = session.query(sql, params![schema.clone()]).map_err(refused)?;
        let number = |at| match rows.first() {
            Some(row) => get::<i64>(row, at).map_err(refused),
            None => Ok(0),
        };
        let (all, meta) = (number(0)?, number(1)?);
        let url = || self.url.to_string();
        if meta == 0 && all > 0 {
            let what = format!("it holds {all} tables of another program");
            return Err(OpenError::Foreign { url: url(), schema, what });
        }
        if meta == 0 {
            return Ok(0);
        }
        let sql = "SELECT count(*) FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid \
                   JOIN pg_namespace n ON n.oid = c.relnamespace WHERE nspname = $1::text \
                   AND relname = 'meta' AND attname IN ('key', 'value') AND NOT attisdropped";
        let rows = session.query(sql, params![schema.clone()]).map_err(refused)?;
        let columns: i64 =
            rows.first().map(|row| get(row, 0)).transpose().map_err(refused)?.unwrap_or(0);
        let ours = if columns == 2 {
            let sql = "SELECT key::text, value::text FROM meta \
                       WHERE key::text IN ('windlass', 'schema')";
            session.query(sql, vec![]).map_err(refused)?
        } else {
            Vec::new()
        };
        let mut found = None;
        for row in &ours {
            let (key, value) = (get::<String>(row, 0), get::<String>(row, 1));
            if key.map_err(refused)? == "schema" {
                found = value.map_err(refused)?.parse::<i64>().ok();
            }
        }
        match found {
            Some(found) if ours.len() == 2 && found > newest() => {
                Err(OpenError::Newer { url: url(), schema, found, known: newest() })
            }
            Some(found) if ours.len() == 2 => Ok(found),
            _ => {
                let what = "its table meta is of another program".into();
                Err(OpenError::Foreign { url: url(), schema, what })
            }
        }
    }

    /// Brings the schema to the newest number, one node at a time; or says that it is not.
    pub(crate) fn migrate(
        &self,
        session: &mut Session,
        locks: LockIds,
        allowed: bool,
    ) -> Result<(), OpenError> {
        if self.version(session)? == newest() {
            return Ok(());
        }
        let (url, schema) = (self.url.to_string(), self.url.schema.clone());
        if !allowed {
            let found = self.version(session)?;
            return Err(OpenError::NotMigrated { url, schema, found, known: newest() });
        }
        let refused = |error: TxError| self.refused(&error);
        let limit = MIGRATION_LIMIT.as_millis();
        let begin = format!(
            "BEGIN; SET LOCAL lock_timeout = {limit}; SET LOCAL statement_timeout = {limit}; \
             SELECT pg_advisory_xact_lock({})",
            locks.migration()
        );
        session.run_long(&begin, MIGRATION_LIMIT).map_err(refused)?;
        session.wait_for(MIGRATION_LIMIT);
        let done = self.migrate_alone(session, locks);
        session.wait_for(self.deadline);
        match done {
            Ok(()) => session.run("COMMIT").map_err(refused),
            Err(error) => {
                // The connection is dropped with the error.
                let _ = session.roll_back();
                Err(error)
            }
        }
    }

    /// Runs the steps that are missing, with no batch open at any node. The version of the names is
    /// raised with them, so that the next batch of each node checks the schema.
    fn migrate_alone(&self, session: &mut Session, locks: LockIds) -> Result<(), OpenError> {
        let refused = |error: TxError| self.refused(&error);
        let found = self.version(session)?;
        if found == newest() {
            return Ok(());
        }
        let alone = format!("SELECT pg_advisory_xact_lock({})", locks.names());
        session.run(&alone).map_err(refused)?;
        if found == 0 {
            let make = format!("CREATE SCHEMA IF NOT EXISTS {}", self.url.schema);
            let exists = session.query(
                "SELECT 1 FROM pg_namespace WHERE nspname = $1::text",
                params![self.url.schema.clone()],
            );
            if exists.map_err(refused)?.is_empty() {
                session.run(&make).map_err(refused)?;
            }
        }
        let steps = MIGRATIONS.iter().zip(1_i64..).filter(|(_, number)| *number > found);
        for (sql, number) in steps {
            session.run(sql).map_err(refused)?;
            let note = format!("UPDATE meta SET value = {number} WHERE key = 'schema'");
            session.run(&note).map_err(refused)?;
        }
        // Behind the last step: it reads names, in the columns of the newest schema.
        if found < GROUPED {
            groups::regroup(session).map_err(refused)?;
        }
        let raise = "UPDATE meta SET value = value + 1 WHERE key = 'names'";
        session.run(raise).map_err(refused)
    }

    pub(crate) fn refused(&self, error: &TxError) -> OpenError {
        let advice = match error {
            TxError::Refused(refusal) if ["42501", "3F000"].contains(&refusal.code.code()) => {
                "; grant the user CREATE on the database, or USAGE on the schema and all rights on \
                 its tables and sequences"
            }
            _ => "",
        };
        let sqlstate = match error {
            TxError::Refused(refusal) => Some(refusal.code.code().to_owned()),
            _ => None,
        };
        OpenError::Refused { url: self.url.to_string(), why: format!("{error}{advice}"), sqlstate }
    }
}

/// A setting that a commit rests on.
struct Check {
    setting: &'static str,
    /// What it may be; the first is what is asked for.
    allowed: &'static [&'static str],
    why: &'static str,
}

const CHECKED: [Check; 4] = [
    Check {
        setting: "fsync",
        allowed: &["on"],
        why: "without it a power cut can lose acknowledged jobs and damage the database",
    },
    Check {
        setting: "full_page_writes",
        allowed: &["on"],
        why: "without it a power cut can damage the database",
    },
    Check {
        setting: "synchronous_commit",
        allowed: &["on", "remote_apply", "remote_write", "local"],
        why: "otherwise a commit is acknowledged before it is on disk",
    },
    Check {
        setting: "server_encoding",
        allowed: &["UTF8"],
        why: "payloads are JSON text, which is Unicode",
    },
];

/// Why no pooler can be between a node and its server.
const POOLER: &str = "a connection pooler such as PgBouncer is in between; give the address of \
    PostgreSQL itself, since settings, locks and LISTEN belong to one connection";

/// What to do about a connection that was refused.
fn hint(error: &tokio_postgres::Error) -> String {
    let text = chain(error);
    if text.contains("unsupported startup parameter") {
        return format!("{text}: {POOLER}");
    }
    if let Some(advice) = crate::tls::advice(error) {
        return format!("{text}{advice}");
    }
    let advice = match error.code().map(tokio_postgres::error::SqlState::code) {
        Some("28P01" | "28000") => {
            "; check user and password (in the URL, in PGPASSFILE or in a password file), sslmode \
             and pg_hba.conf"
        }
        Some("3D000") => "; create it with CREATE DATABASE, or correct the URL",
        Some("53300") => "; raise max_connections, or end other clients",
        Some("57P03") => "; the server is starting or stopping: try again",
        Some(_) => "",
        None => "; check that the server runs and that host and port are right",
    };
    format!("{text}{advice}")
}
