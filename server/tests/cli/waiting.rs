//! `wait`: a verdict by whoever gives it, without asking again and again.

use std::process::{Child, Stdio};

use crate::common::{Place, Server};
use crate::world::{Mode, World, windlass};

fn one(server: &Server) {
    server.enqueue(r#"{"kind":"a","max_retries":0}"#);
    server.enqueue(r#"{"kind":"b","max_retries":0}"#);
}

/// Waits on a store that this server serves, directly or through it.
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
fn the_verdict_is_the_exit_code_whoever_gave_it() {
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
        // Whether it has been asked by now or not, there is nobody to wait for.
        server.signal("-TERM");
        let output = waiting.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(6), "{output:?}");
    }
}
