//! Queues: counters, pause and resume, settings.

use crate::common::Server;
use crate::world::in_every_mode;

fn two_queues(server: &Server) {
    server.enqueue(r#"{"queue":"mail"}"#);
    server.enqueue(r#"{"queue":"reports","delay_ms":86400000}"#);
}

#[test]
fn queues_are_paused_resumed_and_set() {
    let told = in_every_mode(two_queues, |world| {
        world.tell(&["queue", "list"]);
        world.tell(&["queue", "pause", "mail"]);
        world.tell(&["queue", "set", "mail", "concurrency=8", "timeout=2m", "retry.cap=1h"]);
        world.tell(&["queue", "set", "mail", "concurrency=default", "retry.strategy=linear"]);
        world.tell(&["queue", "list", "--json"]);
        world.tell(&["queue", "resume", "mail"]);
        world.tell(&["queue", "list"]);
    });
    insta::assert_snapshot!(told);
}

#[test]
fn a_near_miss_is_named_and_a_wrong_setting_refused() {
    let told = in_every_mode(two_queues, |world| {
        world.tell(&["queue", "pause", "mial"]);
        world.tell(&["list", "--queue", "report"]);
        world.tell(&["list", "--queue", "billing"]);
        world.tell(&["queue", "set", "mail", "concurency=8"]);
        world.tell(&["queue", "set", "mail", "concurrency=0", "max_retries=-1"]);
        world.tell(&["queue", "set", "mail", "timeout=soon"]);
        world.tell(&["queue", "set", "a/b", "concurrency=1"]);
    });
    insta::assert_snapshot!(told);
}
