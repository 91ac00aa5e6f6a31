//! What several nodes do at the same time (FAULTS N2 to N6).

use std::collections::BTreeSet;
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::cluster::{Node, enqueue_sleep, nodes, report};
use crate::common::Server;

/// Runs one closure per node at the same instant.
fn at_once<T: Send>(nodes: &[Node], work: impl Fn(Node) -> T + Sync) -> Vec<T> {
    let barrier = Barrier::new(nodes.len());
    std::thread::scope(|scope| {
        let start = |node: &Node| {
            let (barrier, work, node) = (&barrier, &work, *node);
            scope.spawn(move || {
                barrier.wait();
                work(node)
            })
        };
        let threads: Vec<_> = nodes.iter().map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn the_same_key_at_three_nodes_in_one_instant_is_one_job() {
    let Some((_place, servers)) = nodes::<3>(&[]) else { return };
    let nodes = Node::all(&servers);
    for round in 0..20 {
        let body = format!(r#"{{"idempotency_key":"k{round}","payload":{round}}}"#);
        let replies = at_once(&nodes, |node| node.post("/jobs", &body));
        let ids: BTreeSet<u64> =
            replies.iter().map(|reply| reply.json()["job"]["id"].as_u64().unwrap()).collect();
        assert_eq!(ids.len(), 1, "{replies:?}");
        let new = replies.iter().filter(|reply| reply.status == 202).count();
        assert_eq!(new, 1, "one of them stored it: {replies:?}");
    }
}

#[test]
fn claims_of_three_nodes_are_disjoint_and_a_token_has_one_verdict() {
    let Some((_place, servers)) = nodes::<3>(&[]) else { return };
    let nodes = Node::all(&servers);
    let jobs: Vec<Value> = (0..300).map(|n| json!({ "payload": n })).collect();
    assert_eq!(nodes[0].post("/jobs/batch", &json!({ "jobs": jobs }).to_string()).status, 202);
    let claimed = Mutex::new(Vec::new());
    at_once(&nodes, |node| {
        loop {
            let jobs = node.claim(7);
            if jobs.is_empty() && node.get("/queues").json()["queues"][0]["counts"]["queued"] == 0 {
                return;
            }
            claimed.lock().unwrap().extend(jobs);
        }
    });
    let claimed = claimed.into_inner().unwrap();
    let tokens: BTreeSet<String> =
        claimed.iter().map(|job| job["lease"]["token"].to_string()).collect();
    assert_eq!((claimed.len(), tokens.len()), (300, 300), "each job is given out once");
    // The same token through all nodes, as different verdicts: one of them counts.
    for job in claimed.iter().take(20) {
        let verdicts = at_once(&nodes, |node| {
            let verb = if node.0 == nodes[0].0 { "release" } else { "complete" };
            node.report(job, verb).status
        });
        let settled = nodes[0].get(&format!("/jobs/{}", job["id"])).json();
        let released = verdicts[0] == 200;
        assert_eq!(settled["state"], if released { "queued" } else { "done" }, "{verdicts:?}");
        assert_eq!(verdicts[1..].contains(&200), !released, "{verdicts:?}");
    }
}

#[test]
fn limits_hold_over_all_nodes() {
    let Some((_place, servers)) = nodes::<3>(&[]) else { return };
    let nodes = Node::all(&servers);
    let limits = r#"{"concurrency":4,"max_queued":50}"#;
    assert_eq!(servers[0].send("PUT", "/queues/default", Some(limits)).status, 200);
    let accepted: usize =
        at_once(&nodes, |node| (0..40).filter(|_| node.post("/jobs", "{}").status == 202).count())
            .iter()
            .sum();
    assert_eq!(accepted, 50, "max_queued counts all nodes");
    let running =
        at_once(&nodes, |node| (0..20).flat_map(|_| node.claim(3)).collect::<Vec<Value>>());
    assert_eq!(running.iter().map(Vec::len).sum::<usize>(), 4, "{running:?}");
}

#[test]
fn a_cancel_through_one_node_reaches_a_handler_at_another_within_a_second() {
    let Some((place, [idle, busy])) = split(&["--workers", "0"], &["--workers", "1"]) else {
        return;
    };
    for _ in 0..3 {
        let id = enqueue_sleep(&place);
        idle.until(&format!("/jobs/{id}"), |job| job["state"] == "processing");
        let started = now();
        assert_eq!(idle.post(&format!("/jobs/{id}/cancel"), "").status, 200);
        // Its slot is free again once the handler has ended.
        let next = busy.enqueue(r#"{"kind":"windlass.noop"}"#);
        idle.until(&format!("/jobs/{next}"), |job| job["state"] == "done");
        let took = started.elapsed();
        assert!(took < Duration::from_secs(1), "it took {took:?}");
        assert_eq!(idle.job(id)["state"], "cancelled");
    }
}

#[expect(clippy::disallowed_methods, reason = "what is measured is real time")]
fn now() -> Instant {
    Instant::now()
}

/// Two servers on one store with settings of their own.
fn split(one: &[&str], other: &[&str]) -> Option<(crate::common::Place, [Server; 2])> {
    windlass_tests::postgres_server::PostgresServer::shared()?;
    let place = crate::common::Place::new("postgres");
    let nodes = [place.start(one), place.start(other)];
    Some((place, nodes))
}

#[test]
fn after_a_pause_is_acknowledged_no_node_claims() {
    let Some((_place, servers)) = nodes::<3>(&[]) else { return };
    let nodes = Node::all(&servers);
    for round in 0..5 {
        let jobs: Vec<Value> = (0..50).map(|n| json!({ "payload": n })).collect();
        nodes[0].post("/jobs/batch", &json!({ "jobs": jobs }).to_string());
        nodes[round % 3].post("/queues/default/pause", "");
        let claimed: usize = at_once(&nodes, |node| node.claim(10).len()).iter().sum();
        assert_eq!(claimed, 0, "round {round}");
        nodes[(round + 1) % 3].post("/queues/default/resume", "");
        let claimed: usize = at_once(&nodes, |node| node.claim(10).len()).iter().sum();
        assert!(claimed > 0, "after it is resumed there is work");
    }
}

#[test]
fn a_job_enqueued_at_one_node_wakes_a_poller_at_another() {
    let Some((_place, [one, other])) = nodes::<2>(&[]) else { return };
    let mut worker = other.connect();
    let mut waits = Vec::new();
    for _ in 0..15 {
        worker.ask("POST", "/jobs/poll", &[], Some(r#"{"worker":"w","wait_ms":30000}"#));
        other.until("/workers", |list| list.to_string().contains(r#""id":"w""#));
        let started = now();
        let id = one.enqueue("{}");
        let jobs = worker.reply().unwrap().json();
        waits.push(started.elapsed());
        assert_eq!(jobs["jobs"][0]["id"], id);
        assert_eq!(report(&one, &jobs["jobs"][0], "complete").status, 200);
    }
    waits.sort_unstable();
    // Polling alone takes 250 ms; on a machine with nothing else to do it is 20 ms at most.
    assert!(waits[waits.len() / 2] < Duration::from_millis(200), "{waits:?}");
}

/// A minute's work, on leases of a second.
const SHORT: &str = r#"{"kind":"command","payload":{"argv":["sleep","60"]},
    "visibility_timeout_ms":1000}"#;

#[test]
fn a_node_that_was_stopped_past_its_leases_has_its_reports_refused() {
    let allowed = |workers| ["--workers", workers, "--allow-command", "sleep"];
    let Some((_place, [frozen, other])) = split(&allowed("1"), &allowed("0")) else { return };
    let id = other.enqueue(SHORT);
    other.until(&format!("/jobs/{id}"), |job| job["state"] == "processing");
    frozen.signal("-STOP");
    // The kinds that servers run themselves are claimed by name.
    let claim = r#"{"worker":"w","kinds":["command"],"wait_ms":30000,
        "visibility_timeout_ms":60000}"#;
    let jobs = other.post("/jobs/poll", claim).json()["jobs"].clone();
    assert_eq!(
        (&jobs[0]["id"], &jobs[0]["lease"]["token"]),
        (&json!(id), &json!(format!("{id}.2")))
    );
    frozen.signal("-CONT");
    // Its slot is free again, so the handler was told or has ended; the lease is the other's.
    let next = other.enqueue(r#"{"kind":"windlass.noop"}"#);
    other.until(&format!("/jobs/{next}"), |job| job["state"] == "done");
    assert_eq!(other.job(id)["worker"], "w");
    assert_eq!(report(&frozen, &jobs[0], "complete").json()["state"], "done");
    let attempts = other.get(&format!("/jobs/{id}/attempts")).json();
    assert_eq!(attempts["attempts"][0]["outcome"], "expired", "{attempts}");
}
