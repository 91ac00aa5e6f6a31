//! Where the ready jobs of each queue and kind begin, as far as this node knows: a claim that
//! starts there does not walk over what was claimed before.
//!
//! While an old transaction of any client keeps dead rows from being removed, each claim from the
//! very start walks over all of them. Only then are heads used, since jobs that other nodes put
//! before a head are not seen. So all heads are dropped whenever others have written, and soon
//! after a claim that found less than it wanted: the next claim starts at the start.

use std::collections::BTreeMap;

use windlass_core::store::Changes;
use windlass_core::{Job, Rank, View};

use crate::names::{Names, Pair};

/// The last rank that was claimed of each pair.
#[derive(Debug, Default)]
pub(crate) struct Heads {
    behind: BTreeMap<Pair, Rank>,
}

impl Heads {
    /// Behind which rank the ready jobs of a pair begin.
    pub(crate) fn behind(&self, pair: Pair) -> Option<Rank> {
        self.behind.get(&pair).copied()
    }

    pub(crate) fn clear(&mut self) {
        self.behind.clear();
    }

    /// Takes in what a batch of this node has committed.
    pub(crate) fn learn(&mut self, moves: &Moves) {
        for (pair, rank) in &moves.claimed {
            let head = self.behind.entry(*pair).or_insert(*rank);
            *head = (*head).max(*rank);
        }
        for (pair, rank) in &moves.ready {
            if self.behind.get(pair).is_some_and(|head| rank < head) {
                self.behind.remove(pair);
            }
        }
    }
}

/// What a batch does to ready jobs.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    claimed: Vec<(Pair, Rank)>,
    ready: Vec<(Pair, Rank)>,
}

impl Moves {
    pub(crate) fn of(changes: &Changes, names: &Names) -> Self {
        let pair = |job: &Job| names.queue_id(&job.queue).zip(names.kind_id(&job.kind));
        let mut found = Self::default();
        for moved in &changes.updates {
            let from_ready = moved.from.view == View::Queued;
            if from_ready && moved.job.state.view() == View::Processing {
                found.claimed.extend(pair(&moved.job).map(|pair| (pair, moved.from.rank)));
            }
        }
        let updated = changes.updates.iter().map(|moved| &moved.job);
        for job in changes.inserts.iter().chain(updated) {
            if job.state.view() == View::Queued {
                found.ready.extend(pair(job).map(|pair| (pair, job.rank)));
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::{JobId, Priority, Wall};

    fn rank(due: i64, id: u64) -> Rank {
        let id = JobId::new(id).expect("it is an id");
        let priority = Priority::new(0).expect("it is in bounds");
        Rank::new(priority, Wall::new(due), id)
    }

    #[test]
    fn a_head_moves_on_with_claims_and_goes_when_a_job_comes_before_it() {
        let (mut heads, pair) = (Heads::default(), (1, 1));
        let claimed = vec![(pair, rank(5, 5)), (pair, rank(3, 3))];
        heads.learn(&Moves { claimed, ready: vec![] });
        assert_eq!(heads.behind(pair), Some(rank(5, 5)));
        heads.learn(&Moves {
            claimed: vec![],
            ready: vec![(pair, rank(9, 9)), ((1, 2), rank(1, 1))],
        });
        assert_eq!(heads.behind(pair), Some(rank(5, 5)));
        heads.learn(&Moves { claimed: vec![(pair, rank(6, 6))], ready: vec![(pair, rank(4, 9))] });
        assert_eq!(heads.behind(pair), None);
    }
}
