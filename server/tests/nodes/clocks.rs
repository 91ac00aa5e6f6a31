//! The clock of the database is hours from those of the nodes: only the database's counts, so nodes
//! agree however their own clocks differ.

use windlass_tests::postgres_server::PostgresServer;

use crate::cluster::{ran, report, windlass};
use crate::common::{Place, Server};
use crate::figures::are_the_same;
use crate::load::under_load;

const HOURS: i64 = 3 * 3_600;

#[test]
fn nodes_see_each_other_alive_and_tell_ages_and_rates_by_the_clock_of_the_database() {
    for ahead in [-HOURS, HOURS] {
        let Some(database) = PostgresServer::start_ahead(ahead) else { return };
        let place = Place { store: database.url("windlass"), ..Place::new("sqlite") };
        let nodes = [place.start(&["--workers", "2"]), place.start(&["--workers", "2"])];
        are_the_same(nodes.each_ref());
        for node in &nodes {
            tells_the_time_of(&database, node);
        }
        keeps_leases_and_delays(&nodes);
        let mut copy = windlass(&place);
        let to = format!("sqlite:{}", place.path("copy.db").display());
        copy.args(["copy", "--from", &place.store, "--to", &to, "--yes"]);
        let (code, said) = ran(copy);
        assert_ne!(code, 0, "it was copied while nodes run: {said}");
        assert!(said.contains("is in use by") && said.matches("w-").count() == 2, "{said}");
    }
}

#[test]
fn a_clock_that_steps_by_hours_under_load_loses_nothing_and_gives_no_token_twice() {
    let Some(database) = PostgresServer::start_ahead(HOURS) else { return };
    let place = Place { store: database.url("windlass"), ..Place::new("sqlite") };
    under_load("clock of the database steps", &place, [&[]; 3], |load, cluster| {
        // Back first: what is due by the clock of before is due in the end.
        for ahead in [-HOURS, HOURS, HOURS * 2] {
            load.wait_for_more();
            let before = seconds_of(&database);
            database.step_clock(ahead);
            assert!((seconds_of(&database) - before).abs() > HOURS / 2, "it has stepped");
            load.wait_for_service(cluster);
        }
    });
}

/// What the clock of the database shows.
fn seconds_of(database: &PostgresServer) -> i64 {
    database.run("SELECT extract(epoch FROM clock_timestamp())::bigint").parse().unwrap()
}

fn tells_the_time_of(database: &PostgresServer, node: &Server) {
    let status = node.get("/status").json();
    let sums = &status["workers"];
    assert_eq!((&sums["alive"], &sums["stale"]), (&3.into(), &0.into()), "{status}");
    assert!(status["rates"].to_string().contains(|digit| ('1'..='9').contains(&digit)), "{status}");
    let snapshot = node.get("/snapshot").json();
    assert_eq!(snapshot["workers"]["alive"], 3, "{snapshot}");
    for worker in node.get("/workers").json()["workers"].as_array().unwrap() {
        assert_eq!(worker["alive"], true, "{worker}");
    }
    for shown in [&status["now"], &snapshot["at"], &snapshot["started_at"]] {
        let shown = shown.as_str().unwrap();
        let sql = format!("SELECT abs(extract(epoch FROM clock_timestamp() - '{shown}')) < 600");
        assert_eq!(database.run(&sql), "t", "{shown}");
    }
    // A job that waits has waited for seconds, not for hours.
    node.enqueue(r#"{"kind":"waits","queue":"waits"}"#);
    let age = node.get("/queues/waits").json()["oldest_ready_age_ms"].as_u64().unwrap();
    assert!(age < 600_000, "{age}");
}

/// A lease that one node gave is kept by the other, and a job in ten minutes is not due now.
fn keeps_leases_and_delays([one, other]: &[Server; 2]) {
    other.enqueue(r#"{"kind":"held"}"#);
    other.enqueue(r#"{"kind":"held","delay_ms":600000}"#);
    let claim = r#"{"worker":"w","kinds":["held"],"max":9,"visibility_timeout_ms":600000}"#;
    let held = one.post("/jobs/poll", claim).json()["jobs"].clone();
    assert_eq!(held.as_array().unwrap().len(), 1, "{held}");
    let empty = other.post("/jobs/poll", claim).json();
    assert_eq!(empty["jobs"].as_array().unwrap().len(), 0, "{empty}");
    assert_eq!(report(other, &held[0], "complete").json()["state"], "done");
}
