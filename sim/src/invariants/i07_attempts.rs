//! I7: attempts = committed claims minus give-backs, never above `1 + max_retries`; a job that has
//! used them up does not wait, nor does any hang on a dead lease while a process is well.

use windlass_core::StateName;

use super::{Calm, Seen};
use crate::ledger::{Deed, Ledger, Story};

/// Counts claims and give-backs, and compares the row.
pub(super) fn check(ledger: &Ledger, seen: &Seen<'_>) -> Option<String> {
    let commit = match seen {
        Seen::Commit(commit) => commit,
        Seen::Calm(calm) => return unreaped(ledger, *calm),
        _ => return None,
    };
    commit.stories.iter().find_map(|story| {
        let job = story.row()?;
        let counted = attempts(ledger, story);
        let most = job.max_retries.attempts();
        if i64::from(job.attempts) != counted {
            return Some(format!("#{} has {} attempts, not {counted}", story.id, job.attempts));
        }
        if job.attempts > most {
            return Some(format!("#{} has {} attempts of {most}", story.id, job.attempts));
        }
        let waits = job.state.name() == StateName::Queued && job.attempts >= most;
        waits.then(|| format!("#{} waits, but its attempts are used up", story.id))
    })
}

/// A lease that should have been taken back. One given before a clock was set, or by a clock that
/// was set back since, counts its length once more.
fn unreaped(ledger: &Ledger, calm: Calm) -> Option<String> {
    ledger.held().find_map(|(id, life)| {
        let length = life.detail.as_ref()?.job.lease()?.length.get();
        let begun = life.heard.max(calm.since);
        let late = calm.at.saturating_sub(begun + 2 * length);
        (late > calm.slack_ms).then(|| format!("#{id} was to be taken back {late} ms ago"))
    })
}

fn attempts(ledger: &Ledger, story: &Story) -> i64 {
    let life = ledger.life(story.id);
    let mut count = life.map_or(0, |life| i64::from(life.claims) - i64::from(life.given_back));
    for deed in &story.deeds {
        match deed {
            Deed::Claimed { .. } => count += 1,
            Deed::Settled { said, .. } if said.gives_back() => count -= 1,
            Deed::Replayed { .. } => count = 0,
            _ => {}
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use windlass_core::{Epoch, StateName, Wall};

    use super::super::testing::{Scene, detail, leased, worker};
    use super::super::{Calm, Seen};
    use crate::ledger::Deed;

    #[test]
    fn a_claim_that_is_not_counted_is_caught() {
        let mut scene = Scene::new();
        scene.store(detail(1));
        let claim = Deed::Claimed {
            epoch: Epoch::new(1),
            worker: worker("one"),
            from: Some(StateName::Queued),
        };
        let mut free = leased(1, 1, 5_000);
        assert!(scene.allows_commit(scene.story(1, Some(free.clone()), vec![claim.clone()])));
        free.job.attempts = 0;
        assert!(scene.catches_commit("I7", scene.story(1, Some(free), vec![claim])));
    }

    #[test]
    fn a_job_that_waits_with_its_attempts_used_up_is_caught() {
        let mut scene = Scene::new();
        scene.store(detail(1));
        let mut spent = detail(1);
        spent.job.attempts = spent.job.max_retries.attempts();
        let id = spent.job.id;
        scene.ledger.life_mut(id).unwrap().claims = spent.job.attempts;
        assert!(scene.breaks("I7", scene.story(1, Some(spent), vec![])));
    }

    #[test]
    fn a_lease_that_nobody_takes_back_is_caught() {
        let mut scene = Scene::new();
        scene.store(leased(1, 1, 5_000));
        let heard = scene.ledger.life(detail(1).job.id).unwrap().heard;
        let (since, wall, slack_ms) = (0, Wall::new(0), 1_000);
        let calm = |after| Seen::Calm(Calm { at: heard + after, since, wall, slack_ms });
        assert!(scene.allows(&calm(21_000)));
        assert!(scene.catches("I7", &calm(21_001)));
    }
}
