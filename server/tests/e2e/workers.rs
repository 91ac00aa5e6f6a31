//! Remote workers: claims, reports, heartbeats, and clients that disconnect.

use std::collections::BTreeSet;
use std::sync::Mutex;

use serde_json::{Value, json};
use windlass_core::limits::CLAIM_BYTES;

use crate::common::{Client, Place, Server, attempts, stores};

fn token(job: &Value) -> String {
    job["lease"]["token"].as_str().unwrap().into()
}

fn report(server: &Server, job: &Value, verb: &str, rest: &str) -> crate::common::Reply {
    let body = format!(r#"{{"token":"{}"{rest}}}"#, token(job));
    server.post(&format!("/jobs/{}/{verb}", job["id"]), &body)
}

#[test]
fn a_waiting_poll_gets_a_job_as_soon_as_one_comes() {
    for store in stores() {
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
        (r#"{"worker":"w","version":""}"#, "/version"),
        (r#"{"worker":"w","version":"2\u0000"}"#, "/version"),
        (r#"{"worker":"w","version":"2\n"}"#, "/version"),
        (r#"{"worker":"w","version":"2\u202e"}"#, "/version"),
        (&format!(r#"{{"worker":"w","version":"{}"}}"#, "2".repeat(65)), "/version"),
    ] {
        assert_eq!(server.post("/jobs/poll", body).pointers(), [pointer], "{body}");
    }
    assert_eq!(server.post("/jobs/poll", "{}").status, 422, "a worker says who it is");
}

#[test]
fn workers_are_listed_with_their_version_and_the_server_they_polled_last() {
    for store in stores() {
        let (_place, server) = Server::new(store);
        let longest = "~".repeat(64);
        server.post("/jobs/poll", &format!(r#"{{"worker":"told","version":"{longest}"}}"#));
        server.post("/jobs/poll", r#"{"worker":"untold"}"#);
        let list = server.until("/workers", |list| list["workers"].as_array().unwrap().len() == 3);
        let rows = list["workers"].as_array().unwrap();
        let own = rows.iter().find(|row| row["kind"] == "local").expect("its own is listed");
        let what = |id: &Value| {
            let row = rows.iter().find(|row| row["id"] == *id).expect("it is listed");
            (row["version"].clone(), row["node"].clone())
        };
        let id = &own["id"];
        assert_eq!(what(id), (json!(env!("CARGO_PKG_VERSION")), id.clone()), "{store}");
        assert_eq!(what(&json!("told")), (json!(longest), id.clone()), "{store}");
        assert_eq!(what(&json!("untold")), (Value::Null, id.clone()), "{store}");
    }
}

#[test]
fn verdicts_move_the_job_and_the_same_one_again_gets_the_same_answer() {
    for store in stores() {
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
fn a_failure_carries_its_exit_code_and_output_and_says_when_to_try_again() {
    let body = r#"{"retry":{"strategy":"fixed","initial_ms":1}}"#;
    let details =
        r#""error":"exit 3","retry_in_ms":3600000,"exit_code":3,"stdout":"o","stderr":"e""#;
    for store in stores() {
        let (_place, server) = Server::new(store);
        let ids = [server.enqueue(body), server.enqueue(body)];
        let jobs = server.claim("w", 2);
        let failed = report(&server, &jobs[0], "fail", &format!(",{details}"));
        assert_eq!(failed.json(), json!({"state": "queued"}));
        let listed = format!(r#"{{"token":"{}","verdict":"fail",{details}}}"#, token(&jobs[1]));
        let listed = server.post("/jobs/reports", &format!(r#"{{"reports":[{listed}]}}"#));
        assert_eq!(listed.json(), json!({"results": [{"state": "queued"}]}));
        for id in ids {
            let job = server.job(id);
            assert!(job["run_at"].as_str() > job["updated_at"].as_str(), "{job}");
            let attempts = server.get(&format!("/jobs/{id}/attempts")).json();
            let attempt = &attempts["attempts"][0];
            assert_eq!(attempt["exit_code"], 3, "{attempt}");
            assert_eq!((&attempt["stdout"], &attempt["stderr"]), (&json!("o"), &json!("e")));
        }
        assert!(server.claim("w", 1).is_empty(), "an hour has not passed");
    }
}

#[test]
fn the_details_of_a_failure_are_checked_and_belong_to_no_other_verdict() {
    let (_place, server) = Server::new("sqlite");
    server.enqueue("{}");
    let job = &server.claim("w", 1)[0];
    let bad = report(&server, job, "fail", r#","error":"x","retry_in_ms":-1"#);
    assert_eq!(bad.pointers(), ["/retry_in_ms"]);
    let wrong = format!(
        r#"{{"reports":[{{"token":"{}","verdict":"complete","exit_code":1}}]}}"#,
        token(job)
    );
    let wrong = server.post("/jobs/reports", &wrong).json();
    assert_eq!(wrong["results"][0]["error"]["errors"][0]["pointer"], "/exit_code", "{wrong}");
}

#[test]
fn a_lost_lease_says_how_it_was_lost() {
    for store in stores() {
        let (_place, server) = Server::new(store);
        let ids: Vec<u64> = (0..2).map(|_| server.enqueue("{}")).collect();
        let jobs = server.claim("w", 2);
        report(&server, &jobs[0], "complete", "");
        server.post(&format!("/jobs/{}/cancel", ids[1]), "");
        for (job, reason) in jobs.iter().zip(["settled", "cancelled"]) {
            let reply = report(&server, job, "release", "");
            assert_eq!(reply.refused(), (409, "lease-lost".into()));
            assert_eq!(reply.json()["reason"], reason);
        }
    }
}

#[test]
fn a_star_polls_every_queue() {
    let (_place, server) = Server::new("sqlite");
    server.enqueue(r#"{"queue":"a"}"#);
    server.enqueue(r#"{"queue":"b"}"#);
    let all = server.post("/jobs/poll", r#"{"worker":"w","queues":["*"],"max":9}"#).json();
    assert_eq!(all["jobs"].as_array().map(Vec::len), Some(2), "{all}");
    let mixed = server.post("/jobs/poll", r#"{"worker":"w","queues":["a","*"]}"#);
    assert_eq!(mixed.pointers(), ["/queues/1"]);
}

#[test]
fn a_heartbeat_extends_the_lease_and_shows_progress_until_the_job_is_cancelled() {
    for store in stores() {
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
        let reply = report(&server, job, "heartbeat", "");
        assert_eq!(reply.refused(), (409, "lease-lost".into()));
        let late = report(&server, job, "complete", "");
        assert_eq!(late.refused(), (409, "lease-lost".into()));
        assert_eq!(server.job(id)["state"], "cancelled");
        let bad = report(&server, job, "heartbeat", r#","extend_ms":999"#);
        assert_eq!(bad.pointers(), ["/extend_ms"]);
    }
}

#[test]
fn a_stale_token_does_not_touch_the_job_of_its_new_holder() {
    for store in stores() {
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
    for (verb, rest) in [("complete", ""), ("heartbeat", ""), ("fail", r#","error":"x""#)] {
        let late = report(&server, &lost, verb, rest);
        assert_eq!(late.refused(), (409, "lease-lost".into()), "{verb}");
        assert_eq!(late.json()["reason"], "expired", "{verb}");
    }
    let attempts = server.get(&format!("/jobs/{id}/attempts")).json();
    assert_eq!(attempts["attempts"][0]["outcome"], "expired");
    assert_eq!(attempts["attempts"][0]["worker"], "frozen");
}

#[test]
fn heartbeats_of_an_attempt_past_its_timeout_are_refused_and_say_so() {
    for store in stores() {
        let (_place, server) = Server::new(store);
        let id = server.enqueue(r#"{"timeout_ms":500,"max_retries":0}"#);
        let job = server.claim("w", 1).remove(0);
        let until = &job["lease"]["until"];
        let beats = attempts().map(|()| report(&server, &job, "heartbeat", ""));
        let refused = beats.skip_while(|beat| {
            let extended = beat.status == 200;
            assert!(!extended || beat.json()["lease"]["until"] == *until, "{}", beat.text());
            extended
        });
        let refused = refused.take(1).next().expect("an attempt has 500 ms");
        assert_eq!(refused.refused(), (409, "lease-lost".into()));
        assert_eq!(refused.json()["reason"], "timed_out", "{}", refused.text());
        let failed = server.until(&format!("/jobs/{id}"), |job| job["state"] == "failed");
        for (verb, rest) in [("heartbeat", ""), ("complete", ""), ("fail", r#","error":"x""#)] {
            let late = report(&server, &job, verb, rest);
            assert_eq!(late.refused(), (409, "lease-lost".into()), "{verb}");
            assert_eq!(late.json()["reason"], "timed_out", "{verb}");
        }
        assert_eq!(server.job(id), failed);
        let attempts = server.get(&format!("/jobs/{id}/attempts")).json();
        assert_eq!(attempts["attempts"][0]["outcome"], "timed_out", "{attempts}");
    }
}

#[test]
fn reports_are_recorded_in_one_commit_each_with_its_own_answer() {
    for store in stores() {
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
    for store in stores() {
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
    for store in stores() {
        let place = Place::new(store);
        let mut server = place.start(&["--write-timeout", "1s"]);
        // More than a socket holds, for a client that never reads.
        let payload = "x".repeat(900_000);
        for _ in 0..30 {
            let body = format!(r#"{{"payload":"{payload}","visibility_timeout_ms":43200000}}"#);
            server.enqueue(&body);
        }
        let mut deaf = server.connect();
        deaf.ask("POST", "/jobs/poll", &[], Some(r#"{"worker":"deaf","max":30}"#));
        server.until("/queues/default", |queue| queue["counts"]["processing"] == 30);
        server.wait_for_log("undelivered claims were released");
        let queue = server.get("/queues/default").json();
        assert_eq!(queue["counts"]["queued"], 30, "{queue}");
        assert_eq!(server.job(1)["attempts"], 0, "not charged");
        drop(deaf);
    }
}

#[test]
fn a_poll_for_many_large_jobs_gets_as_many_as_fit_and_the_next_one_the_rest() {
    for store in stores() {
        let (_place, server) = Server::new(store);
        let payload = "x".repeat(1_000_000);
        let body = format!(r#"{{"payload":"{payload}"}}"#);
        let made: BTreeSet<u64> = (0..40).map(|_| server.enqueue(&body)).collect();
        let (mut client, mut seen, mut answers) = (server.connect(), BTreeSet::new(), 0);
        loop {
            let poll = r#"{"worker":"w","max":100}"#;
            let reply = client.send("POST", "/jobs/poll", &[], Some(poll));
            assert!(reply.body.len() < CLAIM_BYTES + 100_000, "{}", reply.body.len());
            let jobs = reply.json()["jobs"].as_array().unwrap().clone();
            if jobs.is_empty() {
                break;
            }
            answers += 1;
            for job in &jobs {
                assert_eq!(job["attempts"], 1);
                assert!(seen.insert(job["id"].as_u64().unwrap()), "{} came twice", job["id"]);
            }
        }
        assert_eq!((seen, answers), (made, 2), "{store}");
    }
}

#[test]
fn several_workers_share_the_jobs_and_none_is_given_twice() {
    for store in stores() {
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
    for store in stores() {
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

#[test]
fn reports_take_heartbeats_beside_verdicts_with_one_result_each() {
    for store in stores() {
        let (_place, server) = Server::new(store);
        server.enqueue("{}");
        server.enqueue("{}");
        let jobs = server.claim("w", 2);
        let [one, two] = [token(&jobs[0]), token(&jobs[1])];
        let body = json!({"reports": [
            {"token": one, "verdict": "heartbeat", "extend_ms": 600_000, "progress": {"done": 3}},
            {"token": two, "verdict": "complete"},
            {"token": two, "verdict": "heartbeat"},
            {"token": one, "verdict": "heartbeat", "extend_ms": 5},
            {"token": one, "verdict": "heartbeat", "error": "x"},
            {"token": one, "verdict": "complete", "progress": 1},
        ]});
        let reply = server.post("/jobs/reports", &body.to_string()).json();
        let results = reply["results"].as_array().unwrap();
        assert_eq!(results.len(), 6);
        assert_eq!(results[0]["lease"]["token"], one.as_str());
        assert_ne!(results[0]["lease"]["until"], jobs[0]["lease"]["until"], "it is extended");
        assert_eq!(results[1], json!({"state": "done"}));
        assert_eq!(results[2]["error"]["type"], "urn:windlass:error:lease-lost");
        assert_eq!(results[2]["error"]["reason"], "settled");
        for (at, pointer) in [(3, "/extend_ms"), (4, "/error"), (5, "/progress")] {
            assert_eq!(results[at]["error"]["errors"][0]["pointer"], pointer, "{reply}");
        }
        assert_eq!(server.job(jobs[0]["id"].as_u64().unwrap())["progress"], json!({"done": 3}));
    }
}

#[test]
fn a_job_that_is_claimed_again_tells_what_earlier_attempts_left() {
    for store in stores() {
        let (_place, server) = Server::new(store);
        server.enqueue(r#"{"max_retries":3}"#);
        let first = server.claim("w", 1).remove(0);
        assert_eq!((&first["attempts"], &first["last_error"]), (&json!(1), &Value::Null));
        assert_eq!(report(&server, &first, "heartbeat", r#","progress":{"at":7}"#).status, 200);
        let failed = r#","error":"no route","retry_in_ms":0"#;
        assert_eq!(report(&server, &first, "fail", failed).status, 200);
        let again = server.claim("w", 1).remove(0);
        assert_eq!(again["attempts"], 2);
        assert_eq!(again["last_error"], "no route");
        assert_eq!(again["progress"], json!({"at": 7}));
    }
}

#[test]
fn the_scope_work_reads_the_jobs_it_holds_and_no_others() {
    let place = Place::new("sqlite");
    let tokens = "op admin s3cret-admin-token\nworker work s3cret-worker-token\n";
    let file = place.private_file("tokens", tokens);
    let server = place.start(&["--token-file", file.to_str().unwrap()]);
    let ask = |who: &str, method: &str, path: &str, body: Option<&str>| {
        let bearer = format!("Bearer s3cret-{who}-token");
        server.connect().send(method, path, &[("authorization", &bearer)], body)
    };
    let made = ask("admin", "POST", "/jobs", Some(r#"{"payload":{"secret":1}}"#)).json();
    let id = made["job"]["id"].as_u64().unwrap();
    let held = |token: &str| ask("worker", "GET", &format!("/jobs/{id}/lease?token={token}"), None);
    assert_eq!(ask("worker", "GET", &format!("/jobs/{id}"), None).status, 403);
    let lost = |token: &str| {
        let refused = held(token);
        assert_eq!(refused.refused(), (409, "lease-lost".into()), "{token}");
        refused.json()["reason"].clone()
    };
    assert_eq!(lost(&format!("{id}.1")), "expired", "it is not claimed yet");
    let poll = ask("worker", "POST", "/jobs/poll", Some(r#"{"worker":"w"}"#)).json();
    let token = token(&poll["jobs"][0]);
    assert_eq!(held(&token).json()["payload"], json!({"secret": 1}));
    assert_eq!(lost(&format!("{id}.2")), "expired");
    assert_eq!(held("999.1").pointers(), ["/token"]);
    assert_eq!(held("").pointers(), ["/token"]);
    let body = format!(r#"{{"token":"{token}"}}"#);
    let done = ask("worker", "POST", &format!("/jobs/{id}/complete"), Some(&body));
    assert_eq!(done.status, 200);
    assert_eq!(lost(&token), "settled");
    let other = ask("admin", "POST", "/jobs", Some("{}")).json()["job"]["id"].as_u64().unwrap();
    ask("worker", "POST", "/jobs/poll", Some(r#"{"worker":"w"}"#));
    ask("admin", "POST", &format!("/jobs/{other}/cancel"), None);
    let path = format!("/jobs/{other}/lease?token={other}.1");
    assert_eq!(ask("worker", "GET", &path, None).json()["reason"], "cancelled");
}
