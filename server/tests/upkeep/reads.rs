//! Commands that read write nothing: no file, no lock, no migration, no dispatch.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::Value;

use crate::common::{FILES, Place};

/// Every command that only reads, but `errors show` and `bulk show`, which need what they show, and
/// `top`, which needs a terminal.
const READS: [&[&str]; 20] = [
    &["list"],
    &["list", "--state", "queued", "--queue", "default"],
    &["show", "1"],
    &["explain", "1"],
    &["status"],
    &["config", "list"],
    &["config", "get", "max_retries"],
    &["queue", "list"],
    &["worker", "list"],
    &["dlq", "list"],
    &["errors", "list"],
    &["bulk", "list"],
    &["history"],
    &["history", "--json"],
    &["doctor"],
    &["list", "--json"],
    &["status", "--json"],
    &["show", "1", "--json"],
    &["dlq", "list", "--json"],
    &["errors", "list", "--json"],
];

/// Every file of a folder with its bytes, its times left out.
fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    // A process that was killed leaves its socket for hints.
    let entries = entries.filter(|entry| entry.file_type().unwrap().is_file());
    let named = entries
        .map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()));
    named.collect()
}

fn set_modes(place: &Place, file: u32, dir: u32) {
    fs::set_permissions(place.path("data/jobs.db"), Permissions::from_mode(file)).unwrap();
    fs::set_permissions(place.path("data"), Permissions::from_mode(dir)).unwrap();
}

#[test]
fn commands_that_read_change_no_byte_of_the_store_and_need_no_right_to_write() {
    for store in FILES {
        let place = Place::new(store);
        place.run(&["enqueue", "x", "--key", "k"]).good();
        set_modes(&place, 0o400, 0o500);
        let before = files(&place.path("data"));
        for args in READS {
            place.run(args).good();
            assert!(files(&place.path("data")) == before, "{store}: {args:?} wrote");
        }
        let waited = place.run(&["wait", "1", "--timeout", "10ms"]);
        assert_eq!(waited.code, Some(124), "{store}: {waited:?}");
        assert!(files(&place.path("data")) == before, "{store}: wait wrote");
        place.run(&["backup", "copy.db"]).good();
        assert!(files(&place.path("data")) == before, "{store}: backup wrote");
        set_modes(&place, 0o600, 0o700);
        let copy = Place::of(format!("{store}:{}", place.path("copy.db").display()));
        copy.run(&["show", "1"]).good();
    }
}

#[test]
fn commands_that_show_an_error_group_or_a_bulk_action_change_no_byte_of_the_store() {
    for store in FILES {
        let place = Place::new(store);
        place.run(&["enqueue", "--command", "exit 3", "--max-retries", "0"]).good();
        let server = place.serve(&["--workers", "1"]);
        let failed = |status: &Value| status["counts"]["failed"] == 1;
        place.until_shown(Some(&server), &["status", "--json"], failed);
        place.ask(&server, &["bulk", "cancel", "--all", "--yes"]).good();
        server.stop();
        let groups = place.run(&["errors", "list", "--json"]).good().json();
        let group = groups["groups"][0]["id"].as_str().unwrap();
        set_modes(&place, 0o400, 0o500);
        let before = files(&place.path("data"));
        for args in [
            &["errors", "show", group][..],
            &["errors", "show", group, "--json"],
            &["bulk", "show", "1"],
            &["bulk", "show", "1", "--json"],
            &["list", "--group", group],
        ] {
            place.run(args).good();
            assert!(files(&place.path("data")) == before, "{store}: {args:?} wrote");
        }
        set_modes(&place, 0o600, 0o700);
    }
}

#[test]
fn a_store_whose_process_was_killed_is_read_without_being_recovered() {
    for store in FILES {
        let place = Place::new(store);
        let server = place.serve(&[]);
        place.ask(&server, &["enqueue", "x"]).good();
        drop(server);
        let mut before = files(&place.path("data"));
        for args in READS {
            place.run(args).good();
            let mut now = files(&place.path("data"));
            // The index of the WAL in shared memory belongs to processes with the database open.
            for files in [&mut before, &mut now] {
                files.remove("jobs.db-shm");
            }
            assert!(now == before, "{store}: {args:?} wrote");
        }
        let listed = place.run(&["list", "--json"]).good().json();
        assert_eq!(listed["jobs"][0]["kind"], "x", "{store}");
    }
}

#[test]
fn a_command_that_reads_neither_takes_leases_back_nor_migrates() {
    let place = Place::new("sqlite");
    place.run(&["enqueue", "x"]).good();
    let server = place.serve(&["--workers", "0"]);
    let poll = r#"{"worker":"w","queues":["default"],"visibility_timeout_ms":1000}"#;
    let claimed = server.request("POST", "/jobs/poll", poll);
    assert!(claimed.contains(r#""id":1,"#), "{claimed}");
    drop(server);
    // The lease ran out long ago.
    place.sqlite().execute_batch("UPDATE jobs SET at = 1000 WHERE view = 2").unwrap();
    let listed = place.run(&["list", "--json"]).good().json();
    assert_eq!(listed["jobs"][0]["state"], "processing");
    let listed = place.run(&["list", "--json"]).good().json();
    assert_eq!(listed["jobs"][0]["state"], "processing", "the first command took it back");
    place.sqlite().execute_batch("PRAGMA user_version = 1").unwrap();
    for args in READS {
        let refused = place.run(args);
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(refused.err.contains("older Windlass"), "{refused:?}");
        assert!(refused.err.contains("windlass serve"), "{refused:?}");
    }
    let version = "PRAGMA user_version";
    let version: i64 = place.sqlite().query_row(version, [], |row| row.get(0)).unwrap();
    assert_eq!(version, 1);
}

#[test]
fn a_redb_file_in_use_is_refused_to_readers_with_the_way_to_ask_its_server() {
    let place = Place::new("redb");
    let server = place.serve(&[]);
    place.ask(&server, &["enqueue", "x"]).good();
    for args in READS {
        let refused = place.run(args);
        assert_eq!(refused.code, Some(6), "{args:?}: {refused:?}");
        assert!(refused.err.contains("--server"), "{args:?}: {refused:?}");
    }
}

#[test]
fn where_there_is_no_store_none_is_made() {
    for store in FILES {
        let place = Place::new(store);
        for args in READS {
            let refused = place.run(args);
            assert_eq!(refused.code, Some(3), "{args:?}: {refused:?}");
        }
        assert!(!place.path("data").exists(), "{store}");
    }
}

#[test]
fn a_command_that_reads_first_and_then_writes_does_both() {
    for store in FILES {
        let place = Place::new(store);
        place.run(&["enqueue", "x"]).good();
        place.run(&["cancel", "1"]).good();
        place.run(&["retry", "1"]).good();
        place.run(&["queue", "pause", "default"]).good();
        let listed = place.run(&["queue", "list", "--json"]).good().json();
        assert_eq!(listed["queues"][0]["paused"], true, "{store}");
    }
}
