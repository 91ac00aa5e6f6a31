//! The database goes away under load and comes back: 503 meanwhile, and nothing acknowledged is
//! lost.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use windlass_tests::postgres_server::PostgresServer;

use crate::cluster::{Node, report};
use crate::common::{Place, Server};

#[test]
fn a_database_that_is_away_is_a_503_and_service_resumes_when_it_is_back() {
    let Some(database) = PostgresServer::start(&[]) else { return };
    let url = database.tcp_url(database.port(), "windlass");
    let place = Place { store: url, ..Place::new("sqlite") };
    let node = place.start(&["--workers", "2"]);
    let client = Node(node.address);
    let (ended, stored) = (AtomicBool::new(false), Mutex::new(BTreeSet::new()));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    let reply = client.post("/jobs", r#"{"kind":"windlass.noop"}"#);
                    if reply.status == 202 {
                        let id = reply.json()["job"]["id"].as_u64().unwrap();
                        stored.lock().unwrap().insert(id);
                    } else {
                        assert_eq!(reply.status, 503, "{}", reply.text());
                        assert!(reply.header("retry-after").is_some(), "{}", reply.text());
                    }
                }
            });
        }
        for _ in 0..2 {
            let before = stored.lock().unwrap().len();
            while stored.lock().unwrap().len() < before + 20 {
                std::thread::yield_now();
            }
            database.stop();
            node.until_status("/readyz", 503);
            let read = node.get("/queues");
            assert_eq!(read.refused(), (503, "store-unavailable".into()));
            assert!(read.header("retry-after").is_some());
            let refused = node.post("/jobs", "{}");
            assert_eq!(refused.status, 503, "{}", refused.text());
            assert!(refused.header("retry-after").is_some());
            assert_eq!(node.get("/livez").status, 200, "the process is well");
            database.resume();
            node.until_status("/readyz", 200);
        }
        ended.store(true, Ordering::Relaxed);
    });
    let stored = stored.into_inner().unwrap();
    all_done(&node, &stored);
}

/// Every stored job is done in the end; and one that comes now as well.
fn all_done(node: &Server, stored: &BTreeSet<u64>) {
    for id in stored {
        node.until(&format!("/jobs/{id}"), |job| job["state"] == "done");
    }
    node.enqueue(r#"{"kind":"by.hand"}"#);
    let jobs = node.claim("w", 1);
    assert_eq!(report(node, &jobs[0], "complete").json()["state"], "done");
    assert_eq!(node.get("/doctor").json()["ok"], true);
}
