//! The Rust peers on PostgreSQL that stand on sqlx 0.8: awa, pgmq and underway. The database is in
//! the environment variable of the plan.

mod awa_peer;
mod pgmq_peer;
#[path = "../../postgres/src/pool.rs"]
mod pool;
mod underway_peer;

use windlass_peers_plan::{Outcome, Task, run};

use crate::pool::{durability, pool};

fn main() -> Outcome<()> {
    let task = Task::from_arguments(std::env::args().skip(1))?;
    let line = match task.peer.as_str() {
        "awa" => run(&task, awa_peer::open)?,
        "pgmq" => run(&task, pgmq_peer::open)?,
        "underway" => run(&task, underway_peer::open)?,
        other => return Err(format!("{other} is not here").into()),
    };
    println!("{line}");
    Ok(())
}
