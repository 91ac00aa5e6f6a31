//! I14: no lease is taken from a holder that was heard from within its length, whatever the wall
//! clock was set to. One exception is documented: a process whose first commit comes after the
//! clock was set forward cannot know of it.

use windlass_core::Job;

use super::Seen;
use crate::clock::CLOCK_PLAY;
use crate::ledger::{Commit, Deed, Ledger, Story};

/// Compares each reaping with true time.
pub(super) fn check(ledger: &Ledger, seen: &Seen<'_>) -> Option<String> {
    let Seen::Commit(commit) = seen else { return None };
    commit.stories.iter().find_map(|story| {
        let reaped = story.deeds.iter().any(|deed| matches!(deed, Deed::Reaped { .. }));
        if reaped { healthy(ledger, commit, story) } else { None }
    })
}

fn healthy(ledger: &Ledger, commit: &Commit<'_>, story: &Story) -> Option<String> {
    let life = ledger.life(story.id)?;
    let length = story.before.as_ref().and_then(Job::lease)?.length.get();
    let silent = commit.at.saturating_sub(life.heard);
    let unaware = commit
        .stepped_forward
        .is_some_and(|stepped| stepped >= life.heard && commit.booted >= stepped);
    let early = silent + CLOCK_PLAY.get() < length && !unaware;
    early.then(|| {
        let id = story.id;
        format!("#{id} was reaped, its holder silent for {silent} ms of its {length} ms")
    })
}

#[cfg(test)]
mod tests {
    use windlass_core::StateName;

    use super::super::testing::{NOW, Scene, detail, leased};
    use crate::ledger::Deed;

    #[test]
    fn a_lease_taken_from_a_holder_just_heard_is_caught() {
        let mut scene = Scene::new();
        scene.store(leased(1, 1, NOW - 1));
        let deeds = vec![Deed::Reaped { to: StateName::Queued }];
        let story = scene.story(1, Some(detail(1)), deeds);
        scene.ledger.life_mut(story.id).unwrap().heard = scene.at - 2_000;
        assert!(scene.breaks("I14", story.clone()));
        scene.ledger.life_mut(story.id).unwrap().heard = scene.at - 30_000;
        assert!(scene.breaks_not("I14", story));
    }
}
