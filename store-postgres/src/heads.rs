//! Where the ready jobs of each queue and kind begin, as far as this node knows: a claim that
//! starts there does not walk over what was claimed before.
//!
//! While an old transaction of any client keeps dead rows from being removed, each claim from the
//! very start walks over all of them. Only then are heads used, since jobs that other nodes put
//! before a head are not seen. So a head is stale once others have written, and after a claim that
//! skipped rows or found less than it wanted: the next claim starts at the start. Nodes write all
//! the time; so that full looks do not take all of it, such a look is followed by a pause of
//! [`PAUSE_FACTOR`] times as long as it took, [`LONGEST_PAUSE`] at most. A job before a head waits
//! until its end, and not at all if no full look was made for that long.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;
use windlass_core::store::Changes;
use windlass_core::{Job, Rank, View};

use crate::names::{Names, Pair};

/// Pause after a full search, as a multiple of its duration.
const PAUSE_FACTOR: u32 = 10;
/// The longest pause between full looks.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The heads of all pairs.
#[derive(Debug, Default)]
pub(crate) struct Heads {
    of: BTreeMap<Pair, Head>,
}

#[derive(Debug, Default)]
struct Head {
    /// The last rank that was claimed; `None` if claims have to start at the start.
    rank: Option<Rank>,
    /// Jobs of others may be before it.
    is_stale: bool,
    /// When claims may start at the start again.
    rests_until: Option<Instant>,
}

impl Heads {
    /// Behind which rank a claim may begin now; `None` for the start.
    pub(crate) fn behind(&self, pair: Pair, now: Instant) -> Option<Rank> {
        let head = self.of.get(&pair)?;
        let rests = head.rests_until.is_some_and(|until| now < until);
        head.rank.filter(|_| rests || !head.is_stale)
    }

    /// Others have written, or rows were skipped.
    pub(crate) fn are_stale(&mut self) {
        self.of.values_mut().for_each(|head| head.is_stale = true);
    }

    /// Takes in full looks at pairs, which took this long: the first job that was found of each.
    pub(crate) fn looked(&mut self, found: &[Look], now: Instant, took: Duration) {
        let pause = took.saturating_mul(PAUSE_FACTOR).min(LONGEST_PAUSE);
        for Look { pair, first } in found {
            let Some(head) = self.of.get_mut(pair) else { continue };
            head.is_stale = false;
            head.rests_until = Some(now + pause);
            head.rank = head.rank.filter(|rank| first.is_none_or(|first| first > *rank));
        }
    }

    /// Takes in what a batch of this node has committed.
    pub(crate) fn learn(&mut self, moves: &Moves) {
        for (pair, rank) in &moves.claimed {
            let head = self.of.entry(*pair).or_default();
            head.rank = head.rank.max(Some(*rank));
        }
        for (pair, rank) in &moves.ready {
            if let Some(head) = self.of.get_mut(pair) {
                head.rank = head.rank.filter(|head| head < rank);
            }
        }
    }
}

/// A look at the ready jobs of a pair from the start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Look {
    pub(crate) pair: Pair,
    /// The best rank that was found; `None` if there was none.
    pub(crate) first: Option<Rank>,
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

    fn claimed(heads: &mut Heads, ranks: &[Rank]) {
        let claimed = ranks.iter().map(|rank| (PAIR, *rank)).collect();
        heads.learn(&Moves { claimed, ready: vec![] });
    }

    const PAIR: Pair = (1, 1);
    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_head_moves_on_with_claims_and_goes_when_a_job_comes_before_it() {
        let (mut heads, now) = (Heads::default(), Instant::now());
        claimed(&mut heads, &[rank(5, 5), rank(3, 3)]);
        assert_eq!(heads.behind(PAIR, now), Some(rank(5, 5)));
        let ready = vec![(PAIR, rank(9, 9)), ((1, 2), rank(1, 1))];
        heads.learn(&Moves { claimed: vec![], ready });
        assert_eq!(heads.behind(PAIR, now), Some(rank(5, 5)));
        heads.learn(&Moves { claimed: vec![(PAIR, rank(6, 6))], ready: vec![(PAIR, rank(4, 9))] });
        assert_eq!(heads.behind(PAIR, now), None);
    }

    #[test]
    fn a_head_goes_when_the_last_claimed_job_is_given_back_with_its_rank() {
        let (mut heads, now) = (Heads::default(), Instant::now());
        claimed(&mut heads, &[rank(5, 5)]);
        heads.learn(&Moves { claimed: vec![], ready: vec![(PAIR, rank(5, 5))] });
        assert_eq!(heads.behind(PAIR, now), None, "claims begin behind a head");
    }

    #[test]
    fn after_others_wrote_a_claim_starts_at_the_start_but_full_looks_take_a_tenth_of_the_time() {
        let (mut heads, now) = (Heads::default(), Instant::now());
        claimed(&mut heads, &[rank(5, 5)]);
        heads.are_stale();
        assert_eq!(heads.behind(PAIR, now), None, "no full look was made lately");
        heads.looked(&[Look { pair: PAIR, first: Some(rank(6, 6)) }], now, 7 * MS);
        claimed(&mut heads, &[rank(6, 6)]);
        heads.are_stale();
        assert_eq!(heads.behind(PAIR, now + 69 * MS), Some(rank(6, 6)));
        assert_eq!(heads.behind(PAIR, now + 70 * MS), None);
        heads.looked(&[Look { pair: PAIR, first: None }], now, Duration::from_hours(1));
        heads.are_stale();
        assert_eq!(heads.behind(PAIR, now + LONGEST_PAUSE), None);
    }

    #[test]
    fn a_full_look_that_finds_a_job_before_the_head_moves_it_back() {
        let (mut heads, now) = (Heads::default(), Instant::now());
        claimed(&mut heads, &[rank(5, 5)]);
        heads.looked(&[Look { pair: PAIR, first: None }], now, MS);
        assert_eq!(heads.behind(PAIR, now), Some(rank(5, 5)), "nothing was before it");
        heads.looked(&[Look { pair: PAIR, first: Some(rank(2, 9)) }], now, MS);
        assert_eq!(heads.behind(PAIR, now), None, "the job was left");
        claimed(&mut heads, &[rank(2, 9)]);
        assert_eq!(heads.behind(PAIR, now), Some(rank(2, 9)));
    }
}
