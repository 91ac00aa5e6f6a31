//! The stream of events: what it says, where it goes on, when it ends.

use std::process::Command;

use windlass_core::Millis;
use windlass_runtime_tokio::{Clock, SystemClock};

use crate::common::{Client, Server, stores};

/// Reads a stream until it holds this text.
fn until(client: &mut Client, text: &str) -> String {
    let mut said = String::new();
    while !said.contains(text) {
        let chunk = client.chunk().unwrap_or_else(|| panic!("it ended without {text:?}: {said}"));
        said.push_str(&String::from_utf8(chunk).unwrap());
    }
    said
}

pub(crate) fn listen(server: &Server, headers: &[(&str, &str)]) -> Client {
    let mut client = server.connect();
    client.ask("GET", "/events", headers, None);
    let (status, headers) = client.head().unwrap();
    assert_eq!(status, 200);
    assert!(headers.contains(&("content-type".into(), "text/event-stream".into())));
    assert!(headers.contains(&("x-accel-buffering".into(), "no".into())), "nginx would hold it");
    until(&mut client, ": windlass");
    client
}

pub(crate) fn ids(said: &str) -> Vec<u64> {
    said.lines().filter_map(|line| line.strip_prefix("id: ")?.parse().ok()).collect()
}

#[test]
fn changes_are_sent_in_order_and_again_to_a_client_that_reconnects() {
    for store in stores() {
        let (_place, server) = Server::new(store);
        let mut client = listen(&server, &[]);
        let id = server.enqueue(r#"{"kind":"email"}"#);
        server.post("/queues/default/pause", "");
        server.post(&format!("/jobs/{id}/cancel"), "");
        let said = until(&mut client, r#""state":"cancelled"}"#);
        let first =
            format!(r#"data: {{"id":{id},"queue":"default","kind":"email","state":"queued"}}"#);
        assert!(
            said.contains(&format!("event: job\nid: {}\n{first}\n\n", ids(&said)[0])),
            "{said}"
        );
        assert!(said.contains("event: queue\n"), "{said}");
        assert!(said.contains(r#"data: {"name":"default","paused":true}"#), "{said}");
        let numbers = ids(&said);
        assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "{numbers:?}");
        let back = numbers[0].to_string();
        let mut again = listen(&server, &[("last-event-id", &back)]);
        let replayed = until(&mut again, r#""state":"cancelled"}"#);
        assert_eq!(ids(&replayed), numbers[1..]);
    }
}

#[test]
fn a_client_that_reconnects_too_late_gets_a_reset() {
    let (_place, server) = Server::new("sqlite");
    let mut client = listen(&server, &[("last-event-id", "17")]);
    let said = until(&mut client, "\n\n");
    assert!(said.starts_with("event: reset\n"), "{said}");
    server.enqueue("{}");
    until(&mut client, r#""state":"queued"}"#);
    let reply = server.connect().send("GET", "/events", &[("last-event-id", "x")], None);
    assert_eq!(reply.refused(), (422, "invalid".into()));
}

#[test]
fn a_client_that_does_not_read_is_cut_off_and_others_get_everything() {
    let args = ["--write-timeout", "1s", "--log-level", "debug"];
    let (_place, mut server) = Server::with("sqlite", &args);
    let mut deaf = listen(&server, &[]);
    let mut good = listen(&server, &[]);
    // Long names: all of it together is more than the sockets of one connection hold.
    let name = "n".repeat(120);
    let job = format!(r#"{{"kind":"{name}","queue":"{name}"}}"#);
    let batch = format!(r#"{{"jobs":[{}]}}"#, vec![job; 5_000].join(","));
    std::thread::scope(|scope| {
        let reading = scope.spawn(move || {
            let mut last = 0;
            let mut seen = 0;
            while seen < 60_000 {
                let Some(chunk) = good.chunk() else { break };
                for id in ids(&String::from_utf8(chunk).unwrap()) {
                    assert!(last == 0 || id == last + 1, "{id} after {last}");
                    last = id;
                    seen += 1;
                }
            }
            seen
        });
        for _ in 0..12 {
            assert_eq!(server.post("/jobs/batch", &batch).status, 202);
        }
        assert_eq!(reading.join().unwrap(), 60_000);
    });
    server.wait_for_log("Writing for too long");
    assert!(deaf.is_closed());
}

#[test]
fn a_shutdown_ends_streams_and_polls_at_once() {
    for store in stores() {
        let (_place, server) = Server::with(store, &["--drain-timeout", "25s"]);
        let mut stream = listen(&server, &[]);
        let mut poll = server.connect();
        poll.ask("POST", "/jobs/poll", &[], Some(r#"{"worker":"w","wait_ms":30000}"#));
        server.until("/workers", |list| list.to_string().contains(r#""id":"w""#));
        server.signal("-TERM");
        let reply = poll.reply().expect("an answer");
        assert_eq!(reply.json()["jobs"].as_array().unwrap().len(), 0);
        while stream.chunk().is_some() {}
        let (status, said) = server.end();
        assert_eq!(status.code(), Some(0), "{said}");
        assert!(!said.contains("were cut"), "they ended by themselves: {said}");
    }
}

/// Each change by another process was a `reset`, four times a second, which had every client read
/// everything again.
#[test]
fn what_another_process_changes_is_one_hint_that_names_the_queue() {
    let (place, server) = Server::new("sqlite");
    let mut client = listen(&server, &[]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    command.args(["--store", &place.store, "enqueue", "email", "{}", "--queue", "elsewhere"]);
    assert!(command.output().unwrap().status.success());
    let said = until(&mut client, "event: changed");
    let said = if said.ends_with("\n\n") { said } else { said + &until(&mut client, "\n\n") };
    assert!(said.contains(r#"data: {"queues":["elsewhere"],"more":false}"#), "{said}");
    assert!(!said.contains("event: reset"), "{said}");
}

#[test]
fn another_process_that_runs_many_jobs_is_two_hints_a_second_at_most_and_no_reset() {
    let (place, server) = Server::with("sqlite", &["--workers", "0"]);
    let other = place.start(&[]);
    let mut client = listen(&server, &[]);
    let began = SystemClock.now().mono;
    let passed = || SystemClock.now().mono.since(began);
    let noops = format!(r#"{{"jobs":[{}]}}"#, [r#"{"kind":"windlass.noop"}"#; 10].join(","));
    while passed() < Millis::seconds(2) {
        assert_eq!(other.post("/jobs/batch", &noops).status, 202);
    }
    // An event of its own ends what is counted.
    server.enqueue(r#"{"kind":"last"}"#);
    let said = until(&mut client, r#""kind":"last""#);
    let most = usize::try_from(passed().get()).unwrap() * 2 / 1_000 + 1;
    let hints = said.matches("event: changed").count();
    assert!((2..=most).contains(&hints), "{hints} hints in {}", passed());
    assert!(!said.contains("event: reset"), "{said}");
}
