//! Commands that do not want to end, and servers that end while commands run: nothing of a command
//! outlives its attempt.

use std::path::PathBuf;

use serde_json::{Value, json};
use windlass_core::Millis;
use windlass_runtime_tokio::{Clock, SystemClock};

use super::{attempts, enqueue, finished, is_alive, pids, script, shell_server, wait_until};
use crate::common::{Place, Server, stores};

/// Starts processes in every way that gets them out of reach (another group, another session, no
/// parent, no open files, deaf to TERM) and notes their numbers. Then it waits.
const ESCAPE: &str = r#"
    trap '' TERM
    deaf='trap "" TERM; echo $$ >> "$1/pids"; while :; do sleep 1; done'
    sh -c "$deaf" sh "$1" &
    setsid sh -c "$deaf" sh "$1" &
    (setsid sh -c 'sh -c "$2" sh "$1" & exit' sh "$1" "$deaf" &)
    sh -c 'exec >&- 2>&- <&-; (setsid sh -c "$2" sh "$1" &)' sh "$1" "$deaf" &
    echo $$ >> "$1/pids"
"#;

fn escape(then: &str) -> String {
    format!("{ESCAPE}\n{then}")
}

const AND_STAY: &str = "while :; do sleep 1; done";

/// Waits until all five are there.
fn started(place: &Place, server: &Server) -> Vec<u32> {
    let path: PathBuf = place.path("pids");
    wait_until(server, "the processes of a command", || pids(&path).len() == 5);
    let pids = pids(&path);
    assert!(pids.iter().all(|pid| is_alive(*pid)), "{pids:?} run");
    pids
}

#[track_caller]
fn assert_gone(pids: &[u32]) {
    let alive: Vec<&u32> = pids.iter().filter(|pid| is_alive(**pid)).collect();
    assert!(alive.is_empty(), "{alive:?} of {pids:?} are still there");
}

#[test]
fn nothing_of_a_command_survives_its_timeout() {
    let (place, server) = shell_server(&[]);
    let mut job = script(&place, &escape(&format!("echo said; {AND_STAY}")));
    job["timeout_ms"] = json!(2_000);
    let id = enqueue(&server, &job);
    let pids = started(&place, &server);
    let job = finished(&server, id);
    assert_gone(&pids);
    assert_eq!(job["state"], "failed", "{job}");
    let attempt = &attempts(&server, id)[0];
    assert_eq!(attempt["outcome"], "timed_out", "{attempt}");
    assert_eq!(attempt["stdout"], "said\n", "{attempt}");
    assert!(attempt["error"].as_str().unwrap().contains("2000 ms"), "{attempt}");
}

#[test]
fn nothing_of_a_command_survives_being_cancelled() {
    for store in stores() {
        let place = Place::new(store);
        let server = super::shell_server_on(&place, &[]);
        let id = enqueue(&server, &script(&place, &escape(AND_STAY)));
        let pids = started(&place, &server);
        assert_eq!(server.post(&format!("/jobs/{id}/cancel"), "").status, 200);
        wait_until(&server, "the end of the command", || !pids.iter().any(|pid| is_alive(*pid)));
        assert_eq!(server.job(id)["state"], "cancelled");
    }
}

#[test]
fn what_a_finished_command_leaves_behind_is_ended_and_holds_nothing_up() {
    let (place, server) = shell_server(&[]);
    let wait = "while [ $(wc -l < \"$1/pids\") -lt 5 ]; do :; done; echo done";
    let job = super::run(&server, &script(&place, &escape(wait)));
    assert_eq!(job["state"], "done", "{job}");
    assert_eq!(job["result"]["stdout"], "done\n");
    assert_eq!(pids(&place.path("pids")).len(), 5);
    assert_gone(&pids(&place.path("pids")));
}

#[test]
fn a_command_has_its_grace_to_clean_up_and_so_have_its_children() {
    let (place, server) = shell_server(&["--command-grace", "10s"]);
    let child = r#"trap 'sleep 1; echo child >> "$1/cleaned"; exit' TERM; echo $$ >> "$1/pids"
                   while :; do sleep 0.1; done"#;
    let text = format!(
        "trap 'echo parent >> \"$1/cleaned\"; exit 0' TERM; sh -c '{}' sh \"$1\" &
         while :; do sleep 0.1; done",
        child.replace('\'', "'\\''")
    );
    let id = enqueue(&server, &script(&place, &text));
    wait_until(&server, "the child", || !pids(&place.path("pids")).is_empty());
    server.post(&format!("/jobs/{id}/cancel"), "");
    let cleaned = || std::fs::read_to_string(place.path("cleaned")).unwrap_or_default();
    wait_until(&server, "both to clean up", || cleaned().lines().count() == 2);
    assert!(cleaned().contains("child") && cleaned().contains("parent"), "{}", cleaned());
}

#[test]
fn a_command_that_kills_or_stops_its_supervisor_hurts_itself_alone() {
    let (place, server) = shell_server(&[]);
    let bystander =
        enqueue(&server, &script(&place, "while [ ! -e \"$1/go\" ]; do sleep 0.1; done"));
    for signal in ["KILL", "STOP"] {
        let _ = std::fs::remove_file(place.path("pids"));
        let wait = "while [ $(wc -l < \"$1/pids\") -lt 5 ]; do :; done";
        let text = escape(&format!("{wait}; kill -{signal} $PPID; {AND_STAY}"));
        let mut job = script(&place, &text);
        job["timeout_ms"] = json!(2_000);
        let job = super::run(&server, &job);
        assert_eq!(job["state"], "failed", "{signal}: {job}");
        let pids = pids(&place.path("pids"));
        assert_eq!(pids.len(), 5, "{signal}");
        assert!(!pids.iter().any(|pid| is_alive(*pid)), "{signal}: {pids:?}");
    }
    assert_eq!(server.job(bystander)["state"], "processing");
    std::fs::write(place.path("go"), "").unwrap();
    assert_eq!(finished(&server, bystander)["state"], "done");
}

#[test]
fn a_killed_server_takes_its_commands_along_and_they_run_again() {
    for store in stores() {
        let place = Place::new(store);
        let server = super::shell_server_on(&place, &[]);
        let mut job = script(&place, &format!("[ -e \"$1/go\" ] && exit 0\n{}", escape(AND_STAY)));
        job["visibility_timeout_ms"] = json!(1_000);
        job["max_retries"] = json!(3);
        let id = enqueue(&server, &job);
        let pids = started(&place, &server);
        server.kill();
        std::fs::write(place.path("go"), "").unwrap();
        let server = super::shell_server_on(&place, &[]);
        wait_until(&server, "the end of the command", || !pids.iter().any(|pid| is_alive(*pid)));
        let job = finished(&server, id);
        assert_eq!((&job["state"], &job["attempts"]), (&json!("done"), &json!(2)), "{job}");
    }
}

/// Has the server stop with a command under way; how long that took, and the job afterwards.
fn stopped(then: &str, drain: &str) -> (Place, Millis, Vec<u32>, String, Value) {
    let place = Place::new("sqlite");
    let server = super::shell_server_on(&place, &["--drain-timeout", drain]);
    let id = enqueue(&server, &script(&place, &escape(then)));
    let pids = started(&place, &server);
    let began = SystemClock.now().mono;
    server.signal("-TERM");
    let (status, said) = server.end();
    let took = SystemClock.now().mono.since(began);
    assert_eq!(status.code(), Some(0), "{said}");
    // Without workers: it is to be seen as it was left.
    let again = place.start(&["--workers", "0"]);
    let job = again.job(id);
    (place, took, pids, said, job)
}

#[test]
fn a_command_that_ends_in_time_is_done_before_the_server_stops() {
    // The second time it ends between the first word about the stop and TERM.
    for drain in ["20s", "3s"] {
        let (_place, took, pids, said, job) = stopped("sleep 1", drain);
        assert_eq!(job["state"], "done", "{drain}: {job} {said}");
        assert!(took < Millis::seconds(10), "it took {took}");
        assert_gone(&pids);
    }
}

#[test]
fn a_command_that_ignores_term_is_ended_with_the_server_and_not_charged() {
    let (_place, took, pids, said, job) = stopped(AND_STAY, "1s");
    assert_gone(&pids);
    assert!(took <= Millis::seconds(2), "the deadline is one second, it took {took}");
    assert_eq!((&job["state"], &job["attempts"]), (&json!("queued"), &json!(0)), "{job}");
    assert!(said.contains("forced=true"), "{said}");
}

/// Notes the moment of TERM, and then of each round until it is killed, in nanoseconds.
const NOTE_TERM: &str = r#"
    trap 'date +%s%N > "$1/term"' TERM
    echo $$ > "$1/pids"
    while :; do date +%s%N > "$1/next" && mv "$1/next" "$1/last"; sleep 0.02; done
"#;

/// Has the server stop with a command under way that does not end at TERM. Returns how many
/// milliseconds after the signal the command got TERM, and how long it ran on: it prints both.
fn term_and_kill(drain: &str, grace: &str) -> (u64, u64) {
    let place = Place::new("sqlite");
    let args = ["--drain-timeout", drain, "--command-grace", grace];
    let server = super::shell_server_on(&place, &args);
    let id = enqueue(&server, &script(&place, NOTE_TERM));
    wait_until(&server, "the command", || place.path("last").exists());
    let asked = SystemClock.now().wall.get().unsigned_abs();
    server.signal("-TERM");
    let (status, said) = server.end();
    assert_eq!(status.code(), Some(0), "{said}");
    assert!(said.contains("forced=true"), "{said}");
    assert_gone(&pids(&place.path("pids")));
    let noted = |name| {
        let nanos = std::fs::read_to_string(place.path(name)).unwrap();
        nanos.trim().parse::<u64>().unwrap() / 1_000_000
    };
    let (term, last) = (noted("term"), noted("last"));
    let again = place.start(&["--workers", "0"]);
    let job = again.job(id);
    assert_eq!((&job["state"], &job["attempts"]), (&json!("queued"), &json!(0)), "{job}");
    (term.checked_sub(asked).unwrap(), last.checked_sub(term).unwrap())
}

#[test]
fn at_a_shutdown_term_comes_one_grace_before_the_deadline_and_kill_at_the_end() {
    let (term, ran_on) = term_and_kill("6s", "3s");
    assert!(term >= 2_400, "TERM came {term} ms after the signal");
    assert!(ran_on >= 2_500, "of its grace of 3 s it had {ran_on} ms");
}

#[test]
fn at_a_shutdown_shorter_than_its_grace_a_command_has_all_the_time_there_is() {
    let (_, ran_on) = term_and_kill("4s", "20s");
    assert!(ran_on >= 2_800, "of the 4 s of the shutdown it had {ran_on} ms");
}

#[test]
fn a_supervisor_ignores_signals_meant_for_the_server() {
    let (place, server) = shell_server(&[]);
    let text = "for signal in TERM INT HUP; do kill -$signal $PPID; done; sleep 0.5; echo on";
    let job = super::run(&server, &script(&place, text));
    assert_eq!(job["result"]["stdout"], "on\n", "{job}");
}

#[test]
fn a_second_signal_leaves_no_command_behind_either() {
    let place = Place::new("sqlite");
    let mut server = super::shell_server_on(&place, &[]);
    enqueue(&server, &script(&place, &escape(AND_STAY)));
    let pids = started(&place, &server);
    server.signal("-TERM");
    server.wait_for_log("new jobs are refused");
    server.signal("-TERM");
    assert_eq!(server.end().0.code(), Some(143));
    let other = place.start(&["--workers", "0"]);
    wait_until(&other, "the end of the command", || !pids.iter().any(|pid| is_alive(*pid)));
}
