//! PostgreSQL under measurement: the server, a schema for each store, and queries of the server.
//!
//! Without a URL a private server is started, with `fsync` and `synchronous_commit` on. Its data
//! directory is in memory where it can be, and is removed with this process.

use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};

use tokio::runtime::{Builder, Runtime};
use tokio_postgres::types::{FromSqlOwned, ToSql};
use tokio_postgres::{Client, NoTls};
use windlass_tests::postgres_server::PostgresServer;

use crate::bare::{Place, Which};
use crate::measure::Outcome;

/// The schemas of this process, each with the URL of its server.
static SCHEMAS: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());

/// The URL of the store in this folder: a schema named after the folder.
pub(crate) fn url(given: Option<&str>, folder: &Path) -> Outcome<String> {
    let (server, schema) = (server(given)?, schema(folder));
    let mut schemas = SCHEMAS.lock().unwrap_or_else(PoisonError::into_inner);
    let entry = (server.clone(), schema.clone());
    if !schemas.contains(&entry) {
        schemas.push(entry);
    }
    let sign = if server.contains('?') { '&' } else { '?' };
    Ok(format!("{server}{sign}schema={schema}"))
}

/// Drops every schema that [`url`] has named.
pub(crate) fn drop_schemas() -> Outcome<()> {
    let schemas = std::mem::take(&mut *SCHEMAS.lock().unwrap_or_else(PoisonError::into_inner));
    for (server, schema) in schemas {
        let sql = format!("DROP SCHEMA IF EXISTS {schema} CASCADE");
        Sql::connect(&server)?.run(&sql)?;
    }
    Ok(())
}

/// The URL of the server, without a schema.
fn server(given: Option<&str>) -> Outcome<String> {
    static PRIVATE: OnceLock<Option<PostgresServer>> = OnceLock::new();
    if let Some(url) = given {
        if url.contains("schema=") {
            return Err("leave schema= out of the URL: each store gets a schema of its own".into());
        }
        return Ok(url.to_owned());
    }
    let settings = ["shared_buffers = 512MB", "shared_preload_libraries = 'pg_stat_statements'"];
    let private = PRIVATE.get_or_init(|| PostgresServer::start(&settings)).as_ref();
    let private = private.ok_or("PostgreSQL is not installed: install it, or give a URL")?;
    let url = private.url("none");
    Ok(url.split('?').next().unwrap_or_default().to_owned())
}

/// The name of the schema for a folder.
fn schema(folder: &Path) -> String {
    // FNV-1a.
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let bytes = folder.as_os_str().as_encoded_bytes();
    format!("bench_{:016x}", bytes.iter().fold(0xcbf2_9ce4_8422_2325, mix))
}

/// The size of the tables and indexes of the store in this folder, in KiB.
pub(crate) fn size_kib(given: Option<&str>, folder: &Path) -> Outcome<u64> {
    let sql = "SELECT (coalesce(sum(pg_total_relation_size(c.oid)), 0) / 1024)::bigint \
               FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
               WHERE n.nspname = $1 AND c.relkind = 'r'";
    let kib: i64 = Sql::connect(&server(given)?)?.one(sql, &[&schema(folder)])?;
    Ok(kib.unsigned_abs())
}

/// A connection of its own, not the store's.
pub(crate) struct Sql {
    pub(crate) client: Client,
    pub(crate) runtime: Runtime,
}

impl Sql {
    /// Connects to a server, by a URL without a schema.
    pub(crate) fn connect(url: &str) -> Outcome<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let client = runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
            tokio::spawn(connection);
            Ok::<Client, tokio_postgres::Error>(client)
        })?;
        Ok(Self { client, runtime })
    }

    /// Connects to the server of a place; `None` if it is not PostgreSQL.
    pub(crate) fn beside(place: &Place) -> Outcome<Option<Self>> {
        let Which::Postgres(url) = &place.store else { return Ok(None) };
        Self::connect(&server(url.as_deref())?).map(Some)
    }

    /// Runs statements without parameters.
    pub(crate) fn run(&self, sql: &str) -> Outcome<()> {
        Ok(self.runtime.block_on(self.client.batch_execute(sql))?)
    }

    /// The one value that a query returns.
    pub(crate) fn one<T: FromSqlOwned>(
        &self,
        sql: &str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Outcome<T> {
        Ok(self.runtime.block_on(self.client.query_one(sql, params))?.try_get(0)?)
    }

    /// The number of statements that all connections have run. Needs `pg_stat_statements`.
    pub(crate) fn statements(&self) -> Outcome<u64> {
        self.run("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")?;
        let calls: i64 = self.one("SELECT sum(calls)::bigint FROM pg_stat_statements", &[])?;
        Ok(calls.unsigned_abs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_one_schema_and_another_folder_has_another() {
        let [one, two] = ["/a/.tmpX/ours", "/a/.tmpX/bare"].map(|path| schema(Path::new(path)));
        assert_ne!(one, two);
        assert_eq!(one, schema(Path::new("/a/.tmpX/ours")));
        assert!(one.len() < 63 && one.starts_with("bench_"), "{one}");
    }

    #[test]
    fn a_url_with_a_schema_is_refused() {
        let given = "postgres://windlass@db.example/jobs?schema=mine";
        let error = url(Some(given), Path::new("/a")).unwrap_err().to_string();
        assert!(error.contains("leave schema= out"), "{error}");
    }

    #[test]
    fn parameters_of_a_url_are_kept() {
        let given = "postgres://windlass@db.example/jobs?connect_timeout=3";
        let url = url(Some(given), Path::new("/a")).unwrap();
        assert!(url.starts_with(&format!("{given}&schema=bench_")), "{url}");
        SCHEMAS.lock().unwrap().retain(|(server, _)| server != given);
    }
}
