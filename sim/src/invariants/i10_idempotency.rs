//! I10: all enqueues that share a key within its window give one job; and a message that was handed
//! to a machine stores at most one job, whatever became of its answer.

use std::collections::BTreeMap;

use windlass_core::{IdempotencyKey, JobId};

use super::Seen;
use crate::ledger::{Commit, JobEvent, Ledger};

/// Checks new jobs against the keys and the messages they came from.
pub(super) fn check(ledger: &Ledger, seen: &Seen<'_>) -> Option<String> {
    let Seen::Commit(commit) = seen else { return None };
    keys(ledger, commit).or_else(|| messages(ledger, commit))
}

fn keys(ledger: &Ledger, commit: &Commit<'_>) -> Option<String> {
    let mut new: BTreeMap<&IdempotencyKey, JobId> = BTreeMap::new();
    for (asked, result) in commit.batch.enqueues.iter().zip(&commit.out.enqueues) {
        let (Some(idempotency), Ok(receipt)) = (&asked.idempotency, result) else { continue };
        let key = &idempotency.key;
        let known = new.get(key).copied().or_else(|| Some(ledger.keys.get(key)?.job));
        if receipt.duplicate {
            if known != Some(receipt.id) {
                return Some(format!("key {key}: duplicate of #{}, not {known:?}", receipt.id));
            }
            continue;
        }
        if new.contains_key(key) || is_alive(ledger, commit, key) {
            return Some(format!("key {key}: #{} beside {known:?}", receipt.id));
        }
        new.insert(key, receipt.id);
    }
    None
}

/// Whether a key is still in use: until its job is finished, and for its window. A window that has
/// ended stays so when the wall clock is set back.
fn is_alive(ledger: &Ledger, commit: &Commit<'_>, key: &IdempotencyKey) -> bool {
    let Some(known) = ledger.keys.get(key) else { return false };
    let window = commit.batch.policy.idempotency_window;
    let story = commit.stories.iter().find(|story| story.id == known.job);
    let row = story.map_or_else(|| ledger.row(known.job), |story| story.before.as_ref());
    let settled = story.is_some_and(|story| !story.events.is_empty());
    let finished = settled || row.is_none_or(|job| job.state.name().is_finished());
    // A job that was replayed after the commit had read it was finished then.
    let finished = finished || ledger.was_overtaken(commit, known.job);
    !finished || known.created_at.plus(window) > commit.out.now.max(ledger.latest)
}

fn messages(ledger: &Ledger, commit: &Commit<'_>) -> Option<String> {
    let mut stored: BTreeMap<&str, u32> = BTreeMap::new();
    for story in commit.stories.iter().filter(|story| story.events.contains(&JobEvent::Enqueued)) {
        let payload = story.after.as_ref()?.payload.as_str();
        let sent = ledger.sent.get(payload).copied().unwrap_or_default();
        let now = stored.entry(payload).or_insert(sent.stored);
        *now += 1;
        if *now > sent.delivered {
            return Some(format!("{payload} was sent {} times, stored {now}", sent.delivered));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use windlass_core::{Fingerprint, Idempotency, IdempotencyKey, NewJob, Receipt};

    use super::super::testing::{Scene, detail, new_job};
    use crate::ledger::JobEvent;

    fn keyed() -> NewJob {
        let key = IdempotencyKey::new("k").unwrap();
        NewJob { idempotency: Some(Idempotency { key, payload: Fingerprint(1) }), ..new_job() }
    }

    fn stored(id: u64) -> windlass_core::store::JobDetail {
        let mut stored = detail(id);
        stored.job.idempotency_key = Some(IdempotencyKey::new("k").unwrap());
        stored
    }

    #[test]
    fn a_second_job_of_one_key_is_caught() {
        let mut scene = Scene::new();
        scene.store(stored(1));
        scene.batch.enqueues.push(keyed());
        scene.out.enqueues.push(Ok(Receipt::new(stored(2).job.id, false)));
        let story = scene.story(2, Some(stored(2)), vec![JobEvent::Enqueued]);
        assert!(scene.catches_commit("I10", story));
    }

    #[test]
    fn a_duplicate_of_a_job_that_was_never_stored_is_caught() {
        let mut scene = Scene::new();
        scene.batch.enqueues.push(keyed());
        scene.out.enqueues.push(Ok(Receipt::new(stored(9).job.id, true)));
        let bystander = scene.story(2, Some(detail(2)), vec![JobEvent::Enqueued]);
        assert!(scene.catches_commit("I10", bystander));
    }

    #[test]
    fn a_message_that_was_stored_twice_is_caught() {
        let mut scene = Scene::new();
        scene.store(detail(1));
        scene.ledger.sent.entry("1".into()).or_default().delivered = 1;
        let story = scene.story(2, Some(detail(2)), vec![JobEvent::Enqueued]);
        assert!(scene.catches_commit("I10", story.clone()));
        scene.ledger.sent.entry("1".into()).or_default().delivered = 2;
        assert!(scene.allows_commit(story));
    }
}
