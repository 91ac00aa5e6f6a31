//! I20: nothing is claimed from a queue that is paused or above its concurrency limit or that of a
//! kind, and nothing is enqueued above its length limit, over all processes.

use windlass_core::{Epoch, JobId, QueueRow, StateName, View};

use super::Seen;
use crate::ledger::{Commit, JobEvent, Ledger, Life, Story};

/// Compares the counters of each queue with its limits, after a commit.
pub(super) fn check(ledger: &Ledger, seen: &Seen<'_>) -> Option<String> {
    let Seen::Noted(commit) = seen else { return None };
    let mut queues = commit.queues.iter();
    queues.find_map(|row| {
        claimed(commit, row)
            .or_else(|| of_kinds(commit, row))
            .or_else(|| enqueued(ledger, commit, row))
    })
}

/// Counts the events of a commit in one queue.
fn count(commit: &Commit<'_>, row: &QueueRow, done: impl Fn(&JobEvent) -> bool) -> u64 {
    let of_queue = commit.stories.iter().filter(|story| {
        story.row().or(story.before.as_ref()).is_some_and(|job| job.queue == row.queue.name)
    });
    of_queue.flat_map(|story| &story.events).filter(|event| done(event)).count() as u64
}

fn claimed(commit: &Commit<'_>, row: &QueueRow) -> Option<String> {
    let name = &row.queue.name;
    let limit = row.queue.settings.concurrency;
    if !row.queue.is_paused() && limit.is_none() {
        return None;
    }
    let claims = count(commit, row, |event| matches!(event, JobEvent::Claimed { .. }));
    let running = row.total().get(View::Processing);
    if claims > 0 && row.queue.is_paused() {
        return Some(format!("{claims} jobs of queue {name} were claimed while it is paused"));
    }
    let most = u64::from(limit?.get());
    (claims > 0 && running > most)
        .then(|| format!("{running} jobs of queue {name} run, not {most}"))
}

fn of_kinds(commit: &Commit<'_>, row: &QueueRow) -> Option<String> {
    row.queue.settings.flow.kinds.iter().find_map(|(kind, limits)| {
        let most = u64::from(limits.concurrency?.get());
        let counted = row.kinds.iter().find(|(counted, _)| counted == kind);
        let running = counted.map_or(0, |(_, counts)| counts.get(View::Processing));
        let of_kind = |story: &&Story| {
            let job = story.row().or(story.before.as_ref());
            job.is_some_and(|job| job.queue == row.queue.name && job.kind == *kind)
        };
        let mut events = commit.stories.iter().filter(of_kind).flat_map(|story| &story.events);
        let claimed = events.any(|event| matches!(event, JobEvent::Claimed { .. }));
        let name = &row.queue.name;
        (claimed && running > most)
            .then(|| format!("{running} jobs of kind {kind} in queue {name} run, not {most}"))
    })
}

fn enqueued(ledger: &Ledger, commit: &Commit<'_>, row: &QueueRow) -> Option<String> {
    let most = row.queue.settings.max_queued?.get();
    let new = count(commit, row, |event| matches!(event, JobEvent::Enqueued));
    // Reaping comes after enqueues in a batch, and is not limited.
    let reaped = |event: &JobEvent| matches!(event, JobEvent::Reaped { to: StateName::Queued });
    let waiting = row.total().waiting().saturating_sub(count(commit, row, reaped));
    let name = &row.queue.name;
    if new == 0 || waiting <= most {
        return None;
    }
    // Nor is what others requeued while this commit was under way: it holds no lock for that.
    let requeued = |(_, life): &(JobId, &Life)| {
        let job = life.detail.as_ref().map(|detail| &detail.job);
        life.moved > commit.seen
            && life.moved < commit.number
            && job.is_some_and(|job| {
                job.queue == *name
                    && job.state.name() == StateName::Queued
                    && job.epoch > Epoch::NEVER
            })
    };
    let waiting = waiting.saturating_sub(ledger.lives().filter(requeued).count() as u64);
    (waiting > most).then(|| format!("{waiting} jobs of queue {name} wait, not {most}"))
}

#[cfg(test)]
mod tests {
    use windlass_core::{
        Epoch, KindConcurrency, KindLimits, MaxQueued, MaxRunning, Pause, StateName,
    };

    use super::super::testing::{Scene, detail, leased, worker};
    use crate::ledger::JobEvent;

    #[test]
    fn a_claim_above_the_limit_or_of_a_paused_queue_is_caught() {
        let mut scene = Scene::new();
        scene.store(leased(1, 1, 5_000));
        scene.store(leased(2, 1, 5_000));
        let from = Some(StateName::Queued);
        let claim = JobEvent::Claimed { epoch: Epoch::new(1), worker: worker("one"), from };
        let story = scene.story(2, Some(leased(2, 1, 5_000)), vec![claim]);
        assert!(scene.noted_breaks_not("I20", story.clone()));
        scene.queues[0].queue.settings.concurrency = MaxRunning::new(1).ok();
        assert!(scene.noted_breaks("I20", story.clone()));
        scene.queues[0].queue.settings.concurrency = MaxRunning::new(2).ok();
        assert!(scene.noted_breaks_not("I20", story.clone()));
        scene.queues[0].queue.paused = Some(Pause::default());
        assert!(scene.noted_breaks("I20", story.clone()));
        scene.queues[0].queue.paused = None;
        let limits = |most| KindLimits { concurrency: KindConcurrency::new(most).ok(), rate: None };
        let kind = scene.queues[0].kinds[0].0.clone();
        scene.queues[0].queue.settings.flow.kinds = vec![(kind.clone(), limits(2))];
        assert!(scene.noted_breaks_not("I20", story.clone()));
        scene.queues[0].queue.settings.flow.kinds = vec![(kind, limits(1))];
        assert!(scene.noted_breaks("I20", story));
    }

    #[test]
    fn an_enqueue_above_the_limit_is_caught() {
        let mut scene = Scene::new();
        scene.store(detail(1));
        scene.store(detail(2));
        let story = scene.story(2, Some(detail(2)), vec![JobEvent::Enqueued]);
        scene.queues[0].queue.settings.max_queued = MaxQueued::new(2).ok();
        assert!(scene.noted_breaks_not("I20", story.clone()));
        scene.queues[0].queue.settings.max_queued = MaxQueued::new(1).ok();
        assert!(scene.noted_breaks("I20", story));
    }
}
