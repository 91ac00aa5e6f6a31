//! What a node does beside its commits: hints, vacuum, adding up, removing, and what it tells an
//! operator about the server.

mod subject;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};
use std::time::Duration;

use tokio::time::Instant;
use windlass_core::store::{Admin, Batch, ClaimFor, Outcomes, Settle, Store, Taker};
use windlass_core::{
    BatchId, Demand, Job, JobId, Kind, NewJob, Payload, Policy, Priority, ProcessId, QueueName,
    Verdict, Wall, WorkerId,
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

    fn lease(&mut self, max: usize) -> Vec<Job> {
        let worker = WorkerId::new("w1").expect("it is a name");
        let takers = vec![Taker { worker, max, length: None }];
        let claim = ClaimFor { demand: Demand::ALL, takers };
        let out = self.commit(|batch| batch.claims.push(claim));
        out.claims.into_iter().flat_map(|claimed| claimed.jobs).map(|leased| leased.job).collect()
    }

    fn claim(&mut self, max: usize) -> Vec<JobId> {
        self.lease(max).iter().map(|job| job.id).collect()
    }

    /// Takes jobs through their whole life.
    fn live(&mut self, jobs: usize) {
        self.enqueue(jobs);
        let leased = self.lease(jobs);
        assert_eq!(leased.len(), jobs);
        let verdict = || Verdict::Complete { result: None };
        let settle = |job: &Job| Settle { token: job.token(), verdict: verdict() };
        let out = self.commit(|batch| batch.settles.extend(leased.iter().map(settle)));
        assert!(out.settles.iter().all(Result::is_ok));
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

/// How often nodes have notified others of jobs.
fn hints(server: &PostgresServer) -> usize {
    let log = server.log();
    log.lines().filter(|line| line.contains("NOTIFY") && !line.contains("'-")).count()
}

#[test]
fn hints_are_sent_only_for_jobs_that_others_may_claim_and_if_there_are_others() {
    let Some(server) = PostgresServer::start(&["log_statement = all"]) else { return };
    let url = server.url("windlass");
    let mut one = Node::start(&url, 1);
    // Whether it is alone is known with the first round.
    let rounds = || server.log().matches("pg_try_advisory_lock").count();
    until("the first round", || rounds() > 0);
    let alone = hints(&server);
    for _ in 0..20 {
        one.enqueue(1);
    }
    let (before, looked) = (hints(&server), rounds());
    until("the next round", || rounds() > looked);
    assert_eq!((alone, before, hints(&server)), (0, 0, 0), "no other node listens");
    let other = Node::start(&url, 2);
    let listens = || server.log().matches("NOTIFY windlass_windlass, '-").count();
    until("it says that it listens", || listens() == 2);
    let woken = other.woken();
    until("it is notified of jobs", || {
        one.enqueue(1);
        other.woken() > woken
    });
    one.commit(|batch| batch.admin.push(Admin::pause(QueueName::default())));
    let looked = rounds();
    until("two rounds", || rounds() > looked + 2);
    let before = hints(&server);
    one.enqueue(1);
    let looked = rounds();
    until("two rounds more", || rounds() > looked + 2);
    assert_eq!(hints(&server), before, "a paused queue has nothing to claim");
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

/// Stores jobs, and deletes them again.
fn come_and_go(node: &mut Node, jobs: usize) {
    let text = format!("\"{}\"", "x".repeat(500));
    let new = NewJob::new(Kind::default(), Payload::new(&text).expect("it is JSON"));
    let out = node.commit(|batch| batch.enqueues = vec![new; jobs]);
    let ids: Vec<JobId> =
        out.enqueues.iter().map(|stored| stored.as_ref().expect("it is taken").id).collect();
    node.commit(|batch| batch.admin.extend(ids.iter().map(|id| Admin::Cancel(*id))));
    node.commit(|batch| batch.admin.extend(ids.iter().map(|id| Admin::Delete(*id))));
}

/// KiB of the tables that jobs are purged from, with their indexes.
fn purged_kib(server: &PostgresServer) -> i64 {
    number(
        server,
        "SELECT (sum(pg_total_relation_size(relid)) / 1024)::bigint FROM pg_stat_user_tables \
         WHERE relname IN ('jobs', 'done')",
    )
}

#[test]
fn tables_that_jobs_are_purged_from_stay_as_large_as_they_have_to_be() {
    let Some(server) = PostgresServer::start(&["autovacuum = off"]) else { return };
    let mut node = Node::start(&server.url("windlass"), 1);
    let vacuums = |table: &str| {
        let of = "SELECT vacuum_count FROM pg_stat_user_tables WHERE relname";
        number(&server, &format!("{of} = '{table}'"))
    };
    let mut sizes = Vec::new();
    for _ in 0..4 {
        let before = ["jobs", "done"].map(vacuums);
        come_and_go(&mut node, 1_500);
        for (table, before) in ["jobs", "done"].into_iter().zip(before) {
            until("the table is vacuumed", || vacuums(table) > before);
        }
        sizes.push(purged_kib(&server));
    }
    assert!(sizes[3] <= sizes[0] * 3 / 2, "KiB after each of four rounds: {sizes:?}");
}

#[test]
fn rows_that_were_dead_when_the_server_crashed_are_removed_too() {
    let Some(server) = PostgresServer::start(&["autovacuum = off"]) else { return };
    let mut sizes = Vec::new();
    for at in 0..4 {
        let mut node = Node::start(&server.url("windlass"), at);
        // Fewer than would be vacuumed for their number.
        come_and_go(&mut node, 600);
        let vacuumed = "SELECT count(*) FROM pg_stat_user_tables WHERE vacuum_count > 0 \
                        AND relname IN ('jobs', 'done', 'ready')";
        until("the tables are vacuumed", || number(&server, vacuumed) == 3);
        come_and_go(&mut node, 600);
        sizes.push(purged_kib(&server));
        drop(node);
        server.stop();
        server.resume();
    }
    // The first round meets no space to use again.
    assert!(sizes[3] <= sizes[1] * 3 / 2, "KiB before each of four crashes: {sizes:?}");
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

/// A role that does not own the tables, with the rights of a node.
fn guest(server: &PostgresServer) -> String {
    let url = server.url("windlass");
    drop(PgStore::connect(&url).expect("the store opens"));
    server.run(
        "CREATE ROLE guest LOGIN; GRANT USAGE ON SCHEMA windlass TO guest; \
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA windlass TO guest; \
         GRANT USAGE, SELECT, UPDATE ON ALL SEQUENCES IN SCHEMA windlass TO guest",
    );
    url.replace("windlass@", "guest@")
}

#[test]
fn claims_do_not_walk_over_dead_rows_that_an_old_transaction_keeps() {
    let Some(server) = PostgresServer::start(&["autovacuum = off"]) else { return };
    claims_start_behind_dead_rows(&server, &server.url("windlass"));
}

#[test]
fn claims_of_nodes_that_do_not_own_the_tables_do_not_walk_over_dead_rows_either() {
    let Some(server) = PostgresServer::start(&["autovacuum = off"]) else { return };
    claims_start_behind_dead_rows(&server, &guest(&server));
}

/// Waits until a node has looked at the dead rows that there are.
fn until_dead_rows_are_seen(server: &PostgresServer) {
    let dead = "SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = 'ready'";
    until("the dead rows are counted", || number(server, dead) > 10_000);
    let looked = "SELECT coalesce(max(extract(epoch FROM query_start) * 1000)::bigint, 0) \
                  FROM pg_stat_activity WHERE query LIKE 'SELECT%pg_stat_user_tables%''ready''%' \
                  AND pid <> pg_backend_pid()";
    for _ in 0..2 {
        let before = number(server, looked);
        until("the node looks", || number(server, looked) > before);
    }
}

fn claims_start_behind_dead_rows(server: &PostgresServer, url: &str) {
    let mut node = Node::start(url, 1);
    node.enqueue(10);
    let _old = server.hold_snapshot();
    for _ in 0..15 {
        node.enqueue(1_000);
        assert_eq!(node.claim(1_000).len(), 1_000);
    }
    until_dead_rows_are_seen(server);
    node.enqueue(600);
    node.claim(10);
    given_back_is_claimed_first(&mut node);
    // The number of dead rows of the table itself has to stay known.
    server.run("SELECT pg_stat_reset_single_table_counters('windlass.ready_by_rank'::regclass)");
    // With each claim it learns that another node has written, as a busy node is.
    let mut other = PgStore::connect(url).expect("it opens");
    let mut seq = 0;
    let mut write = |priority: i16| {
        seq += 1;
        let mut batch = Batch::new(BatchId { process: ProcessId(2), seq }, Policy::default());
        let priority = Priority::new(priority).expect("it is in bounds");
        batch.enqueues.push(NewJob { priority, ..NewJob::new(Kind::default(), Payload::null()) });
        let out = other.commit(Wall::new(0), &batch).expect("it commits");
        out.enqueues[0].as_ref().expect("it is taken").id
    };
    for _ in 0..50 {
        write(0);
        assert!(node.store.news(&[]).expect("news can be asked for").wrote);
        assert_eq!(node.claim(10).len(), 10);
    }
    // One that others put before the head is found after a while.
    let first = write(9);
    until("the first job is claimed", || {
        node.store.news(&[]).expect("news can be asked for");
        node.claim(1) == [first]
    });
    // A connection that ends has counted what it read.
    drop(node);
    let read = "SELECT coalesce(sum(idx_tup_read), 0) FROM pg_stat_user_indexes \
                WHERE indexrelname = 'ready_by_rank'";
    let gone = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'windlass'";
    drop(other);
    until("the connections are gone", || number(server, gone) == 0);
    let read = number(server, read);
    // With a full look each time they read 1 500 000.
    assert!(read < 750_000, "50 claims of 10 jobs read {read} rows of the index");
}

/// A job that is released keeps its rank: it is claimed again before those behind it.
fn given_back_is_claimed_first(node: &mut Node) {
    let last = node.lease(1).remove(0);
    let settle = Settle { token: last.token(), verdict: Verdict::Release };
    node.commit(|batch| batch.settles.push(settle));
    assert_eq!(node.claim(1), [last.id]);
}

#[test]
fn jobs_are_found_by_their_ids_after_a_vacuum_of_empty_tables_too() {
    let Some(server) = PostgresServer::start(&["autovacuum = off"]) else { return };
    let mut node = Node::start(&server.url("windlass"), 1);
    node.live(2_000);
    // Now a plan that reads any index to its end seems to cost nothing.
    server.run("VACUUM windlass.ready");
    server.run("VACUUM windlass.leased");
    for _ in 0..3 {
        node.live(100);
    }
    drop(node);
    let gone = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'windlass'";
    until("its connections are gone", || number(&server, gone) == 0);
    let scans = |index: &str| {
        let of = "SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname";
        number(&server, &format!("{of} = '{index}'"))
    };
    assert!(scans("leased_pkey") > 0 && scans("ready_pkey") > 0);
    assert_eq!(scans("leased_by_time"), 0, "no lease was looked for by its time");
}

#[test]
fn an_operator_is_shown_who_holds_old_rows_and_which_rights_are_missing() {
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
    let guest = PgStore::connect(&guest(&server)).expect("the store opens");
    server.run("REVOKE DELETE ON windlass.done FROM guest");
    let found = texts(&guest, Duration::from_hours(1));
    let grant = "GRANT DELETE ON windlass.done TO guest";
    assert!(found.iter().any(|text| text.contains(grant)), "{found:?}");
    assert!(found.iter().any(|text| text.contains("does not own table ready")), "{found:?}");
}
