//! Exit codes and messages: usage, not found, conflict, not allowed, unreachable.

use std::fmt::Write as _;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::common::{Place, Server};
use crate::world::{Mode, World, in_every_mode, ran, windlass};

fn one(server: &Server) {
    server.enqueue(r#"{"kind":"a","idempotency_key":"k"}"#);
}

#[test]
fn what_is_refused_says_so_with_its_exit_code() {
    let output = in_every_mode(one, |world| {
        world.tell(&["show", "99"]);
        world.tell(&["show", "99", "--json"]);
        world.tell(&["retry", "1"]);
        world.tell(&["retry", "1", "--json"]);
        world.tell(&["enqueue", "b", "--key", "k"]);
        world.tell(&["enqueue", "a/b", "--queue", "stats", "--priority", "5000"]);
        world.tell(&["enqueue", "a", "--at", "tomorrow"]);
        world.tell(&["enqueue", "a", "{"]);
        world.tell(&["dlq", "retry", "1"]);
        world.tell(&["delete", "1"]);
        world.tell(&["wait", "99"]);
    });
    insta::assert_snapshot!(output);
}

fn full(server: &Server) {
    server.send("PUT", "/queues/small", Some(r#"{"max_queued":1}"#));
    server.enqueue(r#"{"kind":"a","queue":"small"}"#);
}

#[test]
fn a_full_queue_is_a_conflict_and_not_an_unreachable_server() {
    in_every_mode(full, |world| {
        let ran = world.tell(&["enqueue", "a", "--queue", "small"]);
        assert_eq!(ran.code, 4, "{}", ran.err);
        assert!(ran.err.contains("queue small is full"), "{}", ran.err);
    });
}

#[test]
fn an_empty_variable_is_not_set() {
    let place = Place::new("sqlite");
    let empty = |args: &[&str]| {
        let mut command = windlass(&place);
        command.envs([("WINDLASS_SERVER", ""), ("WINDLASS_STORE", ""), ("WINDLASS_CA", "")]);
        command.args(args);
        ran(command, "")
    };
    let enqueued = empty(&["enqueue", "a"]);
    assert_eq!((enqueued.code, enqueued.out.as_str()), (0, "1\n"), "{}", enqueued.err);
    assert!(place.path("windlass-data/windlass.db").exists(), "the default store is used");
}

#[test]
fn a_store_that_an_enqueue_makes_is_named_once() {
    let place = Place::new("sqlite");
    let run = |args: &[&str]| {
        let mut command = windlass(&place);
        command.args(args);
        ran(command, "")
    };
    let first = run(&["enqueue", "a"]);
    assert_eq!(first.out, "1\n");
    assert_eq!(first.err, "made a new store sqlite:windlass-data/windlass.db\n");
    assert_eq!(run(&["enqueue", "a"]).err, "");
    let made = "made a new store sqlite:b.db\n";
    assert_eq!(run(&["--store", "sqlite:b.db", "enqueue", "a", "--json"]).err, made);
    std::fs::write(place.path("file"), "").unwrap();
    let inside = run(&["--store", "sqlite:file/windlass.db", "list"]);
    assert_eq!(inside.code, 1, "{}", inside.err);
    assert!(inside.err.contains("Not a directory"), "{}", inside.err);
}

/// The binary as a user who is not the superuser: who may read every file. `None` without setpriv.
fn as_other_user(place: &Place) -> Option<Command> {
    // Other users may not reach the folder of the binary.
    let binary = place.path("windlass");
    std::fs::copy(env!("CARGO_BIN_EXE_windlass"), &binary).unwrap();
    std::fs::set_permissions(place.path(""), Permissions::from_mode(0o755)).unwrap();
    if !rustix::process::geteuid().is_root() {
        return Some(Command::new(binary));
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(binary);
    Command::new("setpriv").arg("--version").output().is_ok().then_some(command)
}

/// SQLite says of such a file only that it cannot be opened.
#[test]
#[expect(clippy::print_stderr, reason = "says that a test was not run")]
fn a_store_without_permission_is_not_a_missing_store() {
    let place = Place::new("sqlite");
    let mut made = windlass(&place);
    made.args(["--store", "sqlite:denied.db", "enqueue", "a"]);
    assert_eq!(ran(made, "").code, 0);
    let denied = Permissions::from_mode(0o000);
    std::fs::set_permissions(place.path("denied.db"), denied).unwrap();
    for args in [&["list"][..], &["enqueue", "a"]] {
        let Some(mut command) = as_other_user(&place) else {
            eprintln!("NOT RUN: setpriv is not installed, and root may read every file");
            return;
        };
        command.current_dir(place.path("")).args(["--store", "sqlite:denied.db"]).args(args);
        let refused = ran(command, "");
        assert_eq!(refused.code, 5, "{args:?}: {}", refused.err);
        assert!(refused.err.contains("Permission denied"), "{args:?}: {}", refused.err);
    }
}

#[test]
fn what_cannot_be_understood_is_refused_before_anything_is_opened() {
    let place = Place::new("sqlite");
    let mut output = String::new();
    for args in [
        &["lst"][..],
        &["list", "--state", "quued"],
        &["list", "--limit", "0"],
        &["show", "x"],
        &["cancel"],
        &["enqueue"],
        &["enqueue", "a", "--delay", "5"],
        &["enqueue", "a", "--command", "b"],
        &["list", "--store", "mysql:x"],
        &["list", "--server", "localhost:8080"],
        &["list", "--server", "http://me:secret@localhost"],
        &["completions", "tcsh"],
    ] {
        let mut command = windlass(&place);
        command.args(args);
        let ran = ran(command, "");
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{args:?}");
        let error = ran.err.lines().next().unwrap_or_default();
        let tip = ran.err.lines().find(|line| line.contains("tip:")).unwrap_or_default();
        let _ = writeln!(output, "$ windlass {}\n{error}", args.join(" "));
        if !tip.is_empty() {
            let _ = writeln!(output, "{tip}");
        }
    }
    insta::assert_snapshot!(output);
    assert!(!place.path("windlass-data").exists());
}

#[test]
fn commands_run_here_and_are_not_taken_over_http() {
    let world = World::new(Mode::Server, one);
    let ran = world.run(&["enqueue", "--command", "true"]);
    assert_eq!(ran.code, 5, "{}", ran.err);
    let mut world = World::new(Mode::Sqlite, one);
    world.tell(&["enqueue", "--command", "echo hi | wc", "--timeout", "1h"]);
    world.tell(&["enqueue", "--", "rsync", "-a", "--delete", "x y"]);
    world.tell_with(&["enqueue", "--file", "-"], r#"{"kind":"command","payload":{"argv":["ls"]}}"#);
    let payload = |id| {
        let job = world.run(&["show", id, "--json"]).out;
        let job: serde_json::Value = serde_json::from_str(job.lines().next().unwrap()).unwrap();
        (job["kind"].clone(), job["payload"].to_string())
    };
    assert_eq!(payload("2"), ("command".into(), r#"{"command":"echo hi | wc"}"#.into()));
    assert_eq!(
        payload("3"),
        ("command".into(), r#"{"argv":["rsync","-a","--delete","x y"]}"#.into())
    );
    assert_eq!(payload("4"), ("command".into(), r#"{"argv":["ls"]}"#.into()));
}

#[test]
fn a_token_is_read_from_the_environment() {
    let place = Place::new("sqlite");
    let tokens = place.private_file(
        "tokens",
        "boss admin boss-secret-0123456789\nviewer read look-secret-0123456789\n",
    );
    let server = place.start(&["--token-file", tokens.to_str().unwrap()]);
    let run = |token: Option<&str>, args: &[&str]| {
        let mut command = windlass(&place);
        command.args(["--server", &format!("http://{}", server.address)]).args(args);
        if let Some(token) = token {
            command.env("WINDLASS_TOKEN", token);
        }
        ran(command, "")
    };
    assert_eq!(run(Some("boss-secret-0123456789"), &["enqueue", "a"]).out, "1\n");
    assert_eq!(run(Some("look-secret-0123456789"), &["list"]).code, 0);
    let refused = run(Some("look-secret-0123456789"), &["enqueue", "a"]);
    assert_eq!(refused.code, 5);
    assert!(refused.err.contains("enqueue"), "{}", refused.err);
    assert_eq!(run(Some("wrong"), &["list"]).code, 5);
    assert_eq!(run(None, &["list"]).code, 5);
}

#[test]
fn a_server_that_cannot_be_reached_says_what_to_check() {
    let place = Place::new("sqlite");
    // A port that was free a moment ago.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut command = windlass(&place);
    command.args(["--server", &format!("http://{free}"), "list"]);
    let refused = ran(command, "");
    assert_eq!(refused.code, 6);
    assert!(refused.err.contains("check that the server runs"), "{}", refused.err);
    let mut command = windlass(&place);
    command.args(["--server", &format!("http://{free}"), "list", "--json"]);
    let problem: serde_json::Value = serde_json::from_str(&ran(command, "").err).unwrap();
    assert_eq!(problem["type"], "urn:windlass:error:unreachable");
}

#[test]
fn a_secure_server_is_trusted_only_with_its_issuer() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/tls");
    let place = Place::new("sqlite");
    let [cert, key] = place.certificate("cert.pem", "key.pem");
    let server = place.start(&["--tls-cert", &cert, "--tls-key", &key]);
    let run = |extra: &[&str]| {
        let url = format!("https://localhost:{}", server.address.port());
        let mut command = windlass(&place);
        command.args(["--server", &url, "enqueue", "a"]).args(extra);
        ran(command, "")
    };
    let trusted = run(&["--ca", &format!("{folder}/ca.pem")]);
    assert_eq!((trusted.code, trusted.out.as_str()), (0, "1\n"), "{}", trusted.err);
    let unknown = run(&[]);
    assert_eq!((unknown.code, unknown.out.as_str()), (6, ""));
    assert!(unknown.err.contains("--ca FILE"), "{}", unknown.err);
}
