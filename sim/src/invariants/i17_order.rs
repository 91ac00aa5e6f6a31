//! I17: within a queue, no job is claimed while a better-ranked one that the same demand wants
//! stays behind, unless another transaction held it, or it became ready or its queue was opened
//! only after the claim looked.

use std::collections::BTreeMap;

use windlass_core::{Kind, QueueName, Rank};

use super::Seen;
use crate::ledger::Ledger;

/// Compares the worst-ranked job of each claim with the best-ranked ones left.
pub(super) fn check(ledger: &Ledger, seen: &Seen<'_>) -> Option<String> {
    let Seen::Noted(commit) = seen else { return None };
    for (claim, claimed) in commit.batch.claims.iter().zip(&commit.out.claims) {
        let mut worst: BTreeMap<&QueueName, Rank> = BTreeMap::new();
        for leased in &claimed.jobs {
            let rank = leased.job.rank;
            let entry = worst.entry(&leased.job.queue).or_insert(rank);
            *entry = (*entry).max(rank);
        }
        worst.retain(|queue, _| !ledger.queue_was_overtaken(commit, queue));
        for (queue, worst) in worst {
            // A kind with limits of its own may have been closed when the claim looked.
            let limited = |kind: &Kind| {
                ledger.queue(queue).is_some_and(|row| row.settings.flow.kind(kind).is_some())
            };
            let kinds = |kind: &Kind| claim.demand.kinds.includes(kind) && !limited(kind);
            let mut left = ledger.ready(queue, kinds).take_while(|rank| *rank < worst);
            let seen = |rank: &Rank| {
                !ledger.was_overtaken(commit, rank.id) && !commit.skipped.contains(&rank.id)
            };
            if let Some(best) = left.find(seen) {
                return Some(format!("#{} was claimed before #{}", worst.id, best.id));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use windlass_core::Demand;
    use windlass_core::store::{ClaimFor, Claimed, Leased};

    use super::super::testing::{Scene, detail, leased};

    #[test]
    fn a_job_claimed_before_a_better_ranked_one_is_caught() {
        let mut scene = Scene::new();
        scene.store(detail(1));
        scene.store(leased(2, 1, 5_000));
        scene.batch.claims.push(ClaimFor { demand: Demand::ALL, takers: Vec::new() });
        let second = leased(2, 1, 5_000);
        let taken = Leased { taker: 0, job: second.job, payload: second.payload };
        scene.out.claims.push(Claimed { jobs: vec![taken], dry: false, cut: false });
        assert!(scene.catches_noted("I17"));
        scene.batch.claims.clear();
        scene.out.claims.clear();
        assert!(scene.allows_noted());
    }
}
