//! Limits of size, number and time: what is over them is refused by name, and others are served.

use crate::common::{Client, Server, stores};

/// Whether a well-behaved client is served.
fn serves(server: &Server) {
    assert_eq!(server.get("/livez").status, 200);
}

#[test]
fn a_body_that_is_too_large_is_refused_before_it_is_read() {
    let (_place, server) = Server::with("sqlite", &["--max-body", "1000"]);
    let body = format!(r#"{{"payload":"{}"}}"#, "x".repeat(2_000));
    assert_eq!(server.post("/jobs", &body).refused(), (413, "too-large".into()));
    let mut client = server.connect();
    let lying = [("content-length", "100000000"), ("content-type", "application/json")];
    client.ask("POST", "/jobs", &lying, None);
    assert_eq!(client.reply().unwrap().refused(), (413, "too-large".into()));
    assert!(client.is_closed());
    let reply = server.post("/jobs/batch", &format!(r#"{{"jobs":[{body}]}}"#));
    assert_eq!(reply.status, 202, "a batch may be larger");
    serves(&server);
}

#[test]
fn an_endless_body_is_cut_off() {
    let (_place, server) = Server::with("sqlite", &["--max-body", "100000"]);
    let mut client = server.connect();
    client.raw(
        b"POST /jobs HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
          transfer-encoding: chunked\r\n\r\n",
    );
    let chunk = format!("4000\r\n{}\r\n", "[".repeat(0x4000));
    let mut sent = 0;
    while sent < 1_000 && client.raw(chunk.as_bytes()) {
        sent += 1;
    }
    assert!(sent < 1_000, "the server went on reading");
    serves(&server);
}

#[test]
fn a_length_and_chunks_together_are_read_as_chunks_and_the_connection_ends() {
    let (_place, server) = Server::new("sqlite");
    let mut client = server.connect();
    client.raw(
        b"POST /jobs HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
          content-length: 50\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n\
          GET /jobs HTTP/1.1\r\nhost: localhost\r\n\r\n",
    );
    let reply = client.reply().expect("an answer");
    assert_eq!(reply.status, 202, "the length is ignored");
    assert!(client.reply().is_none(), "nothing is read after it");
    let mut client = server.connect();
    client.raw(
        b"POST /jobs HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
          transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n\
          GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n",
    );
    assert_eq!(client.reply().expect("an answer").status, 202);
    assert_eq!(client.reply().expect("chunks alone are fine").status, 200);
    let mut client = server.connect();
    client.raw(b"POST /jobs HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n");
    assert_eq!(client.reply().expect("an answer").status, 400);
}

#[test]
fn a_body_must_be_json_and_say_so() {
    let (_place, server) = Server::new("sqlite");
    for kind in ["text/plain", "application/x-www-form-urlencoded", "application/jsonp"] {
        let reply = server.connect().send("POST", "/jobs", &[("content-type", kind)], Some("{}"));
        assert_eq!(reply.refused(), (415, "unsupported-media-type".into()), "{kind}");
        assert!(reply.json()["detail"].as_str().unwrap().contains("application/json"));
    }
    let kind = ("content-type", "Application/JSON; charset=utf-8");
    assert_eq!(server.connect().send("POST", "/jobs", &[kind], Some("{}")).status, 202);
    let deep = "[".repeat(100_000);
    let balanced = format!(r#"{{"payload":{deep}{}}}"#, "]".repeat(100_000));
    let nested = format!(r#"{{"payload":{deep}"#);
    for (body, status) in [
        ("", 400),
        ("{", 400),
        ("{}x", 400),
        ("[]", 422),
        ("null", 422),
        (r#"{"kind":"a","kind":"b"}"#, 422),
        (r#"{"priority":1e400}"#, 400),
        (r#"{"payload":1e400}"#, 202),
        (nested.as_str(), 400),
        (balanced.as_str(), 422),
    ] {
        let reply = server.post("/jobs", body);
        assert_eq!(reply.status, status, "{body:.40}: {}", reply.text());
    }
    serves(&server);
}

#[test]
fn heads_that_are_too_large_are_refused() {
    let (_place, server) = Server::new("sqlite");
    let status = |head: String| {
        let mut client = server.connect();
        client.raw(head.as_bytes());
        let reply = client.reply()?;
        assert!(!reply.problem().is_empty());
        assert!(reply.header("x-request-id").is_some(), "in every answer");
        assert!(reply.header("content-security-policy").is_some());
        Some(reply.status)
    };
    let many = "x: 1\r\n".repeat(101);
    let get = "GET /livez HTTP/1.1\r\nhost: localhost\r\n";
    assert_eq!(status(format!("{get}{many}\r\n")), Some(431));
    let large = format!("x: {}\r\n", "y".repeat(20_000));
    assert_eq!(status(format!("{get}{large}\r\n")), Some(431));
    let long = format!("GET /jobs?{} HTTP/1.1\r\nhost: localhost\r\n\r\n", "q".repeat(9_000));
    assert_eq!(status(long), Some(414));
    let longer = format!("GET /{} HTTP/1.1\r\nhost: localhost\r\n\r\n", "q".repeat(70 * 1024));
    assert_eq!(status(longer), Some(431));
    assert_eq!(status("nonsense\r\n\r\n".into()), Some(400));
    assert_eq!(status("GET /livez HTTP/1.1\r\n\r\n".into()), Some(400), "no host");
    serves(&server);
}

#[test]
fn slow_heads_slow_bodies_and_idle_connections_are_closed_and_others_served() {
    let times = ["--header-timeout", "300ms", "--body-timeout", "300ms", "--idle-timeout", "600ms"];
    let (_place, server) = Server::with("sqlite", &times);
    let mut silent = server.connect();
    let mut slow_head = server.connect();
    slow_head.raw(b"GET /livez HTTP/1.1\r\nhost: local");
    let mut slow_body = server.connect();
    slow_body.raw(
        b"POST /jobs HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
          content-length: 100\r\n\r\n{",
    );
    let mut idle = server.connect();
    assert_eq!(idle.send("GET", "/livez", &[], None).status, 200);
    let mut stalled = server.connect();
    assert_eq!(stalled.send("GET", "/livez", &[], None).status, 200);
    stalled.raw(b"GET /li");
    serves(&server);
    assert_eq!(slow_body.reply().unwrap().refused(), (408, "body-timeout".into()));
    for (mut client, what) in [(silent_of(&mut silent), "silent"), (slow_head, "slow head")] {
        assert!(client.is_closed(), "{what}");
    }
    assert!(slow_body.is_closed());
    assert!(stalled.is_closed(), "a second request has no longer for its head");
    assert!(idle.is_closed());
    serves(&server);
}

/// Moves a client out, so that all are checked alike.
fn silent_of(client: &mut Client) -> Client {
    let address = client.stream.peer_addr().unwrap();
    std::mem::replace(client, Client::to(address))
}

#[test]
fn an_idle_connection_outlives_the_time_of_a_head() {
    let times = ["--header-timeout", "100ms", "--idle-timeout", "20s"];
    let (_place, server) = Server::with("sqlite", &times);
    let mut client = server.connect();
    assert_eq!(client.send("GET", "/livez", &[], None).status, 200);
    // A poll that finds nothing takes longer than a head may.
    let body = r#"{"worker":"w","wait_ms":400}"#;
    assert_eq!(server.post("/jobs/poll", body).status, 200);
    assert_eq!(client.send("GET", "/livez", &[], None).status, 200);
}

#[test]
fn one_connection_too_many_is_refused_and_the_others_are_served() {
    for store in stores() {
        let (_place, server) = Server::with(store, &["--max-connections", "3"]);
        let mut held: Vec<Client> = (0..3).map(|_| server.connect()).collect();
        for client in &mut held {
            assert_eq!(client.send("GET", "/livez", &[], None).status, 200);
        }
        let mut late = server.connect();
        let reply = late.reply().expect("a refusal, without asking");
        assert_eq!(reply.refused(), (503, "overloaded".into()));
        assert!(reply.json()["detail"].as_str().unwrap().contains("limit (3)"));
        assert_eq!(reply.header("retry-after"), Some("1"));
        assert_eq!(held[0].send("GET", "/livez", &[], None).status, 200);
        held.remove(0);
        // Room is made as soon as the server has noticed.
        let welcome = (0..1_000).any(|_| {
            let mut client = server.connect();
            client.ask("GET", "/livez", &[], None);
            client.reply().is_some_and(|reply| reply.status == 200)
        });
        assert!(welcome);
    }
}

#[test]
fn many_idle_connections_do_not_keep_an_honest_client_out_for_long() {
    let limits = ["--max-connections", "200", "--header-timeout", "500ms"];
    let (_place, server) = Server::with("sqlite", &limits);
    let idle: Vec<Client> = (0..400).map(|_| server.connect()).collect();
    let welcome = (0..100_000).any(|_| {
        let mut client = server.connect();
        client.ask("GET", "/livez", &[], None);
        client.reply().is_some_and(|reply| reply.status == 200)
    });
    assert!(welcome);
    drop(idle);
}
