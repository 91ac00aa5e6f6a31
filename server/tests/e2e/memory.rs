//! Memory that requests share: bodies that arrive, answers that wait for their readers, and a log
//! that nothing reads.

use std::process::Stdio;

use crate::common::{Client, FILES, Place, Server, attempts};
use crate::events::{ids, listen};

/// A request whose body comes in chunks, without its end.
fn chunked(server: &Server, path: &str, body: &str) -> Client {
    let mut client = server.connect();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         transfer-encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n",
        body.len()
    );
    assert!(client.raw(head.as_bytes()));
    client
}

/// 300 workers that send their polls in chunks took all the memory for bodies, and every other
/// request with a body was refused while they waited.
#[test]
fn long_polls_sent_in_chunks_leave_the_memory_for_bodies_to_others() {
    let (_place, server) = Server::new("sqlite");
    let polls: Vec<Client> = (0..300)
        .map(|n| {
            let body = format!(r#"{{"worker":"w{n}","queues":["other"],"wait_ms":30000}}"#);
            let mut client = chunked(&server, "/jobs/poll", &body);
            assert!(client.raw(b"0\r\n\r\n"));
            client
        })
        .collect();
    server.until("/workers", |answer| answer["workers"].as_array().unwrap().len() >= 300);
    server.enqueue("{}");
    assert_eq!(server.claim("w", 1).len(), 1);
    drop(polls);
}

#[test]
fn a_body_takes_what_has_arrived_of_it_and_large_ones_are_refused_when_memory_is_full() {
    let (_place, server) = Server::with("sqlite", &["--body-timeout", "10m"]);
    // Announced, but not sent: they take nothing.
    let announced = [("content-length", "33554432"), ("content-type", "application/json")];
    let idle: Vec<Client> = (0..20)
        .map(|_| {
            let mut client = server.connect();
            client.ask("POST", "/jobs/batch", &announced, None);
            client
        })
        .collect();
    server.enqueue("{}");
    // 8 of 31 MiB each, of 256; then smaller ones, until there is no room for one of them. A client
    // that still sends may not see its refusal, so it is counted.
    let large = " ".repeat(31 << 20);
    let mut held: Vec<Client> = (0..8).map(|_| chunked(&server, "/jobs/batch", &large)).collect();
    let small = " ".repeat(600 << 10);
    let refused = (0..100).any(|_| {
        held.push(chunked(&server, "/jobs", &small));
        server.get("/metrics").text().contains(r#"code="503",method="POST"}"#)
    });
    assert!(refused, "there was room for all of them");
    assert!((0..1_000).any(|_| server.post("/jobs", "{}").status == 202), "small ones are served");
    drop((held, idle));
    let body = format!(r#"{{"payload":"{}"}}"#, "x".repeat(600 << 10));
    let accepted = || {
        let mut client = server.connect();
        client.ask("POST", "/jobs", &[], Some(&body));
        client.reply().is_some_and(|reply| reply.status == 202)
    };
    assert!((0..1_000).any(|_| accepted()), "room comes back when the clients leave");
}

#[test]
fn answers_to_slow_readers_share_their_memory_and_small_ones_are_still_served() {
    let (_place, server) = Server::new("sqlite");
    let job = format!(r#"{{"payload":"{}"}}"#, "x".repeat(1_000_000));
    let batch = format!(r#"{{"jobs":[{}]}}"#, [job.as_str(); 8].join(","));
    assert_eq!(server.post("/jobs/batch", &batch).status, 202);
    // Nothing is read of their answers of 8 MB: 256 MiB hold 33 of them.
    let mut readers: Vec<Client> = Vec::new();
    let refused = (0..200).any(|_| {
        let mut client = server.connect();
        client.ask("GET", "/jobs", &[], None);
        let (status, _) = client.head().unwrap();
        readers.push(client);
        status == 503
    });
    assert!(refused, "200 answers of 8 MB were held in memory");
    assert_eq!(server.get("/jobs?limit=1&state=done").status, 200);
    assert_eq!(server.get("/queues").status, 200);
    server.enqueue("{}");
    assert!(server.peak_kib() < MOST_KIB, "{} KiB", server.peak_kib());
    drop(readers);
    server.until_status("/jobs", 200);
}

/// Memory that a server may take for 256 MiB of answers, and what lays out some of them.
const MOST_KIB: u64 = 600 * 1024;

/// Polls passed the budget of answers: each worker that did not read held up to 32 MiB.
#[test]
fn polls_of_slow_workers_share_the_memory_for_answers_and_what_has_no_room_is_not_claimed() {
    for store in FILES {
        let (_place, server) = Server::new(store);
        let job = format!(r#"{{"payload":"{}"}}"#, "x".repeat(1_000_000));
        let batch = format!(r#"{{"jobs":[{}]}}"#, [job.as_str(); 31].join(","));
        assert_eq!(server.post("/jobs/batch", &batch).status, 202);
        let counts = || server.get("/queues/default").json()["counts"].clone();
        let mut slow: Vec<Client> = Vec::new();
        let (mut refused, mut partial) = (0, 0);
        for round in 1..=40 {
            let mut client = server.connect();
            client.ask("POST", "/jobs/poll", &[], Some(r#"{"worker":"slow","max":100}"#));
            let (status, headers) = client.head().unwrap();
            let claimed = counts()["processing"].as_u64().unwrap();
            if status == 503 {
                assert!(headers.contains(&("retry-after".into(), "1".into())), "{headers:?}");
                assert_eq!(claimed, 0, "what was claimed is given back");
                refused += 1;
            } else {
                partial += u32::from(claimed < 31);
                release_all(&server, round);
            }
            slow.push(client);
        }
        assert!(refused > 20 && partial > 0, "{store}: {refused} refused, {partial} in part");
        assert!(server.peak_kib() < MOST_KIB, "{store}: {} KiB", server.peak_kib());
        // Small answers need no room.
        server.enqueue(r#"{"queue":"other"}"#);
        let honest = server.post("/jobs/poll", r#"{"worker":"honest","queues":["other"]}"#);
        assert_eq!(honest.json()["jobs"].as_array().unwrap().len(), 1);
        drop(slow);
        let poll = || server.post("/jobs/poll", r#"{"worker":"w","max":100}"#);
        let honest = attempts().map(|()| poll()).find(|reply| reply.status == 200).unwrap();
        for job in honest.json()["jobs"].as_array().unwrap() {
            assert_eq!(job["attempts"], 1, "what was given back is not charged");
        }
    }
}

/// Gives back every job that is leased: its token is its id and how often it was claimed.
fn release_all(server: &Server, claims: u32) {
    let list = server.get("/jobs?state=processing&fields=row&limit=1000").json();
    let release = |job: &serde_json::Value| {
        format!(r#"{{"token":"{}.{claims}","verdict":"release"}}"#, job["id"])
    };
    let reports: Vec<String> = list["jobs"].as_array().unwrap().iter().map(release).collect();
    let body = format!(r#"{{"reports":[{}]}}"#, reports.join(","));
    let answer = server.post("/jobs/reports", &body);
    assert!(!answer.text().contains("error"), "{}", answer.text());
}

/// The hub wrote the log line of each attempt itself: with a reader that stalled, counters and
/// events stood still.
#[test]
fn a_log_that_nothing_reads_stalls_neither_requests_nor_counters_nor_events() {
    let place = Place::new("sqlite");
    let mut command = place.command(&["--listen", "127.0.0.1:0", "--log-level", "debug"]);
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    // Kept open, and never read.
    let stalled = child.stderr.take().unwrap();
    child.stderr = Some(nothing());
    let server = Server::of(child);
    let mut events = listen(&server, &[]);
    // Three of each job, without a gap.
    let listening = std::thread::spawn(move || {
        let (mut done, mut numbers) = (0, Vec::new());
        while done < 3_000 {
            let said = String::from_utf8(events.chunk().expect("it goes on")).unwrap();
            done += said.matches(r#""state":"done"}"#).count();
            numbers.extend(ids(&said));
        }
        numbers
    });
    let mut jobs = 0;
    while jobs < 3_000 {
        let batch = format!(r#"{{"jobs":[{}]}}"#, vec!["{}"; 1_000].join(","));
        assert_eq!(server.post("/jobs/batch", &batch).status, 202);
        let claimed = server.claim("w", 1_000);
        jobs += claimed.len();
        let report = |job: &serde_json::Value| {
            format!(r#"{{"token":{},"verdict":"complete"}}"#, job["lease"]["token"])
        };
        let reports: Vec<String> = claimed.iter().map(report).collect();
        let body = format!(r#"{{"reports":[{}]}}"#, reports.join(","));
        assert_eq!(server.post("/jobs/reports", &body).status, 200);
    }
    let wanted =
        format!(r#"windlass_jobs_finished_total{{queue="default",outcome="done"}} {jobs}"#);
    let counted = attempts().any(|()| server.get("/metrics").text().contains(&wanted));
    assert!(counted, "the counters stood still");
    let numbers = listening.join().unwrap();
    assert_eq!(numbers.len(), 9_000);
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "some are missing");
    drop(stalled);
}

/// Standard error of a process that says nothing.
fn nothing() -> std::process::ChildStderr {
    let mut child = std::process::Command::new("true").stderr(Stdio::piped()).spawn().unwrap();
    let stderr = child.stderr.take().unwrap();
    child.wait().unwrap();
    stderr
}
