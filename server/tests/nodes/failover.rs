//! The database of three nodes under load fails over to its standby, or its disk is
//! full.

use windlass_tests::postgres_server::{PASSWORD, PostgresServer, USER};

use crate::common::{Place, Reply};
use crate::load::under_load;

fn durability(reply: &Reply) -> String {
    assert_eq!(reply.status, 202, "{}", reply.text());
    reply.json()["durability"].as_str().unwrap().into()
}

/// A job that the load does not know is enqueued in a queue of its own, and has its verdict.
const APART: &str = r#"{"kind":"windlass.noop","queue":"apart"}"#;

#[test]
fn when_a_standby_is_promoted_nodes_go_on_there_with_every_acknowledged_job() {
    let Some(primary) = PostgresServer::start(&[]) else { return };
    let standby = primary.standby();
    let store = format!(
        "postgres://{USER}:{PASSWORD}@127.0.0.1:{},127.0.0.1:{}/postgres\
         ?target_session_attrs=read-write",
        primary.port(),
        standby.port()
    );
    let place = Place { store, ..Place::new("sqlite") };
    under_load("failover to a standby", &place, [&[]; 3], |load, cluster| {
        assert_eq!(durability(&cluster.node(0).post("/jobs", APART)), "replicated");
        load.wait_for_more();
        primary.stop();
        assert_eq!(standby.run("SELECT pg_promote()"), "t");
        load.wait_for_service(cluster);
        assert_eq!(durability(&cluster.node(0).post("/jobs", APART)), "fsync");
        // The old one comes back, and takes no writes. It is the first that the URL names.
        primary.resume_read_only();
        let count = "SELECT count(*) FROM windlass.jobs";
        let before = primary.run(count);
        let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                   WHERE application_name = 'windlass'";
        for _ in 0..2 {
            assert_ne!(standby.run(end), "0");
            load.wait_for_service(cluster);
        }
        assert_eq!(primary.run(count), before, "it was written");
        assert_ne!(standby.run(count), before);
    });
}

#[test]
fn a_database_without_space_is_full_with_the_reason_and_goes_on_when_it_has_some() {
    let Some(database) = PostgresServer::start_on_small_disk() else { return };
    let store = database.url("windlass").replace("/postgres?", "/jobs?");
    let place = Place { store, ..Place::new("sqlite") };
    under_load("a full disk", &place, [&[]; 3], |load, cluster| {
        for _ in 0..2 {
            load.wait_for_more();
            database.fill_small_disk();
            // What the tables have left is used first.
            let payload = "x".repeat(200_000);
            let body =
                format!(r#"{{"queue":"apart","kind":"windlass.noop","payload":"{payload}"}}"#);
            let refused = (0..1_000)
                .map(|_| cluster.node(0).post("/jobs", &body))
                .find(|reply| reply.status != 202)
                .expect("the disk is full");
            assert!([503, 507].contains(&refused.status), "{}", refused.text());
            let why = refused.text();
            assert!(why.contains("53100") || why.contains("space"), "{why}");
            database.clear_small_disk();
            load.wait_for_service(cluster);
        }
    });
}
