//! I2: every job created is in exactly one state or was legally removed: created = Σ states +
//! removed, by the store's own counters after each commit and by its rows whenever all are read.

use windlass_core::QueueRow;
use windlass_core::View;

use super::Seen;
use crate::ledger::{JobEvent, Ledger};

/// Checks that no job disappears and none appears without an enqueue.
pub(super) fn check(ledger: &Ledger, seen: &Seen<'_>) -> Option<String> {
    let left = ledger.created - ledger.removed;
    match seen {
        Seen::Commit(commit) => commit.stories.iter().find_map(|story| {
            let removed =
                story.events.iter().any(|event| matches!(event, JobEvent::Removed { .. }));
            let vanished = story.before.is_some() && story.after.is_none() && !removed;
            let appeared = story.before.is_none() && story.after.is_some();
            let appeared = appeared && !story.events.contains(&JobEvent::Enqueued);
            (vanished || appeared).then(|| {
                let how = if vanished { "vanished" } else { "came from nowhere" };
                format!("#{} {how}", story.id)
            })
        }),
        Seen::Noted(commit) => {
            let counted: u64 = commit.queues.iter().map(total).sum();
            (counted != left).then(|| {
                let (created, removed) = (ledger.created, ledger.removed);
                format!("{created} created, {removed} removed, but {counted} counted")
            })
        }
        Seen::Image(image) => (image.dump.jobs.len() as u64 != left).then(|| {
            let (created, removed) = (ledger.created, ledger.removed);
            format!("{created} created, {removed} removed, but {} rows", image.dump.jobs.len())
        }),
        _ => None,
    }
}

fn total(row: &QueueRow) -> u64 {
    View::ALL.iter().map(|view| row.total().get(*view)).sum()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Scene, detail};
    use super::super::{Image, Seen};
    use crate::ledger::JobEvent;

    #[test]
    fn a_job_that_vanishes_or_comes_from_nowhere_is_caught() {
        let mut scene = Scene::new();
        scene.store(detail(1));
        assert!(scene.catches_commit("I2", scene.story(1, None, vec![])));
        let new = scene.story(2, Some(detail(2)), vec![]);
        assert!(scene.catches_commit("I2", new));
        let new = scene.story(2, Some(detail(2)), vec![JobEvent::Enqueued]);
        assert!(scene.allows_commit(new));
    }

    #[test]
    fn a_row_too_many_is_caught() {
        let mut scene = Scene::new();
        scene.store(detail(1));
        let mut dump = scene.dump();
        dump.jobs.push(detail(2));
        assert!(scene.catches("I2", &Seen::Image(Image { dump: &dump, disagreements: &[] })));
    }
}
