//! `config`, and how running processes apply it.

use crate::common::{Place, QUESTIONS, answer, stores};

#[test]
fn a_setting_is_kept_shown_with_its_origin_and_forgotten_in_both_modes() {
    for store in stores() {
        for served in [false, true] {
            let place = Place::new(store);
            let server = served.then(|| place.serve(&[]));
            let run = |args: &[&str]| place.either(server.as_ref(), args);
            run(&["config", "set", "max_retries", "7"]).good();
            assert_eq!(run(&["config", "get", "max-retries"]).good().out, "7\n");
            let listed = run(&["config", "list", "--json"]).good().json();
            let setting = &listed["settings"][0];
            assert_eq!(
                (&setting["name"], &setting["origin"]),
                (&"max_retries".into(), &"store".into())
            );
            assert_eq!((&setting["stored"], &setting["default"]), (&"7".into(), &"3".into()));
            let table = run(&["config", "list"]).good().out;
            assert!(
                table.lines().any(|line| line.starts_with("max_retries") && line.contains("store"))
            );
            assert!(
                table.lines().any(|line| line.starts_with("keep_done") && line.contains("default"))
            );
            run(&["config", "unset", "max_retries"]).good();
            assert_eq!(run(&["config", "get", "max_retries"]).good().out, "3\n");
        }
    }
}

#[test]
fn a_server_says_at_its_start_what_is_kept_for_how_long() {
    let place = Place::new("sqlite");
    for (args, wanted) in [
        (&[][..], "done jobs for 7d, dead letters for 30d, cancelled jobs for 7d"),
        (
            &["--keep-done", "off", "--keep-failed", "2d"],
            "done jobs forever, dead letters for 2d, cancelled jobs for 7d",
        ),
    ] {
        let server = place.serve(args);
        let kept = (0..5).map(|_| server.line()).find(|line| line.starts_with("keeps"));
        assert_eq!(kept.as_deref().map(|line| line["keeps".len()..].trim()), Some(wanted));
    }
}

#[test]
fn what_cannot_be_is_refused_with_the_bounds_and_a_near_miss_is_named() {
    let place = Place::new("sqlite");
    let server = place.serve(&[]);
    for server in [None, Some(&server)] {
        let run = |args: &[&str]| place.either(server, args);
        let refused = run(&["config", "set", "max_retries", "1001"]);
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.err.contains("between 0 and 1000"), "{refused:?}");
        for args in [&["config", "get", "max_retrys"][..], &["config", "set", "max_retrys", "5"]] {
            let refused = run(args);
            assert_eq!(refused.code, Some(3), "{refused:?}");
            assert!(refused.err.contains("did you mean max_retries?"), "{refused:?}");
        }
    }
}

#[test]
fn the_environment_wins_over_the_store_and_enqueueing_goes_by_it() {
    let place = Place::new("sqlite");
    place.run(&["config", "set", "max_retries", "7"]).good();
    let kept = place.run(&["enqueue", "x", "--json"]).good().json();
    assert_eq!(kept["job"]["max_retries"], 7, "the store wins over the default");
    let mut command = place.command(&["enqueue", "x", "--json"]);
    let output = command.env("WINDLASS_MAX_RETRIES", "9").output().unwrap();
    let job: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(job["job"]["max_retries"], 9);
    let output = place.command(&["config", "list"]).env("WINDLASS_MAX_RETRIES", "many").output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("WINDLASS_MAX_RETRIES") && said.contains("0 and 1000"), "{said}");
}

#[test]
fn a_running_server_applies_what_another_process_keeps_unless_a_flag_overrides_it() {
    let place = Place::new("sqlite");
    let server = place.serve(&["--visibility-timeout", "45s"]);
    place.run(&["config", "set", "max_retries", "7"]).good();
    place.run(&["config", "set", "visibility_timeout", "50s"]).good();
    let url = format!("http://{}", server.address());
    let enqueue = ["--server", &url, "enqueue", "x", "--json"];
    let answer = place.until(&enqueue, |answer| answer["job"]["max_retries"] == 7);
    assert_eq!(answer["job"]["visibility_timeout_ms"], 45_000, "the flag stays");
    let set = place.ask(&server, &["config", "set", "visibility_timeout", "55s"]).good();
    assert!(set.err.contains("the flag overrides it here with 45s"), "{set:?}");
    place.ask(&server, &["config", "set", "max_retries", "8"]).good();
    let answer = place.ask(&server, &["enqueue", "x", "--json"]).good().json();
    assert_eq!(answer["job"]["max_retries"], 8, "what is set through a server holds at once");
}

#[test]
fn a_setting_of_a_newer_version_is_reported_and_ignored() {
    let place = Place::new("sqlite");
    place.run(&["config", "set", "max_retries", "7"]).good();
    place
        .sqlite()
        .execute_batch(
            "UPDATE settings SET value = 'boundless' WHERE key = 'max_retries';
         INSERT INTO settings (key, value) VALUES ('colour', 'red');",
        )
        .unwrap();
    let server = place.serve(&[]);
    let line = server.wait_for_log("a setting kept in the store is not used");
    assert!(line.contains("colour") || line.contains("max_retries"), "{line}");
    let listed = place.ask(&server, &["config", "list", "--json"]).good().json();
    assert_eq!(listed["settings"][0]["value"], "3");
    assert_eq!(listed["ignored"].as_array().unwrap().len(), 2);
    place.ask(&server, &["config", "unset", "colour"]).good();
    let listed = place.run(&["config", "list"]).good();
    assert!(listed.err.contains("ignored setting max_retries in the store"), "{listed:?}");
    assert!(!listed.err.contains("colour"), "{listed:?}");
}

#[test]
fn of_two_quick_changes_of_a_setting_the_same_holds_in_every_process() {
    // A redb file has one process, which is asked by two clients.
    for (store, servers) in [("sqlite", 2), ("redb", 1)] {
        let place = Place::new(store);
        let servers: Vec<_> = (0..servers).map(|_| place.serve(&["--workers", "0"])).collect();
        for round in 0..5 {
            let changes = [round + 10, round + 20].into_iter().enumerate().map(|(at, value)| {
                let body = format!(r#"{{"value":{value}}}"#);
                servers[at % servers.len()].send("PUT", "/settings/max_retries", &body)
            });
            for change in changes.collect::<Vec<_>>() {
                let said = answer(change);
                assert!(said.starts_with("HTTP/1.1 200 "), "{said}");
            }
            let enqueue = ["enqueue", "x", "--json"];
            let applied = |server| {
                place.ask(server, &enqueue).good().json()["job"]["max_retries"].to_string()
            };
            if let [server] = &servers[..] {
                // Asking for the setting applies it, so that is done last.
                let found = applied(server);
                let kept = place.ask(server, &["config", "get", "max_retries"]).good().out;
                assert_eq!(found, kept.trim(), "{store}");
                continue;
            }
            let kept = place.run(&["config", "get", "max_retries"]).good().out;
            for server in &servers {
                let found = (0..QUESTIONS).any(|_| applied(server) == kept.trim());
                assert!(found, "{store}: a server never applied {kept}");
            }
        }
    }
}
