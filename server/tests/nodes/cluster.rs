//! Servers on one store.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Instant;

use serde_json::Value;

use crate::common::{Client, Place, Reply, Server, stores};

/// The stores that several servers share: a file on one machine, and PostgreSQL where it is
/// installed.
pub(crate) fn shared_stores() -> impl Iterator<Item = &'static str> {
    stores().into_iter().filter(|store| *store != "redb")
}

/// Several servers on a store of their own.
pub(crate) fn nodes<const N: usize>(store: &str, args: &[&str]) -> (Place, [Server; N]) {
    split(store, [args; N])
}

/// The same with arguments for each.
pub(crate) fn split<const N: usize>(store: &str, args: [&[&str]; N]) -> (Place, [Server; N]) {
    let place = Place::new(store);
    let nodes = args.map(|args| place.start(args));
    (place, nodes)
}

#[expect(clippy::disallowed_methods, reason = "what is measured is real time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// A line of figures for who runs the tests with `--nocapture`.
#[expect(clippy::print_stderr, reason = "what a test has measured")]
pub(crate) fn tell(figures: &str) {
    eprintln!("figures: {figures}");
}

/// A server as threads share it: by its address.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Node(pub(crate) SocketAddr);

impl Node {
    pub(crate) fn all(servers: &[Server]) -> Vec<Self> {
        servers.iter().map(|server| Self(server.address)).collect()
    }

    pub(crate) fn get(self, path: &str) -> Reply {
        Client::to(self.0).send("GET", path, &[], None)
    }

    pub(crate) fn post(self, path: &str, body: &str) -> Reply {
        Client::to(self.0).send("POST", path, &[], Some(body))
    }

    pub(crate) fn claim(self, max: usize) -> Vec<Value> {
        let reply = self.post("/jobs/poll", &format!(r#"{{"worker":"w","max":{max}}}"#));
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json()["jobs"].as_array().unwrap().clone()
    }

    /// Reports a claimed job.
    pub(crate) fn report(self, job: &Value, verb: &str) -> Reply {
        let body = format!(r#"{{"token":{}}}"#, job["lease"]["token"]);
        self.post(&format!("/jobs/{}/{verb}", job["id"]), &body)
    }
}

/// The binary, without anything of the environment that it would read.
pub(crate) fn windlass(place: &Place) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    for (name, _) in std::env::vars() {
        if name.starts_with("WINDLASS_") || name.starts_with("PG") {
            command.env_remove(name);
        }
    }
    command.current_dir(place.dir.path()).env("HOME", place.dir.path());
    command
}

/// Runs a command: its exit code, and everything it has said.
pub(crate) fn ran(mut command: Command) -> (i32, String) {
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap(), String::from_utf8_lossy(&text).into_owned())
}

/// A report of a claimed job through some node.
pub(crate) fn report(node: &Server, job: &Value, verb: &str) -> Reply {
    Node(node.address).report(job, verb)
}

/// Enqueues a command that takes ten minutes, on the store itself, with a lease of a minute.
pub(crate) fn enqueue_sleep(place: &Place) -> u64 {
    let mut command = windlass(place);
    command.args(["--store", &place.store, "enqueue", "--command", "exec sleep 600"]);
    command.args(["--visibility-timeout", "1m"]);
    let (code, said) = ran(command);
    assert_eq!(code, 0, "{said}");
    said.trim().parse().unwrap()
}
