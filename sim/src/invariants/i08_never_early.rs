//! I8: no job is claimed before it is due, and the wait before a retry is within the bounds of the
//! job's policy, which are computed here without the code of core.

use windlass_core::{Job, Millis, RetryPolicy, State, StateName, Strategy, Wall};

use super::Seen;
use crate::ledger::{JobEvent, Ledger, Story, VerdictKind};

/// Checks the instants of claims and of retries.
pub(super) fn check(_: &Ledger, seen: &Seen<'_>) -> Option<String> {
    let Seen::Commit(commit) = seen else { return None };
    let now = commit.out.now;
    let wrong = |story| early(story, now).or_else(|| backoff(story, now, commit.spread));
    commit.stories.iter().find_map(wrong)
}

fn early(story: &Story, now: Wall) -> Option<String> {
    let job = story.row()?;
    let ready = |job: &Job| matches!(job.state, State::Queued { ready: true, .. });
    let was_ready = story.before.as_ref().is_some_and(ready);
    let claimed = story.events.iter().any(|event| matches!(event, JobEvent::Claimed { .. }));
    let too_early = (claimed || ready(job)) && !was_ready && job.run_at > now;
    too_early.then(|| format!("#{} became claimable at {now}, due at {}", story.id, job.run_at))
}

fn backoff(story: &Story, now: Wall, spread: Millis) -> Option<String> {
    let (job, before) = (story.row()?, story.before.as_ref()?);
    let events = story.events.as_slice();
    let simple = events.iter().skip(1).all(|event| matches!(event, JobEvent::Claimed { .. }));
    let Some(JobEvent::Settled {
        verdict: VerdictKind::Fail, to: StateName::Queued, asked, ..
    }) = events.first()
    else {
        return None;
    };
    if !simple {
        return None;
    }
    let wait = job.run_at.get() - now.get();
    let (least, most) = match asked {
        Some(asked) => (i128::from(asked.get()), i128::from(asked.get())),
        None => bounds(&before.retry, before.attempts),
    };
    // The wait was decided with the first reading of the clock.
    let least = least - i128::from(spread.get());
    let wrong = !(least..=most).contains(&i128::from(wait));
    wrong.then(|| {
        let policy = before.retry;
        format!("#{} waits {wait} ms, not {least} to {most}: {policy:?}", story.id)
    })
}

/// The shortest and the longest wait after this many attempts, ± 1 ms.
fn bounds(policy: &RetryPolicy, attempts: u32) -> (i128, i128) {
    let micros = |length: Millis| i128::from(length.get()) * 1_000_000;
    let cap = micros(policy.cap());
    let mut base = micros(policy.initial());
    for _ in 1..attempts.max(1) {
        base = match policy.strategy() {
            Strategy::Fixed => base,
            Strategy::Linear => base + micros(policy.initial()),
            Strategy::Exponential { factor } => base * i128::from(factor) / 1_000,
        };
        base = base.min(cap);
    }
    let base = base.min(cap);
    let spread = base * i128::from(policy.jitter()) / 1_000;
    ((base - spread) / 1_000_000 - 1, (base + spread).min(cap) / 1_000_000 + 1)
}

#[cfg(test)]
mod tests {
    use windlass_core::{Epoch, StateName, Wall};

    use super::super::testing::{NOW, Scene, detail, leased, worker};
    use crate::ledger::{JobEvent, VerdictKind};

    #[test]
    fn a_claim_before_a_job_is_due_is_caught() {
        let scene = Scene::new();
        let mut early = leased(1, 1, 5_000);
        early.job.run_at = Wall::new(NOW + 1);
        let claim = JobEvent::Claimed {
            epoch: Epoch::new(1),
            worker: worker("one"),
            from: Some(StateName::Queued),
        };
        let story = scene.story(1, Some(early), vec![JobEvent::Enqueued, claim]);
        assert!(scene.catches_commit("I8", story));
    }

    #[test]
    fn a_wait_outside_the_policy_is_caught() {
        let mut scene = Scene::new();
        scene.store(leased(1, 1, 5_000));
        let fail = |asked| JobEvent::Settled {
            verdict: VerdictKind::Fail,
            epoch: Epoch::new(1),
            to: StateName::Queued,
            asked,
        };
        let mut waits = detail(1);
        (waits.job.epoch, waits.job.attempts) = (Epoch::new(1), 1);
        for (wait, good) in [(0, false), (800, true), (1_200, true), (90_000, false)] {
            waits.job.run_at = Wall::new(NOW + wait);
            waits.job.state = windlass_core::State::Queued { ready: wait == 0, last_verdict: None };
            let story = scene.story(1, Some(waits.clone()), vec![fail(None)]);
            assert_eq!(scene.breaks_not("I8", story), good, "{wait}");
        }
    }
}
