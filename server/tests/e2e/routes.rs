//! Every route, and every problem that the API documents.

use serde_json::{Value, json};

use crate::common::{Server, attempts, stores};

#[test]
fn a_job_is_stored_and_shown_in_the_shape_of_the_contract() {
    for store in stores() {
        let (_place, server) = Server::new(store);
        let body = r#"{"kind":"email","payload":{"n":12345678901234567890123,"a": [ ]}}"#;
        let reply = server.post("/jobs", body);
        assert_eq!(reply.status, 202);
        assert_eq!(reply.header("location"), Some("/jobs/1"));
        assert!(reply.header("x-request-id").is_some());
        assert!(reply.text().contains(r#""payload":{"n":12345678901234567890123,"a": [ ]}"#));
        let answer = reply.json();
        assert_eq!((&answer["duplicate"], &answer["durability"]), (&json!(false), &json!("fsync")));
        let job = &answer["job"];
        for field in [
            "id",
            "queue",
            "kind",
            "state",
            "payload",
            "priority",
            "attempts",
            "max_retries",
            "generation",
            "run_at",
            "timeout_ms",
            "visibility_timeout_ms",
            "retry",
            "idempotency_key",
            "worker",
            "lease_until",
            "created_at",
            "updated_at",
            "started_at",
            "finished_at",
            "last_error",
            "result",
        ] {
            assert!(job.get(field).is_some(), "{field}");
        }
        assert_eq!(job["created_at"].as_str().unwrap().len(), "2026-01-02T03:04:05.678Z".len());
        assert_eq!(server.job(1), *job, "it is shown as it is stored");
    }
}

#[test]
fn every_option_is_kept_and_out_of_bounds_is_named() {
    let (_place, server) = Server::new("sqlite");
    let body = r#"{"type":"email","queue":"mail","priority":-7,"max_retries":0,"delay_ms":60000,
        "timeout_ms":5,"visibility_timeout_ms":1000,"idempotency_key":"k",
        "retry":{"strategy":"fixed","initial_ms":10,"cap_ms":20,"jitter":0}}"#;
    let job = server.job(server.enqueue(body));
    assert_eq!(job["kind"], "email");
    assert_eq!(job["queue"], "mail");
    assert_eq!(job["priority"], -7);
    assert_eq!(job["payload"], json!(null));
    assert_eq!(job["retry"]["strategy"], "fixed");
    assert_eq!(job["idempotency_key"], "k");
    let state = &server.get("/jobs?state=scheduled").json()["jobs"][0]["state"];
    assert_eq!(state, "queued", "scheduled is a view");
    for (body, pointer) in [
        (r#"{"priority":1001}"#, "/priority"),
        (r#"{"max_retries":1001}"#, "/max_retries"),
        (r#"{"visibility_timeout_ms":999}"#, "/visibility_timeout_ms"),
        (r#"{"timeout_ms":0}"#, "/timeout_ms"),
        (r#"{"delay_ms":-1}"#, "/delay_ms"),
        (r#"{"run_at":"soon"}"#, "/run_at"),
        (r#"{"run_at":"2999-01-01T00:00:00Z"}"#, "/run_at"),
        (r#"{"run_at":"2026-01-02T03:04:05Z","delay_ms":1}"#, "/delay_ms"),
        (r#"{"kind":"a","type":"b"}"#, "/type"),
        (r#"{"kind":"a/b"}"#, "/kind"),
        (r#"{"queue":"stats"}"#, "/queue"),
        (r#"{"queue":"../x"}"#, "/queue"),
        (r#"{"queue":"a\u0000b"}"#, "/queue"),
        (r#"{"idempotency_key":"with space"}"#, "/idempotency_key"),
        (r#"{"colour":"red"}"#, "/colour"),
    ] {
        let reply = server.post("/jobs", body);
        assert_eq!(reply.refused(), (422, "invalid".into()), "{body}");
        assert_eq!(reply.pointers(), [pointer], "{body}");
    }
    let long = format!(r#"{{"queue":"{}"}}"#, "q".repeat(10_240));
    assert_eq!(server.post("/jobs", &long).status, 422);
}

#[test]
fn an_enqueue_is_answered_with_the_job_as_it_is_stored() {
    for store in stores() {
        let (_place, server) = Server::new(store);
        let settings = r#"{"max_retries":7,"timeout_ms":1234,"retry":{"strategy":"linear"}}"#;
        assert_eq!(server.send("PUT", "/queues/q", Some(settings)).status, 200);
        for body in [
            r#"{"queue":"q","payload":{"a":1}}"#,
            r#"{"queue":"q","payload":[ ],"delay_ms":60000,"priority":3,"idempotency_key":"k"}"#,
            r#"{"run_at":"2001-02-03T04:05:06Z","visibility_timeout_ms":5000,"max_retries":0}"#,
        ] {
            let answer = server.post("/jobs", body).json();
            assert_eq!(answer["job"], server.job(answer["job"]["id"].as_u64().unwrap()), "{body}");
        }
    }
}

#[test]
fn a_repeated_request_gives_one_job_and_another_one_is_a_conflict() {
    for store in stores() {
        let (_place, server) = Server::new(store);
        let send = |body: &str| {
            server.connect().send("POST", "/jobs", &[("idempotency-key", "abc")], Some(body))
        };
        let first = send(r#"{"payload":{"a":1,"b":2}}"#);
        assert_eq!(first.status, 202);
        let again = send(r#"{"payload": {"b":2, "a":1} }"#);
        assert_eq!(again.status, 200);
        assert_eq!(again.json()["duplicate"], true);
        assert_eq!(again.json()["job"], first.json()["job"]);
        assert!(again.text().contains(r#""payload":{"a":1,"b":2}"#), "as the first one wrote it");
        let other = send(r#"{"payload":{"a":1,"b":3}}"#);
        assert_eq!(other.refused(), (409, "idempotency-conflict".into()));
        assert_eq!(other.json()["id"], first.json()["job"]["id"]);
        let both = server.connect().send(
            "POST",
            "/jobs",
            &[("idempotency-key", "abc")],
            Some(r#"{"idempotency_key":"abd"}"#),
        );
        assert_eq!(both.pointers(), ["/idempotency_key"]);
        assert_eq!(server.get("/jobs").json()["jobs"].as_array().unwrap().len(), 1);
    }
}

#[test]
fn a_job_is_found_by_its_idempotency_key_and_by_no_other() {
    for store in stores() {
        let (_place, server) = Server::new(store);
        server.enqueue(r#"{"idempotency_key":"order-1"}"#);
        let id = server.enqueue(r#"{"idempotency_key":"order&1/2","queue":"mail"}"#);
        let found = |query: &str| {
            let page = server.get(&format!("/jobs?{query}")).json();
            assert_eq!(page["next"], Value::Null, "{page}");
            let jobs = page["jobs"].as_array().unwrap().iter();
            jobs.map(|job| job["id"].as_u64().unwrap()).collect::<Vec<u64>>()
        };
        assert_eq!(found("key=order%261/2"), [id]);
        assert_eq!(found("key=order%261/2&queue=mail&state=queued"), [id]);
        assert_eq!(found("key=order"), [0_u64; 0]);
        assert_eq!(found("key=order%261/2&queue=default"), [0_u64; 0]);
        assert_eq!(server.post(&format!("/jobs/{id}/cancel"), "").status, 200);
        assert_eq!(found("key=order%261/2&state=cancelled"), [id]);
    }
}

#[test]
fn a_batch_has_one_result_per_job_and_a_bad_one_spoils_nothing() {
    for store in stores() {
        let (_place, server) = Server::new(store);
        let body = r#"{"jobs":[{"kind":"a"},{"kind":"a/b"},{"kind":"c","idempotency_key":"k"},
            {"kind":"command"},{"kind":"c","idempotency_key":"k"},7]}"#;
        let reply = server.post("/jobs/batch", body);
        assert_eq!(reply.status, 202, "{}", reply.text());
        let results = reply.json()["results"].as_array().unwrap().clone();
        assert_eq!(results[0], json!({"id": 1, "duplicate": false}));
        assert_eq!(results[1]["error"]["errors"][0]["pointer"], "/kind");
        assert_eq!(results[2], json!({"id": 2, "duplicate": false}));
        assert_eq!(results[3]["error"]["type"], "urn:windlass:error:kind-not-allowed");
        assert_eq!(results[4], json!({"id": 2, "duplicate": true}));
        assert_eq!(results[5]["error"]["status"], 422);
        assert_eq!(server.post("/jobs/batch", r#"{"jobs":[]}"#).pointers(), ["/jobs"]);
        for (path, wanted) in
            [("/jobs/batch", r#"{"jobs":[...]}"#), ("/jobs/reports", r#"{"reports":[...]}"#)]
        {
            let bare = server.post(path, r#" [{"kind":"email"}]"#);
            assert_eq!(bare.refused(), (422, "invalid".into()));
            let detail = bare.json()["detail"].as_str().unwrap().to_owned();
            assert!(detail.contains(wanted), "{detail}");
        }
        let many = format!(r#"{{"jobs":[{}]}}"#, vec!["{}"; 10_001].join(","));
        assert_eq!(server.post("/jobs/batch", &many).pointers(), ["/jobs"]);
    }
}

#[test]
fn lists_are_filtered_and_paged_without_gaps() {
    for store in stores() {
        let (_place, server) = Server::new(store);
        for n in 0..7 {
            server.enqueue(&format!(r#"{{"kind":"k{}","queue":"q"}}"#, n % 2));
        }
        let mut ids = Vec::new();
        let mut path = "/jobs?state=queued&queue=q&limit=3".to_owned();
        loop {
            let page = server.get(&path).json();
            ids.extend(page["jobs"].as_array().unwrap().iter().map(|job| job["id"].as_u64()));
            let Some(next) = page["next"].as_str() else { break };
            path = format!("/jobs?state=queued&queue=q&limit=3&cursor={next}");
        }
        ids.sort_unstable();
        assert_eq!(ids, (1..=7).map(Some).collect::<Vec<_>>());
        let kinds = server.get("/jobs?kind=k1").json();
        assert_eq!(kinds["jobs"].as_array().unwrap().len(), 3);
        for query in [
            "limit=1e9",
            "limit=-1",
            "limit=0",
            "limit=NaN",
            "cursor=x",
            "state=lost",
            "colour=red",
            "limit=1&limit=2",
            "queue=a%2Fb",
        ] {
            assert_eq!(server.get(&format!("/jobs?{query}")).status, 422, "{query}");
        }
    }
}

#[test]
fn a_job_is_cancelled_replayed_explained_and_deleted_and_refusals_name_its_state() {
    for store in stores() {
        let (_place, server) = Server::new(store);
        let id = server.enqueue("{}");
        let explain = |code: &str| {
            let reply = server.get(&format!("/jobs/{id}/explain")).json();
            assert_eq!(reply["reasons"][0]["code"], code, "{reply}");
        };
        explain("no_worker");
        assert_eq!(server.post("/queues/default/pause", "").json()["paused"], true);
        explain("queue_paused");
        assert!(server.claim("w", 1).is_empty(), "a paused queue gives nothing");
        assert_eq!(server.post("/queues/default/resume", "").json()["paused"], false);
        let reply = server.send("DELETE", &format!("/jobs/{id}"), None);
        assert_eq!(reply.refused(), (409, "illegal-transition".into()));
        assert!(reply.json()["detail"].as_str().unwrap().contains("queued"));
        let reply = server.post(&format!("/jobs/{id}/cancel"), "{}");
        assert_eq!(reply.json()["job"]["state"], "cancelled");
        explain("cancelled");
        assert_eq!(server.post(&format!("/jobs/{id}/cancel"), "").status, 200);
        let reply = server.post(&format!("/jobs/{id}/retry"), "");
        assert_eq!(reply.json()["job"]["generation"], 1);
        let retry = server.post(&format!("/jobs/{id}/retry"), "");
        assert_eq!(retry.refused(), (409, "illegal-transition".into()));
        server.post(&format!("/jobs/{id}/cancel"), "");
        assert_eq!(server.send("DELETE", &format!("/jobs/{id}"), None).status, 204);
        for path in ["", "/attempts", "/explain"] {
            let reply = server.get(&format!("/jobs/{id}{path}"));
            assert_eq!(reply.refused(), (404, "not-found".into()));
        }
        assert_eq!(server.post(&format!("/jobs/{id}/cancel"), "").status, 404);
        assert_eq!(server.get("/jobs/zero").status, 404);
    }
}

#[test]
fn dead_letters_are_listed_replayed_by_filter_and_discarded() {
    for store in stores() {
        let (_place, server) = Server::new(store);
        for n in 0..4 {
            server.enqueue(&format!(r#"{{"kind":"k{n}","max_retries":0}}"#));
        }
        for job in server.claim("w", 4) {
            let (id, token) = (&job["id"], &job["lease"]["token"]);
            let body = format!(r#"{{"token":{token},"error":"boom {id} <script>"}}"#);
            let reply = server.post(&format!("/jobs/{id}/fail"), &body);
            assert_eq!(reply.json(), json!({"state": "failed"}));
        }
        let list = server.get("/dlq").json();
        assert_eq!(list["jobs"].as_array().unwrap().len(), 4);
        assert!(list["jobs"][0]["last_error"].as_str().unwrap().starts_with("boom"));
        let attempts = server.get("/jobs/1/attempts").json();
        assert_eq!(attempts["attempts"][0]["outcome"], "failed");
        assert_eq!(attempts["attempts"][0]["error"], "boom 1 <script>");
        assert_eq!(server.post("/dlq/1/retry", "").json()["job"]["state"], "queued");
        assert_eq!(server.post("/dlq/1/retry", "").refused().0, 409);
        assert_eq!(server.send("DELETE", "/dlq/2", None).status, 204);
        let reply = server.post("/dlq/retry", r#"{"error_contains":"boom 3"}"#);
        assert_eq!(reply.json(), json!({"replayed": 1, "more": false}));
        let reply = server.send("POST", "/dlq/retry", None);
        assert_eq!(reply.json(), json!({"replayed": 1, "more": false}));
        assert!(server.get("/dlq").json()["jobs"].as_array().unwrap().is_empty());
        assert_eq!(server.post("/dlq/retry", r#"{"limit":1001}"#).pointers(), ["/limit"]);
    }
}

#[test]
fn error_groups_are_listed_in_three_orders_and_tell_what_their_dead_letters_share() {
    for store in stores() {
        let (_place, server) = Server::new(store);
        for n in 0..5 {
            let payload = json!({"to": {"host": "mx1"}, "n": n});
            server.enqueue(&json!({"kind": "k", "max_retries": 0, "payload": payload}).to_string());
        }
        for job in server.claim("w", 5) {
            let (id, token) = (&job["id"], &job["lease"]["token"]);
            let error = if *id == 5 { "refused".into() } else { format!("no room on disk {id}") };
            let body = json!({"token": token, "error": error}).to_string();
            assert_eq!(server.post(&format!("/jobs/{id}/fail"), &body).status, 200);
        }
        let list = server.get("/errors").json();
        let group = &list["groups"][0];
        assert_eq!((&group["count"], &group["kind"]), (&json!(4), &json!("k")));
        let title = json!([{"text": "no room on disk "}, {"slot": "number"}]);
        assert_eq!((&group["title"], &group["queues"][0]["count"]), (&title, &json!(4)));
        assert_eq!(
            (&group["newest"], &group["sample"]),
            (&json!([4, 3, 2]), &json!("no room on disk 4"))
        );
        assert_eq!(group["hours"].as_array().unwrap().len(), 24);
        let (id, other) = (group["id"].as_str().unwrap(), &list["groups"][1]["id"]);
        let page = server.get("/errors?limit=1").json();
        let rest = server.get(&format!("/errors?cursor={}", page["next"].as_str().unwrap())).json();
        assert_eq!((&rest["groups"][0]["id"], &rest["next"]), (other, &Value::Null));
        for by in ["last", "new"] {
            let found = server.get(&format!("/errors?by={by}&queue=default&kind=k")).json();
            assert_eq!(found["groups"].as_array().unwrap().len(), 2);
        }
        assert_eq!(server.get("/errors?queue=none").json()["groups"], json!([]));
        for bad in ["by=x", "limit=0", "cursor=1", "cursor=1_2"] {
            assert_eq!(server.get(&format!("/errors?{bad}")).refused().0, 422, "{bad}");
        }
        let detail = server.get(&format!("/errors/{id}")).json();
        let shared = json!({"where": "payload", "path": "/to/host", "value": "mx1", "share": 1.0});
        assert_eq!(detail["sampled"], 4);
        assert!(detail["shared"].as_array().unwrap().contains(&shared), "{detail}");
        assert_eq!(server.get("/errors/1").status, 404);
        assert_eq!(server.get("/jobs/4").json()["error_group"], id);
        let rows = server.get(&format!("/jobs?fields=row&group={id}&limit=3")).json();
        assert_eq!(rows["jobs"].as_array().unwrap().len(), 3);
        assert_eq!(rows["jobs"][0]["error_group"], id);
        assert_eq!(server.get("/jobs?group=x").refused().0, 422);
        // One snapshot is shared for most of a second.
        let snapshot = server.until("/snapshot", |snapshot| snapshot["errors"]["jobs"] == 5);
        let errors = &snapshot["errors"];
        assert_eq!((&errors["groups"], &errors["new"]), (&json!(2), &json!(2)));
        let reply = server.post("/dlq/retry", &json!({"group": id}).to_string());
        assert_eq!(reply.json(), json!({"replayed": 4, "more": false}));
        assert_eq!(server.get("/errors").json()["groups"].as_array().unwrap().len(), 1);
        assert_eq!(server.post("/dlq/retry", r#"{"group":"x"}"#).pointers(), ["/group"]);
    }
}

#[test]
fn a_queue_is_set_and_shown_and_a_full_one_refuses_but_knows_duplicates() {
    for store in stores() {
        let (_place, server) = Server::new(store);
        let body =
            r#"{"max_queued":1,"concurrency":2,"max_retries":9,"retry":{"strategy":"linear"}}"#;
        let reply = server.send("PUT", "/queues/small", Some(body));
        assert_eq!(reply.status, 200, "{}", reply.text());
        let settings = &reply.json()["settings"];
        assert_eq!((&settings["max_queued"], &settings["concurrency"]), (&json!(1), &json!(2)));
        let first = r#"{"queue":"small","idempotency_key":"k"}"#;
        let job = server.job(server.enqueue(first));
        assert_eq!((&job["max_retries"], &job["retry"]["strategy"]), (&json!(9), &json!("linear")));
        let full = server.post("/jobs", r#"{"queue":"small"}"#);
        assert_eq!(full.refused(), (503, "queue-full".into()));
        assert!(full.header("retry-after").is_some());
        assert!(full.json()["detail"].as_str().unwrap().contains("small"));
        assert_eq!(server.post("/jobs", first).json()["duplicate"], true);
        let one = server.get("/queues/small").json();
        assert_eq!(one["counts"]["queued"], 1);
        assert!(one["oldest_ready_age_ms"].is_u64());
        for path in ["/queues", "/queues/stats"] {
            let list = server.get(path).json();
            assert_eq!(list["queues"][0]["name"], "small");
        }
        let cleared = server.send("PUT", "/queues/small", Some("{}")).json();
        assert_eq!(cleared["settings"]["max_queued"], json!(null));
        assert_eq!(server.get("/queues/none").refused(), (404, "not-found".into()));
        assert_eq!(server.get("/queues/a%2Fb").status, 422);
        assert_eq!(server.get(&format!("/queues/{}", "q".repeat(4_000))).status, 422);
        let bad = server.send("PUT", "/queues/small", Some(r#"{"concurrency":0,"x":1}"#));
        assert_eq!(bad.pointers(), ["/x"]);
    }
}

#[test]
fn the_server_tells_about_itself() {
    for store in stores() {
        let (_place, server) = Server::new(store);
        server.enqueue("{}");
        server.claim("remote-1", 1);
        assert_eq!(server.get("/livez").json(), json!({"alive": true}));
        assert_eq!(server.get("/readyz").json(), json!({"ready": true, "enqueues": true}));
        let workers = server.get("/workers").json();
        let remote = workers["workers"].as_array().unwrap().iter().find(|w| w["id"] == "remote-1");
        let remote = remote.expect("a worker that polls is known");
        assert_eq!((&remote["kind"], &remote["alive"]), (&json!("remote"), &json!(true)));
        assert_eq!(remote["running"], json!([1]));
        let wants = ["stopping", "slots", "queues", "kinds"].map(|field| &remote[field]);
        assert_eq!(wants, [&json!(false), &json!(1), &json!(["default"]), &json!(null)]);
        let page = server.get("/");
        assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
        assert!(page.text().contains("<title>Windlass</title>"));
        let document = server.get("/openapi.json");
        assert_eq!(document.json()["openapi"], "3.1.0");
        let kept = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi.json");
        assert!(document.text() == std::fs::read_to_string(kept).unwrap());
    }
}

#[test]
fn the_figures_of_the_contract_are_all_there_and_count() {
    let (_place, server) = Server::new("sqlite");
    server.enqueue(r#"{"idempotency_key":"k"}"#);
    server.post("/jobs", r#"{"idempotency_key":"k"}"#);
    let job = &server.claim("w", 1)[0];
    let body = format!(r#"{{"token":{}}}"#, job["lease"]["token"]);
    server.post("/jobs/1/complete", &body);
    server.post("/jobs/1/fail", r#"{"token":"1.9","error":"late"}"#);
    server.until("/queues/default", |queue| queue["counts"]["done"] == 1);
    // Figures are written about a second after what they count.
    let mut text = String::new();
    for () in attempts() {
        text = server.get("/metrics").text();
        if text.contains(r#"jobs_finished_total{queue="default",outcome="done"} 1"#) {
            break;
        }
    }
    for line in [
        r#"windlass_jobs{queue="default",state="done"} 1"#,
        r#"windlass_queue_oldest_age_seconds{queue="default"}"#,
        r#"windlass_queue_paused{queue="default"} 0"#,
        r#"windlass_jobs_enqueued_total{queue="default"} 1"#,
        r#"windlass_jobs_deduplicated_total{queue="default"} 1"#,
        r#"windlass_jobs_started_total{queue="default"} 1"#,
        r#"windlass_jobs_finished_total{queue="default",outcome="done"} 1"#,
        r#"windlass_job_wait_seconds_count{queue="default"} 1"#,
        r#"windlass_job_run_seconds_count{queue="default"} 1"#,
        "windlass_lease_expired_total 0",
        "windlass_stale_reports_total 1",
        r#"windlass_worker_slots{state="free"} 16"#,
        "windlass_commit_seconds_bucket",
        "windlass_commit_batch_commands_bucket",
        "windlass_mailbox_depth 0",
        "windlass_store_bytes",
        "windlass_wal_bytes",
        r#"windlass_http_requests_total{route="/jobs/{id}/fail",code="409",method="POST"} 1"#,
        "windlass_http_request_seconds_bucket",
        "windlass_build_info",
    ] {
        assert!(text.contains(line), "{line} is missing in:\n{text}");
    }
}

#[test]
fn a_path_or_a_method_that_is_not_there_is_named() {
    let (_place, server) = Server::new("sqlite");
    assert_eq!(server.get("/nowhere").refused(), (404, "not-found".into()));
    let reply = server.send("PATCH", "/jobs", None);
    assert_eq!(reply.refused(), (405, "method-not-allowed".into()));
    assert_eq!(reply.header("allow"), Some("POST, GET"));
    assert_eq!(server.send("OPTIONS", "/jobs", None).status, 405);
    let mut client = server.connect();
    client.ask("HEAD", "/livez", &[], None);
    let (status, headers) = client.head().unwrap();
    assert_eq!(status, 200);
    assert!(headers.contains(&("content-length".into(), "14".into())));
}
