//! `copy`: everything from one store to another, with the real binary.

use std::io::Write as _;
use std::process::Stdio;

use serde_json::{Value, json};
use windlass_runtime_tokio::{Clock as _, SystemClock};
use windlass_tests::postgres_server::{PASSWORD, PostgresServer};
use windlass_tests::proxy::{Mode, Proxy};

use crate::common::{Done, PATIENCE, Place, Running, kill, stores};

/// Jobs in several states, a key, a setting of a queue and one of the store.
fn filled(store: &str) -> Place {
    let place = Place::new(store);
    place.run(&["enqueue", "email", r#"{"to":"ada"}"#, "--key", "welcome-1"]).good();
    place.run(&["enqueue", "email", r#"{"to":"bob"}"#, "--delay", "1h", "--priority", "7"]).good();
    place.run(&["enqueue", "--command", "echo oops; exit 3", "--max-retries", "0"]).good();
    place.run(&["enqueue", "other", "1", "--queue", "slow"]).good();
    place.run(&["queue", "set", "slow", "concurrency=2"]).good();
    place.run(&["queue", "pause", "slow"]).good();
    place.run(&["config", "set", "keep_done", "3d"]).good();
    place.run(&["cancel", "4"]).good();
    let server = place.serve(&["--workers", "1"]);
    let failed = |status: &Value| status["counts"]["failed"] == 1;
    place.until_shown(Some(&server), &["status", "--json"], failed);
    server.stop();
    place
}

fn copy(from: &Place, to: &Place, args: &[&str]) -> Done {
    from.run(&[&["copy", "--from", from.store(), "--to", to.store()], args].concat())
}

/// Output of the commands that read a store.
fn shown_of(place: &Place) -> Vec<Value> {
    let mut rows = Vec::new();
    for id in 1..=4 {
        let shown = place.run(&["show", &id.to_string(), "--json"]).good();
        rows.extend(shown.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()));
    }
    for args in [&["queue", "list", "--json"][..], &["config", "list", "--json"]] {
        let mut answer = place.run(args).good().json();
        // Ages pass.
        for queue in answer["queues"].as_array_mut().into_iter().flatten() {
            (queue["oldest_ready_age_ms"], queue["rates"]) = (Value::Null, Value::Null);
        }
        rows.push(answer);
    }
    rows
}

#[test]
fn everything_is_in_the_other_store_and_nothing_starts_on_the_first_until_that_is_undone() {
    // Each kind of store once at either end; `tests/copying` has all pairs.
    let kinds = stores();
    for (at, from) in kinds.iter().enumerate() {
        let to = kinds[(at + 2) % kinds.len()];
        let (first, second) = (filled(from), Place::new(to));
        let before = shown_of(&first);
        let moved = copy(&first, &second, &["--json"]).good().json();
        assert_eq!(moved["moved"], true, "{moved}");
        assert_eq!(moved["rows"]["jobs"], 4, "{moved}");
        assert_eq!(shown_of(&second), before, "{from} to {to}");
        assert_eq!(shown_of(&first), before, "{from} to {to}");
        second.run(&["doctor"]).good();

        for args in [&["serve", "--listen", "127.0.0.1:0"][..], &["enqueue", "late"]] {
            let refused = first.run(args);
            assert_eq!(refused.code, Some(4), "{args:?}: {refused:?}");
            assert!(refused.err.contains("was moved to"), "{args:?}: {refused:?}");
            assert!(refused.err.contains("copy --undo"), "{args:?}: {refused:?}");
        }
        let again = copy(&first, &second, &[]).good();
        assert!(again.out.contains("already moved"), "{again:?}");

        assert_eq!(second.run(&["enqueue", "new"]).good().out.trim(), "5", "{from} to {to}");
        let found = second.run(&["enqueue", "email", r#"{"to":"ada"}"#, "--key", "welcome-1"]);
        assert_eq!(found.good().out.trim(), "1", "the key was copied");
        let server = second.serve(&["--workers", "1"]);
        second.ask(&server, &["retry", "3"]).good();
        server.stop();

        let asked = first.run(&["copy", "--undo", "--from", first.store()]);
        assert_eq!(asked.code, Some(2), "without --yes and without a terminal: {asked:?}");
        first.run(&["copy", "--undo", "--from", first.store(), "--yes"]).good();
        first.run(&["enqueue", "late"]).good();
    }
}

#[test]
fn a_store_that_a_server_runs_on_is_refused_at_either_end() {
    for used in stores() {
        let (place, empty) = (Place::new(used), Place::new("sqlite"));
        let server = place.serve(&["--workers", "1"]);
        place.ask(&server, &["enqueue", "first"]).good();
        for (from, to) in [(&place, &empty), (&empty, &place)] {
            empty.run(&["config", "set", "keep_done", "3d"]).good();
            let refused = copy(from, to, &[]);
            assert_eq!(refused.code, Some(6), "{used}: {refused:?}");
            let says = if used == "redb" { "end that process" } else { "stop every server" };
            assert!(refused.err.contains(says), "{used}: {refused:?}");
        }
        // Nothing was marked.
        place.ask(&server, &["enqueue", "more"]).good();
        empty.run(&["config", "unset", "keep_done"]).good();
    }
}

#[test]
fn what_cannot_be_copied_is_refused_with_its_exit_code_and_nothing_is_written() {
    let (place, full) = (filled("sqlite"), filled("redb"));
    let refused = copy(&place, &full, &["--json"]);
    assert_eq!(refused.code, Some(4), "{refused:?}");
    assert!(refused.err.contains("is not empty: it holds queues"), "{refused:?}");
    place.run(&["enqueue", "more"]).good();
    full.run(&["enqueue", "more"]).good();

    let empty = Place::new("sqlite");
    let refused = copy(&empty, &full, &[]);
    assert_eq!(refused.code, Some(3), "{refused:?}");
    assert!(!empty.path("data").exists(), "no source is made");
    assert_eq!(copy(&place, &place, &[]).code, Some(2));
    let with = |args: &[&str]| place.run(&[&["copy"], args].concat());
    for (args, code, says) in [
        (&["--from", place.store(), "--to", "mysql:x"][..], 2, "give sqlite:PATH"),
        (&["--from", place.store()], 2, "--to"),
        (&["--to", place.store()], 2, "--from"),
        (
            &["--from", place.store(), "--to", "postgres://me:s3cret@127.0.0.1:1/x"],
            6,
            "127.0.0.1:1",
        ),
        (
            &["--from", "postgres://me:s3cret@127.0.0.1:1/x", "--to", empty.store()],
            6,
            "127.0.0.1:1",
        ),
        (&["--server", "http://127.0.0.1:1", "--from", "redb:x", "--to", "redb:y"], 2, "--server"),
    ] {
        let refused = with(args);
        assert_eq!(refused.code, Some(code), "{args:?}: {refused:?}");
        assert!(refused.err.contains(says), "{args:?}: {refused:?}");
        assert!(!refused.err.contains("s3cret"), "{args:?}: {refused:?}");
    }
    place.run(&["enqueue", "more"]).good();
}

#[test]
fn a_source_or_target_of_another_schema_is_refused() {
    for (version, says) in [(3, "older Windlass"), (99, "newer Windlass")] {
        let (place, other) = (filled("sqlite"), Place::new("redb"));
        let set = |version: i64| place.sqlite().pragma_update(None, "user_version", version);
        let known: i64 =
            place.sqlite().query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
        set(version).unwrap();
        let refused = copy(&place, &other, &[]);
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(refused.err.contains(says), "{refused:?}");
        if version > known {
            let refused = copy(&filled("redb"), &place, &[]);
            assert_eq!(refused.code, Some(1), "{refused:?}");
            assert!(refused.err.contains(says), "{refused:?}");
        }
        set(known).unwrap();
        place.run(&["enqueue", "more"]).good();
    }
}

/// Enqueues this many jobs from standard input.
fn many(place: &Place, jobs: usize) {
    let mut command = place.command(&["enqueue", "--file", "-"]);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    for job in 0..jobs {
        let line = json!({ "kind": "k", "payload": job, "idempotency_key": format!("key-{job}") });
        writeln!(input, "{line}").unwrap();
    }
    drop(input);
    assert!(child.wait_with_output().unwrap().status.success());
}

/// The processes are killed after ever longer parts of the time that a copy takes; the last one is
/// let go to its end.
#[test]
fn a_copy_that_is_killed_again_and_again_is_ended_by_running_it_again() {
    let to = *stores().last().unwrap();
    let (first, second) = (Place::new("sqlite"), Place::new(to));
    many(&first, 4_000);
    let whole = {
        let (same, other) = (Place::new("sqlite"), Place::new(to));
        many(&same, 4_000);
        let begun = SystemClock.now().mono;
        copy(&same, &other, &[]).good();
        std::time::Duration::from_millis(SystemClock.now().mono.since(begun).get())
    };
    let args = ["copy", "--from", first.store(), "--to", second.store()];
    let mut rounds = 0;
    loop {
        rounds += 1;
        let mut child = first.command(&args).spawn().unwrap();
        let pid = u64::from(child.id());
        let (done, ended) = std::sync::mpsc::channel::<()>();
        let wait = whole * rounds / 20;
        let killer = std::thread::spawn(move || {
            if ended.recv_timeout(wait).is_err() {
                kill("-KILL", pid);
            }
        });
        let status = child.wait().unwrap();
        let _ = done.send(());
        killer.join().unwrap();
        if status.success() {
            break;
        }
        assert!(rounds < 500 && wait < PATIENCE, "it never ends: {status:?}");
    }
    assert!(rounds > 3, "{to}: it was killed {rounds} times only");
    second.run(&["doctor"]).good();
    let status = second.run(&["status", "--json"]).good().json();
    assert_eq!(status["counts"]["queued"], 4_000, "{to}: {status}");
    let found = second.run(&["enqueue", "k", "777", "--key", "key-777"]).good();
    assert_eq!(found.out.trim(), "778", "{to}");
}

#[test]
fn a_copy_whose_connection_is_cut_says_so_and_goes_on_there_when_it_is_run_again() {
    let Some(server) = PostgresServer::shared() else { return };
    let proxy = Proxy::start(server.port());
    let (first, second) = (Place::new("sqlite"), Place::new("postgres"));
    many(&first, 5_000);
    let schema = second.store().split(&['=', '&']).nth(1).unwrap();
    let to = server.tcp_url(proxy.port(), schema);
    let args = ["copy", "--from", first.store(), "--to", &to, "--json"];
    let jobs = || server.run(&format!("SELECT count(*) FROM {schema}.jobs"));
    // Behind the first page, which is one commit.
    proxy.set(Mode::CutBehind(b"key-2500"));
    let cut = first.run(&args);
    assert_eq!(cut.code, Some(6), "{cut:?}");
    assert!(cut.err.contains("run the same command again"), "{cut:?}");
    assert!(!cut.err.contains(PASSWORD), "{cut:?}");
    proxy.set(Mode::Pass);
    let before: usize = jobs().parse().unwrap();
    assert!((1..5_000).contains(&before), "{before} jobs were copied");
    let done = first.run(&args).good().json();
    assert_eq!((&done["moved"], jobs()), (&true.into(), "5000".to_owned()), "{done}");
    second.run(&["doctor"]).good();
    let of = |place: &Place| place.run(&["list", "--json", "--all"]).good().out;
    assert!(of(&first).contains("key-4999"));
    assert_eq!(of(&second), of(&first));
}

/// A server that was killed is known to be dead on its own machine.
#[test]
fn a_server_that_was_killed_does_not_hold_a_copy_up_and_its_job_runs_again_at_the_target() {
    let (first, second) = (Place::new("sqlite"), Place::new("redb"));
    let line = "while [ ! -e go ]; do sleep 0.1; done";
    first.run(&["enqueue", "--command", line, "--visibility-timeout", "1s"]).good();
    let server: Running = first.serve(&["--workers", "1"]);
    let runs = |status: &Value| status["counts"]["processing"] == 1;
    first.until_shown(Some(&server), &["status", "--json"], runs);
    server.kill();
    copy(&first, &second, &[]).good();
    let shown = second.run(&["show", "1", "--json"]).good().out;
    assert!(shown.contains("processing"), "{shown}");
    std::fs::write(second.path("go"), "").unwrap();
    let server = second.serve(&["--workers", "1"]);
    let done = |status: &Value| status["counts"]["done"] == 1;
    second.until_shown(Some(&server), &["status", "--json"], done);
}
