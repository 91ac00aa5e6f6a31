//! Real processes that are killed at random moments, and two that share a file.
//!
//! A test runs this very binary again as its child, which commits batches and prints every
//! acknowledgement; see `child.rs`. The parent kills it (SIGKILL), opens the store, and compares it
//! with what was promised; see `promises.rs`. Nothing sleeps: a child is killed after so many
//! acknowledgements were read.

mod child;
mod promises;

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;
use windlass_store_sqlite::SqliteStore;

use child::{ARGUMENTS, Dice, Task};
use promises::Promises;

/// How many children are killed; the environment can ask for more.
fn rounds(fewest: u64) -> u64 {
    #[expect(clippy::disallowed_methods, reason = "the edge of a test: how long it may take")]
    let asked = std::env::var("WINDLASS_ROUNDS");
    asked.ok().and_then(|text| text.parse().ok()).map_or(fewest, |asked: u64| asked.max(fewest))
}

/// Starts this binary again, to do this task.
fn spawn(task: &Task) -> Child {
    let binary = std::env::current_exe().expect("this binary has a path");
    let mut command = Command::new(binary);
    command.args(["--exact", "a_process_keeps_its_promises_until_it_ends", "--nocapture"]);
    command.env(ARGUMENTS, task.to_string()).stdout(Stdio::piped());
    command.spawn().expect("this binary can be run again")
}

/// Reads so many acknowledgements, kills the child, and reads what it had still said.
fn kill_after(mut child: Child, acks: u64, promises: &mut Promises) {
    let mut said = BufReader::new(child.stdout.take().expect("its output is piped"));
    for _ in 0..acks {
        let mut line = String::new();
        let read = said.read_line(&mut line).expect("its output is text");
        assert!(read > 0, "the child ended before it was killed");
        promises.hear(&line);
    }
    child.kill().expect("a child can be killed");
    child.wait().expect("a killed child ends");
    let mut rest = String::new();
    said.read_to_string(&mut rest).expect("its output is text");
    // What it was still writing when it was killed was not said.
    let whole = rest.rfind('\n').map_or("", |end| &rest[..end]);
    whole.lines().for_each(|line| promises.hear(line));
}

/// Reads everything until the child has ended by itself.
fn hear_out(mut child: Child, promises: &mut Promises) {
    let said = BufReader::new(child.stdout.take().expect("its output is piped"));
    said.lines().for_each(|line| promises.hear(&line.expect("its output is text")));
    let status = child.wait().expect("it ends");
    assert!(status.success(), "a child failed: {status}");
}

fn check(path: &Path, promises: &mut Promises) {
    let store = SqliteStore::open(path).expect("the store opens again");
    let found = store.verify().expect("it can be verified");
    assert!(found.is_empty(), "it contradicts itself: {found:?}");
    promises.check(&store);
}

/// What every child does; and, without a parent, that it does it well.
#[test]
fn a_process_keeps_its_promises_until_it_ends() {
    #[expect(clippy::disallowed_methods, reason = "the edge of a binary: what a child is to do")]
    let given = std::env::var(ARGUMENTS);
    if let Ok(given) = given {
        child::run(&Task::parse(&given), child::say);
        return;
    }
    let dir = TempDir::new().expect("a directory");
    let path = dir.path().join("jobs.db");
    let mut promises = Promises::default();
    let task = Task { process: 1, hour: 0, batches: 40, path: path.clone() };
    child::run(&task, |line| promises.hear(line));
    check(&path, &mut promises);
    promises.assert_much_happened(40);
}

#[test]
fn killed_processes_lose_nothing_and_leave_no_half_of_a_batch() {
    let dir = TempDir::new().expect("a directory");
    let path = dir.path().join("jobs.db");
    let mut promises = Promises::default();
    let mut dice = Dice(7);
    let rounds = rounds(40);
    for round in 0..rounds {
        let task = Task { process: round + 1, hour: round, batches: u64::MAX, path: path.clone() };
        kill_after(spawn(&task), 1 + dice.below(25), &mut promises);
        check(&path, &mut promises);
    }
    promises.assert_much_happened(5 * rounds);
}

#[test]
fn two_processes_on_one_file_never_hold_one_job_at_once() {
    let dir = TempDir::new().expect("a directory");
    let path = dir.path().join("jobs.db");
    let mut promises = Promises::default();
    let rounds = rounds(6);
    for round in 0..rounds {
        let task = |process| Task { process, hour: round, batches: 30, path: path.clone() };
        let (one, two) = (spawn(&task(2 * round + 1)), spawn(&task(2 * round + 2)));
        // Every other time, one is killed beside the other.
        if round % 2 == 1 {
            kill_after(one, 10, &mut promises);
        } else {
            hear_out(one, &mut promises);
        }
        hear_out(two, &mut promises);
        check(&path, &mut promises);
    }
    promises.assert_much_happened(40 * rounds);
    promises.assert_both_took_part();
}
