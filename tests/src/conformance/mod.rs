//! What every store must do, as one case per property, one file per family of commands.
//!
//! A store enrols with three lines: a [`Subject`](crate::fixture::Subject), and
//! `windlass_tests::conformance!(MySubject);` in a test file of its own. `tests/enrolment.rs`
//! sees to it that no case is left out of the list.
#![allow(missing_docs, reason = "the name of a case is the sentence it shows")]
#![allow(clippy::wildcard_imports, reason = "the fixture is the language of the cases")]

pub mod batch;
pub mod bulk;
pub mod cancel_replay;
pub mod claim;
pub mod claim_size;
pub mod concurrent;
pub mod concurrent_bulk;
pub mod concurrent_figures;
pub mod concurrent_groups;
pub mod concurrent_queues;
pub mod concurrent_settings;
pub mod dead_letters;
pub mod delete_purge;
pub mod enqueue;
pub mod error_groups;
pub mod figures;
pub mod flow;
pub mod heartbeat;
pub mod idempotency;
pub mod marker;
pub mod promote;
pub mod queue_deletion;
pub mod queue_limits;
pub mod queues;
pub mod rank;
pub mod reader;
pub mod reap;
pub mod reopen;
pub mod repeat;
pub mod seal;
pub mod settings_workers;
pub mod settle;
pub mod storm;
pub mod timeout;

mod list_jobs;
mod list_store;
mod shared;

use self::shared::{commit_idle, ids, stale};

/// Makes one test per case for this subject.
#[macro_export]
macro_rules! conformance {
    ($subject:ty) => {
        $crate::conformance_of_jobs!($subject);
        $crate::conformance_of_stores!($subject);
    };
}

/// Makes the tests of one family.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_family {
    ($subject:ty, $family:ident, [$($case:ident),* $(,)?]) => {
        mod $family {
            #[allow(unused_imports, reason = "the subject may stand in the root of the test")]
            use super::*;
            $(
                #[test]
                fn $case() {
                    if <$subject as $crate::fixture::Subject>::is_available() {
                        $crate::conformance::$family::$case::<$subject>();
                    }
                }
            )*
        }
    };
}
