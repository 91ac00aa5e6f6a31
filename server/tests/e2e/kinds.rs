//! The kinds that the server runs itself.

mod command;
mod escape;
mod webhook;

use std::path::Path;

use serde_json::{Value, json};
use windlass_core::Millis;
use windlass_runtime_tokio::{Clock, SystemClock};

use crate::common::{Place, Server};

/// A server that takes shell scripts over HTTP, for these tests.
fn shell_server(args: &[&str]) -> (Place, Server) {
    let place = Place::new("sqlite");
    let server = shell_server_on(&place, args);
    (place, server)
}

fn shell_server_on(place: &Place, args: &[&str]) -> Server {
    let mut all = vec!["--allow-command", "sh"];
    if !args.contains(&"--command-grace") {
        all.extend(["--command-grace", "300ms"]);
    }
    all.extend(args);
    place.start(&all)
}

/// A job that runs this script; `$1` is a folder for what it has to tell.
fn script(place: &Place, script: &str) -> Value {
    let folder = place.dir.path().to_str().unwrap();
    json!({"kind": "command", "max_retries": 0,
           "payload": {"argv": ["sh", "-c", script, "sh", folder]}})
}

fn enqueue(server: &Server, job: &Value) -> u64 {
    server.enqueue(&job.to_string())
}

/// Asks about twenty times a second until it is true; the server does the waiting.
#[track_caller]
fn wait_until(server: &Server, what: &str, mut good: impl FnMut() -> bool) {
    let latest = SystemClock.now().mono.plus(Millis::seconds(30));
    while !good() {
        assert!(SystemClock.now().mono < latest, "not within 30 s: {what}");
        server.post("/jobs/poll", r#"{"worker":"idle","kinds":["none"],"wait_ms":50}"#);
    }
}

/// The job once it has left `queued` and `processing`.
#[track_caller]
fn finished(server: &Server, id: u64) -> Value {
    let mut job = server.job(id);
    wait_until(server, "the end of a job", || {
        job = server.job(id);
        !["queued", "processing"].contains(&job["state"].as_str().unwrap())
    });
    job
}

/// Runs a job to its end.
#[track_caller]
fn run(server: &Server, job: &Value) -> Value {
    let id = enqueue(server, job);
    finished(server, id)
}

fn attempts(server: &Server, id: u64) -> Value {
    server.get(&format!("/jobs/{id}/attempts")).json()["attempts"].clone()
}

/// The numbers in a file, one per line; those of processes.
fn pids(path: &Path) -> Vec<u32> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().filter_map(|line| line.trim().parse().ok()).collect()
}

/// Whether a process is there and is no mere entry of one that ended.
fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(" Z"))
}
