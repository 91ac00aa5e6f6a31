//! I11: a job is delivered with exactly the payload it was enqueued with.

use windlass_core::machine::{Answer, Run};

use super::Seen;
use crate::ledger::Ledger;

/// Compares payloads where they are stored, handed out and started.
pub(super) fn check(ledger: &Ledger, seen: &Seen<'_>) -> Option<String> {
    let wrong = |run: &Run| {
        let life = ledger.life(run.job.id)?;
        let (token, found, stored) = (run.job.token(), &run.payload, &life.payload);
        (found != stored).then(|| format!("#{token} runs with {found:?}, not with {stored:?}"))
    };
    match seen {
        Seen::Started(started) => wrong(started.run),
        Seen::Replied(replied) => match replied.answer {
            Answer::Jobs(runs) => runs.iter().find_map(wrong),
            _ => None,
        },
        Seen::Commit(commit) => {
            let asked = commit.batch.enqueues.iter().zip(&commit.out.enqueues);
            let mut new = asked.filter_map(|(new, result)| {
                let receipt = result.as_ref().ok().filter(|receipt| !receipt.duplicate)?;
                Some((receipt.id, &new.payload))
            });
            new.find_map(|(id, payload)| {
                let at = commit.stories.binary_search_by_key(&id, |story| story.id).ok()?;
                let found = &commit.stories[at].after.as_ref()?.payload;
                (found != payload).then(|| format!("#{id} has {found:?}, sent was {payload:?}"))
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use windlass_core::Payload;
    use windlass_core::machine::{Phase, Run};

    use super::super::testing::{Scene, leased};
    use super::super::{Seen, Started};

    #[test]
    fn a_run_with_another_payload_is_caught() {
        let mut scene = Scene::new();
        scene.store(leased(1, 1, 5_000));
        for (payload, good) in [("1", true), ("2", false)] {
            let payload = Payload::new(payload).unwrap();
            let run = Run { job: leased(1, 1, 5_000).job, payload };
            let alive = BTreeSet::new();
            let phase = Phase::Running;
            let started = Started { run: &run, phase, slots: 1, alive: &alive, poisoned: false };
            assert_eq!(!scene.catches("I11", &Seen::Started(started)), good);
        }
    }
}
