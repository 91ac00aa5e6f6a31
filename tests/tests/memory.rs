//! The store in memory takes the conformance suite.

mod subject;

windlass_tests::conformance!(subject::Memory);
