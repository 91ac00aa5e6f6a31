//! Commands that run at the same time on one file, on a missing file, and the files they leave.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::common::{FILES, Place, Server};
use crate::world::{Mode, World, ran, windlass};

fn nothing(_: &Server) {}

#[test]
fn sqlite_is_shared_with_a_running_server() {
    let place = Place::new("sqlite");
    let server = place.start(&[]);
    let direct = |args: &[&str]| {
        let mut command = windlass(&place);
        command.args(["--store", &place.store]).args(args);
        let ran = ran(command, "");
        assert_eq!(ran.code, 0, "{}", ran.err);
        ran.out
    };
    assert_eq!(direct(&["enqueue", "a"]), "1\n");
    // The server claims the job of the command, and the command reads the server's changes.
    assert_eq!(server.claim("w1", 1)[0]["id"], 1);
    assert!(direct(&["list"]).contains("on w1"));
    let done = server.post("/jobs/1/complete", r#"{"token":"1.1"}"#);
    assert_eq!(done.status, 200);
    assert!(direct(&["list", "--state", "done"]).contains('1'));
    direct(&["queue", "pause", "default"]);
    assert_eq!(server.get("/queues/default").json()["paused"], true);
    let shown = server.until("/snapshot", |shown| shown["queues"][0]["paused"] == true);
    assert_eq!(shown["queues"][0]["paused_by"], "command line");
}

#[test]
fn redb_in_use_is_refused_with_the_way_through_its_server() {
    let place = Place::new("redb");
    let server = place.start(&[]);
    let mut command = windlass(&place);
    command.args(["--store", &place.store, "enqueue", "a"]);
    let refused = ran(command, "");
    assert_eq!((refused.code, refused.out.as_str()), (6, ""));
    assert!(refused.err.contains("--server http://127.0.0.1:8080"), "{}", refused.err);
    let mut command = windlass(&place);
    command.args(["--server", &format!("http://{}", server.address), "enqueue", "a"]);
    assert_eq!(ran(command, "").out, "1\n");
}

#[test]
fn looking_at_a_store_does_not_make_one() {
    for store in FILES {
        let place = Place::new(store);
        for args in [&["list"][..], &["show", "1"], &["queue", "list"], &["cancel", "1"]] {
            let mut command = windlass(&place);
            command.args(["--store", &place.store]).args(args);
            let missing = ran(command, "");
            assert_eq!((missing.code, missing.out.as_str()), (3, ""), "{args:?}");
            assert!(missing.err.contains("`windlass enqueue` makes it"), "{}", missing.err);
        }
        assert!(!place.path("data").exists());
        let mut command = windlass(&place);
        command.args(["--store", &place.store, "enqueue", "a"]);
        assert_eq!(ran(command, "").out, "1\n");
    }
}

#[test]
fn a_command_leaves_the_file_and_nothing_else() {
    for mode in [Mode::Sqlite, Mode::Redb] {
        let world = World::new(mode, nothing);
        let beside = || {
            let files = std::fs::read_dir(world.place.path("data")).unwrap();
            let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
            names.collect::<Vec<_>>()
        };
        assert_eq!(beside(), ["jobs.db"], "the server left it so");
        assert_eq!(world.run(&["queue", "list"]).code, 0);
        assert_eq!(beside(), ["jobs.db"]);
        assert_eq!(world.run(&["enqueue", "a"]).out, "1\n");
        assert_eq!(beside(), ["jobs.db"]);
        // It is not listed: it is no worker.
        let server = world.place.start(&[]);
        let seen = |list: &serde_json::Value| !list["workers"].as_array().unwrap().is_empty();
        let workers = server.until("/workers", seen);
        let workers = workers["workers"].as_array().unwrap();
        let alive = workers.iter().filter(|worker| worker["alive"] == true);
        let pids: Vec<u64> = alive.map(|worker| worker["pid"].as_u64().unwrap()).collect();
        assert_eq!(pids, [u64::from(server.pid())]);
    }
}

#[test]
fn a_reader_that_closes_the_pipe_is_no_error() {
    let world = World::new(Mode::Sqlite, |server| {
        let jobs = vec![r#"{"payload":"a payload that fills the pipe"}"#; 5_000].join(",");
        assert_eq!(server.post("/jobs/batch", &format!(r#"{{"jobs":[{jobs}]}}"#)).status, 202);
    });
    let mut command = world.command(&["list", "--all", "--json"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::with_capacity(16, child.stdout.take().unwrap());
    let mut some = Vec::new();
    out.read_until(b':', &mut some).unwrap();
    drop(out);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}
