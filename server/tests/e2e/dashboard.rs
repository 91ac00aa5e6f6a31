//! What the dashboard stands on: its files, who asks, rows, stored bytes, snapshots, the history,
//! and settings that two people edit.

use serde_json::json;

use crate::common::{Place, Server, stores};

#[test]
fn the_shell_names_files_that_are_there_and_may_be_kept_for_ever() {
    let (_place, server) = Server::new("sqlite");
    let page = server.get("/").text();
    let files: Vec<&str> =
        page.split("\"ui/").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert!(files.len() > 10, "{page}");
    for file in files {
        let reply = server.get(&format!("/ui/{file}"));
        assert_eq!(reply.status, 200, "{file}");
        let kept = reply.header("cache-control").unwrap();
        assert!(kept.contains("immutable"), "{file}: {kept}");
        assert_eq!(reply.header("x-content-type-options"), Some("nosniff"));
    }
    let policy = server.get("/").header("content-security-policy").unwrap().to_owned();
    assert!(policy.contains("require-trusted-types-for 'script'"), "{policy}");
    assert_eq!(server.get("/ui/000000000000/app.js").refused(), (404, "not-found".into()));
}

#[test]
fn every_token_may_ask_who_it_is_and_no_other() {
    let place = Place::new("sqlite");
    let file = place.private_file("tokens", "run work,enqueue work-token-0123456789\n");
    let args = ["--token-file", file.to_str().unwrap(), "--label", "staging"];
    let server = place.start(&args);
    assert_eq!(server.get("/me").refused(), (401, "unauthorized".into()));
    let mut client = server.connect();
    client.token = Some("work-token-0123456789".into());
    let me = client.send("GET", "/me", &[], None).json();
    let wanted = json!({
        "name": "run", "scopes": ["work", "enqueue"], "open": false, "label": "staging",
    });
    assert_eq!(me, wanted);
    let (_place, open) = Server::new("sqlite");
    let me = open.get("/me").json();
    assert_eq!(me, json!({"name": null, "scopes": ["admin"], "open": true, "label": null}));
}

#[test]
fn rows_have_heads_in_place_of_documents_and_are_found_by_ids() {
    for store in stores() {
        let (_place, server) = Server::new(store);
        let long = "x".repeat(5_000);
        let first = server.enqueue(&format!(r#"{{"payload":"{long}","max_retries":0}}"#));
        let second = server.enqueue(r#"{"kind":"email","payload":{"n":9007199254740993001}}"#);
        let token = server.claim("w", 1)[0]["lease"]["token"].to_string();
        let fail = format!(r#"{{"token":{token},"error":"{long}"}}"#);
        assert_eq!(server.post(&format!("/jobs/{first}/fail"), &fail).status, 200);
        let rows = server.get("/jobs?fields=row").json();
        let rows = rows["jobs"].as_array().unwrap();
        assert_eq!(rows.iter().map(|row| row["id"].as_u64().unwrap()).collect::<Vec<_>>(), [2, 1]);
        assert_eq!(rows[1]["payload_head"].as_str().unwrap().len(), 200);
        assert_eq!(rows[1]["last_error"].as_str().unwrap().len(), 300);
        assert_eq!(rows[1]["payload_bytes"], 5_002);
        assert!(rows[1].get("payload").is_none() && rows[1].get("retry").is_none());
        assert_eq!((&rows[0]["view"], &rows[1]["view"]), (&json!("queued"), &json!("failed")));
        let some = server.get(&format!("/jobs?fields=row&id={first},{second},999")).json();
        assert_eq!(some["jobs"].as_array().unwrap().len(), 2);
        let failed = server.get("/jobs?fields=row&id=1,2&state=failed").json();
        assert_eq!((&failed["jobs"][0]["id"], &failed["jobs"][1]), (&json!(1), &json!(null)));
        for bad in ["fields=all", "fields=row&id=1,x", "id=1,2", "fields=row&id="] {
            let reply = server.get(&format!("/jobs?{bad}"));
            assert!(reply.status == 422 || bad.ends_with("id="), "{bad}: {}", reply.status);
        }
        let head = server.get("/jobs/2?fields=head").json();
        assert!(head.get("payload").is_none() && head["retry"].is_object(), "{head}");
    }
}

#[test]
fn payload_and_result_are_the_stored_bytes() {
    for store in stores() {
        let (_place, server) = Server::new(store);
        let payload = r#"{ "n" : 9007199254740993001, "t":"\u202e</script>" }"#;
        let id = server.enqueue(&format!(r#"{{"payload":{payload}}}"#));
        assert_eq!(server.get(&format!("/jobs/{id}/payload")).text(), payload);
        let missing = server.get(&format!("/jobs/{id}/result"));
        assert_eq!(missing.refused(), (404, "not-found".into()));
        let token = server.claim("w", 1)[0]["lease"]["token"].to_string();
        let done = format!(r#"{{"token":{token},"result":{payload}}}"#);
        assert_eq!(server.post(&format!("/jobs/{id}/complete"), &done).status, 200);
        let result = server.get(&format!("/jobs/{id}/result"));
        assert_eq!(
            (result.text().as_str(), result.header("content-type")),
            (payload, Some("application/json"))
        );
        assert_eq!(server.get("/jobs/999/payload").status, 404);
    }
}

#[test]
fn settings_that_somebody_else_changed_are_not_overwritten() {
    for store in stores() {
        let (_place, server) = Server::new(store);
        let limits = |tag: &str, body: &str| {
            server.connect().send("PUT", "/queues/mail", &[("if-match", tag)], Some(body))
        };
        server.send("PUT", "/queues/mail", Some(r#"{"concurrency":1}"#));
        let before = server.get("/queues/mail");
        let tag = before.header("etag").unwrap().to_owned();
        assert_eq!(limits(&tag, r#"{"concurrency":2}"#).status, 200);
        let late = limits(&tag, r#"{"concurrency":3}"#);
        assert_eq!(late.refused(), (412, "changed-since".into()));
        assert_eq!(server.get("/queues/mail").json()["settings"]["concurrency"], 2);
        assert_eq!(limits("*", r#"{"concurrency":1}"#).status, 200);
        assert_eq!(server.get("/queues/mail").header("etag"), Some(tag.as_str()), "the same again");
    }
}

#[test]
fn a_queue_tells_its_kinds() {
    let (_place, server) = Server::new("sqlite");
    server.enqueue(r#"{"kind":"a"}"#);
    server.enqueue(r#"{"kind":"b"}"#);
    let kinds = server.get("/queues/default").json()["kinds"].clone();
    let names: Vec<&str> =
        kinds.as_array().unwrap().iter().map(|kind| kind["kind"].as_str().unwrap()).collect();
    assert_eq!((names, &kinds[0]["counts"]["queued"]), (vec!["a", "b"], &json!(1)));
}

#[test]
fn a_snapshot_tells_what_waits_what_is_paused_and_what_nobody_takes() {
    for store in stores() {
        let (_place, server) = Server::new(store);
        server.enqueue(r#"{"queue":"postcards","kind":"card"}"#);
        server.enqueue(r#"{"queue":"imports"}"#);
        server.post("/queues/imports/pause", "{}");
        let snapshot = server.until("/snapshot", |snapshot| snapshot["queues_total"] == 2);
        let queue = |name: &str| {
            let queues = snapshot["queues"].as_array().unwrap();
            queues.iter().find(|queue| queue["name"] == name).unwrap().clone()
        };
        assert_eq!(queue("postcards")["starved"], true);
        assert_eq!(
            (&queue("imports")["paused"], &queue("imports")["starved"]),
            (&json!(true), &json!(false))
        );
        assert!(queue("imports")["paused_at"].is_string(), "{snapshot}");
        assert_eq!(snapshot["counts"]["queued"], 2);
        assert_eq!((&snapshot["full"], &snapshot["health"]), (&json!(true), &json!("good")));
        assert_eq!(snapshot["store"]["kind"], store);
    }
}

#[test]
fn the_snapshot_feed_begins_in_full_and_goes_on_with_what_changed() {
    let (_place, server) = Server::new("sqlite");
    server.enqueue(r#"{"queue":"a"}"#);
    server.enqueue(r#"{"queue":"b"}"#);
    // A snapshot is shared for almost a second: the first viewer may get the one of the start.
    server.until("/snapshot", |snapshot| snapshot["queues"].as_array().unwrap().len() == 2);
    let mut events = server.connect();
    events.ask("GET", "/events?feed=snapshot", &[], None);
    assert_eq!(events.head().expect("an answer").0, 200);
    let mut next = || {
        loop {
            let line = events.line().expect("the stream goes on");
            if let Some(data) = line.strip_prefix("data: ") {
                return serde_json::from_str::<serde_json::Value>(data).unwrap();
            }
        }
    };
    let first = next();
    assert_eq!((&first["full"], first["queues"].as_array().unwrap().len()), (&json!(true), 2));
    server.enqueue(r#"{"queue":"b"}"#);
    let changed = loop {
        let event = next();
        if event["counts"]["queued"] == 3 {
            break event;
        }
    };
    assert_eq!(changed["full"], false);
    let names: Vec<&str> =
        changed["queues"].as_array().unwrap().iter().map(|q| q["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"b"), "{changed}");
    assert_eq!(server.get("/events?feed=other").refused(), (422, "invalid".into()));
}

#[test]
fn the_history_counts_what_happened_in_steps() {
    for store in stores() {
        let (_place, server) = Server::new(store);
        server.enqueue(r#"{"queue":"a"}"#);
        let sum = |path: &str| -> f64 {
            let history = server.get(path).json();
            let enqueued = history["series"]["enqueued"].as_array().unwrap();
            enqueued.iter().map(|step| step.as_f64().unwrap()).sum()
        };
        server.until("/history?range=1h", |history| {
            let enqueued = history["series"]["enqueued"].as_array().unwrap();
            enqueued.iter().any(|step| step.as_f64() == Some(1.0))
        });
        assert!((sum("/history?range=24h&queue=a") - 1.0).abs() < 1e-9);
        assert!(sum("/history?range=7d&queue=other").abs() < 1e-9);
        let history = server.get("/history?range=1h&split=queue").json();
        for series in ["enqueued", "queued", "wait_p95_ms"] {
            assert_eq!(history["series"][series].as_array().unwrap().len(), 360, "{series}");
        }
        assert_eq!(
            (&history["step_ms"], &history["marks"][0]["what"]),
            (&json!(10_000), &json!("started"))
        );
        for bad in ["range=1y", "queue=a/b", "split=kind", "from=1"] {
            assert_eq!(server.get(&format!("/history?{bad}")).status, 422, "{bad}");
        }
    }
}
