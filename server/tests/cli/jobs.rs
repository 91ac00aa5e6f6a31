//! Single jobs: adding, looking, explaining, cancelling, replaying, deleting.

use crate::common::Server;
use crate::world::{in_every_mode, with_every_id};

fn nothing(_: &Server) {}

/// One job of each state: 1 done, 2 dead, 3 cancelled, 4 running, 5 waiting, 6 scheduled.
fn one_of_each(server: &Server) {
    for kind in ["good", "bad", "stopped", "slow"] {
        let retries = if kind == "bad" { 0 } else { 3 };
        server.enqueue(&format!(
            r#"{{"kind":"{kind}","payload":{{"n":1}},"max_retries":{retries},
                "visibility_timeout_ms":3600000}}"#
        ));
    }
    server.claim("w1", 4);
    let done = r#"{"token":"1.1","result":{"sent":12345678901234567890123}}"#;
    assert_eq!(server.post("/jobs/1/complete", done).status, 200);
    let failed = r#"{"token":"2.1","error":"no \u001b[31mroute\u001b[0m\nto host \u202e"}"#;
    assert_eq!(server.post("/jobs/2/fail", failed).status, 200);
    assert_eq!(server.post("/jobs/3/cancel", "").status, 200);
    server.enqueue(r#"{"kind":"email","queue":"mail","payload":"hello","priority":-5}"#);
    server.enqueue(r#"{"kind":"email","delay_ms":86400000}"#);
}

#[test]
fn a_job_is_added_and_seen() {
    let output = with_every_id(nothing, |world| {
        world.tell(&["list"]);
        world.tell(&["enqueue", "email", r#"{"to":"ada@example.org","n":1e400}"#]);
        world.tell(&["enqueue", "report", "--delay", "1d", "--queue", "mail", "--key", "k"]);
        world.tell(&["enqueue", "report", "--delay", "1d", "--queue", "mail", "--key", "k"]);
        world.tell(&["enqueue", "report", "--queue", "mail", "--key", "k"]);
        world.tell_with(&["enqueue", "import", "-"], "[1,\n 2]");
        world.tell(&["enqueue", "number", "-5"]);
        world.tell(&["enqueue", "x", "--at", "2020-01-02T03:04:05+02:00", "--priority", "-5"]);
        let timing = ["--timeout", "5m", "--visibility-timeout", "1m", "--max-retries", "0"];
        world.tell(&[&["enqueue", "x"], &timing[..]].concat());
        world.tell(&["list"]);
        world.tell(&["show", "6"]);
        world.tell(&["enqueue", "x", "--json"]);
    });
    insta::assert_snapshot!(output);
}

#[test]
fn jobs_of_every_state_are_shown() {
    let output = in_every_mode(one_of_each, |world| {
        world.tell(&["list"]);
        world.tell(&["list", "--state", "failed"]);
        world.tell(&["list", "--state", "scheduled", "--queue", "default", "--kind", "email"]);
        world.tell(&["list", "--limit", "2"]);
        for id in ["1", "2", "3", "4", "6"] {
            world.tell(&["show", id]);
        }
    });
    insta::assert_snapshot!(output);
}

#[test]
fn programs_get_the_shapes_of_the_contract() {
    let output = in_every_mode(one_of_each, |world| {
        world.tell(&["show", "2", "--json"]);
        world.tell(&["list", "--json", "--limit", "1"]);
        world.tell(&["list", "--json", "--queue", "none"]);
        let all = world.run(&["list", "--json", "--all"]).out;
        let all: serde_json::Value = serde_json::from_str(&all).unwrap();
        assert_eq!(all["jobs"].as_array().unwrap().len(), 6);
        world.tell(&["explain", "6", "--json"]);
        world.tell(&["cancel", "5", "--json"]);
        world.tell(&["delete", "5", "--yes", "--json"]);
        world.tell(&["show", "5", "--json"]);
        world.tell(&["dlq", "list", "--json"]);
        world.tell(&["version", "--json"]);
    });
    insta::assert_snapshot!(output);
}

#[test]
fn a_job_says_why_it_is_where_it_is() {
    let output = in_every_mode(one_of_each, |world| {
        for id in ["1", "2", "3", "4", "6"] {
            world.tell(&["explain", id]);
        }
    });
    insta::assert_snapshot!(output);
}

#[test]
fn jobs_are_cancelled_replayed_and_deleted_one_by_one() {
    let output = in_every_mode(one_of_each, |world| {
        world.tell(&["cancel", "5", "99", "1", "6"]);
        world.tell(&["retry", "2", "3", "1"]);
        world.tell(&["delete", "1", "5"]);
        world.tell(&["delete", "1", "5", "2", "--yes"]);
        world.tell(&["list"]);
    });
    insta::assert_snapshot!(output);
}

#[test]
fn pages_are_put_together_without_a_gap() {
    fn many(server: &Server) {
        let jobs = vec![r#"{"kind":"k"}"#; 2_100].join(",");
        assert_eq!(server.post("/jobs/batch", &format!(r#"{{"jobs":[{jobs}]}}"#)).status, 202);
    }
    in_every_mode(many, |world| {
        let ran = world.run(&["list", "--json", "--all"]);
        let list: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
        let ids = list["jobs"].as_array().unwrap().iter().map(|job| job["id"].as_u64().unwrap());
        assert!(ids.eq((1..=2_100).rev()));
        assert!(list["next"].is_null());
        assert_eq!(world.run(&["list", "--limit", "1500"]).out.lines().count(), 1_501);
    });
}

#[test]
fn jobs_are_found_by_what_is_in_them() {
    let output = in_every_mode(one_of_each, |world| {
        world.tell(&["list", "--error-contains", "to host"]);
        world.tell(&["list", "--payload-contains", "\"n\":1", "--limit", "2"]);
        world.tell(&["list", "--payload-at", "/n", "--payload-is", "1", "--state", "done"]);
        world.tell(&["list", "--worker", "w1"]);
        world.tell(&["list", "--priority-min", "-4", "--attempts-min", "1", "--kind", "slow"]);
        world.tell(&["list", "--queue", "default,mail", "--to", "2020-01-02T03:04:05Z"]);
        world.tell(&["list", "--payload-at", "/n"]);
        world.tell(&["list", "--from", "yesterday"]);
    });
    insta::assert_snapshot!(output);
}

#[test]
fn a_job_is_listed_by_its_idempotency_key() {
    fn keyed(server: &Server) {
        server.enqueue(r#"{"idempotency_key":"a"}"#);
        server.enqueue(r#"{"idempotency_key":"b&c"}"#);
    }
    in_every_mode(keyed, |world| {
        let mut by_key = |key| {
            let listed = world.tell(&["list", "--key", key, "--json"]);
            serde_json::from_str::<serde_json::Value>(&listed.out).unwrap()
        };
        let found = by_key("b&c");
        assert_eq!(found["jobs"].as_array().map(Vec::len), Some(1), "{found}");
        let job = &found["jobs"][0];
        assert_eq!((&job["id"], &job["idempotency_key"]), (&2.into(), &"b&c".into()));
        assert_eq!(by_key("b"), serde_json::json!({ "jobs": [], "next": null }));
    });
}
