//! I22: the counters of bulk actions equal the jobs that were released: none is lost between two
//! steps, and none is counted that was not released, also if a process was killed or was late.

use windlass_core::bulk::Bulk;
use windlass_core::store::BulkRow;

use super::Seen;
use crate::ledger::Ledger;

/// Compares the counters of bulk actions with the jobs that their steps have released.
pub(super) fn check(ledger: &Ledger, seen: &Seen<'_>) -> Option<String> {
    let Seen::Image(image) = seen else { return None };
    let rows: Option<Vec<Bulk>> = image.dump.bulk.iter().map(decoded).collect();
    let Some(rows) = rows else { return Some("a bulk action cannot be read".into()) };
    let counted: u64 = rows.iter().map(|bulk| bulk.done).sum();
    // Of those that have ended, the oldest are dropped.
    let all = rows.last().is_none_or(|last| rows.len() as u64 == u64::from(last.id.0));
    let released = ledger.released;
    let agree = if all { counted == released } else { counted <= released };
    if !agree {
        return Some(format!("{released} jobs were released, but {counted} are counted"));
    }
    rows.iter().find_map(|bulk| {
        let Bulk { id, verdicts, done, .. } = bulk;
        let canary = bulk.terms.canary.filter(|canary| verdicts.released() > canary.count);
        let more = canary.is_some() || u64::from(verdicts.released()) > *done;
        more.then(|| format!("bulk {id} has a canary of more jobs than it may: {bulk:?}"))
    })
}

fn decoded(row: &BulkRow) -> Option<Bulk> {
    row.decode().ok()
}

#[cfg(test)]
mod tests {
    use windlass_core::bulk::{Action, Bulk, Target, Terms};
    use windlass_core::store::{BulkRow, Filter};
    use windlass_core::{BulkId, JobId, Wall};

    use super::super::testing::Scene;
    use super::super::{Image, Seen};

    #[test]
    fn a_release_that_is_not_counted_or_counted_twice_is_caught() {
        let mut scene = Scene::new();
        let terms = Terms {
            action: Action::Retry,
            target: Target::Filter(Filter::default()),
            by: String::new(),
            of: 0,
            most: None,
            pace: None,
            canary: None,
        };
        let mut bulk = Bulk::begin(BulkId(1), terms, Wall::new(0));
        bulk.take(&[JobId::FIRST], 0, None, Wall::new(0));
        let mut dump = scene.dump();
        dump.bulk = vec![BulkRow::of(&bulk)];
        let image = Seen::Image(Image { dump: &dump, disagreements: &[] });
        for (released, right) in [(0, false), (1, true), (2, false)] {
            scene.ledger.released = released;
            assert_eq!(scene.allows(&image), right, "{released}");
            assert_eq!(scene.catches("I22", &image), !right, "{released}");
        }
    }
}
