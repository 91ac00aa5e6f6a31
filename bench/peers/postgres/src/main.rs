//! The Rust peers on PostgreSQL, which stand on one version of sqlx: River, graphile_worker and
//! apalis; and Windlass on it. The database is in the environment variable of the plan.

mod apalis_peer;
mod graphile_peer;
mod pool;
mod river_peer;
#[path = "../../src/windlass.rs"]
mod windlass;

use windlass_peers_plan::{Outcome, Task, run};
use windlass_store_postgres::PgStore;

use crate::pool::{durability, pool};
use crate::windlass::Windlass;

fn main() -> Outcome<()> {
    let task = Task::from_arguments(std::env::args().skip(1))?;
    let line = match task.peer.as_str() {
        "apalis" => run(&task, apalis_peer::open)?,
        "graphile_worker" => run(&task, graphile_peer::open)?,
        "river" => run(&task, river_peer::open)?,
        "windlass" => run(&task, on_postgres)?,
        other => return Err(format!("{other} is not here").into()),
    };
    println!("{line}");
    Ok(())
}

async fn on_postgres(task: Task) -> Outcome<Windlass<PgStore>> {
    // It connects on a runtime of its own, which may not be entered from within another.
    let store =
        |task: &Task| tokio::task::block_in_place(|| Ok(PgStore::connect(task.database()?)?));
    windlass::open(task, store, "synchronous_commit=on")
}
