//! Races between several nodes, on every store that nodes can share.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use crate::cluster::{
    Node, enqueue_sleep, nodes, now, ran, report, shared_stores, split, tell, windlass,
};
use crate::common::{Place, Server};

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
    for store in shared_stores() {
        let (_place, servers) = nodes::<3>(store, &[]);
        let nodes = Node::all(&servers);
        for round in 0..20 {
            let body = format!(r#"{{"idempotency_key":"k{round}","payload":{round}}}"#);
            let replies = at_once(&nodes, |node| node.post("/jobs", &body));
            let ids: BTreeSet<u64> =
                replies.iter().map(|reply| reply.json()["job"]["id"].as_u64().unwrap()).collect();
            assert_eq!(ids.len(), 1, "{store}: {replies:?}");
            let new = replies.iter().filter(|reply| reply.status == 202).count();
            assert_eq!(new, 1, "{store}: one of them stored it: {replies:?}");
        }
    }
}

/// Enqueues this many jobs with one request.
fn enqueue(node: Node, count: usize) {
    let job = |n: usize| json!({ "payload": n, "visibility_timeout_ms": 600_000 });
    let jobs: Vec<Value> = (0..count).map(job).collect();
    assert_eq!(node.post("/jobs/batch", &json!({ "jobs": jobs }).to_string()).status, 202);
}

#[test]
fn claims_of_three_nodes_are_disjoint_and_a_token_has_one_verdict() {
    for store in shared_stores() {
        let (_place, servers) = nodes::<3>(store, &[]);
        let nodes = Node::all(&servers);
        enqueue(nodes[0], 300);
        let claimed = Mutex::new(Vec::new());
        at_once(&nodes, |node| {
            loop {
                let jobs = node.claim(7);
                let left = || node.get("/queues").json()["queues"][0]["counts"]["queued"].clone();
                if jobs.is_empty() && left() == 0 {
                    return;
                }
                claimed.lock().unwrap().extend(jobs);
            }
        });
        let claimed = claimed.into_inner().unwrap();
        let tokens: BTreeSet<String> =
            claimed.iter().map(|job| job["lease"]["token"].to_string()).collect();
        assert_eq!((claimed.len(), tokens.len()), (300, 300), "{store}: each is given out once");
        claimed.iter().take(20).for_each(|job| has_one_verdict(&nodes, job));
    }
}

/// Reports the same token through all nodes, as different verdicts: one of them counts.
fn has_one_verdict(nodes: &[Node], job: &Value) {
    let verdicts = at_once(nodes, |node| {
        let verb = if node.0 == nodes[0].0 { "release" } else { "complete" };
        node.report(job, verb).status
    });
    let settled = nodes[0].get(&format!("/jobs/{}", job["id"])).json();
    let released = verdicts[0] == 200;
    assert_eq!(settled["state"], if released { "queued" } else { "done" }, "{verdicts:?}");
    assert_eq!(verdicts[1..].contains(&200), !released, "{verdicts:?}");
}

#[test]
fn limits_hold_over_all_nodes() {
    for store in shared_stores() {
        let (_place, servers) = nodes::<3>(store, &[]);
        let nodes = Node::all(&servers);
        let limits = r#"{"concurrency":4,"max_queued":50}"#;
        assert_eq!(servers[0].send("PUT", "/queues/default", Some(limits)).status, 200);
        let enqueue =
            |node: Node| (0..40).filter(|_| node.post("/jobs", "{}").status == 202).count();
        let accepted: usize = at_once(&nodes, enqueue).iter().sum();
        assert_eq!(accepted, 50, "{store}: max_queued counts all nodes");
        let running =
            at_once(&nodes, |node| (0..20).flat_map(|_| node.claim(3)).collect::<Vec<Value>>());
        assert_eq!(running.iter().map(Vec::len).sum::<usize>(), 4, "{store}: {running:?}");
    }
}

/// The promise is one second, whatever the length of the lease; as much again is for a slow
/// machine. Without news from other processes, the handler would end with its next heartbeat: after
/// 20 seconds.
#[test]
fn a_cancel_from_another_process_reaches_a_handler_within_two_seconds() {
    for store in shared_stores() {
        let slots = [&["--workers", "0"][..], &["--workers", "1"]];
        let (place, [idle, busy]) = split(store, slots);
        let through_node = |id: u64| idle.post(&format!("/jobs/{id}/cancel"), "").status == 200;
        let by_command = |id: u64| {
            let mut command = windlass(&place);
            command.args(["--store", &place.store, "cancel", &id.to_string()]);
            ran(command).0 == 0
        };
        let ways: [(&str, &dyn Fn(u64) -> bool); 2] =
            [("another node", &through_node), ("a command", &by_command)];
        for (way, cancel) in ways {
            // The best of three: other work on the machine can only make it slower.
            let took = (0..3).map(|_| cancelled_after(&place, &idle, &busy, cancel)).min();
            let took = took.unwrap();
            tell(&format!("{store}: cancelled by {way}, the handler ended in {took:?}"));
            assert!(took <= Duration::from_secs(2), "{store}, {way}: it took {took:?}");
        }
    }
}

/// Cancels a running job. Returns the time from the answer of the cancel until the job's slot ran
/// the next job.
fn cancelled_after(
    place: &Place,
    idle: &Server,
    busy: &Server,
    cancel: &dyn Fn(u64) -> bool,
) -> Duration {
    let id = enqueue_sleep(place);
    idle.until(&format!("/jobs/{id}"), |job| job["state"] == "processing");
    let next = busy.enqueue(r#"{"kind":"windlass.noop"}"#);
    assert!(cancel(id));
    let acknowledged = now();
    idle.until(&format!("/jobs/{next}"), |job| job["state"] == "done");
    let took = acknowledged.elapsed();
    assert_eq!(idle.job(id)["state"], "cancelled");
    took
}

#[test]
fn after_a_pause_is_acknowledged_no_claim_commits_at_any_node() {
    for store in shared_stores() {
        let (_place, servers) = nodes::<3>(store, &[]);
        let nodes = Node::all(&servers);
        for round in 0..3 {
            enqueue(nodes[0], 150);
            let (paused, ended) = (AtomicBool::new(false), AtomicBool::new(false));
            std::thread::scope(|scope| {
                for node in &nodes {
                    scope.spawn(|| claim_until(*node, &paused, &ended));
                }
                let chosen = nodes[round % 3];
                let before = running(chosen);
                while running(chosen) < before + 10 {}
                chosen.post("/queues/default/pause", "");
                let at_pause = running(chosen);
                paused.store(true, Ordering::SeqCst);
                // Those that were under way meanwhile have their answers.
                let claimed: usize = nodes.iter().map(|node| node.claim(3).len()).sum();
                let later: Vec<u64> = nodes.iter().map(|node| running(*node)).collect();
                ended.store(true, Ordering::SeqCst);
                assert_eq!(claimed, 0, "{store}: round {round}");
                assert_eq!(later, [at_pause; 3], "{store}: round {round}");
            });
            assert!(waiting(nodes[0]) > 0, "{store}: there was something to claim");
            nodes[(round + 1) % 3].post("/queues/default/resume", "");
            let claimed: usize = at_once(&nodes, |node| node.claim(10).len()).iter().sum();
            assert!(claimed > 0, "{store}: after it is resumed there is work");
        }
    }
}

/// Claims one job after the other. Nothing is given out to a claim that began after the pause.
fn claim_until(node: Node, paused: &AtomicBool, ended: &AtomicBool) {
    while !ended.load(Ordering::SeqCst) {
        let was_paused = paused.load(Ordering::SeqCst);
        let jobs = node.claim(1);
        assert!(!was_paused || jobs.is_empty(), "claimed after the pause: {jobs:?}");
    }
}

fn running(node: Node) -> u64 {
    node.get("/queues/default").json()["counts"]["processing"].as_u64().unwrap()
}

fn waiting(node: Node) -> u64 {
    node.get("/queues/default").json()["counts"]["queued"].as_u64().unwrap()
}

#[test]
fn a_job_enqueued_at_one_node_wakes_a_poller_at_another() {
    for store in shared_stores() {
        let (_place, [one, other]) = nodes::<2>(store, &[]);
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
        let median = waits[waits.len() / 2];
        tell(&format!("{store}: a poller at another node woken in {median:?} (p50)"));
        // Without a hint, the poller would look once its wait is over.
        assert!(median < Duration::from_secs(1), "{store}: {waits:?}");
    }
}
