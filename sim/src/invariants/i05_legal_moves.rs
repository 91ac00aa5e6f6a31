//! I5: only moves that the state table allows.

use windlass_core::StateName;

use super::Seen;
use crate::ledger::{JobEvent, Ledger, Story, VerdictKind};

/// Checks each event against the table.
pub(super) fn check(_: &Ledger, seen: &Seen<'_>) -> Option<String> {
    let Seen::Commit(commit) = seen else { return None };
    commit.stories.iter().find_map(|story| {
        let illegal = story.events.iter().find(|event| !is_legal(story, event))?;
        Some(format!("#{}: {illegal:?}", story.id))
    })
}

fn is_legal(story: &Story, event: &JobEvent) -> bool {
    match event {
        JobEvent::Settled { verdict, to, .. } => match verdict {
            VerdictKind::Complete => *to == StateName::Done,
            VerdictKind::FailForGood => *to == StateName::Failed,
            VerdictKind::Snooze | VerdictKind::Release => *to == StateName::Queued,
            VerdictKind::Fail => {
                let used_up = story.before.as_ref().is_none_or(|job| !job.has_attempts_left());
                *to == if used_up { StateName::Failed } else { StateName::Queued }
            }
        },
        JobEvent::Reaped { to } => {
            let used_up = story.before.as_ref().is_none_or(|job| !job.has_attempts_left());
            *to == if used_up { StateName::Failed } else { StateName::Queued }
        }
        JobEvent::Cancelled { from } => !from.is_finished(),
        JobEvent::Replayed { from } => matches!(from, StateName::Failed | StateName::Cancelled),
        JobEvent::Removed { from } => from.is_finished(),
        JobEvent::Claimed { from, .. } => *from == Some(StateName::Queued),
        JobEvent::Unexplained { .. } => false,
        JobEvent::Enqueued
        | JobEvent::Repeated { .. }
        | JobEvent::LeaseExtended { .. }
        | JobEvent::CancelledAgain
        | JobEvent::Renewed
        | JobEvent::FellDue => true,
    }
}

#[cfg(test)]
mod tests {
    use windlass_core::{Epoch, StateName};

    use super::super::testing::{Scene, detail, leased};
    use crate::ledger::{JobEvent, VerdictKind};

    #[test]
    fn a_move_that_nothing_explains_is_caught() {
        let mut scene = Scene::new();
        scene.store(detail(1));
        let event = JobEvent::Unexplained { expected: None, found: None };
        assert!(scene.catches_commit("I5", scene.story(1, Some(detail(1)), vec![event])));
    }

    #[test]
    fn a_move_to_the_wrong_state_is_caught() {
        let mut scene = Scene::new();
        scene.store(leased(1, 1, 5_000));
        let settled =
            |verdict, to| JobEvent::Settled { verdict, epoch: Epoch::new(1), to, asked: None };
        for event in [
            settled(VerdictKind::Complete, StateName::Failed),
            settled(VerdictKind::Release, StateName::Done),
            settled(VerdictKind::Fail, StateName::Failed),
            JobEvent::Removed { from: StateName::Processing },
            JobEvent::Replayed { from: StateName::Done },
            JobEvent::Cancelled { from: StateName::Failed },
            JobEvent::Reaped { to: StateName::Failed },
        ] {
            let story = scene.story(1, Some(detail(1)), vec![event.clone()]);
            assert!(scene.breaks("I5", story), "{event:?}");
        }
    }
}
