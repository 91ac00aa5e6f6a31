//! The API of the dashboard: files, `/me`, rows, stored bytes, snapshots, history, and settings
//! that two people edit.

use std::io::Read as _;

use serde_json::{Value, json};

use crate::common::{Client, Place, Reply, Server, attempts, stores};

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
fn settings_that_another_client_changed_are_not_overwritten() {
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
        assert_eq!(late.json()["settings"]["concurrency"], 2, "as they are now");
        assert_eq!(server.get("/queues/mail").json()["settings"]["concurrency"], 2);
        assert_eq!(limits("*", r#"{"concurrency":1}"#).status, 200);
        assert_eq!(server.get("/queues/mail").header("etag"), Some(tag.as_str()), "the same again");
    }
}

/// Both servers find the tag they were given, and write at the same time.
#[test]
fn of_two_servers_that_replace_the_same_settings_one_is_refused() {
    let place = Place::new("sqlite");
    let servers = [place.start(&[]), place.start(&[])];
    servers[0].send("PUT", "/queues/mail", Some(r#"{"concurrency":1000}"#));
    for round in 0..20 {
        let tag = servers[0].get("/queues/mail").header("etag").unwrap().to_owned();
        let mut both: Vec<Client> = servers.iter().map(Server::connect).collect();
        for (at, client) in both.iter_mut().enumerate() {
            let body = format!(r#"{{"concurrency":{}}}"#, 1 + 2 * round + at);
            client.ask("PUT", "/queues/mail", &[("if-match", &tag)], Some(&body));
        }
        let replies: Vec<Reply> = both.iter_mut().map(|client| client.reply().unwrap()).collect();
        let mut statuses = [replies[0].status, replies[1].status];
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 412], "round {round}");
        let at = replies.iter().position(|reply| reply.status == 200).unwrap();
        let kept = 1 + 2 * round + at;
        for server in &servers {
            assert_eq!(server.get("/queues/mail").json()["settings"]["concurrency"], kept);
        }
        assert_eq!(replies[1 - at].json()["settings"]["concurrency"], kept, "shown as it is");
    }
}

#[test]
fn a_server_setting_that_another_server_changed_is_not_overwritten() {
    let place = Place::new("sqlite");
    let servers = [place.start(&[]), place.start(&[])];
    let path = "/settings/max_retries";
    let set = |server: &Server, method: &str, tag: &str, body: Option<&str>| {
        server.connect().send(method, path, &[("if-match", tag)], body)
    };
    let absent = servers[0].get(path).header("etag").unwrap().to_owned();
    let first = set(&servers[0], "PUT", &absent, Some(r#"{"value":"5"}"#));
    assert_eq!(first.status, 200);
    let tag = first.header("etag").unwrap().to_owned();
    assert_eq!(servers[1].get(path).header("etag"), Some(tag.as_str()), "the same on both");
    assert_eq!(set(&servers[1], "PUT", &tag, Some(r#"{"value":"7"}"#)).status, 200);
    let late = set(&servers[0], "PUT", &tag, Some(r#"{"value":"9"}"#));
    assert_eq!(late.refused(), (412, "changed-since".into()));
    assert_eq!(late.json()["stored"], "7", "as it is now");
    let late = set(&servers[0], "DELETE", &tag, None);
    assert_eq!(late.refused(), (412, "changed-since".into()));
    assert_eq!(servers[0].get(path).json()["stored"], "7");
    let now = servers[0].get(path).header("etag").unwrap().to_owned();
    assert_eq!(set(&servers[0], "DELETE", &now, None).status, 204);
    let late = set(&servers[1], "PUT", &now, Some(r#"{"value":"9"}"#));
    assert_eq!((late.refused().0, &late.json()["stored"]), (412, &Value::Null));
    assert_eq!(servers[1].get(path).header("etag"), Some(absent.as_str()), "absent again");
    assert_eq!(set(&servers[1], "PUT", "*", Some(r#"{"value":"6"}"#)).status, 200);
}

/// Both servers find the tag they were given, and write at the same time.
#[test]
fn of_two_servers_that_change_the_same_setting_one_is_refused() {
    let place = Place::new("sqlite");
    let servers = [place.start(&[]), place.start(&[])];
    let path = "/settings/max_retries";
    for round in 0..20 {
        let tag = servers[0].get(path).header("etag").unwrap().to_owned();
        let mut both: Vec<Client> = servers.iter().map(Server::connect).collect();
        for (at, client) in both.iter_mut().enumerate() {
            let body = format!(r#"{{"value":"{}"}}"#, 1 + 2 * round + at);
            client.ask("PUT", path, &[("if-match", &tag)], Some(&body));
        }
        let replies: Vec<Reply> = both.iter_mut().map(|client| client.reply().unwrap()).collect();
        let mut statuses = [replies[0].status, replies[1].status];
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 412], "round {round}");
        let at = replies.iter().position(|reply| reply.status == 200).unwrap();
        let kept = (1 + 2 * round + at).to_string();
        for server in &servers {
            assert_eq!(server.get(path).json()["stored"], kept);
        }
        assert_eq!(replies[1 - at].json()["stored"], kept, "shown as it is");
    }
}

#[test]
fn jobs_that_wait_for_another_attempt_are_counted() {
    for store in stores() {
        let (place, server) = Server::new(store);
        server.enqueue(r#"{"queue":"mail","retry":{"strategy":"fixed","initial_ms":3600000}}"#);
        server.enqueue(r#"{"queue":"mail"}"#);
        let claimed = server.post("/jobs/poll", r#"{"worker":"w","max":1,"queues":["mail"]}"#);
        let token = claimed.json()["jobs"][0]["lease"]["token"].to_string();
        server.post("/jobs/1/fail", &format!(r#"{{"token":{token},"error":"no"}}"#));
        let queue = server.get("/queues/mail").json();
        assert_eq!((&queue["counts"]["scheduled"], &queue["retrying"]), (&json!(1), &json!(1)));
        for path in ["/snapshot", "/status"] {
            assert_eq!(server.until(path, |one| one["counts"]["queued"] == 1)["retrying"], 1);
        }
        let metrics = server.get("/metrics").text();
        assert!(metrics.contains(r#"windlass_jobs_retrying{queue="mail"} 1"#), "{metrics}");
        drop(server);
        let server = place.start(&[]);
        assert_eq!(server.get("/queues").json()["queues"][0]["retrying"], 1, "kept in the store");
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
fn a_pause_is_known_to_other_servers_and_after_a_restart() {
    let place = Place::new("sqlite");
    let token = "admin-token-0123456789";
    let file = place.private_file("tokens", &format!("ops admin {token}\n"));
    let start = || place.start(&["--token-file", file.to_str().unwrap()]);
    let ask = |server: &Server, method: &str, path: &str| {
        let mut client = server.connect();
        client.token = Some(token.into());
        client.send(method, path, &[], None)
    };
    let paused = |server: &Server| {
        attempts()
            .find_map(|()| {
                let snapshot = ask(server, "GET", "/snapshot").json();
                let queue = snapshot["queues"][0].clone();
                (queue["paused"] == true).then_some(queue)
            })
            .expect("the snapshot shows the pause")
    };
    let (one, other) = (start(), start());
    assert_eq!(ask(&one, "POST", "/queues/mail/pause").status, 200);
    let seen = paused(&one);
    assert_eq!(seen["paused_by"], "ops");
    assert!(seen["paused_at"].is_string(), "{seen}");
    ask(&other, "POST", "/queues/mail/pause");
    drop(one);
    for server in [other, start()] {
        let again = paused(&server);
        let same = ["paused_at", "paused_by"].map(|field| again[field] == seen[field]);
        assert_eq!(same, [true; 2], "{again} {seen}");
    }
}

#[test]
fn a_snapshot_shows_what_waits_what_is_paused_and_what_no_worker_takes() {
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

/// Bytes of a snapshot, at most.
const SNAPSHOT_BYTES: usize = 80_000;

#[test]
fn a_snapshot_of_many_queues_with_long_names_is_bounded_and_has_those_in_trouble() {
    let (_place, server) = Server::new("sqlite");
    let name = |n: usize| format!("{n:03}{}", "q".repeat(125));
    let jobs: Vec<String> = (0..300).map(|n| format!(r#"{{"queue":"{}"}}"#, name(n))).collect();
    let batch = format!(r#"{{"jobs":[{}]}}"#, jobs.join(","));
    assert_eq!(server.post("/jobs/batch", &batch).status, 202);
    // Of the last queue no worker takes the jobs, and the one before it has the most to do.
    let queues: Vec<String> = (0..299).map(name).collect();
    for some in queues.chunks(100) {
        let poll = json!({"worker": some[0], "queues": some, "kinds": ["none"]}).to_string();
        assert_eq!(server.post("/jobs/poll", &poll).status, 200);
    }
    let more = vec![format!(r#"{{"queue":"{}"}}"#, name(298)); 50].join(",");
    assert_eq!(server.post("/jobs/batch", &format!(r#"{{"jobs":[{more}]}}"#)).status, 202);
    server.until("/snapshot", |seen| seen["counts"]["queued"] == 350);
    let reply = server.get("/snapshot");
    let bytes = reply.text().len();
    assert!(bytes <= SNAPSHOT_BYTES, "{bytes}");
    let snapshot = reply.json();
    let shown = snapshot["queues"].as_array().unwrap();
    assert_eq!((&snapshot["more"], &snapshot["queues_total"]), (&json!(true), &json!(300)));
    assert!(shown.len() > 100, "the space is used: {} queues in {bytes} bytes", shown.len());
    let names: Vec<&str> = shown.iter().filter_map(|queue| queue["name"].as_str()).collect();
    assert!(names.contains(&name(298).as_str()), "{names:?}");
    // What changes is bounded as well.
    let mut events = server.connect();
    events.ask("GET", "/events?feed=snapshot", &[], None);
    assert_eq!(events.head().expect("an answer").0, 200);
    for _ in 0..3 {
        let data = loop {
            let line = events.line().expect("the stream goes on");
            if let Some(data) = line.strip_prefix("data: ") {
                break data.to_owned();
            }
        };
        assert!(data.len() <= SNAPSHOT_BYTES, "{}", data.len());
        assert_eq!(server.post("/jobs/batch", &batch).status, 202);
    }
}

#[test]
fn workers_come_in_pages_with_their_first_jobs_and_the_snapshot_says_when_they_change() {
    for store in stores() {
        let (_place, server) = Server::new(store);
        let jobs = vec!["{}"; 25].join(",");
        assert_eq!(server.post("/jobs/batch", &format!(r#"{{"jobs":[{jobs}]}}"#)).status, 202);
        assert_eq!(server.claim("w2", 25).len(), 25);
        let rev = |server: &Server| server.get("/snapshot").json()["workers"]["rev"].as_u64();
        server.until("/snapshot", |seen| seen["slots"]["busy"] == 25);
        let before = rev(&server);
        for worker in ["w1", "w3"] {
            assert_eq!(server.claim(worker, 1).len(), 0);
        }
        let all = server.until("/workers", |all| all["workers"].as_array().unwrap().len() >= 3);
        assert!(all["next"].is_null(), "{store}: {all}");
        let busy = all["workers"].as_array().unwrap().iter().find(|row| row["id"] == "w2");
        let busy = busy.expect("it is listed");
        assert_eq!(busy["running_total"], 25, "{store}: {busy}");
        assert_eq!(busy["running"].as_array().unwrap().len(), 20, "{store}: {busy}");
        let (mut seen, mut path) = (Vec::new(), "/workers?limit=1".to_owned());
        loop {
            let page = server.get(&path).json();
            seen.extend(page["workers"].as_array().unwrap().iter().map(|row| row["id"].clone()));
            let Some(next) = page["next"].as_str() else { break };
            path = format!("/workers?limit=1&cursor={next}");
        }
        let ids: Vec<Value> =
            all["workers"].as_array().unwrap().iter().map(|row| row["id"].clone()).collect();
        assert_eq!(seen, ids, "{store}");
        server.until("/snapshot", |seen| seen["workers"]["rev"].as_u64() > before);
        for bad in ["limit=0", "limit=1001", "cursor=a%20b", "page=1"] {
            assert_eq!(server.get(&format!("/workers?{bad}")).status, 422, "{bad}");
        }
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
                return serde_json::from_str::<Value>(data).unwrap();
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

/// Instants and numbers of waiting jobs, of the steps that have them.
fn waiting(history: &Value) -> Vec<(i64, u64)> {
    let queued = history["series"]["queued"].as_array().unwrap();
    let from = history["from"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    let step = history["step_ms"].as_i64().unwrap();
    let known = (0..).zip(queued).filter_map(|(n, queued)| Some((n, queued.as_u64()?)));
    known.map(|(n, queued)| (from.as_millisecond() + n * step, queued)).collect()
}

/// Action and queue of each mark.
fn marks(history: &Value) -> Vec<(&str, Option<&str>)> {
    let marks = history["marks"].as_array().unwrap();
    marks.iter().map(|mark| (mark["what"].as_str().unwrap(), mark["queue"].as_str())).collect()
}

#[test]
fn what_waited_and_what_was_done_is_kept_over_a_kill_and_the_same_at_every_server() {
    for store in stores() {
        let (place, server) = Server::new(store);
        server.enqueue(r#"{"queue":"mail"}"#);
        server.post("/queues/mail/pause", "{}");
        server.post("/queues/mail/pause", "{}");
        server.send("PUT", "/queues/mail", Some(r#"{"concurrency":3}"#));
        let wanted = [("started", None), ("paused", Some("mail")), ("settings", Some("mail"))];
        let before = server.until("/history?range=10m", |history| {
            wanted.iter().all(|mark| marks(history).contains(mark)) && !waiting(history).is_empty()
        });
        let paused = marks(&before).iter().filter(|(what, _)| *what == "paused").count();
        assert_eq!(paused, 1, "it was paused once: {before}");
        // Steps of ten seconds are the store's alone, at every server.
        let stored = server.until("/history?range=1h", |history| !waiting(history).is_empty());
        server.kill();
        let other = place.start(&[]);
        let after = other.get("/history?range=1h").json();
        assert!(waiting(&after).starts_with(&waiting(&stored)[..1]), "{after}");
        assert!(wanted.iter().all(|mark| marks(&after).contains(mark)), "{after}");
        let of_another = other.get("/history?range=1h&queue=else").json();
        assert!(marks(&of_another).iter().all(|(what, _)| *what == "started"), "{of_another}");
    }
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
        assert_eq!(history["step_ms"], 10_000);
        for bad in ["range=1y", "queue=a/b", "split=kind", "from=1"] {
            assert_eq!(server.get(&format!("/history?{bad}")).status, 422, "{bad}");
        }
    }
}

#[test]
fn long_answers_are_compressed_for_clients_that_take_it() {
    let (_place, server) = Server::new("sqlite");
    for n in 0..200 {
        server.enqueue(&format!(r#"{{"payload":{n}}}"#));
    }
    let asked = |path: &str, coding: &str| {
        server.connect().send("GET", path, &[("accept-encoding", coding)], None)
    };
    for path in ["/jobs?limit=20", "/jobs?limit=200"] {
        let plain = asked(path, "identity");
        let zipped = asked(path, "gzip");
        assert_eq!(zipped.header("content-encoding"), Some("gzip"), "{path}");
        assert_eq!((plain.header("content-encoding"), plain.status), (None, 200));
        for reply in [&plain, &zipped] {
            assert_eq!(reply.header("vary"), Some("accept-encoding"), "{path}");
            let length = reply.header("content-length").map(|length| length.parse().unwrap());
            assert_eq!(length, Some(reply.body.len()), "{path}");
        }
        let mut text = Vec::new();
        flate2::read::GzDecoder::new(zipped.body.as_slice()).read_to_end(&mut text).unwrap();
        assert_eq!(text, plain.body, "{path}: the same answer");
        assert!(zipped.body.len() * 3 < plain.body.len(), "{path}");
    }
    for path in ["/me", "/queues/default"] {
        let reply = asked(path, "gzip");
        assert_eq!(reply.header("content-encoding"), None, "{path}: short, or with an ETag");
    }
    let mut events = server.connect();
    events.ask("GET", "/events?feed=snapshot", &[("accept-encoding", "gzip")], None);
    let (_, head) = events.head().expect("an answer");
    assert!(!head.iter().any(|(name, _)| name == "content-encoding"), "{head:?}");
}
