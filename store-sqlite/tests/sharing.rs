//! Two SQLite stores on one file, taking turns, pass the conformance suite as one.

mod subject;

use windlass_tests::on_disk::TakingTurns;

windlass_tests::conformance!(TakingTurns<subject::Sqlite>);
