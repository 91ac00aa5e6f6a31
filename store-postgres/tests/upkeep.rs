//! What a node does beside its commits: hints, vacuum, adding up, forgetting, and what it tells an
//! operator about the server.

mod subject;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};
use std::time::Duration;

use tokio::time::Instant;
use windlass_core::store::{Admin, Batch, ClaimFor, Outcomes, Store, Taker};
use windlass_core::{
    BatchId, Demand, JobId, Kind, NewJob, Payload, Policy, Priority, ProcessId, Wall, WorkerId,
};
use windlass_store_postgres::PgStore;
use windlass_tests::postgres_server::PostgresServer;

/// How long anything here may take.
const PATIENCE: Duration = Duration::from_mins(1);

/// Counts how often it was woken.
#[derive(Debug, Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A node with its upkeep: a store, its process and the number of its last batch.
struct Node {
    store: PgStore,
    process: u64,
    seq: u64,
    woken: Arc<Woken>,
}

impl Node {
    fn start(url: &str, process: u64) -> Self {
        let mut store = PgStore::connect(url).expect("the store opens");
        let woken = Arc::new(Woken::default());
        store.wake_on_news(Waker::from(Arc::clone(&woken)));
        let node = Self { store, process, seq: 0, woken };
        // It is woken once when it listens.
        until("it listens", || node.woken() > 0);
        node
    }

    fn woken(&self) -> usize {
        self.woken.0.load(Ordering::SeqCst)
    }

    fn commit(&mut self, fill: impl FnOnce(&mut Batch)) -> Outcomes {
        self.seq += 1;
        let id = BatchId { process: ProcessId(self.process), seq: self.seq };
        let mut batch = Batch::new(id, Policy::default());
        fill(&mut batch);
        self.store.commit(Wall::new(0), &batch).expect("it commits")
    }

    fn enqueue(&mut self, jobs: usize) {
        let job = || NewJob::new(Kind::default(), Payload::null());
        self.commit(|batch| batch.enqueues.extend((0..jobs).map(|_| job())));
    }

    fn claim(&mut self, max: usize) -> Vec<JobId> {
        let worker = WorkerId::new("w1").expect("it is a name");
        let takers = vec![Taker { worker, max, length: None }];
        let claim = ClaimFor { demand: Demand::ALL, takers };
        let out = self.commit(|batch| batch.claims.push(claim));
        out.claims.iter().flat_map(|claimed| &claimed.jobs).map(|leased| leased.job.id).collect()
    }
}

/// Waits until something is so.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "{what}: not within {PATIENCE:?}");
        std::thread::yield_now();
    }
}

fn number(server: &PostgresServer, sql: &str) -> i64 {
    server.run(sql).parse().expect("it is a number")
}

#[test]
fn a_job_at_one_node_wakes_the_others_and_a_burst_is_few_hints() {
    let Some(server) = PostgresServer::shared() else { return };
    let url = server.url(&server.new_schema());
    let (mut one, other) = (Node::start(&url, 1), Node::start(&url, 2));
    let (own, before) = (one.woken(), other.woken());
    for _ in 0..100 {
        one.enqueue(1);
    }
    until("the other node is woken", || other.woken() > before);
    assert_eq!(one.woken(), own, "its own hints do not wake a node");
    assert!(other.woken() - before < 100, "{} hints for 100 commits", other.woken() - before);
}

#[test]
fn dead_rows_of_hot_tables_are_removed_by_a_node() {
    let Some(server) = PostgresServer::start(&["autovacuum = off"]) else { return };
    let mut node = Node::start(&server.url("windlass"), 1);
    node.enqueue(2_000);
    assert_eq!(node.claim(2_000).len(), 2_000);
    let vacuums = "SELECT vacuum_count FROM pg_stat_user_tables WHERE relname = 'ready'";
    until("the table is vacuumed", || number(&server, vacuums) > 0);
}

#[test]
fn counters_of_processes_that_are_gone_are_added_up() {
    let Some(server) = PostgresServer::shared() else { return };
    let schema = server.new_schema();
    let mut gone = Node::start(&server.url(&schema), 7);
    gone.enqueue(3);
    drop(gone);
    server.run(&format!("UPDATE {schema}.markers SET at = 0"));
    let node = Node::start(&server.url(&schema), 8);
    let rows = format!("SELECT count(*) FROM {schema}.counts WHERE process <> 0");
    until("the counters are added up", || number(server, &rows) == 0);
    let sum = format!("SELECT sum(queued) FROM {schema}.counts");
    assert_eq!(number(server, &sum), 3);
    assert_eq!(subject::verify(&node.store), Vec::<String>::new());
}

#[test]
fn kinds_without_jobs_are_forgotten_and_can_come_back() {
    let Some(server) = PostgresServer::shared() else { return };
    let schema = server.new_schema();
    let mut node = Node::start(&server.url(&schema), 1);
    let kind = Kind::new("rare").expect("it is a name");
    let rare = || NewJob::new(kind.clone(), Payload::null());
    let out = node.commit(|batch| batch.enqueues.push(rare()));
    let id = out.enqueues[0].as_ref().expect("it is taken").id;
    node.enqueue(1);
    node.commit(|batch| batch.admin.push(Admin::Cancel(id)));
    node.commit(|batch| batch.admin.push(Admin::Delete(id)));
    let pairs = format!("SELECT count(*) FROM {schema}.pairs");
    assert_eq!(number(server, &pairs), 2);
    // A node looks for them when it starts.
    let _second = Node::start(&server.url(&schema), 2);
    until("the kind is forgotten", || number(server, &pairs) == 1);
    let out = node.commit(|batch| batch.enqueues.push(rare()));
    assert!(out.enqueues[0].is_ok());
    assert_eq!(number(server, &pairs), 2);
    assert_eq!(node.claim(9).len(), 2);
    assert_eq!(subject::verify(&node.store), Vec::<String>::new());
}

#[test]
fn claims_do_not_walk_over_dead_rows_that_an_old_transaction_keeps() {
    let Some(server) = PostgresServer::start(&["autovacuum = off"]) else { return };
    let mut node = Node::start(&server.url("windlass"), 1);
    node.enqueue(10);
    let _old = server.hold_snapshot();
    for _ in 0..15 {
        node.enqueue(1_000);
        assert_eq!(node.claim(1_000).len(), 1_000);
    }
    let vacuums = "SELECT vacuum_count FROM pg_stat_user_tables WHERE relname = 'ready'";
    until("the node has tried to vacuum", || number(&server, vacuums) > 0);
    // The round goes on behind the vacuum.
    let tried = number(&server, vacuums);
    until("the next round", || number(&server, vacuums) > tried);
    node.enqueue(600);
    node.claim(10);
    server.run("SELECT pg_stat_reset()");
    for _ in 0..50 {
        assert_eq!(node.claim(10).len(), 10);
    }
    // One that others put before the head is seen once news were asked for.
    let mut other = PgStore::connect(&server.url("windlass")).expect("it opens");
    let mut batch = Batch::new(BatchId { process: ProcessId(2), seq: 1 }, Policy::default());
    let priority = Priority::new(9).expect("it is in bounds");
    batch.enqueues.push(NewJob { priority, ..NewJob::new(Kind::default(), Payload::null()) });
    let out = other.commit(Wall::new(0), &batch).expect("it commits");
    let first = out.enqueues[0].as_ref().expect("it is taken").id;
    assert!(node.store.news(&[]).expect("news can be asked for").wrote);
    assert_eq!(node.claim(1), [first]);
    // A connection that ends has told what it read.
    drop(node);
    let read = "SELECT coalesce(sum(idx_tup_read), 0) FROM pg_stat_user_indexes \
                WHERE indexrelname = 'ready_by_rank'";
    let gone = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'windlass'";
    drop(other);
    until("its connections are gone", || number(&server, gone) == 0);
    let read = number(&server, read);
    assert!(read < 300_000, "50 claims of 10 jobs read {read} rows of the index");
}

#[test]
fn an_operator_is_told_who_holds_old_rows_and_which_rights_are_missing() {
    let Some(server) = PostgresServer::start(&["autovacuum = off"]) else { return };
    let store = PgStore::connect(&server.url("windlass")).expect("the store opens");
    let texts = |store: &PgStore, old| -> Vec<String> {
        let found = store.maintenance().findings(old).expect("the server can be asked");
        found.iter().map(ToString::to_string).collect()
    };
    let found = texts(&store, Duration::from_hours(1));
    assert!(found.len() == 1 && found[0].contains("autovacuum is off"), "{found:?}");
    let old = server.hold_snapshot();
    let found = texts(&store, Duration::ZERO);
    let named = |text: &String| text.contains("psql") && text.contains("pg_terminate_backend(");
    assert!(found.iter().any(named), "{found:?}");
    drop(old);
    server.run(
        "CREATE ROLE guest LOGIN; GRANT USAGE ON SCHEMA windlass TO guest; \
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA windlass TO guest; \
         GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA windlass TO guest; \
         REVOKE DELETE ON windlass.done FROM guest",
    );
    let url = server.url("windlass").replace("windlass@", "guest@");
    let guest = PgStore::connect(&url).expect("the store opens");
    let found = texts(&guest, Duration::from_hours(1));
    assert!(found.iter().any(|text| text.contains("GRANT DELETE ON done TO guest")), "{found:?}");
    assert!(found.iter().any(|text| text.contains("does not own table ready")), "{found:?}");
}
