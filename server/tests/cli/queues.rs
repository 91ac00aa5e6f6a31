//! Queues: counters, pause and resume, settings.

use crate::common::Server;
use crate::world::in_every_mode;

fn two_queues(server: &Server) {
    server.enqueue(r#"{"queue":"mail"}"#);
    server.enqueue(r#"{"queue":"reports","delay_ms":86400000}"#);
}

#[test]
fn queues_are_paused_resumed_and_set() {
    let output = in_every_mode(two_queues, |world| {
        world.tell(&["queue", "list"]);
        world.tell(&["queue", "pause", "mail"]);
        world.tell(&["queue", "set", "mail", "concurrency=8", "timeout=2m", "retry.cap=1h"]);
        world.tell(&["queue", "set", "mail", "concurrency=default", "retry.strategy=linear"]);
        world.tell(&["queue", "list", "--json"]);
        world.tell(&["queue", "resume", "mail"]);
        world.tell(&["queue", "list"]);
    });
    insta::assert_snapshot!(output);
}

#[test]
fn rates_limits_of_kinds_and_aging_are_set_shown_and_taken_back() {
    let output = in_every_mode(two_queues, |world| {
        world.tell(&["queue", "set", "mail", "rate=100/1m", "rate.burst=7", "aging=5m"]);
        world.tell(&["queue", "set", "mail", "kind.a.b.concurrency=0", "kind.email.rate=5/1s"]);
        world.tell(&["queue", "set", "mail", "kind.email.rate.burst=2", "concurrency=3"]);
        world.tell(&["queue", "set", "mail", "rate=200/1m", "kind.none.rate.burst=default"]);
        world.tell(&["queue", "set", "mail", "rate=often"]);
        world.tell(&["queue", "set", "mail", "rate=0/1s"]);
        world.tell(&["queue", "set", "mail", "kind.email.speed=1"]);
        world.tell(&["queue", "set", "mail", "kind.a/b.concurrency=1"]);
        world.tell(&["queue", "set", "mail", "rate.burst=7", "rate=default"]);
        world.tell(&["queue", "set", "mail", "kind.a.b.concurrency=default", "aging=default"]);
        world.tell(&["queue", "set", "mail", "kind.email.rate=default", "--json"]);
    });
    insta::assert_snapshot!(output);
}

#[test]
fn a_near_miss_is_named_and_a_wrong_setting_refused() {
    let output = in_every_mode(two_queues, |world| {
        assert_eq!(world.tell(&["queue", "pause", "mial"]).code, 3);
        world.tell(&["queue", "resume", "billing"]);
        world.tell(&["queue", "set", "mial", "concurrency=1"]);
        world.tell(&["queue", "pause", "billing", "--create"]);
        world.tell(&["list", "--queue", "report"]);
        world.tell(&["list", "--queue", "billing"]);
        world.tell(&["queue", "set", "mail", "concurency=8"]);
        world.tell(&["queue", "set", "mail", "concurrency=0", "max_retries=-1"]);
        world.tell(&["queue", "set", "mail", "timeout=soon"]);
        world.tell(&["queue", "set", "a/b", "concurrency=1"]);
    });
    insta::assert_snapshot!(output);
}

#[test]
fn a_queue_is_deleted_when_it_is_empty_or_by_force_with_what_it_holds() {
    let output = in_every_mode(two_queues, |world| {
        world.tell(&["queue", "pause", "empty", "--create"]);
        world.tell(&["queue", "delete", "empty"]);
        assert_eq!(world.tell(&["queue", "delete", "empty"]).code, 3);
        assert_eq!(world.tell(&["queue", "delete", "mail"]).code, 4);
        assert_eq!(world.tell(&["queue", "delete", "mail", "--force"]).code, 2);
        world.tell(&["queue", "delete", "mail", "--force", "--yes"]);
        world.tell(&["queue", "delete", "reports", "--force", "--yes", "--json"]);
        world.tell(&["queue", "list"]);
    });
    insta::assert_snapshot!(output);
}

#[test]
fn a_queue_too_many_is_refused_with_the_setting_that_allows_more() {
    let output = in_every_mode(two_queues, |world| {
        world.tell(&["config", "set", "max_queues", "2"]);
        assert_eq!(world.tell(&["enqueue", "email", "--queue", "third"]).code, 4);
        world.tell(&["queue", "delete", "mail", "--force", "--yes"]);
        assert_eq!(world.run(&["enqueue", "email", "--queue", "third"]).code, 0);
        assert_eq!(world.run(&["enqueue", "email"]).code, 0, "the default queue is always made");
    });
    insta::assert_snapshot!(output);
}

#[test]
fn the_history_is_the_stores_in_every_mode() {
    let output = in_every_mode(two_queues, |world| {
        // A server writes figures up to a second late.
        let enqueued = |out: &str| {
            let line = out.lines().find(|line| line.starts_with("enqueued"));
            line.map(|line| line.split_whitespace().nth(1) == Some("1"))
        };
        let asked = ["history", "--queue", "mail", "--range", "24h"];
        let known = (0..2_000).any(|_| enqueued(&world.run(&asked).out) == Some(true));
        assert!(known, "{}", world.run(&asked).out);
        let json = world.run(&["history", "--json"]).out;
        let history: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(history["series"]["queued"].as_array().unwrap().len(), 360);
        world.tell(&["history", "--range", "1y"]);
        world.tell(&["history", "--queue", "a/b"]);
    });
    insta::assert_snapshot!(output);
}
