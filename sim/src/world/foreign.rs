//! A transaction of somebody else, such as a person at a console of the database: it holds waiting
//! jobs for seconds, then rolls back. Processes leave these jobs out, and no commit tells when they
//! are free again.

use windlass_core::store::Questions;
use windlass_core::{JobId, ProcessId, StateName, Wall};
use windlass_store_memory::Transaction;

use super::World;
use super::event::Event;

/// Nobody of the world has this identity.
const FOREIGN: ProcessId = ProcessId(u64::MAX);
/// How many jobs are held at most.
const MOST_HELD: u64 = 6;

impl World {
    /// Holds some of the jobs that wait, for a while.
    pub(super) fn hold_foreign(&mut self) {
        let waiting = self.ledger.details().map(|row| &row.job);
        let waiting = waiting.filter(|job| job.state.name() == StateName::Queued);
        let mut jobs: Vec<JobId> = waiting.map(|job| job.id).collect();
        jobs.truncate(usize::try_from(self.luck.range(1, MOST_HELD)).unwrap_or(1));
        let Some(mut transaction) = self.begin_foreign() else { return };
        self.trace.note(&[26, jobs.len() as u64], || format!("a stranger holds {jobs:?}"));
        let wall = Wall::new(self.wall.read(self.now));
        // Of those that others hold it gets as far as the first.
        let _ = transaction.ask(&Questions { jobs, ..Questions::default() }, wall);
        let number = self.next_stray;
        self.next_stray += 1;
        self.foreign.insert(number, transaction);
        let wait = self.luck.range(100, 6_000);
        self.after(wait, Event::Release(number));
    }

    fn begin_foreign(&mut self) -> Option<Transaction> {
        self.disk.open().ok()?.begin(FOREIGN)
    }

    /// Rolls such a transaction back.
    pub(super) fn release_foreign(&mut self, number: u64) {
        if self.foreign.remove(&number).is_some() {
            self.trace.note(&[27, number], || "a stranger rolls back".to_owned());
        }
    }
}
