//! The order in which ready jobs are claimed, as a sort key that stores keep and sort by.

use crate::{Aging, Job, JobId, Priority, Wall};

/// The sort key of a ready job; the least is claimed first.
///
/// Core computes it when a job is enqueued or requeued. A store keeps the parts in the row and
/// sorts by them in this order, without interpreting them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank {
    /// The negated priority; zero in a queue with aging.
    pub class: i16,
    /// Today always zero.
    pub turn: u64,
    /// The instant at which the job is due; with aging, less a bonus for its priority.
    pub due: Wall,
    /// The id of the job, so that the one enqueued earlier goes first.
    pub id: JobId,
}

impl Rank {
    /// The rank of a job with this priority that is due at `run_at`.
    pub const fn new(priority: Priority, run_at: Wall, id: JobId) -> Self {
        Self { class: -priority.get(), turn: 0, due: run_at, id }
    }

    /// The rank in a queue in which one step of priority counts as much as having waited for
    /// `aging`. A job of priority p that is due at t then goes before every job of priority q that
    /// is due after `t + (q - p) × aging`, so none starves. The row is not written again meanwhile.
    pub const fn aged(priority: Priority, run_at: Wall, id: JobId, aging: Aging) -> Self {
        let bonus = (priority.get() as i64).saturating_mul(aging.get().cast_signed());
        let due = Wall::new(run_at.get().saturating_sub(bonus));
        Self { class: 0, turn: 0, due, id }
    }

    /// The rank without aging, which a row gets whose rank is corrupt.
    pub fn of(job: &Job) -> Self {
        Self::new(job.priority, job.run_at, job.id)
    }

    /// Whether a job can have this rank: without aging, or with one that its queue had when the
    /// job became ready.
    pub fn fits(&self, job: &Job) -> bool {
        if *self == Self::of(job) {
            return true;
        }
        let bonus = i128::from(job.run_at.get()) - i128::from(self.due.get());
        let steps = i128::from(job.priority.get());
        let (0, 0, true, false) = (self.class, self.turn, self.id == job.id, steps == 0) else {
            return false;
        };
        let aging = bonus / steps;
        let bounds = i128::from(Aging::MIN.get())..=i128::from(Aging::MAX.get());
        bonus % steps == 0 && bounds.contains(&aging)
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
