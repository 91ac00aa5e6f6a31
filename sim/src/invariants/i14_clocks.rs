//! I14: no lease is taken from a holder whose last heartbeat is younger than its length, nor an
//! attempt ended within its timeout, whatever the wall clock was set to. One exception is
//! documented: a process cannot know of steps that none of its readings of the clock show, such as
//! those before its first commit.

use windlass_core::Wall;

use super::Seen;
use crate::clock::CLOCK_PLAY;
use crate::ledger::{Commit, JobEvent, Ledger, Story};

/// Compares each reaping with true time.
pub(super) fn check(ledger: &Ledger, seen: &Seen<'_>) -> Option<String> {
    let Seen::Commit(commit) = seen else { return None };
    commit.stories.iter().find_map(|story| {
        let reaped = story.events.iter().any(|event| matches!(event, JobEvent::Reaped { .. }));
        if reaped { healthy(ledger, commit, story) } else { None }
    })
}

fn healthy(ledger: &Ledger, commit: &Commit<'_>, story: &Story) -> Option<String> {
    let life = ledger.life(story.id)?;
    let before = story.before.as_ref()?;
    let decided = commit.decided;
    // The clock was stepped since then, so that a time seems to be over, and the process that reaps
    // could not detect the step.
    let misled = |since: u64, wall: Wall, length: u64| {
        let unaware = decided.step_seen.is_none_or(|seen| seen < since);
        unaware && decided.wall.since(wall).get() >= length
    };
    if let Some(timeout) = before.timeout.map(|timeout| timeout.millis().get()) {
        let ran = decided.at.saturating_sub(life.claimed);
        let began = before.started_at.unwrap_or(decided.wall);
        // Its attempt has timed out, with heartbeats or without.
        if ran + CLOCK_PLAY.get() >= timeout || misled(life.claimed, began, timeout) {
            return None;
        }
    }
    let length = before.lease()?.length.get();
    let silent = decided.at.saturating_sub(life.heartbeat_at);
    let early = silent + CLOCK_PLAY.get() < length
        && !misled(life.heartbeat_at, life.heartbeat_wall, length);
    early.then(|| {
        let id = story.id;
        format!("#{id} was reaped, its holder silent for {silent} ms of its {length} ms")
    })
}

#[cfg(test)]
mod tests {
    use windlass_core::{StateName, Wall};

    use super::super::testing::{NOW, Scene, detail, leased};
    use crate::ledger::{JobEvent, Story};

    /// A lease of 10 s is reaped: its last heartbeat is this old in true time, and this old by
    /// the wall clock.
    fn reaped(true_ms: u64, wall_ms: i64) -> (Scene, Story) {
        let mut scene = Scene::new();
        scene.store(leased(1, 1, NOW - 1));
        let events = vec![JobEvent::Reaped { to: StateName::Queued }];
        let story = scene.story(1, Some(detail(1)), events);
        let life = scene.ledger.life_mut(story.id).unwrap();
        (life.heartbeat_at, life.heartbeat_wall) = (scene.at - true_ms, Wall::new(NOW - wall_ms));
        (scene, story)
    }

    #[test]
    fn a_lease_taken_just_after_a_heartbeat_is_caught() {
        let (scene, story) = reaped(2_000, 2_000);
        assert!(scene.breaks("I14", story));
        let (scene, story) = reaped(30_000, 30_000);
        assert!(scene.breaks_not("I14", story));
    }

    #[test]
    fn a_step_excuses_only_a_process_that_could_not_see_it() {
        let (mut scene, story) = reaped(2_000, 12_000);
        assert!(scene.breaks_not("I14", story.clone()), "it has seen no step");
        scene.step_seen = Some(scene.at - 2_001);
        assert!(scene.breaks_not("I14", story.clone()), "it has seen one before the lease");
        scene.step_seen = Some(scene.at - 2_000);
        assert!(scene.breaks("I14", story));
    }
}
