//! Webhooks of the real server. The receiver is another server of ours: it checks everything that a
//! careful receiver checks.

use std::io::{Read, Write};
use std::net::TcpListener;

use serde_json::{Value, json};

use super::{attempts, enqueue, finished, run, wait_until};
use crate::common::{Place, Server};

const TLS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/tls");

fn webhook(url: &str) -> Value {
    json!({"kind": "webhook", "max_retries": 0,
           "payload": {"url": url, "body": {"kind": "sent", "payload": 17}}})
}

#[test]
fn a_webhook_reaches_its_receiver_once_it_is_let_in() {
    let (_place, receiver) = Server::new("sqlite");
    let url = format!("http://{}/jobs", receiver.address);
    let (_other, server) = Server::new("sqlite");
    let mut job = webhook(&url);
    job["max_retries"] = json!(3);
    let refused = run(&server, &job);
    assert_eq!((&refused["state"], &refused["attempts"]), (&json!("failed"), &json!(1)));
    assert!(refused["last_error"].as_str().unwrap().contains("--webhook-allow"), "{refused}");
    assert_eq!(receiver.get("/jobs").json()["jobs"], json!([]), "nothing came");
    for allow in [&["--webhook-allow", "127.0.0.0/8"][..], &["--webhook-allow-private"]] {
        let (_place, server) = Server::with("sqlite", allow);
        let sent = run(&server, &job);
        assert_eq!((&sent["state"], &sent["result"]["status"]), (&json!("done"), &json!(202)));
        let said: Value = serde_json::from_str(sent["result"]["body"].as_str().unwrap()).unwrap();
        assert_eq!(receiver.job(said["job"]["id"].as_u64().unwrap())["payload"], 17);
    }
    // What the receiver refuses is a failure that says so.
    let (_place, server) = Server::with("sqlite", &["--webhook-allow-private"]);
    let failed = run(&server, &webhook(&format!("http://{}/nowhere", receiver.address)));
    assert!(failed["last_error"].as_str().unwrap().contains("404"), "{failed}");
    let attempt = &attempts(&server, failed["id"].as_u64().unwrap())[0];
    assert!(attempt["stdout"].as_str().unwrap().contains("not-found"), "{attempt}");
}

#[test]
fn a_certificate_is_checked() {
    let place = Place::new("sqlite");
    let [cert, key] = place.certificate("cert.pem", "key.pem");
    let receiver = place.start(&["--tls-cert", &cert, "--tls-key", &key]);
    let url = format!("https://localhost:{}/jobs", receiver.address.port());
    for (trusted, state) in [(true, "done"), (false, "failed")] {
        let place = Place::new("sqlite");
        let mut command = place.command(&["--listen", "127.0.0.1:0", "--webhook-allow-private"]);
        if trusted {
            command.env("SSL_CERT_FILE", format!("{TLS}/ca.pem"));
        }
        let server = Server::of(command.spawn().unwrap());
        let job = run(&server, &webhook(&url));
        assert_eq!(job["state"], state, "{job}");
    }
}

#[test]
fn secrets_are_neither_in_the_log_nor_in_errors_nor_in_results() {
    let place = Place::new("sqlite");
    let file = place.private_file("secrets", "# old\nwhsec_Y2FuYXJ5LWNhbmFyeS1jYW5hcnk=\n");
    let mut command = place.command(&[
        "--listen",
        "127.0.0.1:0",
        "--webhook-secret-file",
        file.to_str().unwrap(),
        "--log-level",
        "trace",
        "--webhook-allow-private",
    ]);
    command.env("WINDLASS_WEBHOOK_SECRET", "canary-canary-canary");
    let server = Server::of(command.spawn().unwrap());
    let unused = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/canary?canary#canary", unused.local_addr().unwrap());
    drop(unused);
    for payload in [
        json!({"url": url, "headers": {"authorization": "canary"}, "body": "canary"}),
        json!({"url": "http://user:canary@localhost/"}),
        json!({"url": "http://localhost/", "headers": {"x": "canary\n"}}),
    ] {
        let job = json!({"kind": "webhook", "max_retries": 0, "payload": payload});
        let mut job = run(&server, &job);
        let attempts = attempts(&server, job["id"].as_u64().unwrap()).to_string();
        job.as_object_mut().unwrap().remove("payload");
        assert_eq!(job["state"], "failed");
        assert!(!job.to_string().contains("canary") && !attempts.contains("canary"), "{job}");
    }
    // What cannot be decoded is shown to those who may see the payload, and not in the log.
    let wrong =
        json!({"kind": "webhook", "payload": {"url": "http://localhost/", "headers": "canary"}});
    assert!(run(&server, &wrong)["last_error"].as_str().unwrap().contains("canary"));
    server.signal("-TERM");
    let (_, log) = server.end();
    assert!(!log.contains("canary") && !log.contains("Y2FuYXJ5"), "{log}");
}

#[test]
fn secrets_that_others_can_read_or_that_are_none_are_refused_at_the_start() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new("sqlite");
    let file = place.private_file("secrets", "short\n");
    let file_text = file.to_str().unwrap();
    let (code, said) = place.refused(&["--webhook-secret-file", file_text]);
    assert_eq!(code, Some(2));
    assert!(said.contains("line 1") && !said.contains("short"), "{said}");
    std::fs::write(&file, "a-secret-of-twenty-b").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let (code, said) = place.refused(&["--webhook-secret-file", file_text]);
    assert_eq!(code, Some(2));
    assert!(said.contains("chmod o-rwx"), "{said}");
}

/// A receiver that answers the first request like this, or never.
fn one_answer(answer: Option<&'static str>) -> (String, std::thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let serving = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut bytes = [0; 4096];
        assert!(stream.read(&mut bytes).unwrap() > 0);
        match answer {
            Some(answer) => stream.write_all(answer.as_bytes()).unwrap(),
            // It ends when the sender gives up.
            None => while stream.read(&mut bytes).is_ok_and(|read| read > 0) {},
        }
    });
    (url, serving)
}

#[test]
fn a_receiver_says_when_to_come_back_and_the_attempt_counts() {
    let (_place, server) = Server::with("sqlite", &["--webhook-allow-private"]);
    let answer = "HTTP/1.1 429 Slow Down\r\nretry-after: 3600\r\ncontent-length: 0\r\n\r\n";
    let (url, serving) = one_answer(Some(answer));
    let mut job = webhook(&url);
    job["max_retries"] = json!(3);
    let id = enqueue(&server, &job);
    serving.join().unwrap();
    wait_until(&server, "the verdict", || server.job(id)["state"] == "queued");
    let job = server.job(id);
    assert_eq!(job["attempts"], 1, "{job}");
    let explained = server.get(&format!("/jobs/{id}/explain")).json();
    assert_eq!(explained["reasons"][0]["code"], "delayed", "{explained}");
    let (next, made) = (job["run_at"].as_str().unwrap(), job["created_at"].as_str().unwrap());
    let at = |text: &str| text.parse::<jiff::Timestamp>().unwrap().as_second();
    assert!((3_590..3_660).contains(&(at(next) - at(made))), "{job}");
}

#[test]
fn a_webhook_under_way_ends_with_its_cancel_its_timeout_and_its_server() {
    let (_place, server) = Server::with("sqlite", &["--webhook-allow-private"]);
    let (url, serving) = one_answer(None);
    let id = enqueue(&server, &webhook(&url));
    wait_until(&server, "its start", || server.job(id)["state"] == "processing");
    server.post(&format!("/jobs/{id}/cancel"), "");
    serving.join().unwrap();
    let (url, serving) = one_answer(None);
    let mut job = webhook(&url);
    job["timeout_ms"] = json!(300);
    let id = enqueue(&server, &job);
    serving.join().unwrap();
    assert_eq!(finished(&server, id)["state"], "failed");
    assert_eq!(attempts(&server, id)[0]["outcome"], "timed_out");
    let place = Place::new("sqlite");
    let server = place.start(&["--webhook-allow-private", "--drain-timeout", "100ms"]);
    let (url, serving) = one_answer(None);
    let id = enqueue(&server, &webhook(&url));
    wait_until(&server, "its start", || server.job(id)["state"] == "processing");
    server.signal("-TERM");
    assert_eq!(server.end().0.code(), Some(0));
    serving.join().unwrap();
    let again = place.start(&["--workers", "0"]);
    let job = again.job(id);
    assert_eq!((&job["state"], &job["attempts"]), (&json!("queued"), &json!(0)), "{job}");
}
