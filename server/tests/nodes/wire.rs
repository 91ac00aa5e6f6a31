//! The network between three nodes and their database fails under load: connections are cut right
//! after COMMIT, ended by the server, silent (packets are dropped), or refused because there are
//! too many.

use std::time::Duration;

use windlass_tests::postgres_server::PostgresServer;
use windlass_tests::proxy::{Mode, Proxy};

use crate::cluster::{now, tell};
use crate::common::{Place, Reply};
use crate::load::under_load;

fn at(url: String) -> Place {
    Place { store: url, ..Place::new("sqlite") }
}

/// A proxy before the server of this process, and a store of its own behind it.
fn behind_proxy() -> Option<(Proxy, Place)> {
    let server = PostgresServer::shared()?;
    let proxy = Proxy::start(server.port());
    let place = at(server.tcp_url(proxy.port(), &server.new_schema()));
    Some((proxy, place))
}

/// An answer that says that the store cannot be reached, and when to try again.
#[track_caller]
fn unavailable(reply: &Reply) -> String {
    assert_eq!(reply.refused(), (503, "store-unavailable".into()), "{}", reply.text());
    assert!(reply.header("retry-after").is_some());
    reply.json()["detail"].as_str().unwrap().into()
}

#[test]
fn connections_that_are_cut_right_after_each_commit_lose_nothing_and_make_nothing_twice() {
    let Some((proxy, place)) = behind_proxy() else { return };
    under_load("cut after COMMIT", &place, [&[]; 3], |load, cluster| {
        for round in 1..=3 {
            load.wait_for_more();
            proxy.set(Mode::CutAfterCommit);
            while proxy.commits_cut() < 10 * round {
                std::thread::yield_now();
            }
            proxy.set(Mode::Pass);
            load.wait_for_service(cluster);
        }
        cut_while_the_old_backend_waits(&proxy, &place);
        load.wait_for_service(cluster);
    });
    tell(&format!("cut after COMMIT: {} connections", proxy.commits_cut()));
}

/// The server process of a connection that was cut goes on: it holds its transaction, whose COMMIT
/// it has been sent, while the node asks for the outcome (P2).
fn cut_while_the_old_backend_waits(proxy: &Proxy, place: &Place) {
    let server = PostgresServer::shared().unwrap();
    let schema = place.store.split("schema=").nth(1).unwrap();
    let held = server.hold_locks(&format!("LOCK TABLE {schema}.markers IN SHARE MODE"));
    proxy.set(Mode::CutAfterCommit);
    let asks = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'advisory' \
                AND query LIKE 'SELECT pg_advisory_xact_lock($1)'";
    while server.run(asks) == "0" {}
    proxy.set(Mode::Pass);
    drop(held);
}

#[test]
fn nodes_whose_every_connection_is_ended_by_the_server_go_on_by_themselves() {
    let Some(server) = PostgresServer::shared() else { return };
    server.run("CREATE ROLE nodes_ended LOGIN SUPERUSER");
    let place = at(server.url(&server.new_schema()).replace("windlass@", "nodes_ended@"));
    let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
               WHERE usename = 'nodes_ended'";
    under_load("every connection ended", &place, [&[]; 3], |load, cluster| {
        for _ in 0..5 {
            load.wait_for_more();
            let ended: usize = server.run(end).parse().unwrap();
            assert!(ended >= 3, "each node has one: {ended}");
            load.wait_for_service(cluster);
        }
    });
}

/// The store waits for an answer for 15 seconds, and a handler that runs has 2 seconds here.
#[test]
fn nodes_whose_database_swallows_everything_answer_and_stop_in_time_and_go_on_afterwards() {
    let Some((proxy, place)) = behind_proxy() else { return };
    under_load("black hole", &place, [&["--drain-timeout", "2s"]; 3], |load, cluster| {
        load.wait_for_more();
        proxy.set(Mode::BlackHole);
        let started = now();
        // The batch that is on its way takes as long as any answer may; whether it is committed is
        // not known.
        let unknown = cluster.node(1).post("/jobs", r#"{"queue":"apart"}"#);
        assert_eq!(unknown.status, 503, "{}", unknown.text());
        assert!(unknown.header("retry-after").is_some(), "{}", unknown.text());
        assert_eq!(cluster.node(1).get("/readyz").status, 503);
        let refused = started.elapsed();
        let signalled = now();
        cluster.node(2).signal("-TERM");
        let (_, said) = cluster.end(load, 2);
        let stopped = signalled.elapsed();
        assert!(stopped < Duration::from_secs(30), "it took {stopped:?} to stop: {said}");
        unavailable(&cluster.node(0).get("/queues"));
        let (refused, stopped) = (refused.as_secs_f64(), stopped.as_secs_f64());
        tell(&format!("black hole: refused in {refused:.1} s, stopped in {stopped:.1} s"));
        proxy.set(Mode::Pass);
        load.wait_for_service(cluster);
        cluster.begin(load, 2);
        load.wait_for_service(cluster);
    });
}

#[test]
fn nodes_that_get_no_connection_say_so_and_go_on_when_one_is_free() {
    let settings = ["max_connections = 30", "superuser_reserved_connections = 3"];
    let Some(server) = PostgresServer::start(&settings) else { return };
    server.run("CREATE ROLE guest LOGIN; GRANT CREATE ON DATABASE postgres TO guest");
    let place = at(server.url("windlass").replace("windlass@", "guest@"));
    let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
               WHERE usename = 'guest' AND application_name = 'windlass'";
    under_load("no free connection", &place, [&[]; 3], |load, cluster| {
        load.wait_for_more();
        let mut others = Vec::new();
        // Others take the place of each connection that is ended, until the nodes have none.
        while server.run(end) != "0" {
            others.extend(std::iter::from_fn(|| server.hold_connection("guest")));
        }
        cluster.node(0).until_status("/readyz", 503);
        let refused = cluster.node(0).post("/jobs", "{}");
        let why = unavailable(&refused);
        assert!(why.contains("max_connections") && why.contains("end other clients"), "{why}");
        unavailable(&cluster.node(1).get("/queues"));
        drop(others);
        load.wait_for_service(cluster);
    });
}
