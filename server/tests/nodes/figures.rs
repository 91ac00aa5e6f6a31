//! Whichever node is asked, the answer is the same.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::cluster::{nodes, report, shared_stores};
use crate::common::{Server, attempts};

/// What a node says about the store, without what differs from instant to instant.
pub(crate) fn answers(node: &Server) -> BTreeMap<&'static str, String> {
    let mut status = node.get("/status").json();
    for field in ["now", "rates", "oldest_ready_age_ms"] {
        status[field] = Value::Null;
    }
    let mut workers = node.get("/workers").json();
    for worker in workers["workers"].as_array_mut().unwrap() {
        worker["last_heartbeat"] = Value::Null;
    }
    let mut queues = node.get("/queues").json();
    for queue in queues["queues"].as_array_mut().unwrap() {
        for field in ["rates", "oldest_ready_age_ms"] {
            queue[field] = Value::Null;
        }
    }
    let metrics = node.get("/metrics").text();
    let of_store = |line: &&str| STORED.iter().any(|name| line.starts_with(name));
    let metrics: Vec<&str> = metrics.lines().filter(of_store).collect();
    assert!(metrics.len() > STORED.len(), "the store's figures are in {metrics:?}");
    BTreeMap::from([
        ("/status", status.to_string()),
        ("/workers", workers.to_string()),
        ("/queues", queues.to_string()),
        ("/jobs", node.get("/jobs").text()),
        ("/dlq", node.get("/dlq").text()),
        ("/metrics", metrics.join("\n")),
        ("/snapshot", snapshot(node).to_string()),
        ("/history", history(node).to_string()),
    ])
}

/// The snapshot, without what is about this process or differs from instant to instant.
fn snapshot(node: &Server) -> Value {
    let mut snapshot = node.get("/snapshot").json();
    for field in ["at", "started_at", "oldest_ready_age_ms", "rates", "store"] {
        snapshot[field] = Value::Null;
    }
    snapshot["errors"]["rev"] = Value::Null;
    snapshot["workers"]["rev"] = Value::Null;
    for queue in snapshot["queues"].as_array_mut().unwrap() {
        let own = ["paused_at", "paused_by", "rev", "oldest_ready_age_ms"];
        let rates = ["enqueued_per_s", "done_per_s"];
        own.iter().chain(&rates).for_each(|field| queue[field] = Value::Null);
    }
    snapshot
}

/// The history, without what this process alone has seen.
fn history(node: &Server) -> Value {
    let mut history = node.get("/history").json();
    history["marks"] = Value::Null;
    for field in ["queued", "processing", "oldest_age_ms"] {
        history["series"][field] = Value::Null;
    }
    history
}

/// The families of `/metrics` that are about the store, and not about one process.
const STORED: [&str; 6] = [
    "windlass_jobs{",
    "windlass_jobs_retrying{",
    "windlass_jobs_enqueued_total{",
    "windlass_jobs_started_total{",
    "windlass_jobs_finished_total{",
    "windlass_queue_paused{",
];

#[test]
fn figures_are_the_same_whichever_node_is_asked() {
    for store in shared_stores() {
        let (_place, nodes) = nodes::<2>(store, &["--workers", "2"]);
        are_the_same(nodes.each_ref());
    }
}

/// Has two nodes make figures, and compares what they tell until it is the same.
pub(crate) fn are_the_same([one, other]: [&Server; 2]) {
    for n in 0..6 {
        let node = if n % 2 == 0 { one } else { other };
        node.enqueue(&format!(r#"{{"kind":"k{n}","queue":"q{}","max_retries":0}}"#, n % 3));
    }
    one.post("/queues/q2/pause", "");
    let claim = r#"{"worker":"w","queues":["q0","q1"],"max":3}"#;
    let jobs = one.post("/jobs/poll", claim).json()["jobs"].clone();
    assert_eq!(report(other, &jobs[0], "complete").json()["state"], "done");
    let body = format!(r#"{{"token":{},"error":"no"}}"#, jobs[1]["lease"]["token"]);
    let failed = other.post(&format!("/jobs/{}/fail", jobs[1]["id"]), &body);
    assert_eq!(failed.json()["state"], "failed");
    for node in [one, other] {
        node.until("/workers", |list| list["workers"].as_array().unwrap().len() == 3);
    }
    // Figures are written up to a second late.
    let settled = |text: &str| text.contains(r#"outcome="done"} 1"#) && text.contains("failed");
    let same = attempts().any(|()| {
        let (here, there) = (answers(one), answers(other));
        settled(&here["/metrics"]) && here == there
    });
    assert!(same, "{:#?}\n{:#?}", answers(one), answers(other));
}
