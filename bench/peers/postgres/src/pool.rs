//! The connections of the Rust peers, and what the server says about them. The crate
//! `postgres-sqlx08` has this file too, with its own version of sqlx.

use sqlx::postgres::{PgPool, PgPoolOptions};
use windlass_peers_plan::{Outcome, Task};

/// A pool of 32 connections: each of 64 producers waits for one at most once.
pub(crate) async fn pool(task: &Task) -> Outcome<PgPool> {
    Ok(PgPoolOptions::new().max_connections(32).connect(task.database()?).await?)
}

/// What the server says about the connections of a pool, in words.
pub(crate) async fn durability(pool: &PgPool) -> Outcome<String> {
    let level: String = sqlx::query_scalar("SHOW synchronous_commit").fetch_one(pool).await?;
    let synced = if level == "on" { "synced per commit" } else { "not synced per commit" };
    Ok(format!("synchronous_commit={level}: {synced}"))
}
