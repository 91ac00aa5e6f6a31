//! `serve --demo`.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{Place, QUESTIONS, Running};

fn demo(place: &Place) -> Running {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_windlass"));
    command.args(["serve", "--demo", "--listen", "127.0.0.1:0"]).current_dir(place.path(""));
    command.env_remove("WINDLASS_STORE");
    command.stdin(std::process::Stdio::null());
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    Running::of(command.spawn().unwrap())
}

/// Whether there is something to see on every page of the dashboard.
fn is_alive(snapshot: &Value) -> bool {
    let queues = snapshot["queues"].as_array().unwrap();
    let rate = |name: &str| snapshot["rates"][name].as_f64().unwrap();
    let paused = |queue: &Value| queue["paused"] == true && queue["counts"]["queued"] != 0;
    queues.len() >= 5
        && queues.iter().any(paused)
        && snapshot["errors"]["groups"].as_u64().unwrap() > 0
        && snapshot["counts"]["done"].as_u64().unwrap() > 0
        && rate("enqueued_per_s") > 0.0
        && rate("done_per_s") > 0.0
}

/// The time in which a demo is alive.
const ALIVE_WITHIN: Duration = Duration::from_secs(5);

#[test]
#[expect(clippy::disallowed_methods, reason = "the time is that of a real server")]
fn a_demo_shows_a_failing_group_a_paused_queue_and_moving_rates_within_five_seconds() {
    let place = Place::new("sqlite");
    let server = demo(&place);
    let started = Instant::now();
    let snapshot = || -> Value {
        let answer = server.request("GET", "/snapshot", "");
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
    };
    while !is_alive(&snapshot()) {
        assert!(started.elapsed() < ALIVE_WITHIN, "{:#}", snapshot());
    }
    // A command with output becomes a dead letter, and its group has slots.
    let failed = |_| -> Option<String> {
        let list = &["list", "--state", "failed", "--kind", "command", "--json"];
        let jobs = place.ask(&server, list).good().json();
        jobs["jobs"].as_array()?.first().map(|job| job["id"].to_string())
    };
    let id = (0..QUESTIONS).find_map(failed).unwrap();
    let shown = place.ask(&server, &["show", &id]).good().out;
    assert!(shown.contains("10.0.4.17"), "{shown}");
    let groups = place.ask(&server, &["errors", "list", "--json"]).good().json();
    assert!(groups.to_string().contains("\"slot\""), "{groups}");
}

#[test]
fn a_demo_shows_duplicates_refusals_retries_and_figures_and_leaves_nothing_behind() {
    let place = Place::new("sqlite");
    let server = demo(&place);
    let store = server.line();
    let folder = store.split("sqlite:").nth(1).unwrap().trim_end_matches("/windlass.db").to_owned();
    assert!(std::path::Path::new(&folder).exists(), "{store}");
    for wanted in ["duplicate:", "refused:", "retry:", " done;"] {
        while !server.line().contains(wanted) {}
    }
    let status = place.ask(&server, &["status", "--json"]).good().json();
    assert!(status["counts"]["done"].as_u64().unwrap() > 0, "{status}");
    let (ended, said) = server.stop();
    assert!(ended.success(), "{said}");
    assert!(!std::path::Path::new(&folder).exists(), "its folder is gone");
    assert!(!place.path("windlass-data").exists(), "the usual store was not touched");
}
