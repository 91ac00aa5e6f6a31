//! I4: every report that was taken carried the current epoch of a running job; epochs strictly
//! increase, across crash and replay.

use super::Seen;
use crate::ledger::{JobEvent, Ledger, Story};

/// Checks tokens against what the ledger knows to be held.
pub(super) fn check(ledger: &Ledger, seen: &Seen<'_>) -> Option<String> {
    match seen {
        Seen::Commit(commit) => commit.stories.iter().find_map(|story| breach(ledger, story)),
        Seen::Image(image) => image.dump.jobs.iter().find_map(|detail| {
            let life = ledger.life(detail.job.id)?;
            let (id, epoch) = (detail.job.id, detail.job.epoch);
            (epoch < life.epoch).then(|| format!("#{id} is back at epoch {epoch}"))
        }),
        _ => None,
    }
}

fn breach(ledger: &Ledger, story: &Story) -> Option<String> {
    let id = story.id;
    let life = ledger.life(id);
    let mut epoch = life.map_or(windlass_core::Epoch::NEVER, |life| life.epoch);
    let mut reports = life.map(|life| life.reports.clone()).unwrap_or_default();
    for event in &story.events {
        match event {
            JobEvent::Settled { verdict, epoch, .. } => reports.push((*epoch, *verdict)),
            JobEvent::Repeated { verdict, epoch } if !reports.contains(&(*epoch, *verdict)) => {
                return Some(format!(
                    "#{id}.{epoch} {verdict:?} was accepted, but does not hold the job"
                ));
            }
            JobEvent::LeaseExtended { epoch, held: false } => {
                return Some(format!("#{id}.{epoch} was accepted, but does not hold the job"));
            }
            JobEvent::Claimed { epoch: claimed, .. } => {
                if *claimed <= epoch {
                    return Some(format!("#{id} was claimed with epoch {claimed} after {epoch}"));
                }
                epoch = *claimed;
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use windlass_core::{Epoch, StateName};

    use super::super::testing::{Scene, detail, leased, worker};
    use super::super::{Image, Seen};
    use crate::ledger::{JobEvent, VerdictKind};

    #[test]
    fn a_report_of_a_token_that_holds_nothing_is_caught_unless_it_repeats_itself() {
        let mut scene = Scene::new();
        scene.store(leased(1, 2, 5_000));
        let stale = JobEvent::Repeated { verdict: VerdictKind::Complete, epoch: Epoch::new(1) };
        let story = scene.story(1, Some(leased(1, 2, 5_000)), vec![stale.clone()]);
        assert!(scene.catches_commit("I4", story.clone()));
        let id = story.id;
        let life = scene.ledger.life_mut(id).unwrap();
        life.reports.push((Epoch::new(1), VerdictKind::Complete));
        assert!(scene.allows_commit(story));
    }

    #[test]
    fn a_heartbeat_of_a_token_that_holds_nothing_is_caught() {
        let mut scene = Scene::new();
        scene.store(detail(1));
        let heartbeat = JobEvent::LeaseExtended { epoch: Epoch::new(1), held: false };
        assert!(scene.catches_commit("I4", scene.story(1, Some(detail(1)), vec![heartbeat])));
    }

    #[test]
    fn an_epoch_that_does_not_grow_is_caught_in_a_claim_and_in_an_image() {
        let mut scene = Scene::new();
        scene.store(detail(1));
        let id = detail(1).job.id;
        scene.ledger.life_mut(id).unwrap().epoch = Epoch::new(3);
        let claim = |epoch| JobEvent::Claimed {
            epoch: Epoch::new(epoch),
            worker: worker("one"),
            from: Some(StateName::Queued),
        };
        assert!(scene.catches_commit("I4", scene.story(1, Some(leased(1, 3, 9)), vec![claim(3)])));
        assert!(scene.breaks_not("I4", scene.story(1, Some(leased(1, 4, 9)), vec![claim(4)])));
        let dump = scene.dump();
        assert!(scene.catches("I4", &Seen::Image(Image { dump: &dump, disagreements: &[] })));
    }
}
