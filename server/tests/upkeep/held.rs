//! A store that another program keeps locked for longer than the lease of a job.

use std::path::Path;
use std::process::Command;

use crate::common::{Place, QUESTIONS};

/// The instant, as answers and the command below write it: such texts are in the order of time.
const DATE: &str = "date -u +%Y-%m-%dT%H:%M:%S.%3NZ";

fn now() -> String {
    let said = Command::new("sh").args(["-c", DATE]).output().unwrap();
    String::from_utf8(said.stdout).unwrap().trim().into()
}

/// The text of a file, once there is a whole line in it.
fn line_of(path: &Path) -> String {
    for _ in 0..10 * QUESTIONS {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        if text.ends_with('\n') {
            return text.trim().into();
        }
        // It takes a millisecond.
        now();
    }
    panic!("{} was not written", path.display())
}

#[test]
fn a_command_is_stopped_before_its_lease_ends_while_the_store_is_locked_and_is_charged() {
    let place = Place::new("sqlite");
    let command = format!(
        "trap '{DATE} > ended; exit 0' TERM; echo run >> runs; while :; do sleep 0.05; done"
    );
    let retries = ["--max-retries", "0", "--visibility-timeout", "10s"];
    place.run(&[&["enqueue", "--command", &command][..], &retries].concat()).good();
    let server = place.serve(&["--workers", "1"]);
    assert_eq!(line_of(&place.path("runs")), "run");
    let lock = place.sqlite();
    lock.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let shown = place.run(&["show", "1", "--json"]).good().out;
    let job: serde_json::Value = serde_json::from_str(shown.lines().next().unwrap()).unwrap();
    let lease_until = job["lease_until"].as_str().unwrap();
    let ended = line_of(&place.path("ended"));
    assert!(*ended < *lease_until, "it ended at {ended}, its lease at {lease_until}");
    while *now() <= *lease_until {}
    lock.execute_batch("ROLLBACK").unwrap();
    let failed = place.until(&["status", "--json"], |status| status["counts"]["failed"] == 1);
    assert_eq!(failed["counts"]["queued"], 0, "{failed}");
    let shown = place.ask(&server, &["show", "1", "--json"]).good().out;
    let job: serde_json::Value = serde_json::from_str(shown.lines().next().unwrap()).unwrap();
    assert_eq!((&job["state"], &job["attempts"]), (&"failed".into(), &1.into()), "{job}");
    assert_eq!(line_of(&place.path("runs")), "run", "it ran once");
}
