//! Real processes that are killed at random moments, for every store in a file. A test runs its own
//! binary again as its child, which commits batches and prints every acknowledgement (`child.rs`).
//! The parent kills it (SIGKILL), opens the store, and compares it with what was promised
//! (`promises.rs`). Nothing sleeps: a child is killed after a number of acknowledgements.

mod child;
mod promises;

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use tempfile::TempDir;

use crate::on_disk::{OnDisk, scratch};
pub use child::Task;
use child::{ARGUMENTS, Rng};
pub use promises::Promises;

/// Enrols a store: it is killed again and again. The test binary must have no test of these names,
/// and this must stand at its root.
#[macro_export]
macro_rules! kill {
    ($store:ty) => {
        /// What every child does; and, without a parent, that it does it well.
        #[test]
        fn a_process_keeps_its_promises_until_it_ends() {
            $crate::kill::be_child::<$store>();
        }

        #[test]
        fn killed_processes_lose_nothing_and_leave_no_half_of_a_batch() {
            $crate::kill::kill_again_and_again::<$store>();
        }
    };
}

/// How many children are started; the environment can ask for more.
fn rounds(fewest: u64) -> u64 {
    #[expect(clippy::disallowed_methods, reason = "the edge of a test: how long it may take")]
    let asked = std::env::var("WINDLASS_ROUNDS");
    asked.ok().and_then(|text| text.parse().ok()).map_or(fewest, |asked: u64| asked.max(fewest))
}

/// A child that commits.
#[derive(Debug)]
pub struct Running {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Running {
    /// Starts this binary again, to do this task.
    pub fn start(task: &Task) -> Self {
        let binary = std::env::current_exe().expect("this binary has a path");
        let mut command = Command::new(binary);
        command.args(["--exact", "a_process_keeps_its_promises_until_it_ends", "--nocapture"]);
        command.env(ARGUMENTS, task.to_string()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("this binary can be run again");
        let said = BufReader::new(child.stdout.take().expect("its output is piped"));
        Self { child, said }
    }

    /// Reads this number of lines.
    pub fn hear(&mut self, lines: u64, promises: &mut Promises) {
        for _ in 0..lines {
            let mut line = String::new();
            let read = self.said.read_line(&mut line).expect("its output is text");
            assert!(read > 0, "the child ended before it was killed");
            promises.hear(&line);
        }
    }

    /// Kills it, and reads what it had still said.
    pub fn kill(mut self, promises: &mut Promises) {
        self.child.kill().expect("a child can be killed");
        self.child.wait().expect("a killed child ends");
        let mut rest = String::new();
        self.said.read_to_string(&mut rest).expect("its output is text");
        // What it was still writing when it was killed was not said.
        let whole = rest.rfind('\n').map_or("", |end| &rest[..end]);
        whole.lines().for_each(|line| promises.hear(line));
    }

    /// Reads everything until it has ended by itself.
    pub fn hear_out(mut self, promises: &mut Promises) {
        self.said.lines().for_each(|line| promises.hear(&line.expect("its output is text")));
        let status = self.child.wait().expect("it ends");
        assert!(status.success(), "a child failed: {status}");
    }
}

fn place<D: OnDisk>() -> (TempDir, PathBuf) {
    let dir = scratch();
    let path = D::place(dir.path());
    (dir, path)
}

/// Compares a store with all that was promised.
fn check<D: OnDisk>(path: &Path, promises: &mut Promises) {
    let store = D::open(path);
    let found = D::verify(&store).expect("it can be verified");
    assert!(found.is_empty(), "it contradicts itself: {found:?}");
    promises.check(&store);
}

/// Does the task of a child, if this process is one; otherwise a short one of its own.
pub fn be_child<D: OnDisk>() {
    #[expect(clippy::disallowed_methods, reason = "the edge of a binary: what a child is to do")]
    let given = std::env::var(ARGUMENTS);
    if let Ok(given) = given {
        child::run::<D>(&Task::parse(&given), child::say);
        return;
    }
    if !D::is_available() {
        return;
    }
    let (_dir, path) = place::<D>();
    let mut promises = Promises::default();
    let task = Task { process: 1, hour: 0, batches: 40, path: path.clone() };
    child::run::<D>(&task, |line| promises.hear(line));
    check::<D>(&path, &mut promises);
    promises.assert_much_happened(40);
}

/// Kills one child after the other, and checks what each has left.
pub fn kill_again_and_again<D: OnDisk>() {
    if !D::is_available() {
        return;
    }
    let (_dir, path) = place::<D>();
    let mut promises = Promises::default();
    let mut rng = Rng(7);
    let rounds = rounds(100);
    for round in 0..rounds {
        let task = Task { process: round + 1, hour: round, batches: u64::MAX, path: path.clone() };
        let mut child = Running::start(&task);
        child.hear(1 + rng.below(25), &mut promises);
        child.kill(&mut promises);
        check::<D>(&path, &mut promises);
    }
    promises.assert_much_happened(5 * rounds);
}

/// Lets two processes commit to one file at once; every other time one is killed beside the other.
pub fn share_a_file<D: OnDisk>() {
    if !D::is_available() {
        return;
    }
    let (_dir, path) = place::<D>();
    let mut promises = Promises::default();
    let rounds = rounds(6);
    for round in 0..rounds {
        let task = |process| Task { process, hour: round, batches: 30, path: path.clone() };
        let [mut one, two] = [1, 2].map(|number| Running::start(&task(2 * round + number)));
        if round % 2 == 1 {
            one.hear(10, &mut promises);
            one.kill(&mut promises);
        } else {
            one.hear_out(&mut promises);
        }
        two.hear_out(&mut promises);
        check::<D>(&path, &mut promises);
    }
    promises.assert_much_happened(40 * rounds);
    promises.assert_both_took_part();
}
