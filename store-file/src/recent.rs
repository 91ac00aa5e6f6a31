//! The leased jobs as this process has last written them: most jobs that get a verdict or a
//! heartbeat were claimed by it a moment ago, and need not be read again.
//!
//! A row is as it was left until another process commits or a transaction fails. The store knows
//! when, and has everything cleared then.

use windlass_core::store::Changes;
use windlass_core::{Job, JobId};

use crate::Lookup;

/// Maximum number of rows.
const MOST: usize = 10_000;

/// The leased jobs this process has written. Rows are large, and a tree would move its neighbours
/// for each that comes and goes.
#[derive(Debug, Default)]
pub struct Recent {
    jobs: Lookup<Job>,
}

impl Recent {
    /// A row, which is removed from here: a batch that asks for it mostly writes it.
    pub fn take(&mut self, id: JobId) -> Option<Job> {
        self.jobs.remove(id.get())
    }

    /// Follows what was written. If the transaction fails, everything must be cleared.
    pub fn absorb(&mut self, changes: Changes) {
        for moved in &changes.removes {
            self.jobs.remove(moved.job.id.get());
        }
        let updates = changes.updates.into_iter().map(|moved| moved.job);
        for job in changes.inserts.into_iter().chain(updates) {
            if job.lease().is_some() && self.jobs.has_room(MOST) {
                self.jobs.insert(job.id.get(), job);
            } else {
                self.jobs.remove(job.id.get());
            }
        }
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}
