//! `wait`: a verdict of any worker, without polling.

use std::process::{Child, Stdio};

use crate::common::{Place, Server};
use crate::world::{Mode, World, ran, windlass};

fn one(server: &Server) {
    server.enqueue(r#"{"kind":"a","max_retries":0}"#);
    server.enqueue(r#"{"kind":"b","max_retries":0}"#);
}

/// Starts `wait` on the store of this server, directly or through it.
fn waits(place: &Place, server: &Server, direct: bool, id: &str) -> Child {
    let mut command = windlass(place);
    if direct {
        command.args(["--store", &place.store]);
    } else {
        command.args(["--server", &format!("http://{}", server.address)]);
    }
    command.args(["wait", id, "--timeout", "30s"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn the_verdict_is_the_exit_code_by_any_worker() {
    for direct in [true, false] {
        let place = Place::new("sqlite");
        let server = place.start(&[]);
        one(&server);
        for (id, verdict, code, said) in [
            (1, r#"{"token":"1.1","result":1}"#, 0, "done\n"),
            (2, r#"{"token":"2.1","error":"broken"}"#, 1, "failed\n"),
        ] {
            let waiting = waits(&place, &server, direct, &id.to_string());
            assert_eq!(server.claim("w", 1)[0]["id"], id);
            let how = if code == 0 { "complete" } else { "fail" };
            let reply = server.post(&format!("/jobs/{id}/{how}"), verdict);
            assert_eq!(reply.status, 200, "{}", reply.text());
            let output = waiting.wait_with_output().unwrap();
            assert_eq!(String::from_utf8_lossy(&output.stdout), said);
            assert_eq!(output.status.code(), Some(code));
        }
    }
}

/// 3 is the exit code of the command and that of a job which is not there.
#[test]
fn a_command_that_exits_like_a_missing_job_is_distinguished_by_its_message() {
    let place = Place::new("sqlite");
    let server = place.start(&[]);
    let mut command = windlass(&place);
    command.args(["--store", &place.store, "enqueue", "--command", "exit 3", "--max-retries", "0"]);
    let id = ran(command, "").out.trim().to_owned();
    for (wanted, json, id) in
        [("failed", false, &*id), ("", false, "99"), ("failed", true, &*id), ("", true, "99")]
    {
        for direct in [true, false] {
            let (to, what) = if direct {
                ("--store", place.store.clone())
            } else {
                ("--server", format!("http://{}", server.address))
            };
            let mut command = windlass(&place);
            command.args([to, &*what, "wait", id, "--timeout", "30s"]);
            command.args(json.then_some("--json"));
            let waited = ran(command, "");
            assert_eq!(waited.code, 3, "{waited:?}");
            match (wanted, json) {
                ("", false) => assert!(waited.err.contains("there is no job 99"), "{waited:?}"),
                ("", true) => {
                    let problem: serde_json::Value = serde_json::from_str(&waited.err).unwrap();
                    assert_eq!(problem["type"], "urn:windlass:error:not-found");
                }
                (state, false) => assert_eq!(waited.out.trim(), state),
                (state, true) => {
                    let job: serde_json::Value = serde_json::from_str(&waited.out).unwrap();
                    assert_eq!((&job["state"], &job["kind"]), (&state.into(), &"command".into()));
                }
            }
            assert_eq!(waited.out.is_empty(), wanted.is_empty(), "{waited:?}");
        }
    }
}

#[test]
fn a_wait_ends_by_its_own_time_and_with_the_server() {
    for mode in [Mode::Sqlite, Mode::Redb, Mode::Server] {
        let world = World::new(mode, one);
        let ran = world.run(&["wait", "1", "--timeout", "50ms"]);
        assert_eq!(ran.code, 124);
        assert!(ran.err.contains("job 1 is still queued after 50ms"), "{}", ran.err);
        let ran = world.run(&["wait", "1", "--timeout", "50ms", "--json"]);
        assert_eq!((ran.code, ran.out.as_str()), (124, ""), "no job, so it did not finish");
        let problem: serde_json::Value = serde_json::from_str(&ran.err).unwrap();
        assert_eq!(problem["type"], "urn:windlass:error:timed-out");
        let Some(server) = &world.server else { continue };
        let waiting = waits(&world.place, server, false, "1");
        // Whether it has been asked by now or not, there is no worker to wait for.
        server.signal("-TERM");
        let output = waiting.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(6), "{output:?}");
    }
}
