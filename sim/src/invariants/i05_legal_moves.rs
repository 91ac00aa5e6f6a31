//! I5: only legal moves, as in the table of states.

use windlass_core::StateName;

use super::Seen;
use crate::ledger::{Deed, Ledger, Said, Story};

/// Checks each deed against the table.
pub(super) fn check(_: &Ledger, seen: &Seen<'_>) -> Option<String> {
    let Seen::Commit(commit) = seen else { return None };
    commit.stories.iter().find_map(|story| {
        let illegal = story.deeds.iter().find(|deed| !is_legal(story, deed))?;
        Some(format!("#{}: {illegal:?}", story.id))
    })
}

fn is_legal(story: &Story, deed: &Deed) -> bool {
    match deed {
        Deed::Settled { said, to, .. } => match said {
            Said::Complete => *to == StateName::Done,
            Said::FailForGood => *to == StateName::Failed,
            Said::Snooze | Said::Release => *to == StateName::Queued,
            Said::Fail => {
                let spent = story.before.as_ref().is_none_or(|job| !job.has_attempts_left());
                *to == if spent { StateName::Failed } else { StateName::Queued }
            }
        },
        Deed::Reaped { to } => {
            let spent = story.before.as_ref().is_none_or(|job| !job.has_attempts_left());
            *to == if spent { StateName::Failed } else { StateName::Queued }
        }
        Deed::Cancelled { from } => !from.is_finished(),
        Deed::Replayed { from } => matches!(from, StateName::Failed | StateName::Cancelled),
        Deed::Removed { from } => from.is_finished(),
        Deed::Claimed { from, .. } => *from == Some(StateName::Queued),
        Deed::Unexplained { .. } => false,
        Deed::Enqueued
        | Deed::Repeated { .. }
        | Deed::LeaseExtended { .. }
        | Deed::CancelledAgain
        | Deed::Renewed
        | Deed::FellDue => true,
    }
}

#[cfg(test)]
mod tests {
    use windlass_core::{Epoch, StateName};

    use super::super::testing::{Scene, detail, leased};
    use crate::ledger::{Deed, Said};

    #[test]
    fn a_move_that_nothing_explains_is_caught() {
        let mut scene = Scene::new();
        scene.store(detail(1));
        let deed = Deed::Unexplained { expected: None, found: None };
        assert!(scene.catches_commit("I5", scene.story(1, Some(detail(1)), vec![deed])));
    }

    #[test]
    fn a_move_to_the_wrong_state_is_caught() {
        let mut scene = Scene::new();
        scene.store(leased(1, 1, 5_000));
        let settled = |said, to| Deed::Settled { said, epoch: Epoch::new(1), to, asked: None };
        for deed in [
            settled(Said::Complete, StateName::Failed),
            settled(Said::Release, StateName::Done),
            settled(Said::Fail, StateName::Failed),
            Deed::Removed { from: StateName::Processing },
            Deed::Replayed { from: StateName::Done },
            Deed::Cancelled { from: StateName::Failed },
            Deed::Reaped { to: StateName::Failed },
        ] {
            let story = scene.story(1, Some(detail(1)), vec![deed.clone()]);
            assert!(scene.breaks("I5", story), "{deed:?}");
        }
    }
}
