//! The end of a server by one signal, by two, and by a kill; and its jobs after the next start.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::process::Command;

use serde_json::{Value, json};

use crate::common::{Client, FILES, Place, Server, stores};

/// Enqueues with a key of its own each until the server is gone. Returns the ids that were
/// acknowledged, by key.
fn producer(server: SocketAddr, name: &str) -> BTreeMap<String, u64> {
    let mut acknowledged = BTreeMap::new();
    let mut client = Client::to(server);
    for n in 0.. {
        let key = format!("{name}-{n}");
        let body = format!(r#"{{"idempotency_key":"{key}","payload":{n}}}"#);
        client.ask("POST", "/jobs", &[], Some(&body));
        match client.reply() {
            Some(reply) if reply.status == 202 => {
                let id = reply.json()["job"]["id"].as_u64().unwrap();
                acknowledged.insert(key, id);
            }
            Some(reply) => assert_eq!(reply.status, 503, "{}", reply.text()),
            None => break,
        }
    }
    acknowledged
}

/// Polls and completes until the server is gone. Returns the tokens whose verdict was
/// acknowledged.
fn worker(server: SocketAddr, name: &str) -> Vec<String> {
    let mut settled = Vec::new();
    let mut client = Client::to(server);
    let poll = format!(r#"{{"worker":"{name}","max":10,"visibility_timeout_ms":1000}}"#);
    loop {
        client.ask("POST", "/jobs/poll", &[], Some(&poll));
        let Some(reply) = client.reply() else { break };
        if reply.status != 200 {
            assert_eq!(reply.status, 503, "{}", reply.text());
            continue;
        }
        for job in reply.json()["jobs"].as_array().unwrap() {
            let token = job["lease"]["token"].as_str().unwrap().to_owned();
            let body = format!(r#"{{"token":"{token}","result":"{token}"}}"#);
            client.ask("POST", &format!("/jobs/{}/complete", job["id"]), &[], Some(&body));
            match client.reply() {
                Some(reply) if reply.status == 200 => settled.push(token),
                Some(reply) => assert!([409, 503].contains(&reply.status), "{}", reply.text()),
                None => return settled,
            }
        }
    }
    settled
}

/// Puts load on a server while `act` runs, until the server has ended.
fn under_load<R>(
    server: &Server,
    round: usize,
    act: impl FnOnce() -> R,
) -> (BTreeMap<String, u64>, Vec<String>, R) {
    let address = server.address;
    std::thread::scope(|scope| {
        let producers: Vec<_> = (0..2)
            .map(|n| scope.spawn(move || producer(address, &format!("p{round}-{n}"))))
            .collect();
        let workers: Vec<_> = (0..2)
            .map(|n| scope.spawn(move || worker(address, &format!("w{round}-{n}"))))
            .collect();
        let unwound = KillIfUnwound(server);
        let acted = act();
        drop(unwound);
        let mut acknowledged = BTreeMap::new();
        for thread in producers {
            acknowledged.extend(thread.join().unwrap());
        }
        let settled = workers.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        (acknowledged, settled, acted)
    })
}

/// Ends a server, and with it the load on it, if a test fails meanwhile: the load would go on for
/// ever, and the test would hang instead of failing.
struct KillIfUnwound<'a>(&'a Server);

impl Drop for KillIfUnwound<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = Command::new("kill").args(["-KILL", &self.0.pid().to_string()]).status();
        }
    }
}

/// Waits until this number of jobs are done: the load is under way.
fn wait_for_load(server: &Server, done: u64) {
    server.until("/queues", |list| {
        list["queues"][0]["counts"]["done"].as_u64().is_some_and(|count| count >= done)
    });
}

/// All jobs, by id.
fn all_jobs(server: &Server) -> BTreeMap<u64, Value> {
    let mut jobs = BTreeMap::new();
    let mut path = "/jobs?limit=1000".to_owned();
    loop {
        let page = server.get(&path).json();
        for job in page["jobs"].as_array().unwrap() {
            jobs.insert(job["id"].as_u64().unwrap(), job.clone());
        }
        let Some(next) = page["next"].as_str() else { return jobs };
        path = format!("/jobs?limit=1000&cursor={next}");
    }
}

#[test]
fn a_kill_under_load_loses_nothing_and_gives_no_job_two_verdicts() {
    for store in stores() {
        let place = Place::new(store);
        let (mut acknowledged, mut settled) = (BTreeMap::new(), Vec::new());
        for round in 0..6 {
            let server = place.start(&[]);
            let before = server.get("/queues").json()["queues"][0]["counts"]["done"].as_u64();
            let wanted = before.unwrap_or(0) + 20;
            let (more, done, ()) = under_load(&server, round, || {
                wait_for_load(&server, wanted);
                server.signal("-KILL");
            });
            assert!(!more.is_empty() && !done.is_empty(), "there was load");
            acknowledged.extend(more);
            settled.extend(done);
            server.kill();
        }
        let server = place.start(&[]);
        let jobs = all_jobs(&server);
        for (key, id) in &acknowledged {
            let job = jobs.get(id).unwrap_or_else(|| panic!("{store}: job {id} is lost"));
            assert_eq!(job["idempotency_key"], key.as_str(), "{store}");
        }
        let mut verdicts = BTreeSet::new();
        for token in &settled {
            let id = token.split('.').next().unwrap();
            assert!(verdicts.insert(id), "{store}: job {id} got two verdicts");
            let job = &jobs[&id.parse().unwrap()];
            assert_eq!(job["state"], "done", "{store}: {job}");
            assert_eq!(job["result"], token.as_str(), "{store}: of another run");
        }
        // What was never acknowledged is there wholly or not at all.
        assert!(jobs.values().all(|job| job["payload"].is_u64()));
        // Every repetition gets the same job.
        let (key, id) = acknowledged.iter().next().unwrap();
        let n = jobs[id]["payload"].clone();
        let body = format!(r#"{{"idempotency_key":"{key}","payload":{n}}}"#);
        assert_eq!(server.post("/jobs", &body).json()["job"]["id"], *id);
        drain(&server, jobs.len());
    }
}

/// Runs everything that is left, leases of killed processes included.
fn drain(server: &Server, jobs: usize) {
    let mut client = server.connect();
    for _ in 0..1_000 {
        let done = server.get("/queues/default").json()["counts"]["done"].as_u64().unwrap();
        if done == jobs as u64 {
            return;
        }
        let body = r#"{"worker":"last","max":1000,"wait_ms":5000}"#;
        let reply = client.send("POST", "/jobs/poll", &[], Some(body)).json();
        let reports: Vec<Value> = reply["jobs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|job| json!({"token": job["lease"]["token"], "verdict": "complete"}))
            .collect();
        if !reports.is_empty() {
            let body = json!({ "reports": reports }).to_string();
            assert_eq!(client.send("POST", "/jobs/reports", &[], Some(&body)).status, 200);
        }
    }
    panic!("jobs are left");
}

#[test]
fn a_signal_under_load_ends_in_order_and_everything_acknowledged_is_there() {
    for store in stores() {
        for signal in ["-TERM", "-INT"] {
            let place = Place::new(store);
            let server = place.start(&[]);
            let (acknowledged, settled, ()) = under_load(&server, 0, || {
                wait_for_load(&server, 20);
                server.signal(signal);
            });
            let (status, said) = server.end();
            assert_eq!(status.code(), Some(0), "{said}");
            assert!(said.contains("attempt ended"), "one line per attempt: {said}");
            for phase in ["new jobs are refused", "no job is running", "stopped"] {
                assert!(said.contains(phase), "{said}");
            }
            let server = place.start(&[]);
            let jobs = all_jobs(&server);
            assert!(acknowledged.values().all(|id| jobs.contains_key(id)));
            for token in settled {
                let id: u64 = token.split('.').next().unwrap().parse().unwrap();
                assert_eq!(jobs[&id]["result"], token.as_str());
            }
        }
    }
}

#[test]
fn leases_of_remote_workers_outlive_a_restart() {
    for store in stores() {
        let place = Place::new(store);
        let server = place.start(&[]);
        let id = server.enqueue("{}");
        let token = server.claim("w", 1)[0]["lease"]["token"].clone();
        server.signal("-TERM");
        assert_eq!(server.end().0.code(), Some(0));
        let server = place.start(&[]);
        assert_eq!(server.job(id)["state"], "processing");
        let body = format!(r#"{{"token":{token}}}"#);
        let reply = server.post(&format!("/jobs/{id}/complete"), &body);
        assert_eq!(reply.json(), json!({"state": "done"}));
    }
}

#[test]
fn a_signal_right_after_the_start_ends_cleanly() {
    for store in stores() {
        let place = Place::new(store);
        for _ in 0..5 {
            let server = place.start(&[]);
            server.signal("-TERM");
            let (status, said) = server.end();
            assert_eq!(status.code(), Some(0), "{said}");
        }
    }
}

#[test]
fn a_second_signal_ends_at_once_and_the_code_tells() {
    for (signal, code) in [("-TERM", 143), ("-INT", 130)] {
        let place = Place::new("sqlite");
        let mut server = place.start(&[]);
        server.enqueue("{}");
        // A request that is not finished keeps the server for a moment.
        let mut slow = server.connect();
        slow.raw(
            b"POST /jobs HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
              content-length: 100\r\nexpect: 100-continue\r\n\r\n",
        );
        assert_eq!(slow.head().unwrap().0, 100, "it is being served");
        server.signal("-TERM");
        server.wait_for_log("no job is running");
        server.signal(signal);
        let (status, said) = server.end();
        assert_eq!(status.code(), Some(code), "{said}");
        let again = place.start(&[]);
        assert_eq!(again.job(1)["state"], "queued");
    }
}

#[test]
fn a_request_that_never_ends_does_not_keep_the_server() {
    let (_place, server) = Server::new("sqlite");
    let mut slow = server.connect();
    slow.raw(
        b"POST /jobs HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
          content-length: 100\r\nexpect: 100-continue\r\n\r\n",
    );
    assert_eq!(slow.head().unwrap().0, 100, "it is being served");
    server.signal("-TERM");
    let (status, said) = server.end();
    assert_eq!(status.code(), Some(0), "{said}");
    assert!(said.contains("were closed"), "{said}");
}

#[test]
fn a_store_that_is_taken_away_is_noticed_and_nothing_is_acknowledged() {
    for store in FILES {
        let place = Place::new(store);
        let server = place.start(&[]);
        server.enqueue("{}");
        std::fs::remove_dir_all(place.path("data")).unwrap();
        let mut client = server.connect();
        client.ask("POST", "/jobs", &[], Some("{}"));
        if let Some(reply) = client.reply() {
            assert!([503, 507].contains(&reply.status), "{store}: {}", reply.text());
        }
        // A server that is up but stores nothing is of no use: it ends, and says why.
        let (status, said) = server.end();
        assert_eq!(status.code(), Some(1), "{store}: {said}");
        assert!(said.contains("fix the cause, then start again"), "{store}: {said}");
    }
}

#[test]
fn a_second_server_on_a_redb_file_is_refused_clearly() {
    let place = Place::new("redb");
    let _first = place.start(&[]);
    let (code, said) = place.refused(&["--listen", "127.0.0.1:0"]);
    assert_eq!(code, Some(1));
    assert!(said.contains("cannot be opened"), "{said}");
}

#[test]
fn two_servers_on_one_sqlite_file_share_their_jobs() {
    let place = Place::new("sqlite");
    let (one, two) = (place.start(&[]), place.start(&[]));
    let mut poll = two.connect();
    poll.ask("POST", "/jobs/poll", &[], Some(r#"{"worker":"w","wait_ms":30000}"#));
    let id = one.enqueue("{}");
    assert_eq!(poll.reply().unwrap().json()["jobs"][0]["id"], id);
}

#[test]
fn what_cannot_work_is_refused_at_the_start_with_what_to_do() {
    let place = Place::new("sqlite");
    let first = place.start(&[]);
    let taken = first.address.to_string();
    let run = |args: &[&str]| place.refused(args);
    let (code, said) = run(&["--listen", &taken]);
    assert_eq!(code, Some(1));
    assert!(said.contains("--listen"), "{said}");
    let (code, said) = run(&["--drain-timeout", "soon"]);
    assert_eq!(code, Some(2));
    assert!(said.contains("30s"), "{said}");
    let (code, said) = run(&["--tls-cert", "nowhere.pem", "--tls-key", "nowhere.pem"]);
    assert_eq!(code, Some(1));
    assert!(said.contains("nowhere.pem"), "{said}");
    assert_eq!(run(&["--tls-cert", "nowhere.pem"]).0, Some(2));
}
