//! Transactions of another client, such as a person at a console of the database: they lock waiting
//! jobs for seconds, then roll back. Processes skip these jobs, and no commit tells when they are
//! free again. The last one rolls back when all other jobs are finished, so that a process returns
//! to them only because it remembers the rows that it skipped.

use windlass_core::store::Questions;
use windlass_core::{Job, JobId, ProcessId, StateName, Wall};

use super::World;
use super::event::Event;
use crate::faults::Fault;

/// No process of the world has this identity.
const FOREIGN: ProcessId = ProcessId(u64::MAX);
/// Maximum number of such transactions in the phase without other faults.
const MOST_LAST: u32 = 4;
/// Maximum number of jobs that one locks.
const MOST_HELD: u64 = 6;

impl World {
    /// Locks some of the waiting jobs for a while.
    pub(super) fn hold_foreign(&mut self) {
        let Some((number, _)) = self.begin_foreign() else { return };
        let wait = self.luck.range(100, 6_000);
        self.after(wait, Event::Release(number));
    }

    /// Holds some of the jobs that wait, until all others are finished or a commit that names one
    /// of them has to wait; then some others, a few times. A store that does not lock what it finds
    /// lets one of them be claimed all the same. If its holder crashes, the reaper cannot take it
    /// back, and it may use up the concurrency of its queue: then the others would never finish.
    pub(super) fn hold_foreign_to_the_end(&mut self) {
        let Some((number, jobs)) = &self.held_to_the_end else {
            let again = self.held_last < MOST_LAST && self.ledger.unfinished() > 0;
            if again
                && self.options.interleaved
                && self.options.faults.has(Fault::ForeignTransaction)
            {
                self.held_last += 1;
                self.held_to_the_end = self.begin_foreign();
            }
            return;
        };
        let unfinished = |job: &Job| !job.state.name().is_finished();
        let held = |id: &&JobId| self.ledger.row(**id).is_some_and(unfinished);
        let alone = self.ledger.unfinished() == jobs.iter().filter(held).count();
        let runs = |id: &JobId| {
            let row = self.ledger.row(*id);
            row.is_some_and(|job| job.state.name() == StateName::Processing)
        };
        if alone || jobs.iter().any(runs) || self.has_waiting_commit() {
            let number = *number;
            self.held_to_the_end = None;
            self.held_last = if alone { MOST_LAST } else { self.held_last };
            let wait = if alone { self.luck.range(1, 2_000) } else { 1 };
            self.after(wait, Event::Release(number));
        }
    }

    fn begin_foreign(&mut self) -> Option<(u64, Vec<JobId>)> {
        let waiting = self.ledger.details().map(|row| &row.job);
        let waiting = waiting.filter(|job| job.state.name() == StateName::Queued);
        let mut jobs: Vec<JobId> = waiting.map(|job| job.id).collect();
        jobs.truncate(usize::try_from(self.luck.range(1, MOST_HELD)).unwrap_or(1));
        let mut transaction = self.disk.open().ok()?.begin(FOREIGN)?;
        self.trace
            .note(&[26, jobs.len() as u64], || format!("a foreign transaction holds {jobs:?}"));
        let wall = Wall::new(self.wall.read(self.now));
        // Of those that others hold it gets as far as the first.
        let asked = Questions { jobs: jobs.clone(), ..Questions::default() };
        let _ = transaction.ask(&asked, wall);
        let number = self.next_transaction;
        self.next_transaction += 1;
        self.foreign.insert(number, transaction);
        Some((number, jobs))
    }

    pub(super) fn release_foreign(&mut self, number: u64) {
        if self.foreign.remove(&number).is_some() {
            self.trace.note(&[27, number], || "a foreign transaction rolls back".to_owned());
        }
    }
}
