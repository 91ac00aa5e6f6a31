//! I9: counters, key tables and indexes equal those computed from the rows. Counters are compared
//! with the ledger's after each commit, the rest whenever the whole store is read.

use std::collections::BTreeMap;

use windlass_core::{Counts, Kind, QueueName};

use super::Seen;
use crate::ledger::{Commit, Ledger};

/// Compares derived data with the rows.
pub(super) fn check(ledger: &Ledger, seen: &Seen<'_>) -> Option<String> {
    match seen {
        Seen::Noted(commit) => counters(ledger, commit),
        Seen::Image(image) => image.disagreements.first().cloned(),
        _ => None,
    }
}

fn counters(ledger: &Ledger, commit: &Commit<'_>) -> Option<String> {
    let mut kept: BTreeMap<(&QueueName, &Kind), &Counts> = BTreeMap::new();
    for row in &commit.queues {
        for (kind, counts) in row.kinds.iter().filter(|(_, counts)| !counts.is_empty()) {
            kept.insert((&row.queue.name, kind), counts);
        }
    }
    let actual = ledger.counts();
    for ((queue, kind), counts) in actual {
        let kept = kept.remove(&(queue, kind));
        if kept != Some(counts) {
            return Some(format!("queue {queue} kind {kind}: rows {counts:?}, counters {kept:?}"));
        }
    }
    let (place, counts) = kept.first_key_value()?;
    Some(format!("{place:?}: no rows, counters {counts:?}"))
}

#[cfg(test)]
mod tests {
    use windlass_core::{Counted, Counts, View};

    use super::super::testing::{Scene, detail};
    use super::super::{Image, Seen};

    fn counted(view: View) -> Counted {
        Counted { view, retrying: false }
    }

    #[test]
    fn a_counter_that_is_off_by_one_is_caught() {
        let mut scene = Scene::new();
        scene.store(detail(1));
        assert!(scene.allows_noted());
        let mut counts = Counts::default();
        counts.add(counted(View::Queued));
        counts.add(counted(View::Done));
        scene.queues[0].kinds[0].1 = counts;
        assert!(scene.catches_noted("I9") || scene.catches_noted("I2"));
        let mut moved = Counts::default();
        moved.add(counted(View::Done));
        scene.queues[0].kinds[0].1 = moved;
        assert!(scene.catches_noted("I9"));
    }

    #[test]
    fn a_store_that_contradicts_itself_is_caught() {
        let scene = Scene::new();
        let disagreements = vec!["the ready keys do not match the rows".to_owned()];
        let image = Image { dump: &scene.dump(), disagreements: &disagreements };
        assert!(scene.catches("I9", &Seen::Image(image)));
    }
}
