//! I15: after a fatal error of its store, a process acknowledges nothing and starts nothing before
//! the store was opened anew and verified.

use windlass_core::machine::Answer;

use super::Seen;
use crate::ledger::Ledger;

/// Checks what leaves a process whose store has failed.
pub(super) fn check(_: &Ledger, seen: &Seen<'_>) -> Option<String> {
    match seen {
        Seen::Told(told) if told.poisoned && acknowledges(told.answer) => {
            Some(format!("{:?} from a store that has failed", told.answer))
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
    use super::super::{Seen, Told};

    #[test]
    fn an_acknowledgement_from_a_failed_store_is_caught() {
        let mut scene = Scene::new();
        scene.store(detail(1));
        let request = Request::Enqueue(new_job());
        let answer = Answer::Enqueued(Ok(Receipt::new(detail(1).job.id, false)));
        let told = |poisoned| {
            Seen::Told(Told { request: &request, answer: &answer, poisoned, image: None })
        };
        assert!(scene.catches("I15", &told(true)));
        assert!(scene.allows(&told(false)));
    }
}
