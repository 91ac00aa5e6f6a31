//! Dead letters: listed, replayed and deleted, one by one and by filter.

use crate::common::Server;
use crate::world::in_every_mode;

/// Makes four dead letters in two queues, and one queued job.
fn four_dead(server: &Server) {
    for (id, queue, kind, error) in [
        (1, "mail", "email", "connection refused"),
        (2, "mail", "email", "no such user"),
        (3, "mail", "sms", "connection refused"),
        (4, "reports", "pdf", "out of paper"),
    ] {
        server.enqueue(&format!(r#"{{"kind":"{kind}","queue":"{queue}","max_retries":0}}"#));
        let poll = r#"{"worker":"w1","queues":["mail","reports"]}"#;
        assert_eq!(server.post("/jobs/poll", poll).status, 200);
        let verdict = format!(r#"{{"token":"{id}.1","error":"{error}"}}"#);
        assert_eq!(server.post(&format!("/jobs/{id}/fail"), &verdict).status, 200);
    }
    server.enqueue(r#"{"kind":"email","queue":"mail"}"#);
}

#[test]
fn dead_letters_are_replayed_by_what_they_have_in_common() {
    let output = in_every_mode(four_dead, |world| {
        world.tell(&["dlq", "list"]);
        world.tell(&["dlq", "list", "--queue", "mail", "--limit", "1"]);
        world.tell(&["dlq", "retry"]);
        world.tell(&["dlq", "retry", "5", "1"]);
        world.tell(&["dlq", "retry", "--queue", "mail", "--error-contains", "refused"]);
        world.tell(&["dlq", "retry", "--queue", "mial"]);
        world.tell(&["dlq", "retry", "--all", "--json"]);
        world.tell(&["dlq", "list"]);
        world.tell(&["queue", "list"]);
    });
    insta::assert_snapshot!(output);
}

#[test]
fn dead_letters_are_retried_by_one_order_that_is_kept() {
    let output = in_every_mode(four_dead, |world| {
        world.tell(&["bulk", "list"]);
        world.tell(&["dlq", "retry", "--queue", "mail", "--dry-run"]);
        world.tell(&["dlq", "retry", "--all", "--error-contains", "x", "--dry-run"]);
        world.tell(&["dlq", "retry", "--queue", "mail", "--pace", "100/s"]);
        world.tell(&["bulk", "retry", "--all", "--expect", "9"]);
        world.tell(&["bulk", "show", "1"]);
        world.tell(&["bulk", "stop", "1"]);
        world.tell(&["bulk", "continue", "7"]);
        world.tell(&["bulk", "cancel", "--queue", "mail"]);
        world.tell(&["bulk", "cancel", "--queue", "mail", "--yes", "--expect", "1"]);
        world.tell(&["bulk", "cancel", "--queue", "mail", "--yes"]);
        world.tell(&["bulk", "delete", "--state", "cancelled", "--all", "--yes"]);
        world.tell(&["bulk", "list"]);
        world.tell(&["list"]);
    });
    insta::assert_snapshot!(output);
}

#[test]
fn dead_letters_are_purged_only_after_confirmation() {
    let output = in_every_mode(four_dead, |world| {
        world.tell(&["dlq", "purge", "--yes"]);
        world.tell(&["dlq", "purge", "--kind", "email"]);
        world.tell(&["dlq", "purge", "--kind", "email", "--yes"]);
        world.tell(&["dlq", "purge", "--error-contains", "paper", "--yes", "--json"]);
        world.tell(&["list"]);
        world.tell(&["dlq", "purge", "--all", "--yes"]);
        world.tell(&["list"]);
    });
    insta::assert_snapshot!(output);
}

#[test]
fn dead_letters_that_match_nothing_on_the_first_page_are_still_reached() {
    fn old_and_new(server: &Server) {
        let jobs = vec![r#"{"max_retries":0}"#; 1_100].join(",");
        assert_eq!(server.post("/jobs/batch", &format!(r#"{{"jobs":[{jobs}]}}"#)).status, 202);
        for part in [1..=1, 2..=600, 601..=1_100] {
            let count = part.clone().count();
            assert_eq!(server.claim("w1", count.min(1_000)).len(), count);
            let error = if count == 1 { "needle" } else { "hay" };
            let reports: Vec<String> = part
                .map(|id| format!(r#"{{"token":"{id}.1","verdict":"fail","error":"{error}"}}"#))
                .collect();
            let body = format!(r#"{{"reports":[{}]}}"#, reports.join(","));
            assert_eq!(server.post("/jobs/reports", &body).status, 200);
        }
    }
    in_every_mode(old_and_new, |world| {
        let ran = world.run(&["dlq", "retry", "--error-contains", "needle"]);
        assert_eq!((ran.code, ran.out.as_str()), (0, "1 replayed\n"), "{}", ran.err);
        let ran = world.run(&["dlq", "purge", "--all", "--yes"]);
        assert_eq!((ran.code, ran.out.as_str()), (0, "1099 purged\n"), "{}", ran.err);
    });
}

#[test]
fn dead_letters_are_grouped_by_the_reason_of_their_failure() {
    fn group(kind: &str, error: &str) -> String {
        let kind = windlass_core::Kind::new(kind).unwrap();
        let text = windlass_core::ErrorText::of_message(error);
        windlass_core::ErrorGroup::of(&kind, &text).id.to_string()
    }
    let output = in_every_mode(four_dead, |world| {
        let (refused, unknown) = (group("email", "connection refused"), group("email", "else"));
        world.tell(&["errors", "list", "--queue", "reports"]);
        world.tell(&["errors", "list", "--kind", "sms", "--by", "last"]);
        world.tell(&["errors", "show", &refused]);
        world.tell(&["list", "--group", &refused]);
        world.tell(&["dlq", "retry", "--group", &refused]);
        world.tell(&["errors", "list", "--kind", "email"]);
        world.tell(&["errors", "show", &unknown]);
        world.tell(&["errors", "show", "1"]);
        world.tell(&["dlq", "purge", "--group", "x", "--yes"]);
        world.tell(&["errors", "list", "--kind", "none"]);
    });
    insta::assert_snapshot!(output);
}
