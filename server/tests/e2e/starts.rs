//! Rates, limits of kinds and aging over HTTP, on every store: what they hold up, what is refused.

use serde_json::{Value, json};

use crate::common::{Server, stores};

fn set(server: &Server, settings: &Value) {
    let reply = server.send("PUT", "/queues/api", Some(&settings.to_string()));
    assert_eq!(reply.status, 200, "{}", reply.text());
}

/// The kinds of the jobs that a poll for five of them gets.
fn poll(server: &Server) -> Vec<String> {
    let reply = server.post("/jobs/poll", r#"{"worker":"w","queues":["api"],"max":5}"#);
    let body = reply.json();
    let jobs = body["jobs"].as_array().expect("a list of jobs").iter();
    jobs.map(|job| job["kind"].as_str().expect("a kind").to_owned()).collect()
}

/// The first reason why a job waits, and when that can change by itself.
fn explained(server: &Server, id: &str) -> (String, Value) {
    let body = server.get(&format!("/jobs/{id}/explain")).json();
    let code = body["reasons"][0]["code"].as_str().expect("a code").to_owned();
    (code, body["next_change_at"].clone())
}

fn enqueue(server: &Server, kind: &str) -> String {
    let body = format!(r#"{{"queue":"api","kind":"{kind}"}}"#);
    server.post("/jobs", &body).json()["job"]["id"].to_string()
}

#[test]
fn a_rate_lets_its_burst_start_and_explains_the_rest() {
    for store in stores() {
        let (_place, server) = Server::new(store);
        set(&server, &json!({"rate": {"limit": 1, "per_ms": 3_600_000, "burst": 2}}));
        let jobs = ["a", "b", "c"].map(|kind| enqueue(&server, kind));
        assert_eq!(poll(&server), ["a", "b"], "{store}");
        assert_eq!(poll(&server), Vec::<String>::new(), "{store}");
        let (code, next) = explained(&server, &jobs[2]);
        assert_eq!(code, "rate_limited", "{store}");
        assert!(next.is_string(), "{store} says when: {next}");
        set(&server, &json!({}));
        assert_eq!(poll(&server), ["c"], "{store}: without the rate it starts");
    }
}

#[test]
fn a_poll_that_waits_gets_its_job_when_the_rate_has_room_again() {
    for store in stores() {
        let (_place, server) = Server::new(store);
        set(&server, &json!({"rate": {"limit": 5, "per_ms": 1_000, "burst": 1}}));
        let _jobs = ["a", "b"].map(|kind| enqueue(&server, kind));
        assert_eq!(poll(&server), ["a"], "{store}");
        let body = r#"{"worker":"w","queues":["api"],"wait_ms":20000}"#;
        let reply = server.post("/jobs/poll", body).json();
        assert_eq!(reply["jobs"][0]["kind"], "b", "{store}: {reply}");
    }
}

#[test]
fn a_kind_at_its_limit_waits_and_the_others_go_on() {
    for store in stores() {
        let (_place, server) = Server::new(store);
        set(&server, &json!({"kinds": {"slow": {"concurrency": 1}, "off": {"concurrency": 0}}}));
        let slow = [enqueue(&server, "slow"), enqueue(&server, "slow")];
        let off = enqueue(&server, "off");
        enqueue(&server, "quick");
        assert_eq!(poll(&server), ["slow", "quick"], "{store}");
        for waits in [&slow[1], &off] {
            assert_eq!(explained(&server, waits), ("kind_full".into(), Value::Null), "{store}");
        }
    }
}

#[test]
fn settings_of_starts_come_back_as_they_were_set_and_bad_ones_are_refused_by_place() {
    let (_place, server) = Server::new("sqlite");
    let all = json!({
        "aging_ms": 60_000,
        "rate": {"limit": 100, "per_ms": 60_000, "burst": null},
        "kinds": {"a": {"concurrency": 0, "rate": null},
                  "b": {"concurrency": null, "rate": {"limit": 1, "per_ms": 1, "burst": 7}}},
    });
    set(&server, &all);
    let shown = server.get("/queues/api").json()["settings"].clone();
    for name in ["aging_ms", "rate", "kinds"] {
        assert_eq!(shown[name], all[name]);
    }
    let many: serde_json::Map<String, Value> =
        (0..101).map(|n| (format!("k{n}"), json!({"concurrency": 1}))).collect();
    for (body, pointer) in [
        (json!({"aging_ms": 0}), "/aging_ms"),
        (json!({"rate": {"limit": 0, "per_ms": 1}}), "/rate/limit"),
        (json!({"rate": {"limit": 1, "per_ms": 86_400_001}}), "/rate/per_ms"),
        (json!({"rate": {"limit": 1, "per_ms": 1, "burst": -1}}), "/rate/burst"),
        (json!({"rate": {"limit": 1}}), "/rate"),
        (json!({"rate": {"limit": 1, "per_ms": 1, "per": 1}}), "/rate/per"),
        (json!({"kinds": {"a b": {"concurrency": 1}}}), "/kinds/a b"),
        (json!({"kinds": {"a": {"concurrency": -1}}}), "/kinds/a/concurrency"),
        (json!({"kinds": {"a": {"rate": {"limit": 0, "per_ms": 1}}}}), "/kinds/a/rate/limit"),
        (json!({"kinds": many}), "/kinds"),
    ] {
        let reply = server.send("PUT", "/queues/api", Some(&body.to_string()));
        assert_eq!(reply.status, 422, "{body}: {}", reply.text());
        assert_eq!(reply.json()["errors"][0]["pointer"], pointer, "{body}: {}", reply.text());
    }
    assert_eq!(server.get("/queues/api").json()["settings"], shown, "nothing was changed");
}
