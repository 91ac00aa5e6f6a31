//! The leased jobs as this process has last written them: most jobs that are settled or heard from
//! were claimed by it a moment ago, and need not be read again.
//!
//! A row is as it was left as long as no other connection has committed since; that is asked at
//! the beginning of each transaction, when nobody else can write.

use std::collections::BTreeMap;

use windlass_core::store::Changes;
use windlass_core::{Job, JobId};

/// How many rows are remembered.
const MOST: usize = 10_000;

/// The leased jobs this process has written.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    jobs: BTreeMap<JobId, Job>,
    /// The version of the data they belong to.
    version: Option<i64>,
}

impl Recent {
    /// Begins a transaction at this version of the data.
    pub(crate) fn begin(&mut self, version: i64) {
        if self.version != Some(version) {
            self.forget();
            self.version = Some(version);
        }
    }

    /// A row, which is then no longer remembered: whoever asks for it mostly writes it.
    pub(crate) fn take(&mut self, id: JobId) -> Option<Job> {
        self.jobs.remove(&id)
    }

    /// Follows what was written. If the transaction fails, everything must be forgotten.
    pub(crate) fn absorb(&mut self, changes: Changes) {
        for moved in &changes.removes {
            self.jobs.remove(&moved.job.id);
        }
        let updates = changes.updates.into_iter().map(|moved| moved.job);
        for job in changes.inserts.into_iter().chain(updates) {
            if job.lease().is_some() && self.jobs.len() < MOST {
                self.jobs.insert(job.id, job);
            } else {
                self.jobs.remove(&job.id);
            }
        }
    }

    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }
}
