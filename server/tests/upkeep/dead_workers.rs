//! Servers that were killed: the next one on the same machine detects that they are dead.

use serde_json::{Value, json};

use crate::common::{Place, Running, stores};

/// A job that ends once the file `go` is there, with a lease far longer than any test.
fn enqueue_until_go(place: &Place) {
    let line = "while [ ! -e go ]; do sleep 0.1; done";
    let args = ["enqueue", "--command", line, "--visibility-timeout", "30m"];
    place.run(&args).good();
}

const LIST: [&str; 3] = ["worker", "list", "--json"];

/// The worker in the list that runs this job.
fn runner(list: &Value, job: u64) -> Option<&str> {
    let rows = list["workers"].as_array()?.iter();
    rows.filter(|row| row["running"] == json!([job])).find_map(|row| row["id"].as_str())
}

/// The lease lasts half an hour: only what the start knows can have the job run again sooner.
#[test]
fn the_job_of_a_server_that_was_killed_is_run_again_at_once_by_the_next() {
    for store in stores() {
        let place = Place::new(store);
        enqueue_until_go(&place);
        let server = place.serve(&[]);
        let list = place.until_shown(Some(&server), &LIST, |list| runner(list, 1).is_some());
        let first = runner(&list, 1).unwrap().to_owned();
        server.kill();
        let server = place.serve(&[]);
        let list = place.until_shown(Some(&server), &LIST, |list| {
            runner(list, 1).is_some_and(|id| *id != *first)
        });
        let rows = list["workers"].as_array().unwrap();
        assert!(rows.iter().all(|row| row["id"] != *first), "{store}: {list}");
        std::fs::write(place.path("go"), "").unwrap();
        let done = |status: &Value| status["counts"]["done"] == 1;
        place.until_shown(Some(&server), &["status", "--json"], done);
        let shown = place.ask(&server, &["show", "1", "--json"]).good().out;
        let shown: Vec<Value> =
            shown.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(shown[0]["attempts"], 2, "{store}: the attempt that died counts: {shown:?}");
        let died = &shown[1]["attempts"][0];
        assert_eq!((&died["outcome"], &died["worker"]), (&"expired".into(), &first.clone().into()));
        assert_eq!(died["error"], format!("worker {first} died"), "{store}");
        let (ended, said) = server.stop();
        assert!(ended.success(), "{store}: {said}");
        assert!(said.contains("a worker process died; its jobs are requeued"), "{store}: {said}");
    }
}

/// Dead workers are ended by the order of their ids. Of three the last is dead, so once it was
/// ended the others were passed over.
#[test]
fn a_worker_that_lives_or_belongs_to_another_start_of_the_machine_is_left_alone() {
    let place = Place::new("sqlite");
    let mut servers: Vec<Running> = Vec::new();
    for job in 1..=3 {
        enqueue_until_go(&place);
        let server = place.serve(&["--workers", "1"]);
        place.until(&LIST, |list| (1..=job).all(|job| runner(list, job).is_some()));
        servers.push(server);
    }
    let list = place.run(&LIST).good().json();
    let mut holders: Vec<(&str, u64)> =
        (1..=3).map(|job| (runner(&list, job).unwrap(), job)).collect();
    holders.sort_unstable();
    let [before, lives, dead] = holders.as_slice() else { unreachable!() };
    let rows = list["workers"].as_array().unwrap();
    let pid = |id: &str| rows.iter().find(|row| row["id"] == id).unwrap()["pid"].as_u64().unwrap();
    let (pid_before, pid_dead) = (pid(before.0), pid(dead.0));
    let (living, killed): (Vec<Running>, Vec<Running>) =
        servers.into_iter().partition(|server| ![pid_before, pid_dead].contains(&server.pid()));
    killed.into_iter().for_each(Running::kill);
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let sql = "UPDATE workers SET instance = replace(instance, ?1, 'another') WHERE id = ?2";
    let altered = place.sqlite().execute(sql, (boot.trim(), before.0)).unwrap();
    assert_eq!(altered, 1);
    let server = place.serve(&["--workers", "1"]);
    let list = place.until(&LIST, |list| runner(list, dead.1).is_some_and(|id| id != dead.0));
    for (id, job) in [before, lives] {
        assert_eq!(runner(&list, *job), Some(*id), "{list}");
    }
    std::fs::write(place.path("go"), "").unwrap();
    place.until(&["status", "--json"], |status| status["counts"]["done"] == 2);
    let left = place.run(&["status", "--json"]).good().json();
    assert_eq!(left["counts"]["processing"], 1, "a lease of another start runs on: {left}");
    drop((living, server));
}
