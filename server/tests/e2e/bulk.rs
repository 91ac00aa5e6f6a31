//! Bulk actions over HTTP, and a server that is killed while it carries one out.

use std::collections::BTreeSet;
use std::time::Instant;

use serde_json::{Value, json};

use crate::common::{FILES, Place, Server, stores};

/// Makes this number of dead letters, and no other jobs.
fn dead_letters(server: &Server, count: usize) {
    for _ in 0..count.div_ceil(1_000) {
        let some = count.min(1_000);
        let jobs = vec![r#"{"max_retries":0}"#; some].join(",");
        assert_eq!(server.post("/jobs/batch", &format!(r#"{{"jobs":[{jobs}]}}"#)).status, 202);
        let claimed = server.claim("w1", some);
        assert_eq!(claimed.len(), some);
        report(server, &claimed, r#""fail","error":"boom""#);
    }
}

/// Gives these jobs this verdict.
fn report(server: &Server, claimed: &[Value], verdict: &str) {
    let one = |job: &Value| format!(r#"{{"token":{},"verdict":{verdict}}}"#, job["lease"]["token"]);
    let reports: Vec<String> = claimed.iter().map(one).collect();
    let body = format!(r#"{{"reports":[{}]}}"#, reports.join(","));
    assert_eq!(server.post("/jobs/reports", &body).status, 200);
}

fn counts(server: &Server) -> Value {
    server.get("/queues/default").json()["counts"].clone()
}

/// Waits until a bulk action is in this state.
fn until(server: &Server, id: u64, state: &str) -> Value {
    server.until(&format!("/bulk/{id}"), |found| found["bulk"]["state"] == state)["bulk"].clone()
}

#[test]
fn an_order_is_counted_then_carried_out_and_reported() {
    for store in stores() {
        let (_place, server) = Server::new(store);
        dead_letters(&server, 5);
        let filter = json!({"queue": "default"});
        let dry = json!({"action": "retry", "filter": filter, "dry_run": true}).to_string();
        let counted = server.post("/bulk", &dry).json();
        assert_eq!((&counted["matched"], &counted["exact"]), (&json!(5), &json!(true)));
        assert_eq!(counted["queues"], json!([{"name": "default", "count": 5}]));
        assert_eq!(counted["sample"].as_array().map(Vec::len), Some(5));
        let order = |expect: u64| json!({"action": "retry", "filter": filter, "expect": expect});
        let refused = server.post("/bulk", &order(4).to_string());
        assert_eq!(refused.refused(), (409, "count-changed".into()), "{store}");
        assert_eq!(refused.json()["matched"], 5);
        assert_eq!(counts(&server)["failed"], 5, "{store}: nothing was done");
        let started = server.post("/bulk", &order(5).to_string());
        assert_eq!((started.status, started.header("location")), (202, Some("/bulk/1")));
        let done = until(&server, 1, "done");
        assert_eq!(
            (&done["done"], &done["refused"], &done["of"]),
            (&json!(5), &json!(0), &json!(5))
        );
        assert_eq!(done["filter"], json!({"state": "failed", "queue": "default"}));
        assert_eq!(counts(&server)["queued"], 5, "{store}");
        let line = json!([{"id": 1, "state": "done", "done": 5, "of": 5}]);
        server.until("/snapshot", |snapshot| snapshot["bulk"] == line);
        let ids = json!({"action": "cancel", "ids": [1, 2, 99]}).to_string();
        assert_eq!(server.post("/bulk", &ids).status, 202);
        let done = until(&server, 2, "done");
        assert_eq!((&done["done"], &done["refused"]), (&json!(2), &json!(1)), "{store}");
        let delete = r#"{"action":"delete","filter":{"state":"cancelled"}}"#;
        assert_eq!(server.post("/bulk", delete).status, 202);
        until(&server, 3, "done");
        assert_eq!(counts(&server)["cancelled"], 0, "{store}");
        let all = server.get("/bulk").json();
        let ids: Vec<&Value> = all["bulk"].as_array().unwrap().iter().map(|b| &b["id"]).collect();
        assert_eq!(ids, [3, 2, 1]);
        let again = server.post("/bulk/1/stop", "");
        assert_eq!(again.refused(), (409, "bulk-state".into()));
        assert_eq!(server.get("/bulk/9").refused(), (404, "not-found".into()));
    }
}

#[test]
fn a_dry_run_of_an_error_group_is_exact_however_many_dead_letters_it_has() {
    let (_place, server) = Server::new("sqlite");
    dead_letters(&server, 21_000);
    let group = server.get("/errors").json()["groups"][0].clone();
    let count = |filter: Value| {
        let order = json!({"action": "retry", "filter": filter, "dry_run": true}).to_string();
        let counted = server.post("/bulk", &order).json();
        (counted["matched"].as_u64().unwrap(), counted["exact"].as_bool().unwrap())
    };
    let id = &group["id"];
    assert_eq!(count(json!({"group": id})), (21_000, true));
    assert_eq!(count(json!({"group": id, "queue": "default"})), (21_000, true));
    assert_eq!(count(json!({"group": id, "queue": "other"})), (0, true));
    assert_eq!(count(json!({"group": id, "kind": "other"})), (0, true));
    assert_eq!(count(json!({"group": "0".repeat(32)})), (0, true));
}

/// Makes two dead letters of this queue: the first with a 1 in its payload and its priority.
fn two_dead_letters(server: &Server, queue: &str) -> [u64; 2] {
    [(1, "connection refused"), (2, "timeout after 3 s")].map(|(n, error)| {
        let new = json!({
            "queue": queue, "priority": n, "max_retries": 0,
            "payload": {"user": {"id": n}, "t": "é%"},
        });
        let id = server.enqueue(&new.to_string());
        let poll = json!({"worker": "w1", "queues": [queue]}).to_string();
        let polled = server.post("/jobs/poll", &poll).json();
        let failed = json!({"token": polled["jobs"][0]["lease"]["token"], "error": error});
        assert_eq!(server.post(&format!("/jobs/{id}/fail"), &failed.to_string()).status, 200);
        id
    })
}

#[test]
fn an_order_takes_every_filter_of_the_list_and_does_what_its_dry_run_counted() {
    for store in stores() {
        let (_place, server) = Server::new(store);
        for (at, (filter, matching)) in [
            (json!({"error_contains": "refused"}), [true, false]),
            (json!({"error_contains": "REFUSED"}), [false, false]),
            (json!({"payload_contains": "é%"}), [true, true]),
            (json!({"payload_at": "/user/id", "payload_is": "2"}), [false, true]),
            (json!({"from": "2020-01-02T03:04:05Z", "to": "2999-01-02T03:04:05Z"}), [true, true]),
            (json!({"from": "2999-01-02T03:04:05Z"}), [false, false]),
            (json!({"to": "2020-01-02T03:04:05Z"}), [false, false]),
            (json!({"attempts_min": 1}), [true, true]),
            (json!({"attempts_min": 2}), [false, false]),
            (json!({"priority_min": 2}), [false, true]),
            (json!({"error_contains": "timeout", "payload_contains": "1"}), [false, false]),
        ]
        .into_iter()
        .enumerate()
        {
            let (queue, other) = (format!("q{at}"), format!("r{at}"));
            let ids = [queue.as_str(), other.as_str()].map(|name| two_dead_letters(&server, name));
            let stays = two_dead_letters(&server, "stays");
            let mut filter = filter;
            filter["queue"] = json!(format!("{queue},{other}"));
            let order = json!({"action": "retry", "filter": filter, "expect": 4}).to_string();
            let dry = json!({"action": "retry", "filter": filter, "dry_run": true}).to_string();
            let counted = server.post("/bulk", &dry).json();
            let each = matching.iter().filter(|fits| **fits).count();
            assert_eq!((&counted["matched"], &counted["exact"]), (&json!(2 * each), &json!(true)));
            let started = server.post("/bulk", &order);
            assert_eq!(started.status, 202, "{store} {filter}");
            let bulk = started.json()["bulk"]["id"].as_u64().unwrap();
            let done = until(&server, bulk, "done");
            assert_eq!(done["done"], 2 * each, "{store} {filter}");
            let states = |ids: [u64; 2]| {
                ids.map(|id| server.get(&format!("/jobs/{id}")).json()["state"] == "queued")
            };
            for ids in ids {
                assert_eq!(states(ids), matching, "{store} {filter}");
            }
            assert_eq!(states(stays), [false; 2], "{store} {filter}");
            let mut shown = done["filter"].clone();
            assert_eq!(shown["state"], "failed", "{store}: {shown}");
            for name in ["error_contains", "payload_at", "payload_is", "attempts_min", "queue"] {
                assert_eq!(shown[name].take(), filter[name], "{store}: {name}");
            }
        }
    }
}

#[test]
fn running_jobs_of_a_worker_are_cancelled_and_those_of_others_are_not() {
    for store in stores() {
        let (_place, server) = Server::new(store);
        for worker in ["w1", "w2"] {
            server.enqueue("{}");
            assert_eq!(server.claim(worker, 1).len(), 1);
        }
        let order = r#"{"action":"cancel","filter":{"worker":"w2"}}"#;
        assert_eq!(server.post("/bulk", order).status, 202);
        assert_eq!(until(&server, 1, "done")["done"], 1, "{store}");
        assert_eq!(server.get("/jobs/1").json()["state"], "processing", "{store}");
        assert_eq!(server.get("/jobs/2").json()["state"], "cancelled", "{store}");
    }
}

#[test]
fn a_search_that_could_not_count_all_ends_at_the_number_that_was_expected() {
    for store in FILES {
        let place = Place::new(store);
        let server = place.start(&[]);
        dead_letters(&server, 21_000);
        let filter = json!({"error_contains": "boom"});
        let dry = json!({"action": "retry", "filter": filter, "dry_run": true}).to_string();
        let counted = server.post("/bulk", &dry).json();
        let matched = counted["matched"].as_u64().unwrap();
        assert_eq!(counted["exact"], false, "{store}: {counted}");
        assert!((1..=20_512).contains(&matched), "{store}: {counted}");
        let order = |expect: u64| json!({"action": "retry", "filter": filter, "expect": expect});
        let refused = server.post("/bulk", &order(1).to_string());
        assert_eq!(refused.refused(), (409, "count-changed".into()), "{store}");
        assert_eq!(server.post("/bulk", &order(20_000).to_string()).status, 202);
        assert_eq!(until(&server, 1, "done")["done"], 20_000, "{store}");
        assert_eq!(counts(&server)["failed"], 1_000, "{store}: the others stay");
    }
}

#[test]
fn an_order_that_makes_no_sense_is_refused_by_field() {
    let (_place, server) = Server::new("sqlite");
    for (order, pointer) in [
        (r#"{"action":"eat","filter":{}}"#, "/action"),
        (r#"{"action":"retry"}"#, ""),
        (r#"{"action":"retry","filter":{},"ids":[1]}"#, ""),
        (r#"{"action":"retry","ids":[]}"#, "/ids"),
        (r#"{"action":"retry","ids":[0]}"#, "/ids"),
        (r#"{"action":"delete","filter":{}}"#, "/filter/state"),
        (r#"{"action":"delete","filter":{"state":"queued"}}"#, "/filter/state"),
        (r#"{"action":"retry","filter":{"state":"done"}}"#, "/filter/state"),
        (r#"{"action":"cancel","filter":{"queue":"a b"}}"#, "/filter/queue"),
        (r#"{"action":"cancel","filter":{"lost":1}}"#, "/filter/lost"),
        (r#"{"action":"retry","filter":{"queue":"a,-"}}"#, "/filter/queue"),
        (r#"{"action":"retry","filter":{"error_contains":""}}"#, "/filter/error_contains"),
        (r#"{"action":"retry","filter":{"payload_at":"/x"}}"#, "/filter/payload_at"),
        (r#"{"action":"retry","filter":{"payload_is":"1"}}"#, "/filter/payload_at"),
        (
            r#"{"action":"retry","filter":{"payload_at":"x","payload_is":"1"}}"#,
            "/filter/payload_at",
        ),
        (r#"{"action":"retry","filter":{"from":"yesterday"}}"#, "/filter/from"),
        (r#"{"action":"retry","filter":{"worker":"w1"}}"#, "/filter/worker"),
        (r#"{"action":"retry","filter":{"attempts_min":-1}}"#, "/filter/attempts_min"),
        (r#"{"action":"retry","filter":{},"pace":{"per_s":0}}"#, "/pace/per_s"),
        (r#"{"action":"retry","filter":{},"canary":{"count":0}}"#, "/canary/count"),
        (r#"{"action":"cancel","filter":{},"canary":{"count":1}}"#, "/canary"),
    ] {
        let refused = server.post("/bulk", order);
        assert_eq!(refused.refused(), (422, "invalid".into()), "{order}");
        assert_eq!(refused.pointers(), [pointer], "{order}");
    }
    assert_eq!(server.get("/bulk").json()["bulk"], json!([]));
}

#[test]
fn a_canary_that_fails_holds_and_nothing_more_is_released_until_it_is_continued() {
    for store in stores() {
        let (_place, server) = Server::new(store);
        dead_letters(&server, 30);
        let order = r#"{"action":"retry","filter":{},"canary":{"count":4,"max_failed":1}}"#;
        assert_eq!(server.post("/bulk", order).status, 202);
        server.until("/bulk/1", |found| found["bulk"]["canary"]["released"] == 4);
        let canary = server.claim("w1", 10);
        assert_eq!(canary.len(), 4, "{store}");
        report(&server, &canary[..2], r#""fail","error":"again""#);
        let held = until(&server, 1, "held");
        assert_eq!((&held["done"], &held["canary"]["failed"]), (&json!(4), &json!(2)), "{store}");
        report(&server, &canary[2..], r#""complete""#);
        assert_eq!(counts(&server)["queued"], 0, "{store}: the rest waits");
        assert_eq!(server.post("/bulk/1/continue", "").status, 200);
        until(&server, 1, "done");
        assert_eq!(counts(&server)["queued"], 26, "{store}");
        assert_eq!(counts(&server)["failed"], 2, "{store}: those that failed again stay");
    }
}

/// Every job's generation, by id: how often it was released.
fn generations(server: &Server) -> Vec<u64> {
    let (mut found, mut seen) = (Vec::new(), BTreeSet::new());
    let mut path = "/jobs?limit=1000&fields=row".to_owned();
    loop {
        let page = server.get(&path).json();
        for job in page["jobs"].as_array().unwrap() {
            assert!(seen.insert(job["id"].as_u64().unwrap()));
            found.push(job["generation"].as_u64().unwrap());
        }
        let Some(next) = page["next"].as_str() else { return found };
        path = format!("/jobs?limit=1000&fields=row&cursor={next}");
    }
}

#[test]
fn ten_thousand_dead_letters_are_each_released_once_at_their_pace_over_two_kills() {
    const JOBS: u64 = 10_000;
    for store in FILES {
        released_once_over_two_kills(&Place::new(store), JOBS);
    }
}

fn released_once_over_two_kills(place: &Place, jobs: u64) {
    const PER_S: u64 = 2_000;
    let server = place.start(&[]);
    dead_letters(&server, 10_000);
    let order = json!({
        "action": "retry", "filter": {"error_contains": "boom"}, "expect": jobs,
        "pace": {"per_s": PER_S}, "canary": {"count": 20, "max_failed": 1},
    });
    let began = now();
    assert_eq!(server.post("/bulk", &order.to_string()).status, 202);
    // What was released by now is no more than the pace allows: a second's worth, and the time.
    let in_time = |found: &Value| {
        let done = found["bulk"]["done"].as_u64().unwrap();
        let most = u128::from(PER_S) * (began.elapsed().as_millis() + 1_000) / 1_000;
        assert!(u128::from(done) <= most, "{done} were released, {most} could have been");
        done
    };
    server.until("/bulk/1", |found| found["bulk"]["canary"]["released"] == 20);
    let canary = server.claim("w1", 100);
    assert_eq!(canary.len(), 20, "the rest waits for the canary");
    report(&server, &canary, r#""complete""#);
    let mut server = Some(server);
    for kill_at in [jobs / 4, jobs / 2] {
        let running = server.take().unwrap_or_else(|| place.start(&[]));
        running.until("/bulk/1", |found| in_time(found) >= kill_at);
        running.kill();
    }
    let server = place.start(&[]);
    server.until("/bulk/1", |found| {
        in_time(found);
        found["bulk"]["state"] == "done"
    });
    assert_eq!(server.get("/bulk/1").json()["bulk"]["done"], jobs);
    let generations = generations(&server);
    assert_eq!(generations.len(), 10_000, "none is lost");
    assert!(generations.iter().all(|generation| *generation == 1), "each was released once");
    assert_eq!(counts(&server)["queued"], jobs - 20);
}

#[test]
fn a_held_replay_of_ten_thousand_is_held_over_a_kill_and_goes_on_only_when_it_is_continued() {
    const JOBS: u64 = 10_000;
    for store in FILES {
        let place = Place::new(store);
        let server = place.start(&[]);
        dead_letters(&server, 10_000);
        let order = json!({
            "action": "retry", "filter": {"state": "failed"}, "expect": JOBS,
            "canary": {"count": 20, "max_failed": 1},
        });
        assert_eq!(server.post("/bulk", &order.to_string()).status, 202);
        server.until("/bulk/1", |found| found["bulk"]["canary"]["released"] == 20);
        let canary = server.claim("w1", 100);
        assert_eq!(canary.len(), 20, "{store}: the rest waits for the canary");
        report(&server, &canary[..5], r#""fail","error":"again""#);
        report(&server, &canary[5..], r#""complete""#);
        until(&server, 1, "held");
        server.kill();
        let server = place.start(&[]);
        let held = server.get("/bulk/1").json()["bulk"].clone();
        assert_eq!((&held["state"], &held["done"]), (&json!("held"), &json!(20)), "{store}");
        // A turn of the dispatcher: it takes nothing more by itself.
        server.until_status("/readyz", 200);
        assert_eq!(counts(&server)["queued"], 0, "{store}: the rest waits");
        assert_eq!(server.post("/bulk/1/continue", "").status, 200);
        until(&server, 1, "done");
        assert_eq!(counts(&server)["queued"], JOBS - 20, "{store}");
        assert_eq!(counts(&server)["failed"], 5, "{store}: those that failed again stay");
        let generations = generations(&server);
        assert!(generations.iter().all(|generation| *generation == 1), "{store}: each once");
        assert_eq!(generations.len(), 10_000, "{store}: none is lost");
    }
}

#[expect(clippy::disallowed_methods, reason = "the pace is that of a real server")]
fn now() -> Instant {
    Instant::now()
}
