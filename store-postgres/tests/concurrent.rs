//! PostgreSQL stores on one schema pass the concurrent cases of the conformance suite.

mod subject;

windlass_tests::concurrent_conformance!(subject::InSchema);
