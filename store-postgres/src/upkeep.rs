//! What a node does beside its commits, on a thread and a connection of its own: hints to other
//! nodes (NOTIFY) and from them (LISTEN), vacuum of the hot tables, adding up counters of processes
//! that are gone, and forgetting queues and kinds without jobs.
//!
//! Nothing here is needed for correctness: without it hints are late, and tables grow.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::backoff::Backoff;
use crate::locks::LockIds;
use crate::open::{Opener, Side};
use crate::rows::get;
use crate::session::Found;

/// The shortest time between two hints: a burst of commits is one hint.
const HINT_PAUSE: Duration = Duration::from_millis(10);
/// How often tables are looked after.
const ROUND: Duration = Duration::from_secs(2);
/// How long a vacuum may take.
const VACUUM_LIMIT: Duration = Duration::from_mins(10);
/// Queues and kinds without jobs are looked for once in this number of rounds.
const RARELY: u32 = 300;

/// The thread; it ends when this is dropped.
pub(crate) struct Upkeep {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    /// Wakes the thread.
    wake: Notify,
    hint: AtomicBool,
    ended: AtomicBool,
    /// Vacuums of the ready jobs remove little.
    useless: AtomicBool,
}

impl Upkeep {
    /// Starts the thread. `waker` is called on hints of other nodes.
    pub(crate) fn start(opener: Opener, locks: LockIds, waker: Waker) -> Self {
        let shared = Arc::new(Shared::default());
        let for_thread = Arc::clone(&shared);
        let run = move || run(&opener, locks, &waker, &for_thread);
        let thread = thread::Builder::new().name("windlass-postgres".into()).spawn(run).ok();
        Self { shared, thread }
    }

    /// Tells other nodes that there may be something to do.
    pub(crate) fn hint(&self) {
        self.shared.hint.store(true, Ordering::Relaxed);
        self.shared.wake.notify_one();
    }

    /// Whether dead rows of ready jobs cannot be removed: a transaction of some client is too old.
    pub(crate) fn is_useless(&self) -> bool {
        self.shared.useless.load(Ordering::Relaxed)
    }
}

impl Drop for Upkeep {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        self.shared.wake.notify_one();
        // It may be in a long vacuum: nobody waits for it.
        drop(self.thread.take());
    }
}

impl fmt::Debug for Upkeep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Upkeep")
    }
}

fn run(opener: &Opener, locks: LockIds, waker: &Waker, shared: &Shared) {
    let Ok(runtime) = crate::session::IoRuntime::new() else { return };
    runtime.block_on(async {
        let mut backoff = Backoff::default();
        while !shared.ended.load(Ordering::Relaxed) {
            if let Ok(side) = opener.side().await {
                backoff.clear();
                // What was committed meanwhile was not told.
                waker.wake_by_ref();
                let tables = Tables::default();
                let mut serving = Serving { side, locks, tables, waker, shared };
                // A connection that fails is made again.
                let _ = serving.serve(&opener.url.schema).await;
            }
            let until = Instant::now() + backoff.failed(Instant::now(), String::new());
            while !shared.ended.load(Ordering::Relaxed) && Instant::now() < until {
                tokio::select! {
                    () = sleep_until(until) => {}
                    () = shared.wake.notified() => {}
                }
            }
        }
    });
}

/// The work on one connection.
struct Serving<'s> {
    side: Side,
    locks: LockIds,
    tables: Tables,
    waker: &'s Waker,
    shared: &'s Shared,
}

impl Serving<'_> {
    /// Sends and hears hints, and looks after the tables, until the connection fails.
    async fn serve(&mut self, schema: &str) -> Found<()> {
        let channel = format!("windlass_{schema}");
        self.side.run(&format!("LISTEN {channel}")).await?;
        let hint = format!("NOTIFY {channel}, '{}'", self.side.pid);
        let mut next_round = Instant::now() + ROUND;
        let mut next_hint = Instant::now();
        loop {
            let hinted = self.shared.hint.load(Ordering::Relaxed);
            let until = if hinted { next_hint.min(next_round) } else { next_round };
            tokio::select! {
                () = sleep_until(until) => {}
                () = self.shared.wake.notified() => {}
                heard = self.side.hints.recv() => match heard {
                    Some(from) if from == self.side.pid => {}
                    Some(_) => self.waker.wake_by_ref(),
                    // The connection is gone.
                    None => return Ok(()),
                },
            }
            if self.shared.ended.load(Ordering::Relaxed) {
                return Ok(());
            }
            let now = Instant::now();
            if now >= next_hint && self.shared.hint.swap(false, Ordering::Relaxed) {
                self.side.run(&hint).await?;
                next_hint = now + HINT_PAUSE;
            }
            if now >= next_round {
                self.look_after().await?;
                next_round = Instant::now() + ROUND;
            }
        }
    }

    /// Vacuums hot tables with dead rows, adds up counters, and forgets pairs. One node at a time
    /// does it; all learn whether dead rows stay.
    async fn look_after(&mut self) -> Found<()> {
        let lock = self.locks.housekeeping();
        let rows = self.side.query("SELECT pg_try_advisory_lock($1)", &[&lock]).await?;
        if rows.first().map(|row| get::<bool>(row, 0)).transpose()? == Some(true) {
            let done = self.tidy().await;
            self.side.query("SELECT pg_advisory_unlock($1)", &[&lock]).await?;
            done?;
        }
        let dead = self.dead_rows(MANY_DEAD).await?;
        let many = dead.iter().any(|(table, _)| table == "ready");
        self.shared.useless.store(many, Ordering::Relaxed);
        Ok(())
    }

    async fn tidy(&mut self) -> Found<()> {
        for (table, before) in self.dead_rows(FEWEST_DEAD).await? {
            if !self.tables.rests.entry(table.clone()).or_default().is_over() {
                continue;
            }
            let sql = format!("VACUUM (SKIP_LOCKED, TRUNCATE off, INDEX_CLEANUP on) {table}");
            self.side.run_long(&sql, VACUUM_LIMIT).await?;
            let after = self.dead_rows(0).await?;
            let after = after.iter().find(|(name, _)| *name == table).map_or(0, |(_, dead)| *dead);
            self.tables.rests.entry(table).or_default().learn(before, after);
        }
        self.side.query(FOLD, &[&GONE_AFTER_MS]).await?;
        if self.tables.rounds.is_multiple_of(RARELY) {
            self.forget_pairs().await?;
        }
        self.tables.rounds = self.tables.rounds.wrapping_add(1);
        Ok(())
    }

    /// The hot tables of this user's with at least this number of dead rows.
    async fn dead_rows(&self, fewest: i64) -> Found<Vec<(String, i64)>> {
        let rows = self.side.query(DEAD_ROWS, &[&VACUUMED.as_slice(), &fewest]).await?;
        rows.iter().map(|row| Ok((get(row, 0)?, get(row, 1)?))).collect()
    }

    /// Removes queues and kinds that have no jobs from the list of those that claims ask for, while
    /// no batch is open; not at all if one is.
    async fn forget_pairs(&self) -> Found<()> {
        if self.side.query(EMPTY_PAIRS, &[]).await?.is_empty() {
            return Ok(());
        }
        let names = self.locks.names();
        self.side.run("BEGIN").await?;
        let held = self.side.query("SELECT pg_try_advisory_xact_lock($1)", &[&names]).await?;
        if held.first().map(|row| get::<bool>(row, 0)).transpose()? == Some(true) {
            self.side.run(FORGET_PAIRS).await?;
        }
        self.side.run("COMMIT").await
    }
}

/// What is remembered from round to round.
#[derive(Default)]
struct Tables {
    rests: BTreeMap<String, Rest>,
    rounds: u32,
}

/// The pause between vacuums of a table: it grows while they remove little.
#[derive(Debug, Default)]
struct Rest {
    rounds: u32,
    left: u32,
}

/// The longest pause, in rounds.
const LONGEST_REST: u32 = 32;

impl Rest {
    /// Whether it is time; counts a round otherwise.
    fn is_over(&mut self) -> bool {
        let over = self.left == 0;
        self.left = self.left.saturating_sub(1);
        over
    }

    /// Notes how many dead rows a vacuum has found and left.
    fn learn(&mut self, before: i64, after: i64) {
        let useless = after > before / 2;
        self.rounds = if useless { (self.rounds * 2).clamp(1, LONGEST_REST) } else { 0 };
        self.left = self.rounds;
    }
}

/// The small tables that every batch rewrites.
pub(crate) const VACUUMED: [&str; 5] = ["ready", "leased", "scheduled", "counts", "markers"];
/// Fewer dead rows are left alone.
const FEWEST_DEAD: i64 = 1_000;
/// From this number of dead rows among the ready jobs on, claims start at the last head seen.
const MANY_DEAD: i64 = 10_000;
/// A process that has not committed for this long, by the server's clock, is taken to be gone. One
/// that is not only gets a new row of counters.
const GONE_AFTER_MS: i64 = 600_000;

/// Tables of this user's with dead rows.
const DEAD_ROWS: &str = "SELECT s.relname::text, n_dead_tup FROM pg_stat_user_tables s \
    JOIN pg_class c ON c.oid = s.relid WHERE s.schemaname = current_schema() \
    AND s.relname = ANY($1) AND n_dead_tup >= $2 AND pg_has_role(c.relowner, 'USAGE')";
const EMPTY_PAIRS: &str = "SELECT 1 FROM pairs p WHERE NOT EXISTS \
    (SELECT 1 FROM jobs j WHERE j.queue = p.queue AND j.kind = p.kind) LIMIT 1";
const FORGET_PAIRS: &str = "WITH gone AS (DELETE FROM pairs p WHERE NOT EXISTS \
    (SELECT 1 FROM jobs j WHERE j.queue = p.queue AND j.kind = p.kind) RETURNING queue, kind) \
    DELETE FROM counts c USING gone g WHERE c.queue = g.queue AND c.kind = g.kind; \
    UPDATE meta SET value = value + 1 WHERE key = 'names'";
/// Adds the counters of processes that are gone to those of process 0.
const FOLD: &str = "WITH gone AS (DELETE FROM counts c WHERE process <> 0 AND NOT EXISTS \
    (SELECT 1 FROM markers m WHERE m.process = c.process AND m.at > \
     (extract(epoch FROM now()) * 1000)::bigint - $1) \
    RETURNING queue, kind, queued, scheduled, processing, done, failed, cancelled) \
    INSERT INTO counts SELECT queue, kind, 0, sum(queued), sum(scheduled), sum(processing), \
    sum(done), sum(failed), sum(cancelled) FROM gone GROUP BY queue, kind ORDER BY queue, kind \
    ON CONFLICT (queue, kind, process) DO UPDATE SET queued = counts.queued + excluded.queued, \
    scheduled = counts.scheduled + excluded.scheduled, \
    processing = counts.processing + excluded.processing, done = counts.done + excluded.done, \
    failed = counts.failed + excluded.failed, cancelled = counts.cancelled + excluded.cancelled";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vacuum_that_removes_little_is_repeated_less_and_less_often() {
        let mut rest = Rest::default();
        let mut pauses = Vec::new();
        for _ in 0..8 {
            let mut pause = 0;
            while !rest.is_over() {
                pause += 1;
            }
            pauses.push(pause);
            rest.learn(10_000, 9_000);
        }
        assert_eq!(pauses, [0, 1, 2, 4, 8, 16, 32, 32]);
        while !rest.is_over() {}
        rest.learn(10_000, 100);
        assert!(rest.is_over(), "one that helps is repeated in the next round");
    }
}
