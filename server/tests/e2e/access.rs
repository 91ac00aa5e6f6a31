//! Tokens and scopes on every route, requests of other web sites, and secrets that the log must not
//! hold.

use std::os::unix::fs::PermissionsExt;

use crate::common::{FILES, Place, Server, operations};

const TOKENS: &str = "# who does what\n\
    look read read-token-0123456789\n\
    add enqueue enqueue-token-0123456789\n\
    run work work-token-0123456789\n\
    ops admin admin-token-0123456789\n";

fn guarded(store: &str) -> (Place, Server) {
    let place = Place::new(store);
    let file = place.private_file("tokens", TOKENS);
    let server = place.start(&["--token-file", file.to_str().unwrap()]);
    (place, server)
}

fn path(template: &str) -> String {
    template
        .replace("{id}", "1")
        .replace("{queue}", "default")
        .replace("{bulk}", "1")
        .replace("{worker}", "w-1")
        .replace("{name}", "max_retries")
        .replace("{build}", "0")
        .replace("{file}", "app.js")
}

#[test]
fn the_line_that_says_ready_has_the_number_of_tokens() {
    let (_place, mut open) = Server::new("sqlite");
    let line = open.wait_for_log("ready");
    assert!(line.split_whitespace().any(|field| field == "tokens=0"), "{line}");
    assert!(!line.contains("0 tokens"), "{line}");
    let (_place, mut guarded) = guarded("sqlite");
    let line = guarded.wait_for_log("ready");
    assert!(line.split_whitespace().any(|field| field == "tokens=4"), "{line}");
    assert!(!line.contains("0123456789"), "{line}");
}

#[test]
fn every_route_refuses_no_token_a_wrong_one_and_one_that_is_too_narrow() {
    let (_place, server) = guarded("sqlite");
    let mut checked = 0;
    for (method, template, scope, example) in operations() {
        let body = example.map(|example| example.to_string());
        let send = |token: Option<&str>| {
            let mut client = server.connect();
            client.token = token.map(Into::into);
            client.ask(&method, &path(&template), &[], body.as_deref());
            client.head().expect("an answer").0
        };
        let Some(scope) = scope else {
            let open = ["/livez", "/readyz", "/", "/ui/{build}/{file}"];
            assert!(open.contains(&template.as_str()), "{template} is open");
            let status = if template.starts_with("/ui") { 404 } else { 200 };
            assert_eq!((send(None), send(Some("wrong-token"))), (status, status), "{template}");
            continue;
        };
        for wrong in [None, Some(""), Some("wrong-token"), Some("read-token-012345678")] {
            assert_eq!(send(wrong), 401, "{method} {template} with {wrong:?}");
        }
        for held in ["read", "enqueue", "work", "admin"] {
            let status = send(Some(&format!("{held}-token-0123456789")));
            if held == scope || held == "admin" || scope == "any" {
                assert!(status != 401 && status != 403, "{method} {template} {held}: {status}");
            } else {
                assert_eq!(status, 403, "{method} {template} with {held}");
            }
            checked += 1;
        }
    }
    assert!(checked > 100, "{checked}");
}

#[test]
fn methods_and_paths_that_are_not_there_tell_nothing_without_a_token() {
    let (_place, server) = guarded("sqlite");
    for (method, path) in
        [("PATCH", "/jobs"), ("GET", "/nowhere"), ("TRACE", "/"), ("OPTIONS", "/jobs/1")]
    {
        assert_eq!(server.send(method, path, None).refused(), (401, "unauthorized".into()));
    }
    let reply = server.get("/jobs");
    assert_eq!(reply.header("www-authenticate"), Some("Bearer"));
}

#[test]
fn a_caller_without_a_token_gets_a_page_without_data_and_a_bare_status() {
    let (_place, server) = guarded("sqlite");
    let mut client = server.connect();
    client.token = Some("admin-token-0123456789".into());
    client.send("POST", "/jobs", &[], Some(r#"{"queue":"canary-queue"}"#));
    let page = server.get("/");
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    assert!(!page.text().contains("canary"), "{}", page.text());
    assert_eq!(client.send("GET", "/", &[], None).text(), page.text(), "it is the same for all");
    for path in ["/livez", "/readyz"] {
        let reply = server.get(path);
        assert_eq!((reply.status, reply.text().as_str()), (200, ""), "{path}");
        client.token = Some("read-token-0123456789".into());
        assert!(!client.send("GET", path, &[], None).body.is_empty(), "{path}");
    }
}

#[test]
fn a_hangup_reloads_the_tokens_and_a_bad_file_leaves_the_old_in_force() {
    let place = Place::new("sqlite");
    let file = place.private_file("tokens", "old admin old-token-0123456789\n");
    let mut server = place.start(&["--token-file", file.to_str().unwrap()]);
    let status = |server: &Server, token: &str| {
        let mut client = server.connect();
        client.token = Some(token.into());
        client.send("GET", "/jobs", &[], None).status
    };
    place.private_file("tokens", "new everything new-token-0123456789\n");
    server.signal("-HUP");
    server.wait_for_log("the tokens were not reloaded");
    assert_eq!(status(&server, "old-token-0123456789"), 200);
    place.private_file("tokens", "new read new-token-0123456789\n");
    server.signal("-HUP");
    server.wait_for_log("tokens were reloaded");
    assert_eq!(status(&server, "old-token-0123456789"), 401);
    assert_eq!(status(&server, "new-token-0123456789"), 200);
}

#[test]
fn each_write_is_logged_with_the_name_of_its_token() {
    let (_place, mut server) = guarded("sqlite");
    let mut client = server.connect();
    client.token = Some("enqueue-token-0123456789".into());
    client.send("POST", "/jobs", &[], Some("{}"));
    let line = server.wait_for_log("request");
    assert!(line.contains("token=\"add\"") && line.contains("route=\"/jobs\""), "{line}");
    client.token = Some("read-token-0123456789".into());
    client.send("POST", "/jobs/1/cancel", &[], None);
    let line = server.wait_for_log("status=403");
    assert!(line.contains("token=\"look\""), "{line}");
}

#[test]
fn one_token_may_come_from_the_environment() {
    let place = Place::new("sqlite");
    let mut command = place.command(&["--listen", "127.0.0.1:0"]);
    let server = Server::of(command.env("WINDLASS_TOKEN", "from-the-environment").spawn().unwrap());
    assert_eq!(server.get("/jobs").status, 401);
    let mut client = server.connect();
    client.token = Some("from-the-environment".into());
    assert_eq!(client.send("GET", "/jobs", &[], None).status, 200);
}

#[test]
fn an_address_for_other_machines_needs_tokens() {
    let place = Place::new("sqlite");
    let (code, said) = place.refused(&["--listen", "0.0.0.0:0"]);
    assert_eq!(code, Some(1));
    assert!(said.contains("--token-file") && said.contains("WINDLASS_TOKEN"), "{said}");
    assert!(!place.path("data").exists(), "nothing was made");
    let mut command = place.command(&["--listen", "0.0.0.0:0"]);
    let server = Server::of(command.env("WINDLASS_TOKEN", "from-the-environment").spawn().unwrap());
    assert!(server.pid() > 0);
}

#[test]
fn a_token_file_that_cannot_be_used_is_refused_without_its_secrets() {
    let place = Place::new("sqlite");
    let bad = place.private_file("bad", "ops everything a-secret-that-is-long-enough\n");
    let open = place.private_file("open", TOKENS);
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o644)).unwrap();
    let empty = place.private_file("empty", "# no token\n");
    let missing = place.path("missing");
    for file in [bad, open, empty, missing] {
        let file = file.to_str().unwrap();
        let (code, said) = place.refused(&["--listen", "127.0.0.1:0", "--token-file", file]);
        assert_eq!(code, Some(1), "{file}");
        assert!(said.contains("token file"), "{said}");
        assert!(!said.contains("a-secret"), "{said}");
    }
}

#[test]
fn other_web_sites_and_other_names_are_refused_before_anything_is_done() {
    let (_place, server) = Server::new("sqlite");
    let id = server.enqueue("{}");
    let send = |method: &str, path: &str, headers: &[(&str, &str)], body: Option<&str>| {
        server.connect().send(method, path, headers, body).refused()
    };
    let cross = (403, "cross-site".to_owned());
    let cancel = format!("/jobs/{id}/cancel");
    for header in [
        ("origin", "http://evil.example"),
        ("origin", "null"),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
    ] {
        assert_eq!(send("POST", "/jobs", &[header], Some("{}")), cross, "{header:?}");
        assert_eq!(send("POST", &cancel, &[header], None), cross, "{header:?}");
        assert_eq!(send("DELETE", &format!("/jobs/{id}"), &[header], None), cross, "{header:?}");
        assert_eq!(send("GET", "/jobs", &[header], None), cross, "{header:?}");
    }
    let foreign = send("GET", "/jobs", &[("host", "rebound.example")], None);
    assert_eq!(foreign, (421, "misdirected".into()));
    let list = server.get("/jobs").json();
    assert_eq!(list["jobs"].as_array().unwrap().len(), 1);
    assert_eq!(list["jobs"][0]["state"], "queued");
    let (_place, named) = Server::with("sqlite", &["--host", "jobs.example.org"]);
    let mut client = named.connect();
    assert_eq!(client.send("GET", "/jobs", &[("host", "jobs.example.org")], None).status, 200);
}

#[test]
fn every_answer_carries_the_protecting_headers() {
    let (_place, server) = guarded("sqlite");
    let mut client = server.connect();
    client.token = Some("admin-token-0123456789".into());
    for path in ["/", "/jobs", "/nowhere", "/openapi.json", "/metrics"] {
        let reply = client.send("GET", path, &[("x-request-id", "mine-1")], None);
        let policy = reply.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
        assert_eq!(reply.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(reply.header("x-frame-options"), Some("DENY"));
        assert_eq!(reply.header("cache-control"), Some("no-store"));
        assert_eq!(reply.header("x-request-id"), Some("mine-1"));
    }
    let reply = client.send("GET", "/jobs", &[("x-request-id", "not fit, at all!")], None);
    assert_ne!(reply.header("x-request-id"), Some("not fit, at all!"));
}

#[test]
fn secrets_and_payloads_are_neither_in_the_log_nor_in_the_figures() {
    for format in ["text", "json"] {
        let place = Place::new("sqlite");
        let file = place.private_file("tokens", "ops admin canary-token-0123456789\n");
        let file = file.to_str().unwrap();
        let server = place.start(&["--token-file", file, "--log", format, "--log-level", "trace"]);
        let mut client = server.connect();
        client.token = Some("canary-token-0123456789".into());
        let body = r#"{"payload":"canary-payload","idempotency_key":"canary-key","max_retries":0}"#;
        client.send("POST", "/jobs", &[], Some(body));
        let poll = client.send("POST", "/jobs/poll", &[], Some(r#"{"worker":"w"}"#)).json();
        assert_eq!(poll["jobs"].as_array().unwrap().len(), 1);
        let fail = r#"{"token":"1.1","error":"canary-error \u001b[31m"}"#;
        assert_eq!(client.send("POST", "/jobs/1/fail", &[], Some(fail)).status, 200);
        client.send("GET", "/canary-path%1b[31m?canary-query", &[], None);
        client.token = Some("canary-wrong-token".into());
        client.send("GET", "/jobs", &[], None);
        client.token = Some("canary-token-0123456789".into());
        let figures = client.send("GET", "/metrics", &[], None).text();
        server.signal("-TERM");
        let (status, said) = server.end();
        assert!(status.success());
        assert!(said.contains("attempt ended"), "{said}");
        for text in [&said, &figures] {
            assert!(!text.contains("canary-token") && !text.contains("canary-wrong"), "{text}");
            assert!(!text.contains("canary-payload") && !text.contains("canary-error"), "{text}");
            assert!(!text.contains('\u{1b}'), "{text}");
        }
        if format == "json" {
            for line in said.lines().filter(|line| line.starts_with('{')) {
                assert!(serde_json::from_str::<serde_json::Value>(line).is_ok(), "{line}");
            }
        }
    }
}

#[test]
fn the_data_directory_is_for_its_owner_alone() {
    for store in FILES {
        let (place, server) = Server::new(store);
        server.enqueue("{}");
        let mode = |path| std::fs::metadata(place.path(path)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode("data"), 0o700);
        assert_eq!(mode("data/jobs.db"), 0o600);
    }
}

#[test]
fn markup_in_names_and_errors_is_data() {
    let (_place, server) = Server::new("sqlite");
    let reply = server.post("/jobs", r#"{"kind":"<script>"}"#);
    assert_eq!(reply.header("content-type"), Some("application/problem+json"));
    assert_eq!(reply.status, 422);
    server.enqueue(r#"{"payload":"<script>alert(1)</script>"}"#);
    let page = server.get("/").text();
    assert!(!page.contains("alert(1)"), "{page}");
}
