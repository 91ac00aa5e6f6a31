//! What a node does beside its commits, on a thread and a connection of its own: hints to other
//! nodes (NOTIFY) and from them (LISTEN), vacuum of the hot tables, adding up counters of processes
//! that are gone, and removing queues and kinds without jobs.
//!
//! Nothing here is needed for correctness: without it hints are late, and tables grow.

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
use crate::names::{SCHEMA, check_schema};
use crate::open::{Opener, Side};
use crate::rows::get;
use crate::session::Found;
use crate::vacuum::{self, Tables};

/// The shortest time between two hints: a burst of commits is one hint.
const HINT_PAUSE: Duration = Duration::from_millis(10);
/// How often the tables are maintained.
pub(crate) const ROUND: Duration = Duration::from_secs(2);
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
    /// No other node listens.
    alone: AtomicBool,
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

    /// Tells other nodes, if there are any, that there may be something to do.
    pub(crate) fn hint(&self) {
        if self.shared.alone.load(Ordering::Relaxed) {
            return;
        }
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
        // It may be in a long vacuum, which no commit waits for.
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
                // There were no hints of what was committed meanwhile.
                waker.wake_by_ref();
                let tables = Tables::default();
                let mut serving = Serving { side, locks, tables, rounds: 0, waker, shared };
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
    rounds: u32,
    waker: &'s Waker,
    shared: &'s Shared,
}

impl Serving<'_> {
    /// Sends and receives hints, and maintains the tables, until the connection fails.
    async fn serve(&mut self, schema: &str) -> Found<()> {
        let channel = format!("windlass_{schema}");
        let (pid, listening) = (self.side.pid, self.locks.listening());
        self.side.query("SELECT pg_advisory_lock_shared($1)", &[&listening]).await?;
        self.side.run(&format!("LISTEN {channel}")).await?;
        // Those that were alone are not; who comes after this one sees its lock.
        self.side.run(&format!("NOTIFY {channel}, '-{pid}'")).await?;
        self.count_listeners().await?;
        let hint = format!("NOTIFY {channel}, '{pid}'");
        let mut next_round = Instant::now() + ROUND;
        let mut next_hint = Instant::now();
        loop {
            let hinted = self.shared.hint.load(Ordering::Relaxed);
            let until = if hinted { next_hint.min(next_round) } else { next_round };
            tokio::select! {
                () = sleep_until(until) => {}
                () = self.shared.wake.notified() => {}
                hint = self.side.hints.recv() => match hint {
                    Some(from) if from.abs() == pid => {}
                    Some(from) if from < 0 => self.shared.alone.store(false, Ordering::Relaxed),
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
                self.count_listeners().await?;
                self.maintain().await?;
                next_round = Instant::now() + ROUND;
            }
        }
    }

    /// Looks whether other nodes listen.
    async fn count_listeners(&self) -> Found<()> {
        let rows = self.side.query(OTHERS, &[&self.locks.listening()]).await?;
        self.shared.alone.store(rows.is_empty(), Ordering::Relaxed);
        Ok(())
    }

    /// Vacuums tables with dead rows, adds up counters, and removes pairs. One node at a time
    /// does it; all learn whether dead rows stay.
    async fn maintain(&mut self) -> Found<()> {
        let lock = self.locks.housekeeping();
        let rows = self.side.query("SELECT pg_try_advisory_lock($1)", &[&lock]).await?;
        if rows.first().map(|row| get::<bool>(row, 0)).transpose()? == Some(true) {
            let done = self.tidy().await;
            self.side.query("SELECT pg_advisory_unlock($1)", &[&lock]).await?;
            done?;
        }
        let many = vacuum::are_many_dead(&self.side).await?;
        self.shared.useless.store(many, Ordering::Relaxed);
        Ok(())
    }

    async fn tidy(&mut self) -> Found<()> {
        self.tables.vacuum(&self.side).await?;
        self.fold().await?;
        if self.rounds.is_multiple_of(RARELY) {
            self.remove_pairs().await?;
        }
        self.rounds = self.rounds.wrapping_add(1);
        Ok(())
    }

    /// Removes queues and kinds that have no jobs from the list of those that claims ask for, while
    /// no batch is open; not at all if one is.
    async fn remove_pairs(&self) -> Found<()> {
        if self.side.query(EMPTY_PAIRS, &[]).await?.is_empty() {
            return Ok(());
        }
        self.side.run("BEGIN").await?;
        if self.holds_names("SELECT pg_try_advisory_xact_lock($1)").await? {
            self.side.run(REMOVE_PAIRS).await?;
        }
        self.side.run("COMMIT").await
    }

    /// Adds up the counters of processes that are gone.
    async fn fold(&self) -> Found<()> {
        self.side.run("BEGIN").await?;
        if self.holds_names("SELECT pg_try_advisory_xact_lock_shared($1)").await? {
            self.side.query(FOLD, &[&GONE_AFTER_MS]).await?;
        }
        self.side.run("COMMIT").await
    }

    /// Whether the open transaction got the lock of the names, and the schema is known here.
    async fn holds_names(&self, lock: &str) -> Found<bool> {
        let held = self.side.query(lock, &[&self.locks.names()]).await?;
        let held = held.first().map(|row| get::<bool>(row, 0)).transpose()? == Some(true);
        Ok(held && check_schema(&self.side.query(SCHEMA, &[]).await?).is_ok())
    }
}

/// A process that has not committed for this long, by the server's clock, is taken to be gone. One
/// that is not only gets a new row of counters.
const GONE_AFTER_MS: i64 = 600_000;

/// A node that listens, other than this one. The number of its lock is kept in two halves.
const OTHERS: &str = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 \
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) \
    AND classid = (($1::bigint >> 32) & 4294967295)::oid \
    AND objid = ($1::bigint & 4294967295)::oid AND pid <> pg_backend_pid() LIMIT 1";
const EMPTY_PAIRS: &str = "SELECT 1 FROM pairs p WHERE NOT EXISTS \
    (SELECT 1 FROM jobs j WHERE j.queue = p.queue AND j.kind = p.kind) LIMIT 1";
const REMOVE_PAIRS: &str = "WITH gone AS (DELETE FROM pairs p WHERE NOT EXISTS \
    (SELECT 1 FROM jobs j WHERE j.queue = p.queue AND j.kind = p.kind) RETURNING queue, kind) \
    DELETE FROM counts c USING gone g WHERE c.queue = g.queue AND c.kind = g.kind; \
    UPDATE meta SET value = value + 1 WHERE key = 'names'";
/// Adds the counters of processes that are gone to those of process 0.
const FOLD: &str = "WITH gone AS (DELETE FROM counts c WHERE process <> 0 AND NOT EXISTS \
    (SELECT 1 FROM markers m WHERE m.process = c.process AND m.at > \
     (extract(epoch FROM now()) * 1000)::bigint - $1) \
    RETURNING queue, kind, queued, scheduled, processing, done, failed, cancelled, retrying) \
    INSERT INTO counts (queue, kind, process, queued, scheduled, processing, done, failed, \
    cancelled, retrying) SELECT queue, kind, 0, sum(queued), sum(scheduled), sum(processing), \
    sum(done), sum(failed), sum(cancelled), sum(retrying) FROM gone GROUP BY queue, kind \
    ORDER BY queue, kind \
    ON CONFLICT (queue, kind, process) DO UPDATE SET queued = counts.queued + excluded.queued, \
    scheduled = counts.scheduled + excluded.scheduled, \
    processing = counts.processing + excluded.processing, done = counts.done + excluded.done, \
    failed = counts.failed + excluded.failed, \
    cancelled = counts.cancelled + excluded.cancelled, \
    retrying = counts.retrying + excluded.retrying";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::IoRuntime;
    use crate::store::{PgOptions, PgStore};
    use crate::url::StoreUrl;
    use windlass_core::store::{Batch, Store};
    use windlass_core::{BatchId, Kind, NewJob, Payload, Policy, ProcessId, QueueName, Wall};
    use windlass_tests::postgres_server::PostgresServer;

    /// How long an answer may take here.
    const DEADLINE: Duration = Duration::from_secs(2);

    fn open(server: &PostgresServer) -> PgStore {
        let url = StoreUrl::parse(&server.url(&server.new_schema())).expect("it is a URL");
        let options = PgOptions { deadline: DEADLINE, ..PgOptions::default() };
        PgStore::open(url, options).expect("the store opens")
    }

    /// A node that is stopped after it has run this: nothing drives its connection any more, and
    /// the server does not learn of it.
    fn stopped(store: &PgStore, sql: &str) -> (IoRuntime, Side) {
        let runtime = IoRuntime::new().expect("there are threads");
        let side = runtime.block_on(async {
            let side = store.opener.side().await.expect("it connects");
            side.run(sql).await.expect("it runs");
            side
        });
        (runtime, side)
    }

    #[test]
    fn housekeeping_goes_on_at_another_node_when_the_one_that_does_it_is_stopped() {
        let Some(server) = PostgresServer::shared() else { return };
        let store = open(server);
        let lock = LockIds::new(&store.opener.url.schema).housekeeping();
        let _stopped = stopped(&store, &format!("SELECT pg_advisory_lock({lock})"));
        let runtime = IoRuntime::new().expect("there are threads");
        runtime.block_on(async {
            let side = store.opener.side().await.expect("it connects");
            let end = Instant::now() + Duration::from_mins(1);
            let sql = "SELECT pg_try_advisory_lock($1)";
            while !get::<bool>(&side.query(sql, &[&lock]).await.expect("it runs")[0], 0)
                .expect("a flag")
            {
                assert!(Instant::now() < end, "the lock is never released");
            }
        });
    }

    #[test]
    fn queues_can_be_made_when_a_node_is_stopped_within_its_housekeeping() {
        let Some(server) = PostgresServer::shared() else { return };
        let mut store = open(server);
        let lock = LockIds::new(&store.opener.url.schema).names();
        let sql = format!("BEGIN; SELECT pg_advisory_xact_lock_shared({lock})");
        let _stopped = stopped(&store, &sql);
        let id = BatchId { process: ProcessId(1), seq: 1 };
        let mut batch = Batch::new(id, Policy::default());
        let queue = QueueName::new("new").expect("it is a name");
        batch.enqueues.push(NewJob { queue, ..NewJob::new(Kind::default(), Payload::null()) });
        let made = store.commit(Wall::new(0), &batch);
        assert!(made.is_ok(), "{made:?}");
    }
}
