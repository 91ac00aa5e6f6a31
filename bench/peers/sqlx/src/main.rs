//! The peers that stand on sqlx, which have one version of SQLite in common: apalis and River.

mod apalis_peer;
mod river_peer;

use windlass_peers_plan::{Outcome, Task, run};

#[expect(clippy::print_stdout, reason = "its output is the figures")]
fn main() -> Outcome<()> {
    let task = Task::from_arguments(std::env::args().skip(1))?;
    let line = match task.peer.as_str() {
        "apalis" => run(&task, apalis_peer::open)?,
        "river" => run(&task, river_peer::open)?,
        other => return Err(format!("{other} is not here: apalis or river").into()),
    };
    println!("{line}");
    Ok(())
}

/// What SQLite says about the connections of a pool, in words.
async fn durability(pool: &sqlx::SqlitePool) -> Outcome<String> {
    let mode: String = sqlx::query_scalar("PRAGMA journal_mode").fetch_one(pool).await?;
    let mut levels = std::collections::BTreeSet::new();
    let mut held = Vec::new();
    // All connections at once: a setting holds for one connection, and a pool has several.
    for _ in 0..pool.size() {
        let mut connection = pool.acquire().await?;
        let level: i64 =
            sqlx::query_scalar("PRAGMA synchronous").fetch_one(&mut *connection).await?;
        levels.insert(level);
        held.push(connection);
    }
    let words: Vec<&str> = levels.iter().map(|level| named(*level)).collect();
    let synced = if levels.iter().all(|level| *level >= 2) {
        "synced per commit"
    } else {
        "not synced per commit"
    };
    Ok(format!("{}, synchronous={}: {synced}", mode.to_uppercase(), words.join(" or ")))
}

fn named(level: i64) -> &'static str {
    match level {
        0 => "OFF",
        1 => "NORMAL",
        2 => "FULL",
        _ => "EXTRA",
    }
}
