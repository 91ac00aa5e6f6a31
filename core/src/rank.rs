//! The order in which ready jobs are claimed, as a sort key that stores keep and sort by.

use crate::{Job, JobId, Priority, Wall};

/// The sort key of a ready job; the least is claimed first.
///
/// Core computes it when a job is enqueued or requeued. A store keeps the parts in the row and
/// sorts by them in this order, without interpreting them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank {
    /// Today the negated priority.
    pub class: i16,
    /// Today always zero.
    pub turn: u64,
    /// Today the instant at which the job is due.
    pub due: Wall,
    /// The id of the job, so that the one enqueued earlier goes first.
    pub id: JobId,
}

impl Rank {
    /// The rank of a job with this priority that is due at `run_at`.
    pub const fn new(priority: Priority, run_at: Wall, id: JobId) -> Self {
        Self { class: -priority.get(), turn: 0, due: run_at, id }
    }

    /// The rank that a job should have. A row with another one is corrupt.
    pub fn of(job: &Job) -> Self {
        Self::new(job.priority, job.run_at, job.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_higher_priority_goes_first_then_the_one_due_earlier_then_the_older() {
        let rank = |priority, at, id| {
            let priority = Priority::new(priority).expect("it is in bounds");
            Rank::new(priority, Wall::new(at), JobId::new(id).expect("it is an id"))
        };
        let sorted = [rank(5, 9, 9), rank(0, 1, 7), rank(0, 2, 1), rank(0, 2, 2), rank(-5, 0, 1)];
        assert!(sorted.is_sorted_by(|a, b| a < b));
    }
}
