//! Conditions on the columns and texts of jobs.

use alloc::string::String;

use super::Pointer;
use crate::store::JobDetail;
use crate::{Job, Wall, WorkerId};

/// Conditions that no list seeks; `None` for any job.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Conditions {
    /// From this instant on, by the order of the list; by creation where it is ordered by id.
    pub from: Option<Wall>,
    /// Before this instant.
    pub to: Option<Wall>,
    /// Only jobs that this worker is running.
    pub worker: Option<WorkerId>,
    /// Only jobs with this number of attempts, or more.
    pub attempts_min: Option<u32>,
    /// Only jobs of this priority, or a higher one.
    pub priority_min: Option<i16>,
    /// Only jobs whose last error contains this text.
    pub error_contains: Option<String>,
    /// Only jobs whose payload contains this text.
    pub payload_contains: Option<String>,
    /// Only jobs with this value at this place of the payload: a string, or JSON as it is written.
    pub payload: Option<(Pointer, String)>,
}

impl Conditions {
    /// Whether no job is left out.
    pub fn are_none(&self) -> bool {
        *self == Self::default()
    }

    /// Whether the row of a job matches; `at` is its instant in the order of the list.
    pub(super) fn include(&self, job: &Job, at: Wall) -> bool {
        self.from.is_none_or(|from| at >= from)
            && self.to.is_none_or(|to| at < to)
            && self.attempts_min.is_none_or(|least| job.attempts >= least)
            && self.priority_min.is_none_or(|least| job.priority.get() >= least)
            && self
                .worker
                .as_ref()
                .is_none_or(|worker| job.lease().is_some_and(|lease| lease.worker == *worker))
    }

    /// Whether a condition is on a document.
    pub(super) fn need_documents(&self) -> bool {
        self.error_contains.is_some() || self.payload_contains.is_some() || self.payload.is_some()
    }

    /// Whether the documents of a job match.
    pub(super) fn documents_match(&self, detail: &JobDetail) -> bool {
        let payload = detail.payload.as_str();
        self.error_contains.as_ref().is_none_or(|text| {
            detail.last_error.as_ref().is_some_and(|error| error.as_str().contains(text))
        }) && self.payload_contains.as_ref().is_none_or(|text| payload.contains(text))
            && self.payload.as_ref().is_none_or(|(at, wanted)| at.holds(payload, wanted))
    }
}
