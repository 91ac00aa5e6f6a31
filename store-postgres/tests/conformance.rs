//! The PostgreSQL store takes the conformance suite.

mod subject;

windlass_tests::conformance!(subject::InSchema);
