//! Another program in the database of three nodes under load: its locks cross those of batches
//! (FAULTS P6), and a transaction of it stays open (P7). Clients notice neither.

use windlass_tests::postgres_server::PostgresServer;

use crate::cluster::{Node, now, tell};
use crate::common::Place;
use crate::load::{Load, under_load};

const HOLDER: &str = "windlass_postgres_oldest_xmin_holder{holder=\"process ";

/// Holds a leased job, and then wants what batches share for as long as they are open. A batch that
/// reports that job waits for this transaction and is waited for: the server ends the batch, since
/// this session is never the first to look.
const CROSS: &str = "SET LOCAL deadlock_timeout = '60s'; SET LOCAL search_path = windlass; \
    SELECT id FROM leased ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED; \
    SELECT id FROM keys JOIN jobs ON id = job ORDER BY id DESC LIMIT 3 FOR UPDATE SKIP LOCKED; \
    SELECT pg_sleep(0.02); \
    SELECT pg_advisory_xact_lock(name) FROM (SELECT (classid::bigint << 32) | objid::bigint \
    AS name FROM pg_locks WHERE locktype = 'advisory' AND objid::bigint >> 28 = 2 LIMIT 1) names";

#[test]
fn deadlocks_and_old_snapshots_of_another_program_are_not_noticed_by_clients() {
    let Some(database) = PostgresServer::start(&[]) else { return };
    let store = format!("{}&old_transaction=1", database.url("windlass"));
    let place = Place { store, ..Place::new("sqlite") };
    under_load("locks and a snapshot of another program", &place, [&[]; 3], |load, cluster| {
        load.wait_for_more();
        let node = Node(cluster.node(0).address);
        crosses_locks(&database, load);
        load.wait_for_service(cluster);
        keeps_dead_rows(&database, load, node);
        load.wait_for_service(cluster);
        assert_eq!(load.refused(), 0, "a client has noticed");
    });
}

fn crosses_locks(database: &PostgresServer, load: &Load) {
    let deadlocks = || database.log().matches("deadlock detected").count();
    let started = now();
    let mut tries = 0;
    while deadlocks() < 3 {
        assert!(started.elapsed().as_secs() < 60, "no deadlock in {tries} tries");
        database.run(CROSS);
        tries += 1;
    }
    load.wait_for_more();
    let seconds = started.elapsed().as_secs_f64();
    tell(&format!("3 deadlocks of batches in {tries} tries, {seconds:.1} s"));
}

fn keeps_dead_rows(database: &PostgresServer, load: &Load, node: Node) {
    let held = database.hold_snapshot();
    let named = || node.get("/metrics").text().contains(HOLDER);
    while !named() {
        load.wait_for_more();
    }
    load.wait_for_more();
    drop(held);
    while named() {
        load.wait_for_more();
    }
}
