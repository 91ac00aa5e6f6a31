//! I15: after a fatal error of its store, a process acknowledges nothing and starts nothing before
//! the store was reopened and verified.

use windlass_core::machine::Answer;

use super::Seen;
use crate::ledger::Ledger;

/// Checks the answers and starts of a process whose store has failed.
pub(super) fn check(_: &Ledger, seen: &Seen<'_>) -> Option<String> {
    match seen {
        Seen::Replied(replied) if replied.poisoned && acknowledges(replied.answer) => {
            Some(format!("{:?} from a store that has failed", replied.answer))
        }
        Seen::Started(started) if started.poisoned => {
            Some(format!("#{} started from a store that has failed", started.run.job.token()))
        }
        _ => None,
    }
}

fn acknowledges(answer: &Answer) -> bool {
    match answer {
        Answer::Enqueued(result) => result.is_ok(),
        Answer::EnqueuedMany(results) => results.iter().any(Result::is_ok),
        Answer::Settled(result) => result.is_ok(),
        Answer::SettledMany(results) => results.iter().any(Result::is_ok),
        Answer::LeaseExtended(result) => result.is_ok(),
        Answer::Admin(result) => result.is_ok(),
        Answer::Jobs(runs) => !runs.is_empty(),
        Answer::Refused(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use windlass_core::Receipt;
    use windlass_core::machine::{Answer, Request};

    use super::super::testing::{Scene, detail, new_job};
    use super::super::{Replied, Seen};

    #[test]
    fn an_acknowledgement_from_a_failed_store_is_caught() {
        let mut scene = Scene::new();
        scene.store(detail(1));
        let request = Request::Enqueue(new_job());
        let answer = Answer::Enqueued(Ok(Receipt::new(detail(1).job.id, false)));
        let replied = |poisoned| {
            Seen::Replied(Replied { request: &request, answer: &answer, poisoned, image: None })
        };
        assert!(scene.catches("I15", &replied(true)));
        assert!(scene.allows(&replied(false)));
    }
}
