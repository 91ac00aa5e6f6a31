//! I23: each start is charged to the rates of its queue and kind, over all processes, crashes and
//! late commits: the state of a rate grows with every start, and never runs further ahead of the
//! clock than its burst. So every window holds at most the burst and what it earns.

use windlass_core::{Kind, QueueRow, Rate, Wall};

use super::Seen;
use crate::ledger::{Commit, JobEvent, Ledger};

/// Compares the state of each rate before and after a commit with the starts in it.
pub(super) fn check(ledger: &Ledger, seen: &Seen<'_>) -> Option<String> {
    let Seen::Commit(commit) = seen else { return None };
    commit.queues.iter().find_map(|row| {
        let flow = &row.queue.settings.flow;
        let of_kinds = flow
            .kinds
            .iter()
            .filter_map(|(kind, limits)| limits.rate.as_ref().map(|rate| (Some(kind), rate)));
        let mut rates = flow.rate.iter().map(|rate| (None, rate)).chain(of_kinds);
        rates.find_map(|(kind, rate)| charged(ledger, commit, row, (kind, rate)))
    })
}

fn charged(
    ledger: &Ledger,
    commit: &Commit<'_>,
    row: &QueueRow,
    (kind, rate): (Option<&Kind>, &Rate),
) -> Option<String> {
    let starts = starts(commit, row, kind);
    if starts == 0 {
        return None;
    }
    let name = &row.queue.name;
    let after = i128::from(row.tats.get(kind).get());
    let (per, limit) = (i128::from(rate.per.get()) * 1_000_000, i128::from(rate.limit.get()));
    let interval = (per + limit - 1) / limit;
    let (begun, ended) = (nanos(commit.out.now.minus(commit.spread)), nanos(commit.out.now));
    let burst = i128::from(rate.burst()) * interval;
    if after > ended + burst {
        return Some(format!("a rate of queue {name} ({kind:?}) is further ahead than its burst"));
    }
    // A state much further ahead than the burst was written before the clock was set back, or under
    // another rate: it counts as never used.
    let before = i128::from(ledger.tats(name).get(kind).get());
    let void = before > begun + burst + 1_000_000_000;
    let before = if void { begun } else { before.clamp(begun, begun + burst) };
    let least = before + i128::from(starts) * interval;
    (after < least).then(|| {
        format!("{starts} starts in queue {name} ({kind:?}) took its rate from {before} to {after}")
    })
}

/// Number of jobs of a queue, and of a kind in it, that a commit has claimed.
fn starts(commit: &Commit<'_>, row: &QueueRow, kind: Option<&Kind>) -> u32 {
    let counted = commit.stories.iter().filter(|story| {
        story.row().or(story.before.as_ref()).is_some_and(|job| {
            job.queue == row.queue.name && kind.is_none_or(|kind| *kind == job.kind)
        })
    });
    let claims = |event: &&JobEvent| matches!(event, JobEvent::Claimed { .. });
    let claims = counted.flat_map(|story| story.events.iter().filter(claims)).count();
    u32::try_from(claims).unwrap_or(u32::MAX)
}

fn nanos(at: Wall) -> i128 {
    i128::from(at.get()) * 1_000_000
}

#[cfg(test)]
mod tests {
    use windlass_core::{Epoch, Rate, StateName, Tat, Wall};

    use super::super::testing::{Scene, detail, leased, worker};
    use crate::ledger::JobEvent;

    #[test]
    fn a_start_that_is_not_charged_and_one_above_the_burst_are_caught() {
        let mut scene = Scene::new();
        scene.store(detail(1));
        scene.out.now = Wall::new(1_000);
        let from = Some(StateName::Queued);
        let claim = JobEvent::Claimed { epoch: Epoch::new(1), worker: worker("one"), from };
        let story = scene.story(1, Some(leased(1, 1, 5_000)), vec![claim]);
        assert!(scene.breaks_not("I23", story.clone()));
        scene.queues[0].queue.settings.flow.rate = Rate::new(10, 1_000, Some(2)).ok();
        assert!(scene.breaks("I23", story.clone()), "it is not charged");
        scene.queues[0].tats.put(None, Tat::new(1_100_000_000));
        assert!(scene.breaks_not("I23", story.clone()));
        scene.queues[0].tats.put(None, Tat::new(1_200_000_001));
        assert!(scene.breaks("I23", story), "it is ahead of its burst");
    }
}
