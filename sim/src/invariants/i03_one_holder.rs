//! I3: for one job, the times from a claim to its end or the end of its lease are disjoint.

use windlass_core::{Job, StateName};

use super::Seen;
use crate::ledger::{JobEvent, Ledger, Story};

/// Checks that a lease is given only after the one before it has ended.
pub(super) fn check(_: &Ledger, seen: &Seen<'_>) -> Option<String> {
    let Seen::Commit(commit) = seen else { return None };
    commit.stories.iter().find_map(|story| {
        let until = story.before.as_ref().and_then(Job::lease).map(|lease| lease.until);
        story.events.iter().find_map(|event| match event {
            JobEvent::Claimed { from: Some(StateName::Processing), worker, .. } => {
                Some(format!("#{} was claimed by {worker} while another holds it", story.id))
            }
            JobEvent::Reaped { .. } if until.is_some_and(|until| commit.out.now < until) => {
                let ends = until.map_or(0, windlass_core::Wall::get);
                Some(format!("#{} was reaped at {}, before {ends}", story.id, commit.out.now))
            }
            _ => holder_changed(story),
        })
    })
}

fn holder_changed(story: &Story) -> Option<String> {
    let holder = |job: &Job| Some((job.epoch, job.lease()?.worker.clone()));
    let before = story.before.as_ref().and_then(holder)?;
    let after = story.row().and_then(holder)?;
    let changed = before.0 == after.0 && before.1 != after.1;
    changed.then(|| format!("#{} went from {} to {} in one lease", story.id, before.1, after.1))
}

#[cfg(test)]
mod tests {
    use windlass_core::{Epoch, StateName};

    use super::super::testing::{Scene, leased, worker};
    use crate::ledger::JobEvent;

    #[test]
    fn a_claim_of_a_job_that_another_holds_is_caught() {
        let mut scene = Scene::new();
        scene.store(leased(1, 1, 5_000));
        let event = JobEvent::Claimed {
            epoch: Epoch::new(2),
            worker: worker("other"),
            from: Some(StateName::Processing),
        };
        assert!(scene.catches_commit("I3", scene.story(1, Some(leased(1, 2, 9_000)), vec![event])));
    }

    #[test]
    fn a_lease_reaped_before_its_end_is_caught() {
        let mut scene = Scene::new();
        scene.store(leased(1, 1, 5_000));
        let events = vec![JobEvent::Reaped { to: StateName::Queued }];
        let story = scene.story(1, Some(super::super::testing::detail(1)), events);
        assert!(scene.catches_commit("I3", story));
    }
}
