//! Worker processes: started, listed, killed, restarted, stopped.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::common::{Place, Running, kill};

fn start(place: &Place, args: &[&str]) -> Running {
    Running::of(place.command(&[&["worker", "start"], args].concat()).spawn().unwrap())
}

fn ready(line: &str) -> (String, u64) {
    let ready: Value = serde_json::from_str(line).unwrap();
    (ready["id"].as_str().unwrap().into(), ready["pid"].as_u64().unwrap())
}

fn processes(list: &Value) -> Vec<&Value> {
    let workers = list["workers"].as_array().unwrap();
    workers.iter().filter(|worker| worker["kind"] == "process").collect()
}

const LIST: [&str; 3] = ["worker", "list", "--json"];

#[test]
fn workers_run_jobs_are_seen_and_end_in_order_at_a_signal() {
    let place = Place::new("sqlite");
    for _ in 0..5 {
        place.run(&["enqueue", "windlass.noop"]).good();
    }
    let supervisor = start(&place, &["--count", "2", "--concurrency", "3"]);
    let known = [ready(supervisor.first()), ready(&supervisor.line())];
    let list = place.run(&LIST).good().json();
    assert_eq!(processes(&list).len(), 2);
    for (id, pid) in &known {
        let found = processes(&list).into_iter().find(|worker| worker["id"] == id.as_str());
        let found = found.unwrap_or_else(|| panic!("{id} is not in {list}"));
        assert_eq!((&found["pid"], &found["slots"]), (&(*pid).into(), &3.into()));
        assert_eq!((&found["alive"], &found["stopping"]), (&true.into(), &false.into()));
    }
    place.until(&["status", "--json"], |status| status["counts"]["done"] == 5);
    let (ended, said) = supervisor.stop();
    assert!(ended.success(), "{said}");
    assert_eq!(said.matches("attempt ended").count(), 5, "who runs an attempt logs it: {said}");
    assert_eq!(processes(&place.run(&LIST).good().json()).len(), 0, "they signed off");
}

#[test]
fn a_worker_that_is_killed_is_started_again_and_touches_no_other() {
    let place = Place::new("sqlite");
    place.run(&["enqueue", "x"]).good();
    let supervisor = start(&place, &["--count", "2"]);
    let (first, second) = (ready(supervisor.first()), ready(&supervisor.line()));
    kill("-KILL", first.1);
    let line = supervisor.wait_for_log("a worker process died; restarting it");
    assert!(line.contains("signal: 9"), "{line}");
    let (id, pid) = ready(&supervisor.line());
    assert!(id != first.0 && pid != first.1 && pid != second.1);
    let list = place.run(&LIST).good().json();
    let alive =
        processes(&list).iter().any(|row| row["id"] == second.0.as_str() && row["alive"] == true);
    assert!(alive, "{list}");
    let (ended, said) = supervisor.stop();
    assert!(ended.success(), "{said}");
}

/// A job that ends once the file `go` is there, with a lease far longer than any test.
fn enqueue_until_go(place: &Place) {
    let line = "while [ ! -e go ]; do sleep 0.1; done";
    place.run(&["enqueue", "--command", line, "--visibility-timeout", "30m"]).good();
}

/// The process in the list that runs the only job, if it satisfies `good`.
fn runner(list: &Value, good: impl Fn(&Value) -> bool) -> Option<&Value> {
    processes(list).into_iter().find(|row| row["running"] == json!([1]) && good(row))
}

/// The lease lasts half an hour: only the supervisor's word can have the job run again sooner.
#[test]
fn the_job_of_a_worker_that_is_killed_is_run_again_at_once_and_the_attempt_is_charged() {
    let place = Place::new("sqlite");
    enqueue_until_go(&place);
    let supervisor = start(&place, &[]);
    let (first, _) = ready(supervisor.first());
    let list = place.until(&LIST, |list| runner(list, |row| row["id"] == *first).is_some());
    kill("-KILL", runner(&list, |_| true).unwrap()["pid"].as_u64().unwrap());
    let (second, _) = ready(&supervisor.line());
    assert_ne!(second, first);
    place.until(&LIST, |list| runner(list, |row| row["id"] == *second).is_some());
    std::fs::write(place.path("go"), "").unwrap();
    place.until(&["status", "--json"], |status| status["counts"]["done"] == 1);
    let shown = place.run(&["show", "1", "--json"]).good().out;
    let shown: Vec<Value> = shown.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(shown[0]["attempts"], 2, "the attempt that died counts: {shown:?}");
    let died = &shown[1]["attempts"][0];
    assert_eq!((&died["epoch"], &died["outcome"]), (&1.into(), &"expired".into()), "{shown:?}");
    assert_eq!(died["worker"], first.as_str());
    assert_eq!(died["error"], format!("worker {first} died"));
    let (ended, said) = supervisor.stop();
    assert!(ended.success(), "{said}");
    assert!(said.contains("its jobs are requeued"), "{said}");
}

/// The leases of a dead worker were given back by its successor, which waits longer after each
/// death. The job is run by the server meanwhile.
#[test]
fn the_jobs_of_a_worker_in_a_crash_loop_do_not_wait_for_its_next_start() {
    let place = Place::new("sqlite");
    let supervisor = start(&place, &[]);
    let mut worker = ready(supervisor.first());
    for _ in 0..3 {
        kill("-KILL", worker.1);
        worker = ready(&supervisor.line());
    }
    enqueue_until_go(&place);
    place.until(&LIST, |list| runner(list, |row| row["id"] == *worker.0).is_some());
    let server = place.serve(&["--workers", "1"]);
    kill("-KILL", worker.1);
    let line = supervisor.wait_for_log("again_ms=8000");
    assert!(line.contains("a worker process died"), "{line}");
    let runs = |list: &Value| {
        let rows = list["workers"].as_array().unwrap();
        rows.iter().any(|row| row["pid"] == server.pid() && row["running"] == json!([1]))
    };
    place.until(&LIST, runs);
    assert_eq!(supervisor.next_line(), None, "it ran only once there was another worker");
    std::fs::write(place.path("go"), "").unwrap();
    place.until(&["status", "--json"], |status| status["counts"]["done"] == 1);
    drop(supervisor.stop());
}

#[test]
fn the_job_of_a_worker_that_is_killed_while_it_drains_is_queued_again_at_once() {
    let place = Place::new("sqlite");
    enqueue_until_go(&place);
    let supervisor = start(&place, &["--drain-timeout", "10m"]);
    let (_, pid) = ready(supervisor.first());
    place.until(&LIST, |list| runner(list, |_| true).is_some());
    kill("-TERM", supervisor.pid());
    place.until(&LIST, |list| runner(list, |row| row["stopping"] == true).is_some());
    kill("-KILL", pid);
    let (ended, said) = supervisor.end();
    assert_eq!(ended.code(), Some(137), "{said}");
    let status = place.run(&["status", "--json"]).good().json();
    assert_eq!(status["counts"]["processing"], 0, "{status}: {said}");
    assert_eq!(place.run(&["list", "--json"]).good().json()["jobs"][0]["attempts"], 1);
}

#[test]
fn a_worker_that_drains_is_shown_as_stopping_until_its_job_has_ended() {
    let place = Place::new("sqlite");
    enqueue_until_go(&place);
    let supervisor = start(&place, &["--drain-timeout", "10m"]);
    let server = place.serve(&["--workers", "0"]);
    let list = place.until(&LIST, |list| runner(list, |_| true).is_some());
    assert!(runner(&list, |row| row["stopping"] == false).is_some(), "{list}");
    kill("-TERM", supervisor.pid());
    place.until(&LIST, |list| runner(list, |row| row["stopping"] == true).is_some());
    for server in [None, Some(&server)] {
        let list = place.either(server, &LIST).good().json();
        assert!(runner(&list, |row| row["stopping"] == true).is_some(), "{list}");
        let table = place.either(server, &["worker", "list"]).good().out;
        assert!(table.contains("stopping"), "{table}");
    }
    std::fs::write(place.path("go"), "").unwrap();
    place.until(&LIST, |list| processes(list).is_empty());
    let done = place.run(&["status", "--json"]).good().json();
    assert_eq!(done["counts"]["done"], 1, "{done}");
}

/// Starts a worker from a file that is then replaced by another one, and kills it: its supervisor
/// has to start the next one.
fn replaced(place: &Place, next: &str, mode: u32) {
    place.run(&["enqueue", "x"]).good();
    let binary = place.path("windlass-of-before");
    let given = Path::new(env!("CARGO_BIN_EXE_windlass"));
    if std::fs::hard_link(given, &binary).is_err() {
        std::fs::copy(given, &binary).unwrap();
    }
    let start = place.command(&["worker", "start"]);
    let mut replaced = Command::new(&binary);
    replaced.args(start.get_args()).current_dir(start.get_current_dir().unwrap());
    replaced.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let supervisor = Running::of(replaced.spawn().unwrap());
    let first = ready(supervisor.first());
    std::fs::write(place.path("next"), next).unwrap();
    std::fs::set_permissions(place.path("next"), Permissions::from_mode(mode)).unwrap();
    std::fs::rename(place.path("next"), &binary).unwrap();
    kill("-KILL", first.1);
    let second = ready(&supervisor.line());
    assert_ne!(second.1, first.1);
    let (ended, said) = supervisor.stop();
    assert!(ended.success(), "{said}");
}

#[test]
fn after_an_upgrade_a_worker_that_died_is_started_again_with_the_new_version() {
    let place = Place::new("sqlite");
    let next = format!(
        "#!/bin/sh\ncase \"$*\" in *'worker run'*) : > new ;; esac\nexec '{}' \"$@\"\n",
        env!("CARGO_BIN_EXE_windlass")
    );
    replaced(&place, &next, 0o755);
    assert!(place.path("new").exists(), "the old version was started");
}

#[test]
fn a_worker_whose_program_is_no_program_any_more_is_started_again_as_it_was() {
    replaced(&Place::new("sqlite"), "not a program", 0o644);
}

#[test]
fn the_command_that_detached_workers_print_stops_them() {
    let place = Place::of("sqlite:data/jobs.db".into());
    place.run(&["enqueue", "x"]).good();
    let started = place.run(&["worker", "start", "--detach"]).good();
    let printed = started.err.lines().last().unwrap().trim();
    let words = printed.strip_prefix("windlass ").unwrap();
    let mut shell = Command::new("sh");
    let line = format!("{} {words}", env!("CARGO_BIN_EXE_windlass"));
    let stopped = shell.args(["-c", &line]).current_dir("/").output().unwrap();
    assert!(stopped.status.success(), "{printed}: {stopped:?}");
    assert_eq!(processes(&place.run(&LIST).good().json()).len(), 0);
}

#[test]
fn workers_that_are_asked_to_stop_are_gone_and_are_not_started_again() {
    for served in [false, true] {
        let place = Place::new("sqlite");
        let server = served.then(|| place.serve(&["--workers", "0"]));
        let supervisor = start(&place, &["--count", "2"]);
        let (first, second) = (ready(supervisor.first()), ready(&supervisor.line()));
        let run = |args: &[&str]| place.either(server.as_ref(), args);
        let stopped = run(&["worker", "stop", &first.0, "--json"]).good().json();
        assert_eq!(stopped["stopped"][0], first.0.as_str());
        let list = run(&LIST).good().json();
        let left: Vec<&Value> = processes(&list).iter().map(|row| &row["id"]).collect();
        assert_eq!(left, [second.0.as_str()]);
        run(&["worker", "stop", "--all"]).good();
        assert_eq!(processes(&run(&LIST).good().json()).len(), 0);
        let refused = run(&["worker", "stop", "w-unknown"]);
        assert_eq!(refused.code, Some(3), "{refused:?}");
        let (ended, said) = supervisor.stop();
        assert!(ended.success(), "the supervisor had no worker left: {said}");
    }
}

#[test]
fn a_server_is_not_stopped_as_a_worker() {
    let place = Place::new("sqlite");
    let server = place.serve(&[]);
    let list = place.until(&LIST, |list| !list["workers"].as_array().unwrap().is_empty());
    let id = list["workers"][0]["id"].as_str().unwrap();
    let refused = place.ask(&server, &["worker", "stop", id]);
    assert_eq!(refused.code, Some(4), "{refused:?}");
    assert!(refused.err.contains("SIGTERM"), "{refused:?}");
}

#[test]
fn detached_workers_live_on_without_their_starter_until_they_are_stopped() {
    let place = Place::new("sqlite");
    let started = place.run(&["worker", "start", "--count", "2", "--detach", "--json"]).good();
    assert!(started.err.starts_with("made a new store sqlite:"), "{started:?}");
    let started = started.json();
    assert_eq!(started["workers"].as_array().unwrap().len(), 2);
    place.run(&["enqueue", "windlass.noop"]).good();
    place.until(&["status", "--json"], |status| status["counts"]["done"] == 1);
    let list = place.run(&LIST).good().json();
    for worker in started["workers"].as_array().unwrap() {
        assert!(processes(&list).iter().any(|row| row["id"] == worker["id"]), "{list}");
    }
    let log = std::fs::read_to_string(started["log"].as_str().unwrap()).unwrap();
    assert!(log.contains("ready"), "{log}");
    place.run(&["worker", "stop", "--all"]).good();
    assert_eq!(processes(&place.run(&LIST).good().json()).len(), 0);
}

#[test]
fn workers_where_there_can_be_none_are_refused_with_the_way_out() {
    let place = Place::new("redb");
    let refused = place.run(&["worker", "start"]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.err.contains("one process") && refused.err.contains("/jobs/poll"));
    let refused = place.run(&["--server", "http://127.0.0.1:1", "worker", "start"]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
}

#[test]
fn running_workers_take_another_concurrency_from_the_store() {
    let place = Place::new("sqlite");
    let supervisor = start(&place, &[]);
    let (id, _) = ready(supervisor.first());
    let slots = |list: &Value| {
        processes(list).iter().any(|row| row["id"] == id.as_str() && row["slots"] == 4)
    };
    assert!(!slots(&place.run(&LIST).good().json()));
    place.run(&["config", "set", "worker_concurrency", "4"]).good();
    place.until(&LIST, slots);
    drop(supervisor.stop());
}
