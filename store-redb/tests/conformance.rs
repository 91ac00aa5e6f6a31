//! The redb store takes the conformance suite.

mod subject;

use windlass_tests::on_disk::InDirectory;

windlass_tests::conformance!(InDirectory<subject::Redb>);
