//! Real processes on SQLite files: killed at random moments, and two that share a file.

mod subject;

use subject::Sqlite;
use windlass_tests::kill;

windlass_tests::kill!(Sqlite);

#[test]
fn two_processes_on_one_file_never_hold_one_job_at_once() {
    kill::share_a_file::<Sqlite>();
}
