//! The ceiling of the PostgreSQL store: the same rows in the same tables, written by bare
//! statements in the same number of round trips. It has no rules and no checks, and locks only the
//! rows that it claims.

use tokio_postgres::{Row, Statement};
use windlass_store_postgres::PgStore;

use crate::contender::{Contender, LEASE, NOW, PROCESS, WORKER, payload, seed};
use crate::measure::Outcome;
use crate::postgres::Sql;

/// A bare connection to a schema of ours.
pub(crate) struct PgCeiling {
    sql: Sql,
    statements: Statements,
    payload: String,
    last_id: i64,
    commits: i64,
    held: Vec<i64>,
}

/// Prepared once per connection.
struct Statements {
    begin: Statement,
    insert_jobs: Statement,
    insert_ready: Statement,
    find: Statement,
    delete_ready: Statement,
    insert_leased: Statement,
    delete_leased: Statement,
    insert_done: Statement,
    count: Statement,
    mark: Statement,
    commit: Statement,
}

/// The first id: above those that the store has taken from the sequence.
const FIRST_ID: i64 = 1_000_000;

const INSERT_JOBS: &str = "INSERT INTO jobs (id, created_at, visibility_timeout, timeout, queue, \
    kind, retry, max_retries, payload_bytes, priority, idempotency_key, payload) \
    SELECT id, $2::bigint, $3::bigint, NULL, 1, 1, 1, 3, octet_length($4::text), 0, NULL, \
    $4::text FROM unnest($1::bigint[]) AS id";
const INSERT_READY: &str = "INSERT INTO ready (id, turn, due, epoch, updated_at, queue, kind, \
    attempts, generation, class) SELECT id, 0, $2::bigint, 0, $2::bigint, 1, 1, 0, 0, 0 \
    FROM unnest($1::bigint[]) AS id";
const FIND: &str = "SELECT t.*, j.* FROM (SELECT * FROM ready WHERE queue = 1 AND kind = 1 \
    ORDER BY class, turn, due, id LIMIT $1::bigint FOR UPDATE SKIP LOCKED) t \
    JOIN jobs j ON j.id = t.id";
const DELETE_READY: &str = "DELETE FROM ready WHERE id = ANY($1::bigint[])";
const INSERT_LEASED: &str = "INSERT INTO leased (id, turn, due, epoch, updated_at, started_at, \
    attempts, generation, class, lease_until, lease_length, worker) \
    SELECT id, 0, $2::bigint, 1, $2::bigint, $2::bigint, 1, 0, 0, $2::bigint + $3::bigint, \
    $3::bigint, $4::text FROM unnest($1::bigint[]) AS id";
const DELETE_LEASED: &str = "DELETE FROM leased WHERE id = ANY($1::bigint[])";
const INSERT_DONE: &str = "INSERT INTO done (id, turn, due, epoch, updated_at, started_at, \
    attempts, generation, class, finished_at, view, queue, kind) \
    SELECT id, 0, $2::bigint, 1, $2::bigint, $2::bigint, 1, 0, 0, $2::bigint, 3, 1, 1 \
    FROM unnest($1::bigint[]) AS id";
const COUNT: &str = "INSERT INTO counts (queue, kind, process, queued, scheduled, processing, \
    done, failed, cancelled) VALUES (1, 1, $1::bigint, $2::bigint, 0, $3::bigint, $4::bigint, 0, \
    0) ON CONFLICT (queue, kind, process) DO UPDATE SET queued = counts.queued + excluded.queued, \
    processing = counts.processing + excluded.processing, done = counts.done + excluded.done";
const MARK: &str = "UPDATE markers SET seq = $2::bigint, at = $3::bigint, last_id = $4::bigint \
    WHERE process = $1::bigint";

impl PgCeiling {
    /// Creates the schema with the store of Windlass, then writes to it without that store.
    pub(crate) fn open(url: &str, payload_bytes: usize) -> Outcome<Self> {
        seed(PgStore::connect(url)?)?;
        let (server, schema) = url.rsplit_once("schema=").ok_or("the URL names no schema")?;
        let sql = Sql::connect(server.trim_end_matches(['?', '&']))?;
        sql.run(&format!("SET search_path TO {schema}"))?;
        sql.run(&format!("SELECT setval('ids', {FIRST_ID})"))?;
        let statements = sql.runtime.block_on(async {
            let prepare = |text| sql.client.prepare(text);
            Ok::<Statements, tokio_postgres::Error>(Statements {
                begin: prepare("BEGIN ISOLATION LEVEL READ COMMITTED").await?,
                insert_jobs: prepare(INSERT_JOBS).await?,
                insert_ready: prepare(INSERT_READY).await?,
                find: prepare(FIND).await?,
                delete_ready: prepare(DELETE_READY).await?,
                insert_leased: prepare(INSERT_LEASED).await?,
                delete_leased: prepare(DELETE_LEASED).await?,
                insert_done: prepare(INSERT_DONE).await?,
                count: prepare(COUNT).await?,
                mark: prepare(MARK).await?,
                commit: prepare("COMMIT").await?,
            })
        })?;
        let payload = payload(payload_bytes);
        Ok(Self { sql, statements, payload, last_id: FIRST_ID, commits: 2, held: Vec::new() })
    }
}

impl Contender for PgCeiling {
    fn enqueue(&mut self, jobs: usize) -> Outcome<()> {
        let count = i64::try_from(jobs)?;
        let ids: Vec<i64> = (self.last_id + 1..=self.last_id + count).collect();
        self.last_id += count;
        self.commits += 1;
        let (client, prepared) = (&self.sql.client, &self.statements);
        let (process, none) = (PROCESS.cast_signed(), 0_i64);
        // All are polled in this order the first time, and so sent in it.
        self.sql.runtime.block_on(async {
            tokio::try_join!(
                async { client.execute(&prepared.begin, &[]).await },
                async {
                    client
                        .execute(&prepared.insert_jobs, &[&ids, &NOW, &LEASE, &self.payload])
                        .await
                },
                async { client.execute(&prepared.insert_ready, &[&ids, &NOW]).await },
                async { client.execute(&prepared.count, &[&process, &count, &none, &none]).await },
                async {
                    client
                        .execute(&prepared.mark, &[&process, &self.commits, &NOW, &self.last_id])
                        .await
                },
                async { client.execute(&prepared.commit, &[]).await },
            )
        })?;
        Ok(())
    }

    fn work(&mut self, jobs: usize) -> Outcome<()> {
        self.commits += 1;
        let done = std::mem::take(&mut self.held);
        let (client, prepared) = (&self.sql.client, &self.statements);
        let limit = i64::try_from(jobs)?;
        let (_, found) = self.sql.runtime.block_on(async {
            tokio::try_join!(async { client.execute(&prepared.begin, &[]).await }, async {
                client.query(&prepared.find, &[&limit]).await
            },)
        })?;
        let found: Vec<Found> = found.iter().map(read).collect::<Outcome<_>>()?;
        let ids: Vec<i64> = found.iter().map(|job| job.id).collect();
        std::hint::black_box(found);
        let (claimed, ended) = (i64::try_from(ids.len())?, i64::try_from(done.len())?);
        let (process, worker) = (PROCESS.cast_signed(), WORKER);
        self.sql.runtime.block_on(async {
            tokio::try_join!(
                async { client.execute(&prepared.delete_ready, &[&ids]).await },
                async { client.execute(&prepared.delete_leased, &[&done]).await },
                async {
                    client.execute(&prepared.insert_leased, &[&ids, &NOW, &LEASE, &worker]).await
                },
                async { client.execute(&prepared.insert_done, &[&done, &NOW]).await },
                async {
                    client
                        .execute(
                            &prepared.count,
                            &[&process, &-claimed, &(claimed - ended), &ended],
                        )
                        .await
                },
                async {
                    client
                        .execute(&prepared.mark, &[&process, &self.commits, &NOW, &self.last_id])
                        .await
                },
                async { client.execute(&prepared.commit, &[]).await },
            )
        })?;
        self.held = ids;
        Ok(())
    }
}

/// Columns that a worker needs, decoded as the store decodes them.
#[expect(dead_code, reason = "it is read because a worker wants it")]
struct Found {
    id: i64,
    numbers: [i64; 4],
    attempts: i32,
    class: i16,
    payload: String,
}

fn read(row: &Row) -> Outcome<Found> {
    let mut numbers = [0; 4];
    for (at, number) in numbers.iter_mut().enumerate() {
        *number = row.try_get(1 + at)?;
    }
    let (attempts, class) = (row.try_get("attempts")?, row.try_get("class")?);
    Ok(Found { id: row.try_get(0)?, numbers, attempts, class, payload: row.try_get("payload")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_writes_is_a_store_of_ours_without_a_fault() {
        let dir = tempfile::tempdir().unwrap();
        // Without PostgreSQL there is nothing to test; on CI that is a failure.
        let Ok(url) = crate::postgres::url(None, dir.path()) else { return };
        let mut ceiling = PgCeiling::open(&url, 100).unwrap();
        ceiling.enqueue(20).unwrap();
        ceiling.work(10).unwrap();
        ceiling.work(5).unwrap();
        drop(ceiling);
        let store = PgStore::connect(&url).unwrap();
        assert_eq!(store.verify().unwrap(), []);
        crate::store::tests::assert_counts(&store, [5, 0, 5, 10, 0, 0]);
    }
}
