//! `enqueue --file`: many jobs, bad lines, and repetition with `--resume`.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::common::Server;
use crate::world::{in_every_mode, with_every_id};

const LINES: &str = r#"{"kind":"a","payload":12345678901234567890123}

{"kind":"b","idempotency_key":"mine"}
{"kind":
[]
{"kind":"c","priority":5000,"max_retries":-1}
{"kind":"c","nonsense":1}
  {"queue":"mail"}  "#;

fn nothing(_: &Server) {}

#[test]
fn bad_lines_are_named_and_the_others_stored_once() {
    let output = with_every_id(nothing, |world| {
        world.tell_with(&["enqueue", "--file", "-", "--resume", "r"], LINES);
        world.tell_with(&["enqueue", "--file", "-", "--resume", "r"], LINES);
        world.tell_with(&["enqueue", "--file", "-", "--json"], LINES);
        world.tell(&["list"]);
        world.tell(&["enqueue", "--file", "none.ndjson"]);
        world.tell(&["enqueue", "--file", "-", "--queue", "mail"]);
        world.tell(&["enqueue", "a", "--strict"]);
    });
    insta::assert_snapshot!(output);
}

#[test]
fn strict_stops_at_a_bad_line_and_many_lines_are_all_stored() {
    in_every_mode(nothing, |world| {
        let mut lines = String::new();
        for n in 0..12_000 {
            let _ = writeln!(lines, r#"{{"kind":"k","payload":{n}}}"#);
        }
        let path = world.place.path("jobs.ndjson");
        std::fs::write(&path, &lines).unwrap();
        let ran = world.run(&["enqueue", "--file", path.to_str().unwrap(), "--json"]);
        assert_eq!(ran.code, 0, "{}", ran.err);
        let said: Vec<serde_json::Value> =
            ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let (summary, stored) = said.split_last().unwrap();
        let counted = serde_json::json!({"duplicates": 0, "enqueued": 12_000, "refused": 0});
        assert_eq!(*summary, counted);
        let ids: BTreeSet<u64> = stored.iter().map(|one| one["id"].as_u64().unwrap()).collect();
        assert_eq!(ids.len(), 12_000, "every id is named once");
        assert!(stored.iter().all(|one| one["duplicate"] == false));
        let numbers: BTreeSet<u64> =
            stored.iter().map(|one| one["line"].as_u64().unwrap()).collect();
        assert_eq!(numbers, (1..=12_000).collect());
        let queues: serde_json::Value =
            serde_json::from_str(&world.run(&["queue", "list", "--json"]).out).unwrap();
        assert_eq!(queues["queues"][0]["counts"]["queued"], 12_000);
        let bad = format!("\n{{\n{lines}");
        let ran = world.run_with(&["enqueue", "--file", "-", "--strict", "--json"], &bad);
        assert_eq!(ran.code, 1);
        let summary: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
        assert_eq!(summary["refused"], 1);
        assert_eq!(summary["enqueued"], 0, "it went on");
        assert!(ran.err.starts_with(r#"{"detail":"is not JSON"#), "{}", ran.err);
    });
}
