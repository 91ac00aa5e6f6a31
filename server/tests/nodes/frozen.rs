//! A node under load that is stopped past its leases, then continued.

use std::time::Duration;

use serde_json::{Value, json};

use crate::cluster::{Node, shared_stores};
use crate::common::{Client, Place, Server};
use crate::load::{Cluster, Load, under_load};

/// A minute's work, on leases of a second.
const COMMAND: &str = r#"{"kind":"command","queue":"apart","payload":{"argv":["sleep","60"]},
    "visibility_timeout_ms":1000}"#;
const POLLED: &str = r#"{"kind":"polled","queue":"apart","visibility_timeout_ms":1000}"#;

#[test]
fn a_node_that_was_stopped_past_its_leases_has_its_reports_refused() {
    for store in shared_stores() {
        let name = format!("a node stopped past its leases, {store}");
        let args = ["1", "0", "0"].map(|count| ["--workers", count, "--allow-command", "sleep"]);
        let args = args.each_ref().map(|args| &args[..]);
        under_load(&name, &Place::new(store), args, |load, cluster| {
            load.wait_for_more();
            stop_past_leases(load, cluster);
            load.use_all(cluster);
            load.wait_for_service(cluster);
        });
    }
}

/// Claims a job of this kind for as long as that, once there is one.
fn claim(node: Node, kind: &str, lease_ms: u32) -> Value {
    let claim = json!({
        "worker": "apart", "kinds": [kind], "queues": ["apart"], "wait_ms": 30_000,
        "visibility_timeout_ms": lease_ms
    });
    node.post("/jobs/poll", &claim.to_string()).json()["jobs"][0].clone()
}

/// Stops a node, but not in the middle of a commit: it would hold the lock of a file until it goes
/// on, and no other node could write.
fn stop_between_commits(node: &Server, other: Node) {
    for _ in 0..20 {
        node.signal("-STOP");
        let mut client = Client::to(other.0);
        client.stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        client.ask("POST", "/queues/apart/resume", &[], None);
        if client.reply().is_some_and(|reply| reply.status == 200) {
            return;
        }
        node.signal("-CONT");
    }
    panic!("the node was stopped in a commit each time");
}

fn stop_past_leases(load: &Load, cluster: &Cluster<'_>) {
    let (frozen, other) = (cluster.node(0), Node(cluster.node(1).address));
    let (late, command) = (frozen.enqueue(POLLED), frozen.enqueue(COMMAND));
    let old = claim(Node(frozen.address), "polled", 1_000);
    assert_eq!(old["id"], late);
    frozen.until(&format!("/jobs/{command}"), |job| job["state"] == "processing");
    load.spare(frozen);
    stop_between_commits(frozen, other);
    // It has these requests before it goes on: reports of leases that are over by then.
    let mut client = frozen.connect();
    let report = json!({ "token": old["lease"]["token"], "result": "late" }).to_string();
    client.ask("POST", &format!("/jobs/{late}/complete"), &[], Some(&report));
    let new = ["polled", "command"].map(|kind| claim(other, kind, 600_000));
    assert_eq!(new[0]["lease"]["token"], format!("{late}.2"));
    assert_eq!(new[1]["id"], command);
    frozen.signal("-CONT");
    let refused = client.reply().unwrap();
    assert_eq!(refused.refused(), (409, "lease-lost".into()), "{}", refused.text());
    let stale = frozen.get("/metrics").text();
    assert!(!stale.contains("windlass_stale_reports_total 0"), "the node has counted it");
    // It alone has a slot, which is free again: the handler was stopped.
    let next = frozen.enqueue(r#"{"kind":"windlass.noop","queue":"apart"}"#);
    frozen.until(&format!("/jobs/{next}"), |job| job["state"] == "done");
    for job in &new {
        assert_eq!(other.report(job, "complete").json()["state"], "done");
        let attempts = other.get(&format!("/jobs/{}/attempts", job["id"])).json();
        assert_eq!(attempts["attempts"][0]["outcome"], "expired", "{attempts}");
    }
    assert_eq!(cluster.node(1).job(late)["result"], Value::Null, "not that of the late report");
}
