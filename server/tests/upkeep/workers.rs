//! Worker processes: started, seen, killed, started again, stopped.

use serde_json::Value;

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
    let minder = start(&place, &["--count", "2", "--concurrency", "3"]);
    let known = [ready(minder.first()), ready(&minder.line())];
    let list = place.run(&LIST).good().json();
    assert_eq!(processes(&list).len(), 2);
    for (id, pid) in &known {
        let found = processes(&list).into_iter().find(|worker| worker["id"] == id.as_str());
        let found = found.unwrap_or_else(|| panic!("{id} is not in {list}"));
        assert_eq!((&found["pid"], &found["slots"]), (&(*pid).into(), &3.into()));
        assert_eq!((&found["alive"], &found["stopping"]), (&true.into(), &false.into()));
    }
    place.until(&["status", "--json"], |status| status["counts"]["done"] == 5);
    let (ended, said) = minder.stop();
    assert!(ended.success(), "{said}");
    assert_eq!(processes(&place.run(&LIST).good().json()).len(), 0, "they signed off");
}

#[test]
fn a_worker_that_is_killed_is_started_again_and_touches_no_other() {
    let place = Place::new("sqlite");
    place.run(&["enqueue", "x"]).good();
    let minder = start(&place, &["--count", "2"]);
    let (first, second) = (ready(minder.first()), ready(&minder.line()));
    kill("-KILL", first.1);
    let told = minder.wait_for_log("a worker died");
    assert!(told.contains("signal: 9"), "{told}");
    let (id, pid) = ready(&minder.line());
    assert!(id != first.0 && pid != first.1 && pid != second.1);
    let list = place.run(&LIST).good().json();
    let alive =
        processes(&list).iter().any(|row| row["id"] == second.0.as_str() && row["alive"] == true);
    assert!(alive, "{list}");
    let (ended, said) = minder.stop();
    assert!(ended.success(), "{said}");
}

#[test]
fn workers_that_are_asked_to_stop_are_gone_and_are_not_started_again() {
    for served in [false, true] {
        let place = Place::new("sqlite");
        let server = served.then(|| place.serve(&["--workers", "0"]));
        let minder = start(&place, &["--count", "2"]);
        let (first, second) = (ready(minder.first()), ready(&minder.line()));
        let run = |args: &[&str]| place.either(server.as_ref(), args);
        let stopped = run(&["worker", "stop", &first.0, "--json"]).good().json();
        assert_eq!(stopped["stopped"][0], first.0.as_str());
        let list = run(&LIST).good().json();
        let left: Vec<&Value> = processes(&list).iter().map(|row| &row["id"]).collect();
        assert_eq!(left, [second.0.as_str()]);
        run(&["worker", "stop", "--all"]).good();
        assert_eq!(processes(&run(&LIST).good().json()).len(), 0);
        let refused = run(&["worker", "stop", "w-nobody"]);
        assert_eq!(refused.code, Some(3), "{refused:?}");
        let (ended, said) = minder.stop();
        assert!(ended.success(), "the minder had nobody left: {said}");
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
fn detached_workers_live_on_without_whoever_started_them_until_they_are_stopped() {
    let place = Place::new("sqlite");
    let started = place.run(&["worker", "start", "--count", "2", "--detach", "--json"]).good();
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
    let minder = start(&place, &[]);
    let (id, _) = ready(minder.first());
    let slots = |list: &Value| {
        processes(list).iter().any(|row| row["id"] == id.as_str() && row["slots"] == 4)
    };
    assert!(!slots(&place.run(&LIST).good().json()));
    place.run(&["config", "set", "worker_concurrency", "4"]).good();
    place.until(&LIST, slots);
    drop(minder.stop());
}
