//! SQLite stores on one file pass the concurrent cases of the conformance suite.

mod subject;

use windlass_tests::on_disk::InDirectory;

windlass_tests::concurrent_conformance!(InDirectory<subject::Sqlite>);
