//! `config`, and what running processes make of it.

use crate::common::{Place, stores};

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
fn a_running_server_lives_by_what_another_process_keeps_unless_a_flag_says_otherwise() {
    let place = Place::new("sqlite");
    let server = place.serve(&["--visibility-timeout", "45s"]);
    place.run(&["config", "set", "max_retries", "7"]).good();
    place.run(&["config", "set", "visibility_timeout", "50s"]).good();
    let url = format!("http://{}", server.address());
    let enqueue = ["--server", &url, "enqueue", "x", "--json"];
    let answer = place.until(&enqueue, |answer| answer["job"]["max_retries"] == 7);
    assert_eq!(answer["job"]["visibility_timeout_ms"], 45_000, "the flag stays");
    let set = place.ask(&server, &["config", "set", "visibility_timeout", "55s"]).good();
    assert!(set.err.contains("the flag says 45s"), "{set:?}");
    place.ask(&server, &["config", "set", "max_retries", "8"]).good();
    let answer = place.ask(&server, &["enqueue", "x", "--json"]).good().json();
    assert_eq!(answer["job"]["max_retries"], 8, "what is set through a server holds at once");
}

#[test]
fn what_a_newer_version_has_kept_is_told_and_harms_nobody() {
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
    let told = server.wait_for_log("a setting kept in the store is not used");
    assert!(told.contains("colour") || told.contains("max_retries"), "{told}");
    let listed = place.ask(&server, &["config", "list", "--json"]).good().json();
    assert_eq!(listed["settings"][0]["value"], "3");
    assert_eq!(listed["ignored"].as_array().unwrap().len(), 2);
    place.ask(&server, &["config", "unset", "colour"]).good();
    let listed = place.run(&["config", "list"]).good();
    assert!(listed.err.contains("max_retries, which is not used"), "{listed:?}");
    assert!(!listed.err.contains("colour"), "{listed:?}");
}
