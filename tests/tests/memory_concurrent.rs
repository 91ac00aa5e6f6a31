//! Handles to one store in memory pass the concurrent cases of the conformance suite.

mod subject;

windlass_tests::concurrent_conformance!(subject::Memory);
