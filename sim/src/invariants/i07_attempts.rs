//! I7: attempts = committed claims minus give-backs, never above `1 + max_retries`; a job that has
//! used them up is not queued, and expired leases are reaped while a process is well.

use windlass_core::StateName;

use super::{Seen, Steady};
use crate::ledger::{JobEvent, Ledger, Story};

/// Counts claims and give-backs, and compares the row.
pub(super) fn check(ledger: &Ledger, seen: &Seen<'_>) -> Option<String> {
    let commit = match seen {
        Seen::Commit(commit) => commit,
        Seen::Steady(steady) => return unreaped(ledger, *steady),
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

/// Finds a lease that should have been reaped. One given before a clock step, or by a clock that
/// was set back since, has its length once more. One whose commit was under way while the clock was
/// set back may last longer by the step.
fn unreaped(ledger: &Ledger, steady: Steady) -> Option<String> {
    ledger.held().filter(|(_, life)| !life.set_back_in_flight).find_map(|(id, life)| {
        let length = life.detail.as_ref()?.job.lease()?.length.get();
        let begun = life.heartbeat_at.max(steady.since);
        let late = steady.at.saturating_sub(begun + 2 * length);
        (late > steady.slack_ms).then(|| format!("#{id} was to be taken back {late} ms ago"))
    })
}

fn attempts(ledger: &Ledger, story: &Story) -> i64 {
    let life = ledger.life(story.id);
    let mut count = life.map_or(0, |life| i64::from(life.claims) - i64::from(life.given_back));
    for event in &story.events {
        match event {
            JobEvent::Claimed { .. } => count += 1,
            JobEvent::Settled { verdict, .. } if verdict.gives_back() => count -= 1,
            JobEvent::Replayed { .. } => count = 0,
            _ => {}
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use windlass_core::{Epoch, StateName, Wall};

    use super::super::testing::{Scene, detail, leased, worker};
    use super::super::{Seen, Steady};
    use crate::ledger::JobEvent;

    #[test]
    fn a_claim_that_is_not_counted_is_caught() {
        let mut scene = Scene::new();
        scene.store(detail(1));
        let claim = JobEvent::Claimed {
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
        let mut used_up = detail(1);
        used_up.job.attempts = used_up.job.max_retries.attempts();
        let id = used_up.job.id;
        scene.ledger.life_mut(id).unwrap().claims = used_up.job.attempts;
        assert!(scene.breaks("I7", scene.story(1, Some(used_up), vec![])));
    }

    #[test]
    fn a_lease_that_no_process_takes_back_is_caught() {
        let mut scene = Scene::new();
        scene.store(leased(1, 1, 5_000));
        let last = scene.ledger.life(detail(1).job.id).unwrap().heartbeat_at;
        let (since, wall, slack_ms) = (0, Wall::new(0), 1_000);
        let steady = |after| Seen::Steady(Steady { at: last + after, since, wall, slack_ms });
        assert!(scene.allows(&steady(21_000)));
        assert!(scene.catches("I7", &steady(21_001)));
        scene.ledger.life_mut(detail(1).job.id).unwrap().set_back_in_flight = true;
        assert!(scene.allows(&steady(21_001)), "it ends by the clock as it was before the step");
    }
}
