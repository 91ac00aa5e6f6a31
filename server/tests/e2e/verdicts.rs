//! Waiting for a verdict over HTTP: answered with it, at the time limit, or at the shutdown.

use crate::common::{FILES, Server, stores};

#[test]
fn a_wait_is_answered_with_the_verdict_and_not_before() {
    for store in stores() {
        let (_place, server) = Server::new(store);
        let id = server.enqueue(r#"{"kind":"a"}"#);
        let mut waiting = server.connect();
        waiting.ask("GET", &format!("/jobs/{id}?wait_ms=30000"), &[], None);
        let token = server.claim("w", 1)[0]["lease"]["token"].clone();
        let body = format!(r#"{{"token":{token},"result":7}}"#);
        assert_eq!(server.post(&format!("/jobs/{id}/complete"), &body).status, 200);
        let job = waiting.reply().unwrap().json();
        assert_eq!((&job["state"], &job["result"]), (&"done".into(), &7.into()));
        // Of a job that is finished there is nothing to wait for.
        let again = server.get(&format!("/jobs/{id}?wait_ms=30000"));
        assert_eq!(again.json(), job);
    }
}

#[test]
fn a_wait_ends_when_its_time_is_over_and_bad_ones_are_refused() {
    let (_place, server) = Server::new("sqlite");
    let id = server.enqueue("{}");
    assert_eq!(server.get(&format!("/jobs/{id}?wait_ms=20")).json()["state"], "queued");
    assert_eq!(server.get("/jobs/99?wait_ms=30000").refused(), (404, "not-found".into()));
    for wait in ["-1", "x", "1.5", "99999999999999999999"] {
        let reply = server.get(&format!("/jobs/{id}?wait_ms={wait}"));
        assert_eq!(reply.refused(), (422, "invalid".into()), "{wait}");
    }
}

#[test]
fn a_wait_ends_with_the_server() {
    let (_place, server) = Server::new("sqlite");
    let id = server.enqueue("{}");
    let mut waiting = server.connect();
    // The connection is served before the signal; its next request may come before or after.
    assert_eq!(waiting.send("GET", "/livez", &[], None).status, 200);
    waiting.ask("GET", &format!("/jobs/{id}?wait_ms=30000"), &[], None);
    server.signal("-TERM");
    assert_eq!(waiting.reply().unwrap().refused(), (503, "shutting-down".into()));
    let (status, said) = server.end();
    assert!(status.success(), "{said}");
}

#[test]
fn a_done_job_is_purged_when_it_is_past_its_age_and_others_stay() {
    for store in FILES {
        let (_place, server) = Server::with(store, &["--keep-done", "1s"]);
        let (done, failed) = (server.enqueue("{}"), server.enqueue(r#"{"max_retries":0}"#));
        let queued = server.enqueue("{}");
        for (job, verdict, rest) in [(done, "complete", ""), (failed, "fail", r#","error":"e""#)] {
            let claimed = server.claim("w", 1);
            assert_eq!(claimed[0]["id"], job, "{store}");
            let body = format!(r#"{{"token":{}{rest}}}"#, claimed[0]["lease"]["token"]);
            assert_eq!(server.post(&format!("/jobs/{job}/{verdict}"), &body).status, 200);
        }
        server.until_status(&format!("/jobs/{done}"), 404);
        assert_eq!(server.job(failed)["state"], "failed", "{store}");
        assert_eq!(server.job(queued)["state"], "queued", "{store}");
        let counts = server.get("/queues/default").json()["counts"].clone();
        assert_eq!((&counts["done"], &counts["failed"]), (&0.into(), &1.into()), "{store}");
    }
}
