//! I16: once draining has begun, no batch with claims is made and no run is started; a stopped run
//! is given back only after its handler has ended.

use windlass_core::Verdict;
use windlass_core::machine::Phase;

use super::{Made, Seen};
use crate::ledger::Ledger;

/// Checks batches and starts against the phase.
pub(super) fn check(_: &Ledger, seen: &Seen<'_>) -> Option<String> {
    match seen {
        Seen::Made(made) => claims(made).or_else(|| releases(made)),
        Seen::Started(started) if started.phase != Phase::Running => {
            Some(format!("#{} started while {:?}", started.run.job.token(), started.phase))
        }
        _ => None,
    }
}

fn claims(made: &Made<'_>) -> Option<String> {
    let latched = made.phase != Phase::Running && !made.batch.claims.is_empty();
    latched.then(|| format!("a batch with claims was made while {:?}", made.phase))
}

fn releases(made: &Made<'_>) -> Option<String> {
    let given = |verdict: &Verdict| matches!(verdict, Verdict::Release);
    let mut given = made.batch.settles.iter().filter(|settle| given(&settle.verdict));
    let early = given.find(|settle| made.alive.contains(&settle.token))?;
    Some(format!("#{} is given back while its handler runs", early.token))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use windlass_core::machine::Phase;
    use windlass_core::store::{ClaimFor, Settle};
    use windlass_core::{Demand, Verdict};

    use super::super::testing::{Scene, leased};
    use super::super::{Made, Seen};

    #[test]
    fn a_claim_after_the_latch_is_caught() {
        let mut scene = Scene::new();
        scene.batch.claims.push(ClaimFor { demand: Demand::ALL, takers: Vec::new() });
        let none = BTreeSet::new();
        let made =
            |phase| Seen::Made(Made { phase, batch: &scene.batch, alive: &none, ended: &none });
        assert!(scene.allows(&made(Phase::Running)));
        assert!(scene.catches("I16", &made(Phase::Draining)));
    }

    #[test]
    fn a_run_that_is_given_back_while_its_handler_runs_is_caught() {
        let mut scene = Scene::new();
        let token = leased(1, 1, 5_000).job.token();
        scene.batch.settles.push(Settle { token, verdict: Verdict::Release });
        let (alive, none) = (BTreeSet::from([token]), BTreeSet::new());
        let phase = Phase::Forcing;
        let made = Made { phase, batch: &scene.batch, alive: &alive, ended: &none };
        assert!(scene.catches("I16", &Seen::Made(made)));
        let made = Made { phase, batch: &scene.batch, alive: &none, ended: &none };
        assert!(scene.allows(&Seen::Made(made)));
    }
}
