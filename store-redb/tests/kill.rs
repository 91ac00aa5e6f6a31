//! Real processes on redb files: killed at random moments, and a second one that is refused.

mod subject;

use subject::Redb;
use tempfile::TempDir;
use windlass_store_redb::{OpenError, RedbStore};
use windlass_tests::kill::{Promises, Running, Task};

windlass_tests::kill!(Redb);

#[test]
fn a_second_process_is_refused_clearly_while_the_first_one_lives() {
    let dir = TempDir::new().expect("a directory");
    let path = dir.path().join("jobs.redb");
    let mut promises = Promises::default();
    let task = Task { process: 1, hour: 0, batches: u64::MAX, path: path.clone() };
    let mut first = Running::start(&task);
    first.hear(20, &mut promises);
    let refused = RedbStore::open(&path).expect_err("it belongs to the first");
    assert!(matches!(refused, OpenError::Locked { .. }), "{refused}");
    assert!(refused.to_string().contains("is open in another process"), "{refused}");
    first.hear(20, &mut promises);
    first.kill(&mut promises);
    promises.check(&RedbStore::open(&path).expect("no process has it open any more"));
}
