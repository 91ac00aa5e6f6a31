//! Remote workers: claims, reports, heartbeats, and clients that go away.

use std::collections::BTreeSet;
use std::sync::Mutex;

use serde_json::{Value, json};

use crate::common::{Client, Place, STORES, Server};

fn token(job: &Value) -> String {
    job["lease"]["token"].as_str().unwrap().into()
}

fn report(server: &Server, job: &Value, verb: &str, rest: &str) -> crate::common::Reply {
    let body = format!(r#"{{"token":"{}"{rest}}}"#, token(job));
    server.post(&format!("/jobs/{}/{verb}", job["id"]), &body)
}

#[test]
fn a_waiting_poll_gets_a_job_as_soon_as_one_comes() {
    for store in STORES {
        let (_place, server) = Server::new(store);
        let mut worker = server.connect();
        let body = r#"{"worker":"w","wait_ms":30000}"#;
        worker.ask("POST", "/jobs/poll", &[], Some(body));
        server.until("/workers", |list| list.to_string().contains(r#""id":"w""#));
        let id = server.enqueue(r#"{"payload":[1]}"#);
        let jobs = worker.reply().unwrap().json();
        assert_eq!(jobs["jobs"][0]["id"], id);
        assert_eq!(jobs["jobs"][0]["payload"], json!([1]));
        assert_eq!(jobs["jobs"][0]["lease"]["token"], format!("{id}.1"));
        assert_eq!(jobs["jobs"][0]["state"], "processing");
    }
}

#[test]
fn a_poll_without_jobs_ends_with_an_empty_list_and_clamps_its_wait() {
    let (_place, server) = Server::new("sqlite");
    assert_eq!(server.post("/jobs/poll", r#"{"worker":"w"}"#).json(), json!({"jobs": []}));
    let waited = server.post("/jobs/poll", r#"{"worker":"w","wait_ms":50}"#);
    assert_eq!(waited.json(), json!({"jobs": []}));
    for (body, pointer) in [
        (r#"{"worker":""}"#, "/worker"),
        (r#"{"worker":"w","max":0}"#, "/max"),
        (r#"{"worker":"w","max":1001}"#, "/max"),
        (r#"{"worker":"w","wait_ms":-1}"#, "/wait_ms"),
        (r#"{"worker":"w","queues":[]}"#, "/queues"),
        (r#"{"worker":"w","queues":["a","b/c"]}"#, "/queues/1"),
        (r#"{"worker":"w","kinds":["-"]}"#, "/kinds/0"),
        (r#"{"worker":"w","visibility_timeout_ms":1}"#, "/visibility_timeout_ms"),
        (r#"{"worker":"w","speed":1}"#, "/speed"),
    ] {
        assert_eq!(server.post("/jobs/poll", body).pointers(), [pointer], "{body}");
    }
    assert_eq!(server.post("/jobs/poll", "{}").status, 422, "a worker says who it is");
}

#[test]
fn verdicts_move_the_job_and_the_same_one_again_gets_the_same_answer() {
    for store in STORES {
        let (_place, server) = Server::new(store);
        for _ in 0..4 {
            server.enqueue(r#"{"max_retries":1,"retry":{"strategy":"fixed","initial_ms":60000}}"#);
        }
        let jobs = server.claim("w", 4);
        for _ in 0..2 {
            let done = report(&server, &jobs[0], "complete", r#","result":{"n":1.50}"#);
            assert_eq!(done.json(), json!({"state": "done"}));
            let failed = report(&server, &jobs[1], "fail", r#","error":"no","retryable":false"#);
            assert_eq!(failed.json(), json!({"state": "failed"}));
            let retried = report(&server, &jobs[2], "fail", r#","error":"later""#);
            assert_eq!(retried.json(), json!({"state": "queued"}));
            let snoozed = report(&server, &jobs[3], "snooze", r#","delay_ms":60000"#);
            assert_eq!(snoozed.json(), json!({"state": "queued"}));
        }
        assert!(server.get("/jobs/1").text().contains(r#""result":{"n":1.50}"#));
        assert_eq!(server.job(3)["last_error"], "later");
        assert_eq!(server.job(4)["attempts"], 0, "a snooze is not charged");
        for (index, verb, rest) in
            [(0, "fail", r#","error":"x""#), (1, "complete", ""), (2, "release", "")]
        {
            let reply = report(&server, &jobs[index], verb, rest);
            assert_eq!(reply.refused(), (409, "lease-lost".into()), "{verb}");
        }
        let other = server.post("/jobs/2/complete", r#"{"token":"1.1"}"#);
        assert_eq!(other.pointers(), ["/token"], "a token of another job");
        let unknown = server.post("/jobs/99/complete", r#"{"token":"99.1"}"#);
        assert_eq!(unknown.refused(), (404, "not-found".into()));
    }
}

#[test]
fn a_heartbeat_extends_the_lease_and_shows_progress_until_the_job_is_cancelled() {
    for store in STORES {
        let (_place, server) = Server::new(store);
        let id = server.enqueue("{}");
        let job = &server.claim("w", 1)[0];
        let beat = r#","extend_ms":600000,"progress":{"at":1.0}"#;
        let reply = report(&server, job, "heartbeat", beat);
        let lease = &reply.json()["lease"];
        assert_eq!(lease["token"], token(job));
        assert!(lease["until"].as_str() > job["lease"]["until"].as_str());
        assert_eq!(server.job(id)["progress"], json!({"at": 1.0}));
        server.post(&format!("/jobs/{id}/cancel"), "");
        let told = report(&server, job, "heartbeat", "");
        assert_eq!(told.refused(), (409, "lease-lost".into()));
        let late = report(&server, job, "complete", "");
        assert_eq!(late.refused(), (409, "lease-lost".into()));
        assert_eq!(server.job(id)["state"], "cancelled");
        let bad = report(&server, job, "heartbeat", r#","extend_ms":999"#);
        assert_eq!(bad.pointers(), ["/extend_ms"]);
    }
}

#[test]
fn a_stale_token_does_not_touch_the_job_of_its_new_holder() {
    for store in STORES {
        let (_place, server) = Server::new(store);
        let id = server.enqueue("{}");
        let old = server.claim("old", 1).remove(0);
        assert_eq!(report(&server, &old, "release", "").status, 200);
        let new = server.claim("new", 1).remove(0);
        assert_eq!(token(&new), format!("{id}.2"));
        let before = server.job(id);
        for (verb, rest) in
            [("complete", ""), ("fail", r#","error":"x""#), ("heartbeat", ""), ("release", "")]
        {
            let reply = report(&server, &old, verb, rest);
            assert_eq!(reply.refused(), (409, "lease-lost".into()), "{verb}");
        }
        assert_eq!(server.job(id), before);
        assert_eq!(report(&server, &new, "complete", "").status, 200);
    }
}

#[test]
fn a_lease_that_ran_out_is_run_again_and_its_holder_is_refused() {
    let (_place, server) = Server::new("sqlite");
    let id = server
        .enqueue(r#"{"visibility_timeout_ms":1000,"retry":{"strategy":"fixed","initial_ms":0}}"#);
    let lost = server.claim("frozen", 1).remove(0);
    let mut other = server.connect();
    let body = r#"{"worker":"other","wait_ms":30000}"#;
    let found = other.send("POST", "/jobs/poll", &[], Some(body)).json();
    assert_eq!(found["jobs"][0]["lease"]["token"], format!("{id}.2"));
    assert_eq!(report(&server, &lost, "complete", "").refused(), (409, "lease-lost".into()));
    let attempts = server.get(&format!("/jobs/{id}/attempts")).json();
    assert_eq!(attempts["attempts"][0]["outcome"], "expired");
    assert_eq!(attempts["attempts"][0]["worker"], "frozen");
}

#[test]
fn reports_are_recorded_in_one_commit_each_with_its_own_answer() {
    for store in STORES {
        let (_place, server) = Server::new(store);
        for _ in 0..4 {
            server.enqueue(r#"{"max_retries":0}"#);
        }
        let tokens: Vec<String> = server.claim("w", 4).iter().map(token).collect();
        let body = json!({"reports": [
            {"token": tokens[0], "verdict": "complete", "result": [1]},
            {"token": tokens[1], "verdict": "fail", "error": "no"},
            {"token": tokens[2], "verdict": "release"},
            {"token": tokens[3], "verdict": "snooze", "delay_ms": 60000},
            {"token": tokens[0], "verdict": "complete"},
            {"token": "1.9", "verdict": "complete"},
            {"token": "nonsense", "verdict": "complete"},
            {"token": tokens[0], "verdict": "release", "error": "mixed"},
            {"token": tokens[0], "verdict": "fail"},
        ]});
        let reply = server.post("/jobs/reports", &body.to_string());
        assert_eq!(reply.status, 200, "{}", reply.text());
        let results = reply.json()["results"].as_array().unwrap().clone();
        let states: Vec<&Value> = results.iter().map(|result| &result["state"]).take(5).collect();
        assert_eq!(states, ["done", "failed", "queued", "queued", "done"]);
        assert_eq!(results[5]["error"]["type"], "urn:windlass:error:lease-lost");
        let pointer = |at: usize| results[at]["error"]["errors"][0]["pointer"].clone();
        assert_eq!((pointer(6), pointer(7), pointer(8)), {
            (json!("/token"), json!("/error"), json!("/error"))
        });
        assert_eq!(server.post("/jobs/reports", r#"{"reports":[]}"#).pointers(), ["/reports"]);
    }
}

#[test]
fn what_a_poll_waits_for_is_given_back_when_its_client_leaves() {
    for store in STORES {
        let (_place, server) = Server::new(store);
        let mut gone = server.connect();
        gone.ask("POST", "/jobs/poll", &[], Some(r#"{"worker":"gone","wait_ms":30000}"#));
        server.until("/workers", |list| list.to_string().contains(r#""id":"gone""#));
        drop(gone);
        // Whether the server has noticed or not: the job must not wait for the lease to expire.
        let id = server.enqueue(r#"{"visibility_timeout_ms":43200000}"#);
        let mut here = server.connect();
        let body = r#"{"worker":"here","wait_ms":30000}"#;
        let jobs = here.send("POST", "/jobs/poll", &[], Some(body)).json();
        assert_eq!(jobs["jobs"][0]["id"], id);
        assert_eq!(jobs["jobs"][0]["attempts"], 1, "what was given back is not charged");
    }
}

#[test]
fn claims_whose_answer_cannot_be_written_are_given_back_at_once() {
    for store in STORES {
        let place = Place::new(store);
        let mut server = place.start(&["--write-timeout", "1s"]);
        // More than a socket holds, for a client that never reads.
        let payload = "x".repeat(900_000);
        for _ in 0..40 {
            let body = format!(r#"{{"payload":"{payload}","visibility_timeout_ms":43200000}}"#);
            server.enqueue(&body);
        }
        let mut deaf = server.connect();
        deaf.ask("POST", "/jobs/poll", &[], Some(r#"{"worker":"deaf","max":40}"#));
        server.until("/queues/default", |queue| queue["counts"]["processing"] == 40);
        server.wait_for_log("claims could not be delivered and were given back");
        let queue = server.get("/queues/default").json();
        assert_eq!(queue["counts"]["queued"], 40, "{queue}");
        assert_eq!(server.job(1)["attempts"], 0, "not charged");
        drop(deaf);
    }
}

#[test]
fn several_workers_share_the_jobs_and_nobody_gets_one_twice() {
    for store in STORES {
        let (_place, server) = Server::new(store);
        let jobs = vec!["{}"; 500].join(",");
        assert_eq!(server.post("/jobs/batch", &format!(r#"{{"jobs":[{jobs}]}}"#)).status, 202);
        let seen = Mutex::new(BTreeSet::new());
        std::thread::scope(|scope| {
            for worker in 0..4 {
                let (address, seen) = (server.address, &seen);
                scope.spawn(move || {
                    let mut client = Client::to(address);
                    let body = format!(r#"{{"worker":"w{worker}","max":20}}"#);
                    loop {
                        let reply = client.send("POST", "/jobs/poll", &[], Some(&body)).json();
                        let jobs = reply["jobs"].as_array().unwrap().clone();
                        if jobs.is_empty() {
                            return;
                        }
                        for job in &jobs {
                            assert!(seen.lock().unwrap().insert(token(job)), "{job}");
                        }
                        let reports: Vec<Value> = jobs
                            .iter()
                            .map(|job| json!({"token": token(job), "verdict": "complete"}))
                            .collect();
                        let body = json!({ "reports": reports }).to_string();
                        let reply = client.send("POST", "/jobs/reports", &[], Some(&body));
                        assert_eq!(reply.status, 200);
                    }
                });
            }
        });
        assert_eq!(seen.lock().unwrap().len(), 500);
        let counts = server.get("/queues/default").json()["counts"].clone();
        assert_eq!((&counts["done"], &counts["processing"]), (&json!(500), &json!(0)));
    }
}

#[test]
fn a_flood_is_refused_by_name_and_what_was_taken_is_there() {
    for store in STORES {
        let (_place, server) = Server::with(store, &["--mailbox", "1"]);
        let flood = |address| {
            let mut client = Client::to(address);
            let mut taken = 0;
            for _ in 0..100 {
                let reply = client.send("POST", "/jobs", &[], Some("{}"));
                if reply.status == 202 {
                    taken += 1;
                } else {
                    assert_eq!(reply.refused(), (503, "overloaded".into()));
                    assert_eq!(reply.header("retry-after"), Some("1"));
                }
            }
            taken
        };
        let taken: u64 = std::thread::scope(|scope| {
            let address = server.address;
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(move || flood(address))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert!(taken > 0);
        assert_eq!(server.get("/queues/default").json()["counts"]["queued"], taken);
    }
}

/// A worker that waits at one server counts for a job that is asked about at another one.
#[test]
fn a_job_is_explained_by_the_workers_of_every_process_on_the_store() {
    let place = Place::new("sqlite");
    let (here, there) = (place.start(&[]), place.start(&[]));
    let id = here.enqueue(r#"{"queue":"mail","kind":"send","delay_ms":3600000}"#);
    let asks_for_it = |server: &Server| {
        let reply = server.get(&format!("/jobs/{id}/explain")).json();
        !reply["reasons"].to_string().contains("no_worker")
    };
    let mut other = there.connect();
    let body = r#"{"worker":"other","queues":["bulk"],"wait_ms":30000}"#;
    other.ask("POST", "/jobs/poll", &[], Some(body));
    here.until("/workers", |list| list.to_string().contains(r#""id":"other""#));
    assert!(!asks_for_it(&here) && !asks_for_it(&there), "it wants other jobs");
    let mut mailer = there.connect();
    let body = r#"{"worker":"mailer","queues":["mail"],"kinds":["send"],"max":5,"wait_ms":30000}"#;
    mailer.ask("POST", "/jobs/poll", &[], Some(body));
    let list = here.until("/workers", |list| list.to_string().contains(r#""id":"mailer""#));
    assert!(asks_for_it(&here) && asks_for_it(&there));
    let row = list["workers"].as_array().unwrap().iter().find(|row| row["id"] == "mailer");
    let row = row.unwrap();
    assert_eq!((&row["queues"], &row["kinds"]), (&json!(["mail"]), &json!(["send"])));
    assert_eq!((&row["slots"], &row["alive"]), (&json!(5), &json!(true)));
}
