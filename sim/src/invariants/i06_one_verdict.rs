//! I6: one final verdict per job and generation.

use super::Seen;
use crate::ledger::{JobEvent, Ledger, Story};

/// Counts final verdicts per generation.
pub(super) fn check(ledger: &Ledger, seen: &Seen<'_>) -> Option<String> {
    let Seen::Commit(commit) = seen else { return None };
    commit.stories.iter().find_map(|story| {
        let most = verdicts(ledger, story);
        (most > 1).then(|| format!("#{} got {most} verdicts in one generation", story.id))
    })
}

fn verdicts(ledger: &Ledger, story: &Story) -> u32 {
    let mut count = ledger.life(story.id).map_or(0, |life| life.verdicts);
    let mut most = 0;
    for event in &story.events {
        match event {
            JobEvent::Settled { to, .. } | JobEvent::Reaped { to } if to.is_finished() => {
                count += 1;
            }
            JobEvent::Replayed { .. } => count = 0,
            _ => continue,
        }
        most = most.max(count);
    }
    most
}

#[cfg(test)]
mod tests {
    use windlass_core::{Epoch, StateName};

    use super::super::testing::{Scene, leased};
    use crate::ledger::{JobEvent, VerdictKind};

    #[test]
    fn a_second_verdict_in_one_generation_is_caught_and_one_in_the_next_is_not() {
        let mut scene = Scene::new();
        scene.store(leased(1, 2, 5_000));
        let id = leased(1, 2, 5_000).job.id;
        scene.ledger.life_mut(id).unwrap().verdicts = 1;
        let done = JobEvent::Settled {
            verdict: VerdictKind::Complete,
            epoch: Epoch::new(2),
            to: StateName::Done,
            asked: None,
        };
        let story = scene.story(1, None, vec![done.clone()]);
        assert!(scene.breaks("I6", story));
        let replayed = JobEvent::Replayed { from: StateName::Failed };
        assert!(scene.breaks_not("I6", scene.story(1, None, vec![replayed, done])));
    }
}
